"""Walks through Loop IR: blocks of a statement, functions that are launched, buffers read and written."""

from __future__ import annotations

from collections.abc import Iterator

from weft.base.records import NamedTuple
from weft.loop import ir
from weft.loop.ir import Block, Buffer, Function, Statement

NESTED = (ir.Loop, ir.If, ir.While, ir.Matmul)  # statements that may have blocks inside


def launched_functions(block: Block) -> dict[Function, None]:
    """The functions that a block launches, each once, in order.

    >>> from weft.loop.ir import Block, Function, Launch
    >>> from weft.loop.walk import launched_functions
    >>> f = Function("f", (), (), Block())
    >>> [g.name for g in launched_functions(Block([Launch(f, ()), Launch(f, ())]))]
    ['f']
    """
    out: dict[Function, None] = {}
    for s in statements(block):
        if isinstance(s, ir.Launch):
            out[s.function] = None
        elif isinstance(s, ir.Wave):
            out |= dict.fromkeys(launch.function for launch in s.launches)
    return out


def blocks_of(statement: Statement) -> tuple[Block, ...]:
    """The blocks inside a statement.

    >>> from weft.loop.ir import Leave
    >>> from weft.loop.walk import blocks_of
    >>> blocks_of(Leave())
    ()
    """
    if not isinstance(statement, NESTED):
        return ()
    if isinstance(statement, ir.Loop):
        return (statement.body,)
    if isinstance(statement, ir.If):
        return statement.then, statement.otherwise
    if isinstance(statement, ir.Matmul):
        return () if statement.epilogue is None else (statement.epilogue.body,)
    return statement.test, statement.body


def statements(block: Block) -> list[Statement]:
    """The statements of a block and of the blocks inside it, each before what is in it.

    >>> from weft.loop.ir import Block, Leave
    >>> from weft.loop.walk import statements
    >>> [type(s).__name__ for s in statements(Block([Leave()]))]
    ['Leave']
    """
    out: list[Statement] = []
    _gather(block, out)
    return out


def _gather(block: Block, out: list[Statement]) -> None:
    for s in block.statements:  # most have no blocks, and every kernel is walked through several times
        out.append(s)
        if isinstance(s, NESTED):
            for inner in blocks_of(s):
                _gather(inner, out)


class Access(NamedTuple):
    """One access: the buffer, and whether it is written."""

    buffer: Buffer
    written: bool


def accesses(statement: Statement) -> Iterator[Access]:
    """All accesses of a statement, those of the blocks in it included."""
    for s in statements(Block([statement])):
        yield from own_accesses(s)


def own_accesses(statement: Statement) -> Iterator[Access]:
    """The accesses of a statement itself.

    A branch or a loop reads its condition where it stands, whenever that was loaded: a device looks at the
    memory itself, so that nothing else may lie there by then.
    """
    if isinstance(statement, ir.If | ir.While):
        if isinstance(statement.condition, ir.Load):
            yield Access(statement.condition.buffer, False)
    elif isinstance(statement, ir.Load):
        yield Access(statement.buffer, False)
    elif isinstance(statement, ir.Store | ir.Allocate | ir.Free):
        yield Access(statement.buffer, True)
    elif isinstance(statement, ir.Copy):
        yield from (Access(statement.source, False), Access(statement.target, True))
    elif isinstance(statement, ir.Launch):
        for (buffer, _), parameter in zip(statement.buffers, statement.function.buffers, strict=True):
            yield Access(buffer, parameter in statement.function.written)
    elif isinstance(statement, ir.Wave):
        for launch in statement.launches:
            yield from own_accesses(launch)
    elif isinstance(statement, ir.Host):
        yield from (Access(b, False) for b, _ in statement.inputs)
        yield from (Access(b, True) for b, _ in statement.outputs)
    elif isinstance(statement, ir.Matmul):
        matrices = (statement.a, statement.b, statement.c)
        yield from (Access(place[0], place is statement.c) for place in matrices)
        if statement.bias is not None:
            yield Access(statement.bias[0], False)
