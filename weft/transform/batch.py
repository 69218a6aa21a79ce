"""Batching: ``vmap`` runs a function of one example on all examples at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.shapes import size_of
from weft.ops.batching import batch_elementwise, move_axis
from weft.ops.op import Op
from weft.tensor.tensor import Tensor
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
    def dtype(self) -> Any:
        """Dtype of the examples."""
        return self.value.dtype

    @property
    def size(self) -> int:
        """Number of elements of one example."""
        return size_of(self.shape)

    def interpret(self, op: Op, inputs: Sequence[Tensor], attrs: dict[str, Any]) -> tuple[Batched, ...]:
        """Run op on the whole batch by its batching rule."""
        parts = [self.part_at(t) for t in inputs]
        values = [t if p is None else p.value for t, p in zip(inputs, parts, strict=True)]
        axes = [None if p is None else p.axis for p in parts]
        rule = batch_elementwise if op.accepts else op.batch or loop_over_batch
        outs, out_axes = rule(op, self.value.shape[self.axis], values, axes, attrs)
        if op.outputs == 1:
            outs, out_axes = (outs,), (out_axes,)
        return tuple(Batched(self.level, o, a) for o, a in zip(outs, out_axes, strict=True))


def loop_over_batch(
    op: Op, size: int, values: Sequence[Tensor], axes: Sequence[int | None], attrs: dict[str, Any]
) -> Any:
    """Run op for each example and stack the results: right for every op, fast for none."""
    from weft.ops.view import stack

    front = [v if a is None else move_axis(v, a, 0) for v, a in zip(values, axes, strict=True)]
    runs = [op(*[v if a is None else v[i] for v, a in zip(front, axes, strict=True)], **attrs) for i in range(size)]
    if op.outputs == 1:
        return stack(runs), 0
    return tuple(stack([run[k] for run in runs]) for k in range(op.outputs)), (0,) * op.outputs
