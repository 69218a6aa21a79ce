"""Loops that were written for processors, shared out among threads: an iteration for each of them.

Whatever a lowering writes with a parallel loop runs on a GPU like this; what deserves better has a kernel of
its own. Where all that a parallel loop has is a loop over elements, each of these is a thread's.
"""

from __future__ import annotations

from typing import Any

from weft.base.records import replace
from weft.base.sizes import Size
from weft.loop import ir
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Block, Loop, Statement
from weft.loop.walk import blocks_of, statements
from weft.schedule.extents import ceil_div

THREADS = 128
_PURE = (ir.Scalar, ir.Load, ir.Measure)


def spread(b: Builder) -> None:
    """Share the work of a kernel out among threads, unless it is already."""
    found = b.block.statements
    if any(isinstance(s, Loop) and s.kind == "threads" for s in statements(b.block)):
        return
    before, last = list(found), None
    if found and isinstance(found[-1], Loop) and found[-1].kind == "parallel":
        before, last = found[:-1], found[-1]
    b.block = Block()
    if last is None:
        with b.parallel(1), b.threads(1):
            _put(b, before)
        return
    inner = _inner(last)
    count: Any = _extent(last) if inner is None else _extent(last) * _extent(inner)
    threads = THREADS if isinstance(count, Size) else max(1, min(THREADS, count))
    with b.parallel(ceil_div(count, threads)) as block, b.threads(threads) as t:
        number = block * threads + t
        _put(b, before)
        if isinstance(count, int) and count % threads == 0:
            _iteration(b, last, inner, number)
        else:
            with b.if_(b.lt(number, Index.of(count))):
                _iteration(b, last, inner, number)


def _extent(loop: Loop) -> Any:
    return (loop.stop - loop.start).offset


def _inner(loop: Loop) -> Loop | None:
    """The loop over elements that is all a parallel loop does, if that is so."""
    if not loop.body.statements:
        return None
    *before, last = loop.body.statements
    if not isinstance(last, Loop) or last.kind != "vector" or not (last.stop - last.start).is_fixed:
        return None
    if not all(isinstance(s, _PURE) for s in before):
        return None
    declared: set[Any] = set()
    for s in statements(last.body):
        if isinstance(s, ir.Declare):
            declared.add(s.local)
        elif isinstance(s, ir.Set | ir.Accumulate) and s.local not in declared:
            return None
    return last


def _iteration(b: Builder, loop: Loop, inner: Loop | None, number: Index) -> None:
    """One iteration of a loop, or of both."""
    if inner is None:
        _once(b, loop, number, loop.body.statements)
        return
    size = _extent(inner)
    outer = b.quotient(number, size)
    # The loops keep their variables, which the statements in them name, and run once.
    body = Block()
    with b.inside(body):
        _put(b, loop.body.statements[:-1])
        _once(b, inner, b.remainder(number, size), inner.body.statements)
    start = loop.start + outer
    b.add_statement(Loop(loop.variable, start, start + 1, body))


def _once(b: Builder, loop: Loop, number: Index, found: list[Statement]) -> None:
    start = loop.start + number
    body = Block()
    with b.inside(body):
        _put(b, found)
    b.add_statement(Loop(loop.variable, start, start + 1, body))


def _put(b: Builder, found: list[Statement]) -> None:
    """Statements as they are, but that nothing in them is in vectors."""
    for s in found:
        b.add_statement(_serial(s))


def _serial(s: Statement) -> Any:
    for block in blocks_of(s):
        block.statements[:] = [_serial(inner) for inner in block.statements]
    return replace(s, kind="serial", lanes=0) if isinstance(s, Loop) and s.kind != "serial" else s
