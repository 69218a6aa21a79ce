"""Reductions of arrays (sum, prod, max, min, any, all, argmax, argmin), and running sums and extremes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.dtypes import DType, bool_, int8, int64, kind
from weft.base.records import NamedTuple
from weft.base.shapes import size_of
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer, Value
from weft.ops.scalar import is_nan
from weft.schedule.arrays import Array
from weft.schedule.cpu.folds import COLUMNS, FEW, Indices, Reduction
from weft.schedule.extents import block_of, ceil_div, is_number, running_dtype
from weft.schedule.folding import Fold, by_stride, fold_of, simplified
from weft.schedule.target import lowers
from weft.schedule.writer import Kernel, Writer, unflattened


@lowers(target="cpu", fold_over="axes")
def _reduce(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    (x,), (out,) = inputs, outputs
    reduce_array(writer, x, node.attrs["axes"], out, fold_of(node.op.fold, x.dtype), node.op.name)


def reduce_array(writer: Writer, x: Array, axes: Sequence[int], out: Array, fold: Fold, name: str) -> None:
    """Fold an array along axes into another, which is dense."""
    x, out, axes = simplified(x, out, axes)
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
    # The least index of a hit, so that parts may be folded in any order.
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


# Running results: parallel over the other axes, in vectors along the last of them


States = tuple[Value, ...]


class Scan(NamedTuple):
    """A recurrence along an axis.

    Attributes:
        starts: what each part of the state begins with.
        dtypes: of the parts.
        step: ``step(b, place, states, element)`` gives the new states; the last of them is the result.
        reverse: whether it goes from the end to the beginning.
    """

    starts: tuple[Any, ...]
    dtypes: tuple[DType, ...]
    step: Callable[[Builder, Index, States, Value], States]
    reverse: bool = False


@lowers(target="cpu", fold_over="prefix")
def write_running(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Running results along an axis, a line or some columns of lines by one task."""
    fold = fold_of(node.op.fold, running_dtype(inputs[0].dtype))

    def step(b: Builder, place: Index, states: States, x: Value) -> States:
        return (fold(b, states[0], b.cast(x, fold.dtype)),)

    scan = Scan((fold.start,), (fold.dtype,), step, node.attrs.get("reverse", False))
    _write_scan(writer, node.op.name, inputs[0], outputs[0], node.attrs["axis"], scan)


@lowers("cummax_index", target="cpu")
def _running_place(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """The newest place of the extreme, or of a NaN once there was one."""
    (x,) = inputs
    largest = node.attrs["largest"]
    fold = fold_of("max" if largest else "min", int8 if x.dtype == bool_ else x.dtype)

    def step(b: Builder, place: Index, states: States, x: Value) -> States:
        x = b.cast(x, fold.dtype)
        best = fold(b, states[0], x)
        hit = b.eq(x, best)
        if kind(fold.dtype) == "f":
            hit = b.or_(hit, is_nan(b, x))
        return best, b.select(hit, place, states[1])

    scan = Scan((fold.start, 0), (fold.dtype, int64), step)
    _write_scan(writer, node.op.name, x, outputs[0], node.attrs["axis"], scan)


def _write_scan(writer: Writer, name: str, x: Array, out: Array, axis: int, scan: Scan) -> None:
    last = x.ndim - 1
    # Short rows fill no vector, and then states are better held in registers.
    narrow = axis == last or (is_number(x.shape[last]) and x.shape[last] < FEW)
    with writer.kernel(name, [x], [out], inline=None if narrow else False) as k:
        if narrow:
            _scan_lines(k, axis, scan)
        else:
            _scan_rows(k, axis, scan)


def _scan_lines(k: Kernel, axis: int, scan: Scan) -> None:
    """One line after the other, its state in registers."""
    b, (x,), (out,) = k
    others = (*x.shape[:axis], *x.shape[axis + 1 :])
    with b.parallel(size_of(others)) as line:
        place = unflattened(b, line, others)
        states = [b.local(s, d) for s, d in zip(scan.starts, scan.dtypes, strict=True)]
        with b.loop(x.shape[axis]) as n:
            i = Index.of(x.shape[axis]) - 1 - n if scan.reverse else n
            whole = [*place[:axis], i, *place[axis:]]
            element = b.load(x.buffer, x.at(*whole))
            new = scan.step(b, i, tuple(b.get(s) for s in states), element)
            for state, value in zip(states, new, strict=True):
                b.set(state, value)
            b.store(out.buffer, out.at(*whole), b.cast(new[-1], out.dtype))


def _scan_rows(k: Kernel, axis: int, scan: Scan) -> None:
    """Many lines side by side, their states in rows of scratch memory."""
    b, (x,), (out,) = k
    width, others = x.shape[-1], (*x.shape[:axis], *x.shape[axis + 1 : -1])
    columns = min(COLUMNS // 4, width) if is_number(width) else COLUMNS // 4
    tasks = (*others, ceil_div(width, columns))
    rows = [b.scratch("state", dtype, columns) for dtype in scan.dtypes]
    with b.parallel(size_of(tasks)) as task:
        *place, chunk = unflattened(b, task, tasks)
        first, count = block_of(b, chunk, width, columns)
        with b.vector(count) as j:
            for row, start in zip(rows, scan.starts, strict=True):
                b.store(row, j, start)
        with b.loop(x.shape[axis]) as n:
            i = Index.of(x.shape[axis]) - 1 - n if scan.reverse else n
            with b.vector(count) as j:
                whole = [*place[:axis], i, *place[axis:], first + j]
                _advance(b, scan, rows, i, j, b.load(x.buffer, x.at(*whole)), out, out.at(*whole))


def _advance(
    b: Builder, scan: Scan, rows: Sequence[Buffer], i: Index, j: Index, x: Value, out: Array, at: Index
) -> None:
    new = scan.step(b, i, tuple(b.load(row, j) for row in rows), x)
    for row, value in zip(rows, new, strict=True):
        b.store(row, j, value)
    b.store(out.buffer, at, b.cast(new[-1], out.dtype))
