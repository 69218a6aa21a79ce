"""Reductions of arrays: sum, prod, max, min, any, all, argmax, argmin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.dtypes import bool_, int8, int64, kind
from weft.base.sizes import is_known
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Value
from weft.ops.scalar import is_nan
from weft.schedule.arrays import Array
from weft.schedule.cpu.folds import Fold, Indices, Reduction, fold_of
from weft.schedule.extents import is_number
from weft.schedule.lowerings import lowers
from weft.schedule.writer import Kernel, Writer


@lowers(target="cpu", fold_over="axes")
def _reduce(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    (x,), (out,) = inputs, outputs
    reduce_array(writer, x, node.attrs["axes"], out, fold_of(node.op.fold, x.dtype), node.op.name)


def reduce_array(writer: Writer, x: Array, axes: Sequence[int], out: Array, fold: Fold, name: str) -> None:
    """Fold an array along axes into another, which is dense."""
    kept = tuple(s for i, s in enumerate(x.shape) if i not in axes)
    x, out, axes = by_stride(x, out.with_shape(kept), axes)
    x, out, axes = merge_axes(x, out, axes)
    reduction = Reduction(x.shape, axes, fold)
    shape = reduction.partial_shape
    target = out if shape is None else writer.temporary(shape, fold.dtype, "p")
    with writer.kernel(name, [x], [target], inline=inline_of(reduction)) as k:
        reduction.write(k.builder, lambda b, i: b.load(k.reads[0].buffer, k.reads[0].at(*i)), store_in(k))
    if shape is not None:
        _combine(writer, target, out, fold, name)


def inline_of(reduction: Reduction) -> bool | None:
    """Whether the main function may hold the code: not where it needs memory of its own."""
    return False if reduction.needs_scratch else None


def _combine(writer: Writer, partials: Array, out: Array, fold: Fold, name: str) -> None:
    """The results of blocks into one."""
    reduction = Reduction(partials.shape, (0,), fold, whole=True)
    with writer.kernel(f"{name}_blocks", [partials], [out], inline=inline_of(reduction)) as k:
        reduction.write(k.builder, lambda b, i: b.load(k.reads[0].buffer, k.reads[0].at(*i)), store_in(k))


def store_in(k: Kernel) -> Any:
    """Results into the first array that a kernel writes, in its dtype."""
    (out,) = k.writes

    def write(b: Builder, index: Indices, value: Value) -> None:
        b.store(out.buffer, out.at(*index), b.cast(value, out.dtype))

    return write


def by_stride(x: Array, out: Array, axes: Sequence[int]) -> tuple[Array, Array, tuple[int, ...]]:
    """The array with axes of long strides first, the result in the same order, and where the axes are now.

    Axes along which nothing moves come first, so that vectors do not go along them.
    """
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


# Places


@lowers(target="cpu", fold_over="place")
def _place(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """The extreme first, then the first place where it is."""
    (x,), (out,) = inputs, outputs
    axis, instruction = node.attrs["axis"], node.op.fold
    kept = (*x.shape[:axis], *x.shape[axis + 1 :])
    fold = fold_of(instruction, int8 if x.dtype == bool_ else x.dtype)
    best = writer.temporary(kept, fold.dtype, "m")
    reduce_array(writer, x, [axis], best, fold, instruction)
    _find(writer, x, best, out.with_shape(kept), axis, node.op.name)


def _find(writer: Writer, x: Array, best: Array, out: Array, axis: int, name: str) -> None:
    """The first place along an axis where an array has the value of another."""
    fold = Fold("min", 2**63 - 1, int64)
    _, out, _ = by_stride(x, out, [axis])
    x, best, (axis,) = by_stride(x, best, [axis])
    size = x.shape[axis]
    kept = [i for i in range(x.ndim) if i != axis]
    reduction = Reduction(x.shape, [axis], fold)
    shape = reduction.partial_shape
    target = out if shape is None else writer.temporary(shape, int64, "p")
    with writer.kernel(name, [x, best], [target], inline=inline_of(reduction)) as k:
        source, extreme = k.reads

        def read(b: Builder, index: Indices) -> Value:
            element = b.load(source.buffer, source.at(*index))
            wanted = b.load(extreme.buffer, extreme.at(*[index[i] for i in kept]))
            hit = b.eq(b.cast(element, wanted.dtype), wanted)
            if kind(element.dtype) == "f":
                hit = b.or_(hit, is_nan(b, element))
            return b.select(hit, index[axis], Index.of(size))

        reduction.write(k.builder, read, store_in(k))
    if shape is not None:
        _combine(writer, target, out, fold, name)
