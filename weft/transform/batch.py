"""Batching: data that holds all examples at once, where a function of one example runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.device import Device
from weft.base.shapes import size_of
from weft.errors import GradientError, ShapeError, WeftError
from weft.ir.types import TensorType
from weft.ops.batching import batch_elementwise, move_axis, to_front
from weft.ops.op import Op, type_of
from weft.ops.view.primitives import stack
from weft.tensor.mode import running_levels
from weft.tensor.tensor import Tensor, wrap
from weft.transform.levels import Traced


class Batched(Traced):
    """A tensor with one example along ``axis`` for each element of the batch."""

    __slots__ = ("axis", "value")

    place = "vmap"

    def __init__(self, level: int, value: Tensor, axis: int) -> None:
        self.level = level
        self.value = value
        self.axis = axis

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        shape = self.value.shape
        return shape[: self.axis] + shape[self.axis + 1 :]

    @property
    def device(self) -> Device:
        """Where the examples are."""
        return self.value.device

    @property
    def dtype(self) -> Any:
        """Dtype of the examples."""
        return self.value.dtype

    @property
    def size(self) -> int:
        """Number of elements of one example."""
        return size_of(self.shape)

    def interpret(self, op: Op, inputs: Sequence[Tensor], attrs: dict[str, Any]) -> tuple[Any, ...]:
        """Run op on the whole batch by its batching rule."""
        if self.level not in running_levels:
            raise self.escaped(op.name)
        try:
            return self._run(op, inputs, attrs)
        except WeftError:
            op.type_rule(*map(type_of, inputs), **attrs)  # raises in terms of one example if it can
            raise

    def _run(self, op: Op, inputs: Sequence[Tensor], attrs: dict[str, Any]) -> tuple[Any, ...]:
        level = self.level
        if op.accepts and (aligned := self._aligned(inputs)) is not None:
            return (Batched(level, op.on_tensors(*aligned), 0),)
        values: list[Tensor] = []
        axes: list[int | None] = []
        for t in inputs:
            data = t._data
            ours = type(data) is Batched and data.level == level
            values.append(data.value if ours else t)
            axes.append(data.axis if ours else None)
        rule = batch_elementwise if op.accepts else op.batch or loop_over_batch
        outs, out_axes = rule(op, self.value.shape[self.axis], values, axes, attrs)
        if op.outputs == 1:
            return (Batched(level, outs, out_axes),)
        return tuple(
            o._data if a is None else Batched(level, o, a) for o, a in zip(outs, out_axes, strict=True)
        )

    def _aligned(self, inputs: Sequence[Tensor]) -> list[Tensor] | None:
        """The values of an elementwise op, if they broadcast as they are: the common case, made cheap."""
        values, level = [], self.level
        rank, batched_rank = 0, -1
        for t in inputs:
            data = t._data
            if type(data) is not Batched or data.level != level:
                values.append(t)
                rank = max(rank, len(data.shape))
                continue
            value_rank = len(data.value._data.shape)
            if data.axis != 0 or batched_rank not in (-1, value_rank):
                return None
            batched_rank = value_rank
            values.append(data.value)
        return values if rank < batched_rank else None

    def lift(self, constant: Tensor) -> Tensor:
        """A constant as a tensor of the same transform, in the graph it was in."""
        value = to_front(constant, None, self.value.shape[self.axis])
        return wrap(Batched(self.level, value, 0), constant._node)

    def map(self, function: Callable[[Tensor], Tensor]) -> Batched:
        """The examples after a function that keeps their values."""
        return Batched(self.level, function(self.value), self.axis)

    def detached(self) -> Batched:
        """The examples as constants."""
        return Batched(self.level, self.value._value(), self.axis)

    def concrete(self, op: str) -> Any:
        """Raise: there is not one array but one for each example."""
        message = "needs a concrete tensor, got one inside vmap, which has a value for each example"
        hint = "use tensor operations, such as weft.where, instead of Python values"
        raise GradientError(op, message, hint=hint)


def loop_over_batch(
    op: Op, size: int, values: Sequence[Tensor], axes: Sequence[int | None], attrs: dict[str, Any]
) -> Any:
    """Run op for each example and stack the results: right for every op, fast for none."""
    front: list[Any] = [v if a is None else move_axis(v, a, 0) for v, a in zip(values, axes, strict=True)]
    if size == 0:
        return _empty_batch(op, front, axes, attrs)
    runs = []
    for i in range(size):
        result = op(*[v if a is None else v[i] for v, a in zip(front, axes, strict=True)], **attrs)
        runs.append(result if op.outputs != 1 else (result,))
    outs = tuple(_stacked(op, column) for column in zip(*runs, strict=True))
    return (outs, (0,) * len(outs)) if op.outputs != 1 else (outs[0], 0)


def _stacked(op: Op, results: Sequence[Tensor]) -> Any:
    if any(r.shape != results[0].shape for r in results):
        message = "the shape of the result must not depend on values inside vmap, got one that does"
        raise ShapeError(op.name, message)
    return stack(results)


def _empty_batch(op: Op, front: Sequence[Tensor], axes: Sequence[int | None], attrs: dict[str, Any]) -> Any:
    """The outputs for no examples, by the type rule."""
    types = [
        type_of(v) if a is None else TensorType(v.shape[1:], v.dtype)
        for v, a in zip(front, axes, strict=True)
    ]
    result = op.type_rule(*types, **attrs)
    outs = [wrap(np.zeros((0, *t.shape), t.dtype)) for t in (result if op.outputs != 1 else (result,))]
    return (tuple(outs), (0,) * len(outs)) if op.outputs != 1 else (outs[0], 0)
