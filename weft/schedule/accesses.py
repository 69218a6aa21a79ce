"""Which buffers the statements of a main function read and write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from weft.loop.index import Index
from weft.loop.ir import Allocate, Buffer, Copy, Free, Host, Launch, Load, Matmul, Statement, Store, Wave
from weft.loop.walk import blocks_of as blocks_of


class Access(NamedTuple):
    """One access: the buffer, whether it is written, and where it begins (None: anywhere)."""

    buffer: Buffer
    written: bool
    start: Index | None


def accesses(statement: Statement) -> Iterator[Access]:
    """All accesses of a statement, those of the blocks in it included."""
    for block in blocks_of(statement):
        for inner in block.statements:
            yield from accesses(inner)
    yield from own_accesses(statement)


def own_accesses(statement: Statement) -> Iterator[Access]:
    """The accesses of a statement itself."""
    if isinstance(statement, Load):
        yield Access(statement.buffer, False, statement.index)
    elif isinstance(statement, Store):
        yield Access(statement.buffer, True, statement.index)
    elif isinstance(statement, Copy):
        yield Access(statement.source, False, statement.source_index)
        yield Access(statement.target, True, statement.target_index)
    elif isinstance(statement, Launch):
        for (buffer, start), parameter in zip(statement.buffers, statement.function.buffers, strict=True):
            yield Access(buffer, parameter in statement.function.written, start)
    elif isinstance(statement, Wave):
        for launch in statement.launches:
            yield from own_accesses(launch)
    elif isinstance(statement, Host):
        yield from (Access(b, False, i) for b, i in statement.inputs)
        yield from (Access(b, True, i) for b, i in statement.outputs)
    elif isinstance(statement, Matmul):
        yield Access(*statement.a[:1], False, statement.a[1])
        yield Access(*statement.b[:1], False, statement.b[1])
        yield Access(*statement.c[:1], True, statement.c[1])
    elif isinstance(statement, Allocate | Free):
        yield Access(statement.buffer, True, None)


_FIELDS = {
    Load: (("buffer", "index"),),
    Store: (("buffer", "index"),),
    Copy: (("target", "target_index"), ("source", "source_index")),
}
_set = object.__setattr__  # statements are frozen for all but the redirection of a buffer that is no more


def redirect(statement: Statement, old: Buffer, new: Buffer, start: Index) -> None:
    """Let a statement, and all in it, use another buffer, from an index on, instead of one that goes away."""
    for block in blocks_of(statement):
        for inner in block.statements:
            redirect(inner, old, new, start)

    def moved(place: tuple[Buffer, Index]) -> tuple[Buffer, Index]:
        return (new, place[1] + start) if place[0] is old else place

    for buffer, index in _FIELDS.get(type(statement), ()):
        if getattr(statement, buffer) is old:
            _set(statement, buffer, new)
            _set(statement, index, getattr(statement, index) + start)
    if isinstance(statement, Launch):
        _set(statement, "buffers", tuple(map(moved, statement.buffers)))
    elif isinstance(statement, Wave):
        for launch in statement.launches:
            redirect(launch, old, new, start)
    elif isinstance(statement, Host):
        _set(statement, "inputs", tuple(map(moved, statement.inputs)))
        _set(statement, "outputs", tuple(map(moved, statement.outputs)))
    elif isinstance(statement, Matmul):
        for name in ("a", "b", "c"):
            _set(statement, name, moved(getattr(statement, name)))
