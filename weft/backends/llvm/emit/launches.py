"""Launches of kernels from a main function: by the pool if there is work enough to share, else by a call.

And the records of a profile: how often the parts of a main function ran, and how long that took.

Words of the context, the array of sixteen that each call has, are numbered here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil

from weft.backends.llvm.emit.indices import ONE
from weft.backends.llvm.emit.lanes import statements
from weft.backends.llvm.emit.statements import Statements
from weft.backends.llvm.emit.types import Value, constant
from weft.backends.llvm.emit.writer import Writer
from weft.base.dtypes import int64
from weft.loop.index import Extent, Index
from weft.loop.ir import Buffer, Copy, Function, Host, Launch, Loop, Matmul, Program, Statement, Wave

HOST, PROGRAM, PROFILE = 5, 6, 7  # words of the context: host callback, id of the program, profile records
ENDED = 8  # and, of code that takes down times, when it ended in ns
STOP, POLL = 10, 11  # whether somebody wants the run to end, and the function that then tells if it is to

SHARED_WORK = 20_000.0  # ns: less is not worth to wake other threads for
LOOP_WORK = 10_000.0  # ns: less is not worth it in a loop either, where they are awake from the turn before
GRAIN_WORK = 5_000.0  # ns: what a thread takes at a time


class Launches:
    """Writes calls of kernels, alone or by the pool (``weft_wave``).

    Args:
        code: of the main function.
        symbol_of: names the functions of kernels.
    """

    def __init__(self, code: Statements, symbol_of: Callable[[Function], str]) -> None:
        self._writer, self._scalars = code.writer, code.scalars
        self._indices, self._places = code.indices, code.places
        self._symbol_of = symbol_of

    def launch(self, s: Launch) -> None:
        """Run one kernel."""
        self._run([s])

    def wave(self, s: Wave) -> None:
        """Run several at the same time."""
        self._run(s.launches)

    def _run(self, launches: Sequence[Launch]) -> None:
        """Run kernels that do not depend on each other, by the pool if there is work enough for it."""
        args = [self._arguments(launch) for launch in launches]
        counts = [self._iterations(launch.function) for launch in launches]
        if len(launches) == 1 and counts[0].number == 1:
            self._call_all(launches, args, counts)
            return
        work = constant(0, int64)
        for launch, count in zip(launches, counts, strict=True):
            own = self._indices.product(count, constant(ceil(16 * launch.cost), int64))
            work = self._indices.sum(work, own)
        least = ceil(16 * (LOOP_WORK if self._writer.depth else SHARED_WORK))
        if work.number is not None:
            run = self._call_all if work.number < least else self._share
            run(launches, args, counts)
            return
        w = self._writer
        call, share, end = w.label("call"), w.label("share"), w.label("end")
        w.room()
        w.branch(self._scalars.lt(work, least).parts[0], call, share)
        for label, run in ((call, self._call_all), (share, self._share)):
            with w.scope(is_loop=False, surely=False):
                w.begin(label)
                run(launches, args, counts)
                w.jump(end)
        w.begin(end)

    def _iterations(self, function: Function) -> Value:
        """How many iterations the parallel loop of a kernel has; 1 where it has none."""
        last = function.body.statements[-1] if function.body.statements else None
        if not isinstance(last, Loop) or last.kind != "parallel":
            return ONE
        return self._indices.index_value(last.stop - last.start)

    def _arguments(self, launch: Launch) -> str:
        """The array of arguments of a kernel."""
        buffers = [f"ptr {self.place(*place, own.size).parts[0]}" for place, own in zip(
            launch.buffers, launch.function.buffers, strict=True)]  # fmt: skip
        sizes = [f"i64 {self._indices.named_size(name).parts[0]}" for name in launch.function.sizes]
        return self.array(["ptr %context", *buffers, *sizes])

    def place(self, buffer: Buffer, index: Index, count: Extent | None = None) -> Value:
        """An address; code with checks notes a failure if so many elements are not there."""
        if self._places.debug and count is not None:
            e, wanted = self._scalars, self._indices.number(count)
            first = self._indices.index_value(index)
            outside = self._places.lies_outside(buffer, first, e.add(first, wanted))
            self._places.fail_outside(e.and_(e.lt(0, wanted), outside), buffer, first)
        return self._places.address(buffer, index)

    def array(self, words: Sequence[str]) -> str:
        """An array on the stack of words, each given with its type."""
        at = self._writer.slot(f"[{max(len(words), 1)} x i64]")
        for i, word in enumerate(words):
            place = self._writer.pure(f"getelementptr i64, ptr {at}, i64 {i}", 0, cheap=True)
            self._writer.line(f"store {word}, ptr {place}")
        return at

    def _call_all(self, launches: Sequence[Launch], args: Sequence[str], counts: Sequence[Value]) -> None:
        for launch, array, count in zip(launches, args, counts, strict=True):
            symbol = self._symbol_of(launch.function)
            self._writer.declare(f"void @{symbol}(ptr, i64, i64)")
            self._writer.line(f"call void @{symbol}(ptr {array}, i64 0, i64 {count.parts[0]})")

    def _share(self, launches: Sequence[Launch], args: Sequence[str], counts: Sequence[Value]) -> None:
        words: list[str] = []
        for launch, array, count in zip(launches, args, counts, strict=True):
            symbol = self._symbol_of(launch.function)
            self._writer.declare(f"void @{symbol}(ptr, i64, i64)")
            grain = max(1, ceil(GRAIN_WORK / launch.cost)) if launch.cost else 1 << 30
            words += [f"ptr @{symbol}", f"ptr {array}", f"i64 {count.parts[0]}", f"i64 {grain}"]
        self._writer.declare("void @weft_wave(ptr, i64)")
        self._writer.line(f"call void @weft_wave(ptr {self.array(words)}, i64 {len(launches)})")


def context_word(writer: Writer, number: int, type_: str) -> str:
    """A word of the context that stays as it is."""
    at = writer.pure(f"getelementptr i64, ptr %context, i64 {number}", 0, cheap=True)
    return writer.pure(f"load {type_}, ptr {at}, !invariant.load !{{}}", 0, cheap=True)


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
        words = range(number * len(RECORD), (number + 1) * len(RECORD))
        places = [w.here(f"getelementptr i64, ptr {base}, i64 {word}") for word in words]
        count, total, first = (w.here(f"load i64, ptr {place}") for place in places[:3])
        w.line(f"store i64 {w.here(f'add i64 {count}, 1')}, ptr {places[0]}")
        taken = w.here(f"sub i64 {end}, {begin}")
        w.line(f"store i64 {w.here(f'add i64 {total}, {taken}')}, ptr {places[1]}")
        begun = w.here(f"icmp ne i64 {count}, 0")
        w.line(f"store i64 {w.here(f'select i1 {begun}, i64 {first}, i64 {begin}')}, ptr {places[2]}")
        w.line(f"store i64 {end}, ptr {places[3]}")


def recorded_statements(program: Program) -> list[Statement]:
    """The statements whose time a profile tells, in the order of its records.

    >>> from weft.backends.llvm.emit.launches import recorded_statements
    >>> from weft.loop.ir import Block, Function, Leave, Program
    >>> main = Function("f", (), (), Block([Leave()]))
    >>> recorded_statements(Program(main, 0, 0, (), {}, 0, (), (), ()))
    []
    """
    return [s for s in statements(program.main.body) if isinstance(s, RECORDED)]
