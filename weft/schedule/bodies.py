"""What the finished body of a kernel tells.

Which parameters may be one memory, because what is read of one is read before the other is written; which
scalars nothing uses, such as the quotient of an index that was put together again; which sizes it needs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from weft.base.records import NamedTuple, field_names
from weft.base.sizes import Size
from weft.loop import ir
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Block, Buffer, Function, Loop, Statement
from weft.loop.walk import blocks_of, own_accesses


class _Visit(NamedTuple):
    """One access to a buffer inside a kernel.

    Attributes:
        number: its place in the text.
        key: of its index; None where it reaches anything.
        written: whether it writes.
        loops: around it.
    """

    number: int
    key: Any
    written: bool
    loops: tuple[Loop, ...]


def find_reuses(builder: Builder, reads: int) -> list[tuple[int, int]]:
    """Pairs of parameters (read, written) where each element is read before the other's is written."""
    visits: dict[Buffer, list[_Visit]] = {}
    _collect_visits(builder.block, (), visits, itertools.count())
    found = []
    for i, old in enumerate(builder.buffers[:reads]):
        for j, new in enumerate(builder.buffers[reads:], reads):
            same_bytes = old.dtype.itemsize == new.dtype.itemsize and old.size == new.size
            if same_bytes and _are_read_first(visits.get(old, []), visits.get(new, [])):
                found.append((i, j))
    return found


def reads_first(loop: Loop, read: Buffer, written: Buffer) -> bool:
    """Whether a loop reads each element of a buffer before it writes that of another one of its size."""
    visits: dict[Buffer, list[_Visit]] = {}
    _collect_visits(Block([loop]), (), visits, itertools.count())
    same_bytes = read.dtype.itemsize == written.dtype.itemsize and read.size == written.size
    return same_bytes and _are_read_first(visits.get(read, []), visits.get(written, []))


def _are_read_first(olds: Sequence[_Visit], news: Sequence[_Visit]) -> bool:
    """Whether each element of a buffer is read for the last time before that of another one is written."""
    # One index for all accesses: then an element's turn is the same iteration for both buffers.
    keys = {visit.key for visit in (*olds, *news)}
    if not olds or not news or len(keys) != 1 or None in keys:
        return False
    if any(x.number > y.number for x in olds for y in news if y.written):
        return False
    # A loop around both must move the index; else it comes back to an element that was overwritten.
    (key,) = keys
    variables = {v for v, _ in key[0]} if isinstance(key, tuple) else set()
    shared = {id(loop): loop for y in news for loop in y.loops if any(loop in x.loops for x in olds)}
    return all(loop.variable in variables or _runs_once(loop) for loop in shared.values())


def _runs_once(loop: Loop) -> bool:
    return (loop.start.key, loop.stop.key) == (0, 1)


def _collect_visits(
    block: Block,
    loops: tuple[Loop, ...],
    visits: dict[Buffer, list[_Visit]],
    numbers: Iterator[int],
    repeated: bool = False,
) -> None:
    """Take down the accesses in a block; in the body of a While, ``repeated``, nothing is known of them."""
    for statement in block.statements:
        for access in own_accesses(statement):
            key = None
            if isinstance(statement, ir.Load | ir.Store) and not repeated:
                key = statement.index.key
            visit = _Visit(next(numbers), key, access.written, loops)
            visits.setdefault(access.buffer, []).append(visit)
        for inner in blocks_of(statement):
            around = (*loops, statement) if isinstance(statement, Loop) else loops
            _collect_visits(inner, around, visits, numbers, repeated or isinstance(statement, ir.While))


# What a statement of a kernel names besides buffers and locals.
_OPERANDS: dict[type, Callable[[Any], Iterable[Any]]] = {
    ir.Scalar: lambda s: s.args,
    ir.Load: lambda s: (s.index, s.mask),
    ir.Get: lambda s: (),
    ir.Measure: lambda s: (),
    ir.Declare: lambda s: (s.value,),
    ir.Set: lambda s: (s.value,),
    ir.Accumulate: lambda s: (s.value,),
    ir.Store: lambda s: (s.index, s.value, s.mask),
    Loop: lambda s: (s.start, s.stop),
    ir.If: lambda s: (s.condition,),
    ir.While: lambda s: (s.condition,),
    ir.Copy: lambda s: (s.target_index, s.source_index, s.count),
    ir.Matmul: lambda s: s.indices(),
    ir.Fail: lambda s: (s.condition, *s.values),
    ir.Barrier: lambda s: (),
    ir.Leave: lambda s: (),
    ir.Allocate: lambda s: (s.count,),
    ir.Free: lambda s: (),
    ir.Bind: lambda s: (s.value,),
}


def drop_unused(block: Block) -> None:
    """Take scalars that nothing uses out of the body of a kernel.

    >>> import numpy as np
    >>> from weft.loop.builder import Builder
    >>> from weft.schedule.bodies import drop_unused
    >>> b = Builder()
    >>> x = b.buffer("x", np.dtype("f4"), 4)
    >>> with b.loop(4) as i:
    ...     _ = b.exp(b.load(x, i))
    ...     b.store(x, i, 1.0)
    >>> drop_unused(b.block)
    >>> [type(s).__name__ for s in b.block.statements[0].body.statements]
    ['Load', 'Store']
    """
    _drop(block, set())


def _drop(block: Block, used: set[Any]) -> None:
    """From the last statement to the first: nothing is used before it is computed."""
    kept: list[Statement] = []
    for s in reversed(block.statements):
        if type(s) is ir.Scalar and s not in used:
            continue
        inner = blocks_of(s)
        if len(inner) == 2:
            _drop(inner[1], used)
        for x in _OPERANDS[type(s)](s):
            if type(x) is Index:
                used.update([v.value for v in x.terms])
            else:
                used.add(x)
        if inner:
            _drop(inner[0], used)
        kept.append(s)
    if len(kept) < len(block.statements):
        block.statements[:] = reversed(kept)


def names_in_block(block: Block, buffers: Iterable[Buffer] = ()) -> set[str]:
    """The names of sizes in extents, strides and offsets of all statements, and in the sizes of buffers."""
    collector = _Collector()
    for buffer in buffers:
        collector.visit(buffer.size)
    for statement in block.statements:
        collector.visit(statement)
    return collector.found


class _Collector:
    """Collects names; what was visited is not visited again, for scalars are shared."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._seen: set[int] = set()

    def visit(self, x: Any) -> None:
        if isinstance(x, Size):
            self.found |= x.names()
        elif isinstance(x, Index):
            self._visit_index(x)
        elif isinstance(x, Function):
            self.found.update(x.sizes)
        elif isinstance(x, Block):
            for statement in x.statements:
                self.visit(statement)
        elif isinstance(x, tuple):
            for item in x:
                self.visit(item)
        elif (names := field_names(x)) and id(x) not in self._seen:
            self._seen.add(id(x))
            for name in names:
                self.visit(getattr(x, name))

    def _visit_index(self, index: Index) -> None:
        self.visit(index.offset)
        for variable, stride in index.terms.items():
            self.visit(stride)
            self.visit(variable.stop)
            if variable.value is not None:
                self.visit(variable.value)
