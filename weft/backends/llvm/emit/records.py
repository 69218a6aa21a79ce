"""Profiles: code that takes down how often the parts of a main function ran, and how long that took."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from weft.backends.llvm.emit.lanes import statements
from weft.backends.llvm.emit.launches import ENDED, PROFILE, context_word
from weft.backends.llvm.emit.writer import Writer
from weft.loop.ir import Copy, Host, Launch, Matmul, Program, Statement, Wave

RECORD = ("count", "total", "first", "last")  # words of a record: runs, ns in all, begin and end in ns
RECORDED = (Launch, Wave, Host, Copy, Matmul)


class Recorder:
    """Writes what fills the records of a profile, one for each statement that is recorded."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._count = 0

    def recorded(self, way: Callable[[Statement], None]) -> Callable[[Statement], None]:
        """A way to write statements, with the time that they take put down in a record of their own."""

        def write(s: Statement) -> None:
            with self._record():
                way(s)

        return write

    def end(self) -> None:
        """Put down when the code ended."""
        w = self._writer
        w.line(f"store i64 {self._now()}, ptr {w.here(f'getelementptr i64, ptr %context, i64 {ENDED}')}")

    def _now(self) -> str:
        self._writer.declare("i64 @weft_now()")
        return self._writer.here("call i64 @weft_now()")

    @contextmanager
    def _record(self) -> Iterator[None]:
        w = self._writer
        base, number = context_word(w, PROFILE, "ptr"), self._count
        self._count += 1
        begin = self._now()
        yield
        end = self._now()
        places = [
            w.here(f"getelementptr i64, ptr {base}, i64 {number * len(RECORD) + i}")
            for i in range(len(RECORD))
        ]
        count, total, first = (w.here(f"load i64, ptr {place}") for place in places[:3])
        w.line(f"store i64 {w.here(f'add i64 {count}, 1')}, ptr {places[0]}")
        taken = w.here(f"sub i64 {end}, {begin}")
        w.line(f"store i64 {w.here(f'add i64 {total}, {taken}')}, ptr {places[1]}")
        begun = w.here(f"icmp ne i64 {count}, 0")
        w.line(f"store i64 {w.here(f'select i1 {begun}, i64 {first}, i64 {begin}')}, ptr {places[2]}")
        w.line(f"store i64 {end}, ptr {places[3]}")


def recorded_statements(program: Program) -> list[Statement]:
    """The statements whose time a profile tells, in the order of its records.

    >>> from weft.backends.llvm.emit.records import recorded_statements
    >>> from weft.loop.ir import Block, Function, Leave, Program
    >>> main = Function("f", (), (), Block([Leave()]))
    >>> recorded_statements(Program(main, 0, 0, (), {}, 0, (), (), ()))
    []
    """
    return [s for s in statements(program.main.body) if isinstance(s, RECORDED)]
