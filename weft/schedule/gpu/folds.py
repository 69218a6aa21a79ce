"""Folds on a GPU: many elements into one, by the threads of a block, then in shared memory.

Where the elements of a result lie side by side, neighbouring threads take them in turn; where results do,
neighbouring threads take neighbouring results. Each thread folds every n-th element, in order; what is long
and gives few results is cut into parts, for a second kernel to fold. All of this follows from the shape
alone, so sums are rounded alike in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.dtypes import bool_, int8, int64, kind, uint64
from weft.base.records import NamedTuple
from weft.base.shapes import size_of
from weft.base.sizes import Size, named_size
from weft.ir.graph import Node
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Value
from weft.ops.scalar import is_nan
from weft.schedule.arrays import Array
from weft.schedule.cpu.sorting import key_of
from weft.schedule.extents import ceil_div, identity, is_number
from weft.schedule.folding import Fold, fold_of, simplified
from weft.schedule.gpu.machine import Gpu
from weft.schedule.gpu.trees import Part, Tree
from weft.schedule.target import lowers
from weft.schedule.writer import Kernel, Numbers, Writer, over, unflattened

Read = Callable[[Kernel, tuple[Index, ...]], Value]

COUNT = named_size("own.count")  # no name of a user has a dot
_AT_ONCE = 4  # elements that a thread reads before it folds them
_ACROSS = 32  # results side by side in a block
_WORTH = 16  # elements of a thread that are worth a part of their own


class _Plan(NamedTuple):
    """How a fold is shared out.

    Attributes:
        results, count: how many results there are, and how many elements each is made of.
        along: whether the elements of a result lie side by side.
        width: threads of a result.
        beside: results of a block.
        parts, each: into how many parts elements are cut, and how many of them a part has.
    """

    results: Any
    count: Any
    along: bool
    width: int
    beside: int
    parts: int
    each: Any


def _plan(results: Any, count: Any, along: bool, machine: Gpu) -> _Plan:
    few = results if is_number(results) else machine.most_threads
    if along:
        wanted = machine.threads if isinstance(count, Size) else max(1, count // (2 * _AT_ONCE))
        width = min(1 << (wanted - 1).bit_length(), machine.threads)
        beside = max(1, min(machine.threads // width, 1 << max(few - 1, 0).bit_length()))
    else:
        beside = min(_ACROSS, 1 << max(few - 1, 0).bit_length())
        most = machine.most_threads // beside
        width = most if isinstance(count, Size) else min(most, 1 << (max(count, 1) - 1).bit_length())
    blocks = max(1, -(-few // beside))
    parts = 1
    if is_number(count) and blocks < machine.blocks:
        parts = max(1, min(machine.blocks // blocks, count // (width * _WORTH * _AT_ONCE)))
    each = ceil_div(count, parts)
    return _Plan(results, count, along, width, beside, parts, each)


def fold_array(
    writer: Writer,
    name: str,
    reads: Sequence[Array],
    shape: Sequence[Any],
    axes: Sequence[int],
    fold: Fold,
    out: Array | Sequence[Array],
    read: Read,
    *,
    key: Any = None,
    numbers: Numbers = (),
) -> None:
    """Fold what ``read`` gives at each index of a shape along axes into an array.

    Several arrays are a share each of the results, which are a row then. With a key that tells all of it,
    the kernel is written once; ``numbers`` are named sizes of this launch alone.
    """
    machine = writer.target.machine
    assert isinstance(machine, Gpu)
    kept = [i for i in range(len(shape)) if i not in axes]
    results, count = size_of(_at(shape, kept)), size_of(_at(shape, axes))
    along = bool(axes) and len(shape) - 1 in axes
    plan = _plan(results, count, along, machine)
    outs = [out] if isinstance(out, Array) else list(out)
    targets = outs if plan.parts == 1 else [writer.temporary((plan.parts, results), fold.dtype, "p")]
    if key is None or not writer.launch_again(key, [*reads, *targets], numbers):
        with writer.kernel(name, reads, targets, inline=False, key=key, numbers=numbers) as k:
            _write(k, shape, kept, list(axes), fold, plan, read)
    if plan.parts > 1:
        fold_rows(writer, targets[0], outs, fold.instruction)


def _write(
    k: Kernel, shape: Sequence[Any], kept: list[int], axes: list[int], fold: Fold, plan: _Plan, read: Read
) -> None:
    b = k.builder
    threads = plan.width * plan.beside
    blocks = ceil_div(plan.results, plan.beside)
    with b.parallel(blocks * plan.parts) as block, b.threads(threads) as t:
        part = b.remainder(block, plan.parts)
        if plan.along:
            own, beside = b.remainder(t, plan.width), b.quotient(t, plan.width)
        else:
            own, beside = b.quotient(t, plan.beside), b.remainder(t, plan.beside)
        result = b.quotient(block, plan.parts) * plan.beside + beside
        inside = None if _divides(plan.results, plan.beside) else b.lt(result, Index.of(plan.results))
        if inside is not None:
            result = b.term(b.min(result, Index.of(plan.results) - 1), plan.results)
        place = unflattened(b, result, _at(shape, kept))
        total = b.local(fold.start, fold.dtype)

        def element(number: Index) -> Value:
            index = dict(zip(kept, place, strict=True))
            index |= dict(zip(axes, unflattened(b, number, _at(shape, axes)), strict=True))
            return b.cast(read(k, tuple(index[i] for i in range(len(shape)))), fold.dtype)

        _fold_own(b, fold, plan, part, own, total, element)
        tree = Tree(b, plan.width, threads)
        (value,) = tree.combine(beside * plan.width + own, [Part(total, fold.instruction)])
        first = b.lt(own, 1) if plan.width > 1 else None
        wanted = first if inside is None else inside if first is None else b.and_(first, inside)
        if plan.parts > 1:
            (out,) = k.writes
            _store(b, out, out.at(part, result), value, wanted)
        else:
            _store_shares(k, result, place, value, wanted)


def _store(b: Builder, out: Array, at: Index, value: Value, wanted: Value | None) -> None:
    if wanted is None:
        b.store(out.buffer, at, b.cast(value, out.dtype))
        return
    with b.if_(wanted):
        b.store(out.buffer, at, b.cast(value, out.dtype))


def _store_shares(k: Kernel, result: Index, place: list[Index], value: Value, wanted: Value | None) -> None:
    """A result into the array whose share it is in."""
    b, outs = k.builder, k.writes
    if len(outs) == 1:
        _store(b, outs[0], outs[0].at(*_spread(b, outs[0], result, place)), value, wanted)
        return
    size = outs[0].size
    share = b.quotient(result, size)
    for i, out in enumerate(outs):
        mine = b.eq(share, Index.of(i))
        mine = mine if wanted is None else b.and_(wanted, mine)
        _store(b, out, out.flat(result - size * i), value, mine)


def _spread(b: Builder, out: Array, result: Index, place: list[Index]) -> Sequence[Index]:
    """The index of a result, by its shape."""
    return place if len(place) == out.ndim else unflattened(b, result, out.shape)


def _fold_own(
    b: Builder, fold: Fold, plan: _Plan, part: Index, own: Index, total: Any,
    element: Callable[[Index], Value],
) -> None:  # fmt: skip
    """Every n-th element of a part, some of them read at once."""
    step = plan.width * _AT_ONCE
    exact = _divides(plan.count, plan.parts) and _divides(plan.each, step)
    first, end = part * plan.each, Index.of(plan.count)
    if plan.parts > 1 and not exact:
        end = b.term(b.min((part + 1) * plan.each, end))
    with b.loop(ceil_div(plan.each, step)) as i:
        values = []
        for n in range(_AT_ONCE):
            number = first + i * step + (own + n * plan.width)
            if exact:
                values.append(element(number))
                continue
            # What is beyond the end reads an element that is there, and counts for nothing.
            there = b.lt(number, end)
            inside = b.term(b.min(number, Index.of(plan.count) - 1), plan.count)
            values.append(b.select(there, element(inside), b.constant(fold.start, fold.dtype)))
        b.set(total, fold(b, b.get(total), fold.tree(b, values)))


def _at(shape: Sequence[Any], axes: Sequence[int]) -> tuple[Any, ...]:
    return tuple(shape[i] for i in axes)


def _divides(size: Any, by: Any) -> bool:
    return is_number(size) and is_number(by) and size % by == 0


def fold_rows(writer: Writer, x: Array, outs: Sequence[Array], instruction: str) -> None:
    """The rows of an array, partial results of blocks, into one; each array gets a share of it."""
    fold = Fold(instruction, identity(instruction, x.dtype), x.dtype)
    shape, flat = x.shape, [out.with_shape((out.size,)) for out in outs]
    if not is_number(shape[1], 1):
        key = ("combine", x.dtype, shape, x.strides, instruction, *[(a.dtype, a.shape) for a in flat])
        fold_array(writer, "combine", [x], shape, (0,), fold, flat, _load, key=key)
        return
    # One kernel for any number of them, so that those of many arrays can be one launch.
    told = is_number(shape[0])
    count = COUNT if told else shape[0]
    row = Array(x.buffer, (count,), (1,), x.offset)
    key = ("combine", x.dtype, outs[0].dtype, instruction)
    numbers = ((str(COUNT), shape[0]),) if told else ()
    out = outs[0].with_shape(())
    fold_array(
        writer, "combine", [row], row.shape, (0,), fold, out, _load,
        key=key if told else None, numbers=numbers,
    )  # fmt: skip


def _load(k: Kernel, index: tuple[Index, ...]) -> Value:
    x = k.reads[0]
    return k.builder.load(x.buffer, x.at(*index))


# Ops that fold


@lowers(target="gpu", fold_over="axes")
def _reduce(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    (x,), (out,) = inputs, outputs
    reduce_array(writer, x, node.attrs["axes"], out, fold_of(node.op.fold, x.dtype), node.op.name)


def reduce_array(writer: Writer, x: Array, axes: Sequence[int], out: Array, fold: Fold, name: str) -> None:
    """Fold an array along axes into another, which is dense."""
    x, out, axes = simplified(x, out, axes)
    fold_array(writer, name, [x], x.shape, axes, fold, out, _load)


@lowers(target="gpu", fold_over="place")
def _place(writer: Writer, node: Node, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """By one fold where an element and its place are one number; else the extreme, then where it is."""
    (x,), (out,) = inputs, outputs
    axis = node.attrs["axis"]
    size = x.shape[axis]
    if x.dtype.itemsize <= 4 and kind(x.dtype) != "c" and is_number(size) and size < 1 << 32:
        _place_at_once(writer, node, x, out)
    else:
        _place_of_extreme(writer, node, x, out)


def _place_at_once(writer: Writer, node: Node, x: Array, out: Array) -> None:
    """The largest of numbers with the key of an element above, and below what is larger the earlier it is."""
    axis, descending = node.attrs["axis"], node.op.fold == "min"
    kept = (*x.shape[:axis], *x.shape[axis + 1 :])
    best = writer.temporary(kept, uint64, "m")

    def read(k: Kernel, index: tuple[Index, ...]) -> Value:
        b, source = k.builder, k.reads[0]
        element = b.load(source.buffer, source.at(*index))
        key = b.cast(key_of(b, element, descending), uint64)
        if kind(element.dtype) == "f" and descending:  # NaN comes first, whatever is asked for
            key = b.select(is_nan(b, element), b.constant(2**32 - 1, uint64), key)
        later = b.cast(Index.of(2**32 - 1) - index[axis], uint64)
        return b.or_(b.shl(key, 32), later)

    fold_array(writer, node.op.name, [x], x.shape, [axis], Fold("max", 0, uint64), best, read)
    with writer.kernel("place", [best], [out.with_shape(kept)]) as k:
        b, (found,), (target,) = k

        def write(*index: Index) -> None:
            low = b.and_(b.load(found.buffer, found.at(*index)), 2**32 - 1)
            place = b.sub(2**32 - 1, b.cast(low, int64))
            b.store(target.buffer, target.at(*index), b.cast(place, target.dtype))

        over(b, kept, write)


def _place_of_extreme(writer: Writer, node: Node, x: Array, out: Array) -> None:
    axis = node.attrs["axis"]
    kept = (*x.shape[:axis], *x.shape[axis + 1 :])
    fold = fold_of(node.op.fold, int8 if x.dtype == bool_ else x.dtype)
    best = writer.temporary(kept, fold.dtype, "m")
    reduce_array(writer, x, [axis], best, fold, node.op.fold)
    first = Fold("min", 2**63 - 1, int64)

    def read(k: Kernel, index: tuple[Index, ...]) -> Value:
        b, (source, extreme) = k.builder, k.reads
        element = b.load(source.buffer, source.at(*index))
        wanted = b.load(extreme.buffer, extreme.at(*index[:axis], *index[axis + 1 :]))
        hit = b.eq(b.cast(element, wanted.dtype), wanted)
        if kind(element.dtype) == "f":
            hit = b.or_(hit, is_nan(b, element))
        return b.select(hit, index[axis], Index.of(x.shape[axis]))

    fold_array(writer, node.op.name, [x, best], x.shape, [axis], first, out.with_shape(kept), read)
