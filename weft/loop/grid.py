"""The threads of a block, as the interpreter runs them: from one barrier to the next, in any order.

Two threads that meet at one element, and nothing keeps them apart, are a race. Threads of one block are kept
apart by barriers: what was done before one, and what after it, have an order. Blocks of a launch have none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from weft.base.records import dataclass
from weft.errors import GraphError
from weft.loop import ir
from weft.loop.index import Variable
from weft.loop.ir import Block, Statement, Value
from weft.loop.walk import statements

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
    return any(isinstance(x, ir.Barrier) for x in statements(Block([s])))


@dataclass(frozen=True, slots=True)
class Access:
    """One access to an element.

    Attributes:
        block: number of the block that did it, -1 for what each of them does before its own work.
        thread: number of the thread in the block.
        barriers: how many it had passed.
        statement: which did it.
    """

    block: int
    thread: int
    barriers: int
    statement: Statement

    def is_apart(self, other: Access) -> bool:
        """Whether the order of two accesses is known, so that a write among them does no harm."""
        if self.block != other.block:
            return False
        return self.thread == other.thread or self.barriers != other.barriers


class Races:
    """The accesses of one launch, by the block whose memory it is (-1 for that of all), and the address.

    The last write says enough, for one before it would have been a race with it. Of reads, the last of each
    thread does.

    >>> from weft.loop.ir import Leave
    >>> from weft.loop.grid import Access, Races
    >>> races = Races()
    >>> races.add((-1, 64), Access(0, 0, 0, Leave()), write=True)
    >>> races.add((-1, 64), Access(0, 1, 1, Leave()), write=False)
    >>> races.add((-1, 64), Access(0, 0, 1, Leave()), write=True).thread
    1
    """

    def __init__(self) -> None:
        self._written: dict[tuple[int, int], Access] = {}
        self._read: dict[tuple[int, int], dict[tuple[int, int], Access]] = {}

    def add(self, address: tuple[int, int], access: Access, *, write: bool) -> Access | None:
        """Note an access to an element; gives another one that it races with, if there is one."""
        last = self._written.get(address)
        if last is not None and not access.is_apart(last):
            return last
        readers = self._read.setdefault(address, {})
        if write:
            self._written[address] = access
            return next((r for r in readers.values() if not access.is_apart(r)), None)
        readers[access.block, access.thread] = access
        return None
