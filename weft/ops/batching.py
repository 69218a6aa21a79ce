"""Batching rules that many ops share. A rule is ``(op, size, inputs, axes, attrs) -> (output, axis)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.ops.op import Attrs, Op, Rule, Tensor


def move_axis(x: Tensor, source: int, target: int) -> Tensor:
    """x with one axis moved."""
    if source == target:
        return x
    from weft.ops.view.primitives import permute  # the ops there use the rules here

    return permute(x, axes=moved_order(x.ndim, source, target))


def moved_order(ndim: int, source: int, target: int) -> tuple[int, ...]:
    """The order of axes in which one has moved."""
    order = [i for i in range(ndim) if i != source]
    order.insert(target, source)
    return tuple(order)


def to_front(x: Tensor, axis: int | None, size: int) -> Tensor:
    """x with its batch axis first; repeated along a new first axis if it is not batched."""
    if axis is not None:
        return move_axis(x, axis, 0)
    from weft.ops.view.primitives import broadcast_to  # the ops there use the rules here

    return broadcast_to(x, shape=(size, *x.shape))


def batch_elementwise(
    op: Op, size: int, inputs: Sequence[Any], axes: Sequence[int | None], attrs: Attrs
) -> tuple[Any, Any]:
    """Put batch axes first and pad ranks after them, so that broadcasting does the rest."""
    from weft.ops.view.primitives import reshape  # the ops there use the rules here

    rank = max(x.ndim - (a is not None) for x, a in zip(inputs, axes, strict=True))
    aligned = []
    for x, axis in zip(inputs, axes, strict=True):
        if axis is None:
            aligned.append(x)
            continue
        front = move_axis(x, axis, 0)
        missing = rank + 1 - front.ndim
        shape = (size, *[1] * missing, *front.shape[1:])
        aligned.append(reshape(front, shape=shape) if missing else front)
    return op(*aligned, **attrs), 0


def batch_leading(shift: Callable[[Attrs, Sequence[Any]], Attrs] = lambda attrs, inputs: attrs) -> Rule:
    """A rule that puts the batch axis first in every input and calls the op once, with shifted attributes.

    ``shift(attrs, inputs)`` gets the attributes and the inputs without their batch axis counted in:
    it returns the attributes that mean the same one axis further right.
    """

    def rule(
        op: Op, size: int, inputs: Sequence[Any], axes: Sequence[int | None], attrs: Attrs
    ) -> tuple[Any, Any]:
        front = [to_front(x, a, size) for x, a in zip(inputs, axes, strict=True)]
        out = op(*front, **shift(attrs, front))
        return out, (0 if op.outputs == 1 else (0,) * op.outputs)

    return rule


def shifted_axes(attrs: Attrs, inputs: Sequence[Any]) -> Attrs:
    """Attributes ``axes`` or ``axis``, non-negative, moved one to the right."""
    out = dict(attrs)
    if "axes" in out:
        out["axes"] = tuple(a + 1 for a in out["axes"])
    if "axis" in out:
        out["axis"] = out["axis"] + 1
    return out
