"""Walks through Loop IR: the blocks of a statement, the functions that are launched."""

from __future__ import annotations

from collections.abc import Iterator

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
    for s in block.statements:
        if isinstance(s, ir.Launch):
            out[s.function] = None
        elif isinstance(s, ir.Wave):
            out |= dict.fromkeys(launch.function for launch in s.launches)
        for inner in blocks_of(s):
            out |= launched_functions(inner)
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


def statements(block: Block) -> Iterator[Statement]:
    """The statements of a block and of the blocks inside it, each before what is in it.

    >>> from weft.loop.ir import Block, Leave
    >>> from weft.loop.walk import statements
    >>> [type(s).__name__ for s in statements(Block([Leave()]))]
    ['Leave']
    """
    for s in block.statements:
        yield s
        for inner in blocks_of(s):
            yield from statements(inner)


def written_buffer(statement: Statement) -> Buffer | None:
    """The buffer that a statement itself writes elements of, or None; those of launches and hosts are many.

    >>> from weft.loop.ir import Leave
    >>> from weft.loop.walk import written_buffer
    >>> written_buffer(Leave()) is None
    True
    """
    if isinstance(statement, ir.Store):
        return statement.buffer
    if isinstance(statement, ir.Copy):
        return statement.target
    return statement.c[0] if isinstance(statement, ir.Matmul) else None
