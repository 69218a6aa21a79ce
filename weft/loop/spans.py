"""From where to where the memory of a buffer is needed, as a pair of statements of one block.

Unlike places in the text, such a pair can be told to whoever writes code: what happens before the first
statement happens whenever the buffer is used, and before any use of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from weft.loop import ir
from weft.loop.ir import Block, Buffer, Statement
from weft.loop.walk import blocks_of, own_accesses


class Span(NamedTuple):
    """The first and the last statement of a block that use a buffer, and all uses of it lie between."""

    first: Statement
    last: Statement


def find_spans(block: Block, owners: Mapping[Buffer, Buffer] = {}) -> dict[Buffer, Span]:
    """The spans of all buffers; those that share the memory of an owner are counted as it.

    The lanes of a vector loop run together, so that spans do not begin inside of one.

    >>> import numpy as np
    >>> from weft.loop.builder import Builder
    >>> from weft.loop.spans import find_spans
    >>> b = Builder()
    >>> x = b.buffer("x", np.dtype("f4"), 4)
    >>> with b.loop(4) as i:
    ...     b.store(x, i, 1.0)
    >>> [type(s).__name__ for s in find_spans(b.block)[x]]
    ['Store', 'Store']
    """
    found: dict[Buffer, Span] = {}
    begun: dict[Buffer, Statement] = {}
    for s in block.statements:
        for buffer, span in _inside(s, owners).items():
            found[buffer] = Span(begun[buffer], s) if buffer in begun else span
            begun.setdefault(buffer, s)
    return found


def _inside(s: Statement, owners: Mapping[Buffer, Buffer]) -> dict[Buffer, Span]:
    whole = Span(s, s)
    found = {owners.get(a.buffer, a.buffer): whole for a in own_accesses(s)}
    together = isinstance(s, ir.Matmul) or (isinstance(s, ir.Loop) and s.kind == "vector")
    for inner in blocks_of(s):
        for buffer, span in find_spans(inner, owners).items():
            found[buffer] = whole if together or buffer in found else span
    return found


def span_owner(buffer: Buffer, taken_over: Mapping[Buffer, Buffer]) -> Buffer:
    """The first of the buffers that hand one memory on to each other."""
    while buffer in taken_over:
        buffer = taken_over[buffer]
    return buffer
