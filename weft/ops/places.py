"""Ops whose result has a size that only a run tells: where a vector holds true, and counting up to a number.

What a loop of a graph appended to a list in some of its iterations alone is picked by the first. The second
gives a number a name, so that a slice may end there: ``x[:i]`` in a loop has another length in each turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import bool_, int64
from weft.base.sizes import Size
from weft.errors import CaptureError, DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import move_axis
from weft.ops.compare import logical_not
from weft.ops.families import primitive
from weft.ops.op import Attrs, Op, Sample, no_gradient
from weft.ops.sort import argsort
from weft.ops.view.primitives import broadcast_to
from weft.ops.view.slices import slice_axis


def _type(mask: TensorType, *, trips: Any) -> TensorType:
    if mask.dtype != bool_:
        raise DtypeError("true_places", f"the mask must be bool, got {mask}")
    if mask.ndim != 1:
        raise ShapeError("true_places", f"the mask must be a vector, got {mask}")
    return TensorType((trips,), int64)


def _batch(
    op: Op, size: int, inputs: Sequence[Any], axes: Sequence[int | None], attrs: Attrs
) -> tuple[Any, Any]:
    """Sorting puts the true ones first; each example must have as many."""
    count = attrs["trips"]
    if isinstance(count, Size):
        raise CaptureError(
            "append",
            "under vmap each example must append as often, got a list that a tensor decides about",
            hint="append in every iteration, such as weft.where(condition, x, 0), and keep a mask beside it",
        )
    mask = move_axis(inputs[0], axes[0] or 0, 0)
    return slice_axis(argsort(logical_not(mask), axis=1), 1, 0, count), 0


true_places: Op = primitive(
    "true_places",
    type_rule=_type,
    eval=lambda mask, *, trips: np.asarray(mask.nonzero()[0], int64),
    vjp=no_gradient("returns indices"),
    batch=_batch,
    samples=lambda: [Sample((np.array([True, False, True, True, False]),), {"trips": 3})],
)
"""``true_places(mask, trips)``: the indices of the true elements; ``trips`` names how many there are."""


def _below_type(number: TensorType, *, trips: Any) -> TensorType:
    if number.shape != () or number.dtype != int64:
        raise ShapeError("count_below", f"the number must be one int64, got {number}")
    return TensorType((trips,), int64)


def _batch_below(
    op: Op, size: int, inputs: Sequence[Any], axes: Sequence[int | None], attrs: Attrs
) -> tuple[Any, Any]:
    count = attrs["trips"]
    if not isinstance(count, Size):  # all examples have as many
        return broadcast_to.on_tensors(np.arange(count), shape=(size, count)), 0
    raise CaptureError(
        "slice",
        "under vmap the length of a slice must be one for all examples, got one that each tells for itself",
        hint="take the whole tensor, and weft.where with a mask",
    )


count_below: Op = primitive(
    "count_below",
    type_rule=_below_type,
    eval=lambda number, *, trips: np.arange(int(number), dtype=int64),
    vjp=no_gradient("returns whole numbers"),
    batch=_batch_below,
    samples=lambda: [Sample((np.array(3, np.int64),), {"trips": 3})],
    total=True,
)
"""``count_below(number, trips)``: the numbers 0, 1, ... below a number, 0 or more, that ``trips`` names."""
