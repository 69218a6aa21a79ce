"""Reductions over axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import DEFAULT_INT, as_dtype, kind, uint64
from weft.base.shapes import normalize_axes, reduce_shape
from weft.ir.types import TensorType
from weft.ops.batching import batch_leading, shifted_axes
from weft.ops.elementwise import cast
from weft.ops.families import linear
from weft.ops.op import Sample
from weft.ops.samples import complex_array, real_array
from weft.ops.view import broadcast_to, reshape


def _reduced_type(x: TensorType, *, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    return TensorType(reduce_shape(x.shape, axes, keepdims), x.dtype)


def _reduce_samples() -> list[Sample]:
    return [
        Sample((real_array((3, 4)),), {"axes": (1,), "keepdims": False}),
        Sample((real_array((2, 3, 4)),), {"axes": (0, 2), "keepdims": True}),
        Sample((real_array(()),), {"axes": (), "keepdims": False}),
        Sample((real_array((0, 3)),), {"axes": (0,), "keepdims": False}),
        Sample((real_array((4, 3)).T,), {"axes": (0,), "keepdims": False}),
        Sample((complex_array((3, 2)),), {"axes": (0,), "keepdims": False}),
    ]


def spread(g: Any, x_type: TensorType, axes: tuple[int, ...], keepdims: bool) -> Any:
    """Repeat a reduced gradient over the axes that were reduced."""
    if not keepdims:
        g = reshape(g, shape=reduce_shape(x_type.shape, axes, keepdims=True))
    return broadcast_to(g, shape=x_type.shape)


reduce_sum = linear(
    "sum",
    type_rule=_reduced_type,
    eval=lambda x, *, axes, keepdims: np.add.reduce(x, axis=axes, keepdims=keepdims, dtype=x.dtype),
    transpose=(spread,),
    batch=batch_leading(shifted_axes),
    samples=_reduce_samples,
)


def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The sum over axes; small integers are summed in int64 or uint64.

    >>> import weft
    >>> weft.sum(weft.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    tensor([4., 6.])
    """
    if dtype is not None:
        x = cast(x, dtype=as_dtype(dtype))
    elif kind(x.dtype) in "biu":
        x = cast(x, dtype=uint64 if kind(x.dtype) == "u" else DEFAULT_INT)
    return reduce_sum(x, axes=normalize_axes("sum", axis, x.ndim), keepdims=bool(keepdims))
