"""Ops that say in a graph where gradients go: what ``detach`` and ``no_grad`` leave in a region.

``stop_gradient`` ends them. ``in_place_of`` is a tensor that was changed in place while nothing recorded: it
has new elements, and keeps its place in the graph, so gradients go where those of the old elements went.
``when_chosen`` is one of several tensors that a run picks from: a gradient goes there if it is the one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.base.dtypes import bool_
from weft.errors import DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.compare import logical_and
from weft.ops.families import elementwise, linear
from weft.ops.op import Op, Sample, Tensor, no_gradient
from weft.ops.samples import complex_array, real_array, reals
from weft.ops.view.primitives import broadcast_to

stop_gradient = elementwise(
    "stop_gradient",
    eval=np.positive,
    partials=no_gradient("a constant, as the program says"),
    samples=reals(1, complex=True),
    scalar=lambda e, x: x,
)

in_place_of = elementwise(
    "in_place_of",
    eval=lambda x, y: np.positive(np.broadcast_arrays(x, y)[0]),
    partials=(0, 1),
    samples=lambda: [s._replace(smooth=False) for s in reals(2)()],  # it says what gradients are
    scalar=lambda e, x, y: x,
)


def _chosen_type(x: TensorType, truth: TensorType) -> TensorType:
    if truth.dtype != bool_:
        raise DtypeError("when_chosen", f"the truth must be bool, got {truth.dtype.name}")
    if truth.shape != ():
        raise ShapeError("when_chosen", f"the truth must be one bool, got {truth}")
    return x


def _chosen_ways(rows: list[list[Tensor | bool]], truth: Tensor) -> list[tuple[Tensor | bool, bool]]:
    return [((truth if came is True else logical_and(came, truth)), False) for (came,) in rows]


def _chosen_batch(
    op: Op, size: int, inputs: Sequence[Tensor], axes: Sequence[int | None], attrs: object
) -> tuple[Tensor, int]:
    """Each example has all of its elements."""
    x, axis = inputs[0], axes[0]
    return (broadcast_to(x, shape=(size, *x.shape)), 0) if axis is None else (x, axis)


when_chosen: Op = linear(
    "when_chosen",
    type_rule=_chosen_type,
    eval=lambda x, truth: np.positive(x),
    transpose=(lambda g: g, no_gradient("a truth value")),
    ways=_chosen_ways,
    batch=_chosen_batch,
    samples=lambda: [
        Sample((real_array((3, 4)), np.asarray(True))),
        Sample((complex_array((4, 3)).T, np.asarray(False))),
        Sample((real_array((0, 3)), np.asarray(True))),
    ],
    scalar=lambda e, x, truth: x,
    over="joint",
)
