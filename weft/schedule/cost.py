"""Estimates of how long code takes, to decide what is worth sharing among threads."""

from __future__ import annotations

from weft.loop.index import Index
from weft.loop.ir import Block, Copy, Function, Host, If, Launch, Load, Loop, Matmul, Scalar, Store, While
from weft.ops.cost import cost_of

SERIAL = 0.5  # ns a statement
LANES = 8  # statements of a vector loop that take as long as one
DYNAMIC = 64  # what an extent is taken for where it is not known


def iteration_cost(function: Function) -> float:
    """One iteration of the parallel loop of a function, in nanoseconds; all of it where it has none."""
    statements = function.body.statements
    if statements and isinstance(last := statements[-1], Loop) and last.kind == "parallel":
        return block_cost(last.body)
    return block_cost(function.body)


def block_cost(block: Block) -> float:
    """All statements of a block, in nanoseconds."""
    total = 0.0
    for s in block.statements:
        if isinstance(s, Scalar):
            total += SERIAL * cost_of(s.instruction).time
        elif isinstance(s, Load | Store):
            total += SERIAL
        elif isinstance(s, Loop):
            inner = block_cost(s.body) * _extent(s)
            total += inner / LANES if s.kind == "vector" else inner
        elif isinstance(s, If):
            total += max(block_cost(s.then), block_cost(s.otherwise))
        elif isinstance(s, While):
            total += DYNAMIC * (block_cost(s.test) + block_cost(s.body))
        elif isinstance(s, Copy):
            total += _known(s.count.offset) * 0.05
        elif isinstance(s, Matmul):
            total += 2.0 * _known(s.m.offset) * _known(s.n.offset) * _known(s.k.offset) / 50
        elif isinstance(s, Launch | Host):
            total += 100.0
    return total


def _extent(loop: Loop) -> float:
    """How often a loop turns; where its end is clipped, as often as it does before that."""
    for stop in (loop.stop, *_clipped(loop.stop)):
        distance = stop - loop.start
        if distance.is_fixed:
            return _known(distance.offset)
    return DYNAMIC


def _clipped(stop: Index) -> list[Index]:
    """The ends that a loop's end is the smallest of."""
    if len(stop.terms) != 1:
        return []
    value = next(iter(stop.terms)).value
    if not isinstance(value, Scalar) or value.instruction != "min":
        return []
    return [x for x in value.args if isinstance(x, Index) and x.terms]


def _known(x: object) -> float:
    return float(x) if isinstance(x, int) else float(DYNAMIC)
