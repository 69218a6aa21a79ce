"""Folds, whatever the machine: what two elements become, and axes in the order of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import DType, bool_
from weft.base.records import NamedTuple
from weft.base.sizes import is_known
from weft.loop.builder import Builder
from weft.loop.ir import Value
from weft.schedule.arrays import Array
from weft.schedule.extents import fold_dtype, identity, is_number


class Fold(NamedTuple):
    """How elements become one.

    Attributes:
        instruction: one that ``Accumulate`` takes.
        start: what nothing at all becomes.
        dtype: that it is computed in.
    """

    instruction: str
    start: float
    dtype: DType

    def __call__(self, b: Builder, x: Value, y: Value) -> Value:
        """Two elements as one."""
        out: Value = getattr(b, self.instruction)(x, y)
        return out

    def tree(self, b: Builder, values: Sequence[Value]) -> Value:
        """Several elements as one, neighbours first."""
        while len(values) > 1:
            pairs = [self(b, x, y) for x, y in zip(values[::2], values[1::2], strict=False)]
            values = [*pairs, *values[len(pairs) * 2 :]]
        return values[0]


def fold_of(instruction: str, dtype: DType) -> Fold:
    """The fold of elements of a dtype by an instruction; of truth values it is "and_" or "or_"."""
    dtype = fold_dtype(instruction, dtype)
    if dtype == bool_ or instruction in ("and_", "or_"):
        dtype = bool_
        instruction = "and_" if identity(instruction, dtype) else "or_"
    return Fold(instruction, identity(instruction, dtype), dtype)


# Axes


def simplified(x: Array, out: Array, axes: Sequence[int]) -> tuple[Array, Array, tuple[int, ...]]:
    """An array that is folded along axes, and its dense result: in the order of memory, with few axes."""
    kept = tuple(s for i, s in enumerate(x.shape) if i not in axes)
    x, out, axes = by_stride(x, out.with_shape(kept), axes)
    return merge_axes(x, out, axes)


def by_stride(x: Array, out: Array, axes: Sequence[int]) -> tuple[Array, Array, tuple[int, ...]]:
    """The array with axes of long strides first, the result in the same order, and where the axes are now.

    Axes along which nothing moves come first, so that vectors do not go along them.
    """
    # Open strides cannot be compared, so the order stays.
    if not (is_known(x.shape) and is_known(x.strides)):
        return x, out, tuple(axes)
    order = sorted(range(x.ndim), key=lambda i: (x.strides[i] != 0, -x.strides[i]))
    kept = [i for i in range(x.ndim) if i not in axes]
    moved = [kept.index(i) for i in order if i not in axes]
    return permuted(x, order), permuted(out, moved), tuple(n for n, i in enumerate(order) if i in axes)


def permuted(x: Array, order: Sequence[int]) -> Array:
    """An array with its axes in another order."""
    return Array(x.buffer, tuple(x.shape[i] for i in order), tuple(x.strides[i] for i in order), x.offset)


def merge_axes(x: Array, out: Array, axes: Sequence[int]) -> tuple[Array, Array, tuple[int, ...]]:
    """Neighbouring axes of one kind as one axis, where elements lie in order; axes of size 1 left out."""
    runs: list[tuple[Any, Any, Any, bool]] = []  # size, stride in x, stride in out, whether folded
    steps = iter(out.strides)
    for i, (size, stride) in enumerate(zip(x.shape, x.strides, strict=True)):
        folded = i in axes
        step = 0 if folded else next(steps)
        if is_number(size, 1):
            continue
        last = runs[-1] if runs else None
        if last and last[3] == folded and last[1] == size * stride and last[2] == size * step:
            runs[-1] = (last[0] * size, stride, step, folded)
        else:
            runs.append((size, stride, step, folded))
    source = Array(x.buffer, tuple(r[0] for r in runs), tuple(r[1] for r in runs), x.offset)
    kept = [r for r in runs if not r[3]]
    target = Array(out.buffer, tuple(r[0] for r in kept), tuple(r[2] for r in kept), out.offset)
    return source, target, tuple(n for n, r in enumerate(runs) if r[3])
