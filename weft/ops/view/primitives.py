"""The primitives that change shapes and axes, and those that join tensors.

Attributes are complete and normalised: no negative axes, no -1 for a size. The public functions that do
the normalising stand here for joining, else in ``axes`` and ``joining``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.public import public
from weft.base.shapes import Shape, normalize_axis, size_of
from weft.base.sizes import is_known
from weft.errors import ArgumentError, DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import batch_leading, move_axis, shifted_axes
from weft.ops.broadcast import unbroadcast
from weft.ops.factors import of_broadcast, of_join, of_order, of_reshape, where_equal
from weft.ops.families import linear
from weft.ops.op import Attrs, Op, Sample, Tensor, composite, type_of
from weft.ops.samples import call, complex_array, joined, real_array
from weft.ops.select import same_dtype
from weft.ops.view.slices import Ints, slice_axis

# Shapes and axes


def _reshape_type(x: TensorType, *, shape: Shape) -> TensorType:
    if size_of(shape) != size_of(x.shape):
        raise ShapeError(
            "reshape", f"the number of elements must stay {size_of(x.shape)}, got {x} to {shape}"
        )
    return TensorType(shape, x.dtype)


def prefixed_shape(attrs: Attrs, inputs: Sequence[Tensor]) -> Attrs:
    """An attribute ``shape`` with the batch size before it."""
    return {**attrs, "shape": (inputs[0].shape[0], *attrs["shape"])}


reshape: Op = linear(
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
    view="flat",
    factors=of_reshape,
)


# A checkpoint computes from it what was computed before: equal work on the tensor itself is not its own.
again: Op = linear(
    "again",
    type_rule=lambda x: x,
    eval=lambda x: x,
    transpose=(lambda g: g,),
    batch=batch_leading(),
    samples=joined(call((3, 4)), call(()), call((0, 3))),
    view="flat",
    factors=where_equal,
)


def inverse_axes(axes: Ints) -> Ints:
    """The order that brings axes back from another order."""
    return tuple([axes.index(i) for i in range(len(axes))])


permute: Op = linear(
    "permute",
    type_rule=lambda x, *, axes: TensorType(tuple(x.shape[a] for a in axes), x.dtype),
    eval=lambda x, *, axes: x.transpose(axes),
    transpose=(lambda g, axes: permute(g, axes=inverse_axes(axes)),),
    batch=batch_leading(lambda attrs, inputs: {"axes": (0, *shifted_axes(attrs, inputs)["axes"])}),
    samples=joined(call((2, 3, 4), axes=(2, 0, 1)), call((), axes=()), call((0, 3), axes=(1, 0))),
    view=lambda index, x, axes: [index[i] for i in inverse_axes(axes)],
    factors=of_order,
)


def _broadcast_type(x: TensorType, *, shape: Shape) -> TensorType:
    lead = len(shape) - len(x.shape)
    fits = lead >= 0 and all(s in (1, t) for s, t in zip(x.shape, shape[lead:], strict=True))
    if not fits:
        raise ShapeError("broadcast_to", f"sizes must be equal or 1, got {x} to {shape}")
    if any(is_known((s,)) and s < 0 for s in shape):  # a named size may turn out to be
        raise ShapeError("broadcast_to", f"sizes must not be negative, got {shape}")
    return TensorType(shape, x.dtype)


def _batch_broadcast(
    op: Op, size: int, inputs: Sequence[Tensor], axes: Sequence[int], attrs: Attrs
) -> tuple[Any, Any]:
    x = move_axis(inputs[0], axes[0], 0)
    missing = len(attrs["shape"]) + 1 - x.ndim
    x = reshape(x, shape=(size, *[1] * missing, *x.shape[1:]))
    return op(x, shape=(size, *attrs["shape"])), 0


def _broadcast_view(index: Sequence[Any], x: TensorType, shape: Shape) -> list[Any]:
    lead = len(shape) - x.ndim
    return [i if s == t else 0 for i, s, t in zip(index[lead:], x.shape, shape[lead:], strict=True)]


broadcast_to: Op = linear(
    "broadcast_to",
    type_rule=_broadcast_type,
    eval=lambda x, *, shape: np.broadcast_to(x, shape),
    transpose=(lambda g, x_type: unbroadcast(g, x_type.shape),),
    batch=_batch_broadcast,
    samples=joined(call((3, 1), shape=(2, 3, 4)), call((), shape=(2,)), call((1, 3), shape=(0, 3))),
    view=_broadcast_view,
    factors=of_broadcast,
)

# Joining


def _join_type(*xs: TensorType, axis: int) -> TensorType:
    if not xs:
        raise ArgumentError("concat", "at least one tensor is needed, got none")
    first = xs[0]
    for x in xs:
        if x.dtype != first.dtype:
            raise DtypeError("concat", f"dtypes must be equal, got {first.dtype.name} and {x.dtype.name}")
        pairs = enumerate(zip(x.shape, first.shape, strict=False))
        clash = next(((a, b) for i, (a, b) in pairs if i != axis and a != b), None)
        if x.ndim != first.ndim or clash is not None:
            message = f"shapes must agree but on axis {axis}, got {first} and {x}"
            raise ShapeError("concat", message, clash=clash)
    total = sum(x.shape[axis] for x in xs)
    return TensorType((*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype)


def _join_transpose(g: Tensor, xs_type: tuple[TensorType, ...], axis: int) -> list[Tensor]:
    parts, start = [], 0
    for x in xs_type:
        stop = start + x.shape[axis]
        parts.append(slice_axis(g, axis, start, stop))
        start = stop
    return parts


join: Op = linear(
    "concat",
    type_rule=_join_type,
    eval=lambda *xs, axis: np.concatenate(xs, axis=axis),
    transpose=_join_transpose,
    samples=lambda: [
        Sample((real_array((2, 3)), real_array((1, 3), seed=1)), {"axis": 0}),
        Sample((real_array((2, 3)), real_array((4, 2), seed=1).T, real_array((2, 0))), {"axis": 1}),
        Sample((real_array((2,)),), {"axis": 0}),
        Sample((complex_array((2,)), complex_array((1,), seed=1)), {"axis": 0}),
    ],
    over="joint",
    moves=True,
    factors=of_join,
)


@public
def concat(arrays: Sequence[Tensor], /, axis: int | None = 0) -> Tensor:
    """Tensors joined along an axis that they have; with ``axis=None`` they are flattened first.

    >>> import weft
    >>> weft.concat([weft.ones((1, 2)), weft.zeros((1, 2))], axis=0)
    tensor([[1., 1.],
            [0., 0.]])
    """
    xs = _inputs("concat", arrays)
    if axis is None:
        xs, axis = [reshape(x, shape=(size_of(x.shape),)) for x in xs], 0
    for x in xs:
        if x.ndim == 0:
            raise ShapeError(
                "concat", f"tensors must have at least one axis, got {type_of(x)}", hint="use weft.stack"
            )
    index = normalize_axis("concat", axis, xs[0].ndim)
    xs = same_dtype("concat", *xs)
    return reshape(xs[0], shape=xs[0].shape) if len(xs) == 1 else join(*xs, axis=index)


cat = concat


def _inputs(op: str, arrays: Sequence[Tensor]) -> list[Tensor]:
    xs = list(arrays)
    if not xs:
        raise ArgumentError(op, "at least one tensor is needed, got none")
    for x in xs:
        if not hasattr(x, "dtype"):
            message = f"takes a sequence of tensors, got one that holds {type(x).__name__}"
            raise ArgumentError(op, message, hint="make each one with weft.tensor(...)")
    return xs


def _stack_samples() -> list[Sample]:
    pair = (real_array((2, 3)), real_array((2, 3), seed=1))
    return [Sample(pair, {"axis": a}) for a in (0, 1, -1)] + [Sample((real_array(()),) * 3, {"axis": 0})]


@composite("stack", samples=_stack_samples, sampled=lambda *xs, axis: stack(xs, axis=axis))  # type: ignore[has-type]
def stack(arrays: Sequence[Tensor], /, axis: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis.

    >>> import weft
    >>> weft.stack([weft.tensor([1, 2]), weft.tensor([3, 4])], axis=1)
    tensor([[1, 3],
            [2, 4]])
    """
    xs = _inputs("stack", arrays)
    shape = xs[0].shape
    for x in xs:
        if x.shape != shape:
            raise ShapeError("stack", f"shapes must be equal, got {type_of(xs[0])} and {type_of(x)}")
    index = normalize_axis("stack", axis, len(shape) + 1)
    rows = [reshape(x, shape=(*shape[:index], 1, *shape[index:])) for x in same_dtype("stack", *xs)]
    return rows[0] if len(rows) == 1 else join(*rows, axis=index)
