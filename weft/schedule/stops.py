"""Where the main function may be stopped: at the end of each iteration of a loop that may take long.

A ``while`` may go on for ever; a loop that counts takes as long as what it launches. Those that only compute
a few numbers are not asked, which would cost them more than they take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from weft.loop.index import Variable
from weft.loop.ir import Block, Host, Launch, Leave, Loop, Matmul, Statement, Wave, While
from weft.loop.walk import blocks_of, statements

if TYPE_CHECKING:
    from weft.ir.graph import Node

Nodes = Mapping["Variable | While", "Node"]

_LONG = (Launch, Wave, Host, Matmul)


def add_stops(block: Block, nodes: Nodes, failure: Callable[[Node], int]) -> None:
    """Let loops of a block, and of those inside, end when the run is asked to.

    Args:
        block: of the main function.
        nodes: that loops are of, by their variable, or the statement of a ``while``.
        failure: gives the number of the failure that it is if a node is stopped.

    >>> import weft
    >>> from weft.schedule.program import lower_graph
    >>> def halve(x):
    ...     return weft.while_loop(lambda x: x > 1.0, lambda x: x / 2.0, x)
    >>> program = lower_graph(weft.make_graph(halve)(weft.tensor(9.0)))
    >>> [failure.kind for failure in program.failures]
    ['stopped']
    """
    for s in block.statements:
        for inner in blocks_of(s):
            add_stops(inner, nodes, failure)
        if isinstance(s, Loop | While) and _is_long(s):
            node = nodes.get(s if isinstance(s, While) else s.variable)
            if node is not None:
                s.body.statements.append(Leave(failure(node)))


def _is_long(s: Loop | While) -> bool:
    if isinstance(s, While):
        return True
    return s.kind == "serial" and any(isinstance(x, _LONG) for x in statements(s.body))


def is_stop(s: Statement) -> bool:
    """Whether a statement is where a loop may be stopped."""
    return isinstance(s, Leave) and s.loop is not None


def drop_stops(found: Sequence[Statement]) -> None:
    """Let statements, and what is in them, run to their end."""
    for s in found:
        for block in blocks_of(s):
            drop_stops(block.statements)
            block.statements[:] = [inner for inner in block.statements if not is_stop(inner)]
