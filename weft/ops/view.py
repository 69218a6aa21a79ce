"""Ops that move elements without changing them: shapes, axes, slices, concatenation."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.shapes import Shape, size_of
from weft.errors import ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import batch_leading, shifted_axes
from weft.ops.broadcast import unbroadcast
from weft.ops.families import linear
from weft.ops.op import Sample
from weft.ops.samples import real_array


def _reshape_type(x: TensorType, *, shape: Shape) -> TensorType:
    if size_of(shape) != size_of(x.shape):
        raise ShapeError("reshape", f"the number of elements must stay {size_of(x.shape)}, got {x} to {shape}")
    return TensorType(shape, x.dtype)


def prefixed_shape(attrs: dict[str, Any], inputs: Any) -> dict[str, Any]:
    """An attribute ``shape`` with the batch size before it."""
    return {**attrs, "shape": (inputs[0].shape[0], *attrs["shape"])}


reshape = linear(
    "reshape",
    type_rule=_reshape_type,
    eval=lambda x, *, shape: x.reshape(shape),
    transpose=(lambda g, x_type: reshape(g, shape=x_type.shape),),
    batch=batch_leading(prefixed_shape),
    samples=lambda: [
        Sample((real_array((3, 4)),), {"shape": (2, 6)}),
        Sample((real_array(()),), {"shape": (1, 1)}),
        Sample((real_array((0, 3)),), {"shape": (3, 0, 2)}),
        Sample((real_array((4, 3)).T,), {"shape": (12,)}),
    ],
)


def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argsort(axes))


permute = linear(
    "permute",
    type_rule=lambda x, *, axes: TensorType(tuple(x.shape[a] for a in axes), x.dtype),
    eval=lambda x, *, axes: x.transpose(axes),
    transpose=(lambda g, axes: permute(g, axes=_inverse(axes)),),
    batch=batch_leading(lambda attrs, inputs: {"axes": (0, *shifted_axes(attrs, inputs)["axes"])}),
    samples=lambda: [
        Sample((real_array((2, 3, 4)),), {"axes": (2, 0, 1)}),
        Sample((real_array(()),), {"axes": ()}),
        Sample((real_array((0, 3)),), {"axes": (1, 0)}),
    ],
)


def _broadcast_type(x: TensorType, *, shape: Shape) -> TensorType:
    lead = len(shape) - len(x.shape)
    fits = lead >= 0 and all(s in (1, t) for s, t in zip(x.shape, shape[lead:], strict=True))
    if not fits:
        raise ShapeError("broadcast_to", f"sizes must be equal or 1, got {x} to {shape}")
    return TensorType(shape, x.dtype)


def _batch_broadcast(op: Any, size: int, inputs: Any, axes: Any, attrs: Any) -> Any:
    from weft.ops.batching import move_axis

    x = move_axis(inputs[0], axes[0], 0)
    missing = len(attrs["shape"]) + 1 - x.ndim
    x = reshape(x, shape=(size, *[1] * missing, *x.shape[1:]))
    return op(x, shape=(size, *attrs["shape"])), 0


broadcast_to = linear(
    "broadcast_to",
    type_rule=_broadcast_type,
    eval=lambda x, *, shape: np.broadcast_to(x, shape),
    transpose=(lambda g, x_type: unbroadcast(g, x_type.shape),),
    batch=_batch_broadcast,
    samples=lambda: [
        Sample((real_array((3, 1)),), {"shape": (2, 3, 4)}),
        Sample((real_array(()),), {"shape": (2,)}),
        Sample((real_array((1, 3)),), {"shape": (0, 3)}),
    ],
)
