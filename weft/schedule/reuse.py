"""Which parameters of a kernel may be one memory: what is read of one is read before the other is written."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from weft.loop.builder import Builder
from weft.loop.ir import Block, Buffer, Load, Loop, Store, While
from weft.loop.walk import blocks_of, own_accesses
from weft.schedule.index_keys import index_key


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
    return (index_key(loop.start), index_key(loop.stop)) == (0, 1)


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
            if isinstance(statement, Load | Store) and not repeated:
                key = index_key(statement.index)
            visit = _Visit(next(numbers), key, access.written, loops)
            visits.setdefault(access.buffer, []).append(visit)
        for inner in blocks_of(statement):
            around = (*loops, statement) if isinstance(statement, Loop) else loops
            _collect_visits(inner, around, visits, numbers, repeated or isinstance(statement, While))
