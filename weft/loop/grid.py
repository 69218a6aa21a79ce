"""The threads of a block, as the interpreter runs them: from one barrier to the next, in any order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from weft.errors import GraphError
from weft.loop import ir
from weft.loop.index import Variable
from weft.loop.ir import Block, Statement, Value
from weft.loop.walk import blocks_of

if TYPE_CHECKING:
    from weft.loop.interpret import Frame

T = TypeVar("T")


class Threads:
    """The threads of a block, each with registers and private memory of its own.

    All of them come to a barrier or none does, so that a statement with one inside is gone through by all
    together, and what has none is done by one after the other.
    """

    def __init__(self, block: Frame, variable: Variable, numbers: Iterable[int]) -> None:
        self.block = block
        self.random = block.program_run.random
        self.threads = [block.child(variable, i, block=block.block_number, thread=i) for i in numbers]

    def run(self, body: Block) -> None:
        """Do what a block of statements says."""
        for meets, group in itertools.groupby(body.statements, _has_barrier):
            statements = list(group)
            if meets:
                for s in statements:
                    self.block.statement = s
                    self.meet(s)
            else:
                for i in self.random.permutation(len(self.threads)).tolist():
                    self.threads[i].statements(statements)

    def meet(self, s: Statement) -> None:
        """Go through a barrier, or a statement with one inside."""
        if isinstance(s, ir.Loop):
            for i in self.agreed([range(t.index(s.start), t.index(s.stop)) for t in self.threads]):
                for thread in self.threads:
                    thread.values[s.variable] = i
                self.run(s.body)
        elif isinstance(s, ir.If):
            self.run(s.then if self.all_hold(s.condition) else s.otherwise)
        elif isinstance(s, ir.While):
            self.run(s.test)
            while self.all_hold(s.condition):
                self.run(s.body)
                self.run(s.test)
        else:
            for thread in self.threads:
                thread.barriers += 1

    def all_hold(self, condition: Value) -> bool:
        """Whether a condition holds, the same for all threads."""
        return self.agreed([thread.holds(condition) for thread in self.threads])

    def agreed(self, found: Sequence[T]) -> T:
        """What the threads have found, all of them alike: whether they come to a barrier depends on it."""
        if any(x != found[0] for x in found):
            told = "a barrier must be reached by all threads of a block or by none"
            raise self.block.error(told, GraphError)
        return found[0]


def _has_barrier(s: Statement) -> bool:
    inner = (x for block in blocks_of(s) for x in block.statements)
    return isinstance(s, ir.Barrier) or any(map(_has_barrier, inner))
