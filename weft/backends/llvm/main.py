"""The main function of a program in LLVM assembly: control flow, launches of kernels, memory, and calls back.

Kernels whose work is too little to share are called directly, others by the pool (``weft_wave``). Words of
the context, the array of sixteen that each call has, are numbered below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil

from weft.backends.llvm.alias import program_aliases
from weft.backends.llvm.calls import Calls
from weft.backends.llvm.indices import ONE
from weft.backends.llvm.lanes import statements
from weft.backends.llvm.pool_code import FLUSH
from weft.backends.llvm.target import Target
from weft.backends.llvm.types import Value, constant
from weft.backends.llvm.writer import Writer, module_text
from weft.base.dtypes import int64
from weft.loop.index import Extent, Index
from weft.loop.ir import (
    Allocate,
    Bind,
    Buffer,
    Copy,
    Free,
    Function,
    Host,
    Launch,
    Leave,
    Loop,
    Matmul,
    Program,
    Statement,
    Wave,
)

HOST, PROGRAM, PROFILE = 5, 6, 7  # words of the context: host callback, id of the program, profile records
ENDED = 8  # and, of code that takes down times, when it ended in ns
OUT_OF_MEMORY = -4  # the number of the failure that an allocation is that the system refuses
RECORD = (
    "count",
    "total",
    "first",
    "last",
)  # words of a profile record: runs, ns in all, begin and end in ns

SHARED_WORK = 20_000.0  # ns: less is not worth to wake other threads for
LOOP_WORK = 10_000.0  # ns: less is not worth it in a loop either, where they are awake from the turn before
GRAIN_WORK = 5_000.0  # ns: what a thread takes at a time

_RECORDED = (Launch, Wave, Host, Copy, Matmul)


class Main(Calls):
    """Writes the main function of a program."""

    def __init__(
        self, program: Program, symbol_of: Callable[[Function], str], writer: Writer, target: Target, *,
        debug: bool, profile: bool,
    ) -> None:  # fmt: skip
        super().__init__(writer, target, debug=debug)
        self.symbol_of = symbol_of
        self._program = program
        self._profile = profile
        self._records = 0
        self._modes: tuple[str, str] | None = None
        self._heap: dict[Buffer, tuple[str, str]] = {}
        self._bound: dict[str, str] = {}
        self._parameters = {buffer: i for i, buffer in enumerate(program.main.buffers)}
        self.ways |= {
            Launch: self._launch,
            Wave: self._wave,
            Host: self._host,
            Allocate: self._allocate,
            Free: self._free,
            Bind: self._bind,
            Leave: self._leave,
        }
        if profile:
            self.ways |= {kind: self._recorded(self.ways[kind]) for kind in _RECORDED}

    def write_all(self) -> None:
        """All of it."""
        program = self._program
        for buffer in program.heap:
            self._heap[buffer] = self.writer.slot("ptr", "null"), self.writer.slot("i64", "0")
        bound = {s.name for s in statements(program.main.body) if isinstance(s, Bind)}
        for i, name in enumerate(program.main.sizes):
            at = self.writer.here(f"getelementptr i64, ptr %sizes, i64 {i}")
            if name in bound:
                self._bound[name] = at
            else:
                text = f"load i64, ptr {at}, !invariant.load !{{}}"
                self.sizes[name] = Value(int64, (self.writer.here(text),), 0, 0)
        for name in sorted(bound.difference(self._bound)):
            self._bound[name] = self.writer.slot("i64", "0")
        for buffer in program.main.scratch:
            slot = self.writer.slot(f"[{buffer.size} x {self.element(buffer.dtype)}]", align=64)
            self.pointers[buffer] = Value(int64, (slot,), 0, 0)
        buffers = dict.fromkeys([*program.main.buffers, *program.arena, *program.heap, *program.main.scratch])
        self.numbers = {buffer: i for i, buffer in enumerate(buffers)}
        self.aliases = program_aliases(program)
        self._modes = self._begin_flushing() if program.flushes else None
        self.block(program.main.body)
        self._end()

    # Numbers below the normal ones

    def _begin_flushing(self) -> tuple[str, str]:
        """Have the processor take them for zero; the modes before and now."""
        self.writer.declare("i64 @weft_mode()")
        before = self.writer.here("call i64 @weft_mode()")
        now = self.writer.here(f"or i64 {before}, {FLUSH}")
        self._set_mode(now)
        return before, now

    def _set_mode(self, mode: str) -> None:
        self.writer.declare("void @weft_set_mode(i64)")
        self.writer.line(f"call void @weft_set_mode(i64 {mode})")

    def _end(self) -> None:
        """Free the heap, but for outputs, which are handed over; and tell whether there was a failure."""
        w = self.writer
        w.jump("exit")
        w.begin("exit")
        if self._modes:
            self._set_mode(self._modes[0])
        failed = w.here("load i64, ptr %context")
        for buffer, (slot, _) in self._heap.items():
            memory = w.here(f"load ptr, ptr {slot}")
            if buffer in self._parameters:
                place = w.here(f"getelementptr ptr, ptr %buffers, i64 {self._parameters[buffer]}")
                is_fine = w.here(f"icmp eq i64 {failed}, 0")
                w.line(f"store ptr {w.here(f'select i1 {is_fine}, ptr {memory}, ptr null')}, ptr {place}")
                memory = w.here(f"select i1 {is_fine}, ptr null, ptr {memory}")
            w.declare("void @free(ptr)")
            w.line(f"call void @free(ptr {memory})")
        if self._profile:
            w.line(f"store i64 {self._now()}, ptr {w.here(f'getelementptr i64, ptr %context, i64 {ENDED}')}")
        w.line(f"ret i64 {failed}")

    # Where buffers and sizes are

    def base(self, buffer: Buffer) -> Value:
        """Where a buffer begins."""
        w = self.writer
        if buffer in self._heap:
            return Value(int64, (w.here(f"load ptr, ptr {self._heap[buffer][0]}"),), 0, w.depth)
        if buffer in self._parameters:
            at = w.pure(f"getelementptr ptr, ptr %buffers, i64 {self._parameters[buffer]}", 0, cheap=True)
            return Value(int64, (w.pure(f"load ptr, ptr {at}, !invariant.load !{{}}", 0, cheap=True),), 0, 0)
        if buffer in self.pointers:
            return self.pointers[buffer]
        offset = self.number(self._program.arena[buffer])
        at = w.pure(f"getelementptr i8, ptr %arena, i64 {offset.parts[0]}", offset.scope, cheap=True)
        return Value(int64, (at,), 0, offset.scope)

    def named_size(self, name: str) -> Value:
        """The value of a named size at this place."""
        if name not in self._bound:
            return self.sizes[name]
        return Value(int64, (self.writer.here(f"load i64, ptr {self._bound[name]}"),), 0, self.writer.depth)

    def _bind(self, s: Bind) -> None:
        self.writer.line(f"store i64 {self.value(s.value).parts[0]}, ptr {self._bound[s.name]}")

    # The heap

    def _allocate(self, s: Allocate) -> None:
        w = self.writer
        slot, room = self._heap[s.buffer]
        size = self.product(self.index_value(s.count), constant(s.buffer.dtype.itemsize, int64))
        held = Value(int64, (w.here(f"load i64, ptr {room}"),), 0, w.depth)
        grow, kept, end = w.label("grow"), w.label("kept"), w.label("end")
        w.room()
        w.branch(self.lt(held, size).parts[0], grow, end)
        with w.scope(is_loop=False, surely=False):
            w.begin(grow)
            larger = self.max(size, self.add(held, held))  # so that a list that grows is copied rarely
            w.declare("ptr @realloc(ptr, i64)")
            old = w.here(f"load ptr, ptr {slot}")
            new = w.here(f"call ptr @realloc(ptr {old}, i64 {larger.parts[0]})")
            missing = Value(int64, (w.here(f"ptrtoint ptr {new} to i64"),), 0, w.depth)
            refused = self.eq(missing, 0)
            self.fail(refused, OUT_OF_MEMORY, (size,))
            w.branch(refused.parts[0], "exit", kept, unlikely=True)
            w.begin(kept)
            w.line(f"store ptr {new}, ptr {slot}")
            w.line(f"store i64 {larger.parts[0]}, ptr {room}")
            w.jump(end)
        w.begin(end)

    def _free(self, s: Free) -> None:
        slot, room = self._heap[s.buffer]
        self.writer.declare("void @free(ptr)")
        self.writer.line(f"call void @free(ptr {self.writer.here(f'load ptr, ptr {slot}')})")
        self.writer.line(f"store ptr null, ptr {slot}")
        self.writer.line(f"store i64 0, ptr {room}")

    def _leave(self, s: Leave) -> None:
        w = self.writer
        failed = w.here(f"icmp ne i64 {w.here('load i64, ptr %context')}, 0")
        end = w.label("end")
        w.branch(failed, "exit", end, unlikely=True)
        w.begin(end)

    # Launches

    def _launch(self, s: Launch) -> None:
        self._run([s])

    def _wave(self, s: Wave) -> None:
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
            work = self.sum(work, self.product(count, constant(ceil(16 * launch.cost), int64)))
        least = ceil(16 * (LOOP_WORK if self.writer.depth else SHARED_WORK))
        if work.number is not None:
            run = self._call_all if work.number < least else self._share
            run(launches, args, counts)
            return
        w = self.writer
        call, share, end = w.label("call"), w.label("share"), w.label("end")
        w.room()
        w.branch(self.lt(work, least).parts[0], call, share)
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
        return self.index_value(last.stop - last.start)

    def _arguments(self, launch: Launch) -> str:
        """The array of arguments of a kernel."""
        buffers = [f"ptr {self._place(*place, own.size).parts[0]}" for place, own in zip(
            launch.buffers, launch.function.buffers, strict=True)]  # fmt: skip
        sizes = [f"i64 {self.named_size(name).parts[0]}" for name in launch.function.sizes]
        return self._array(["ptr %context", *buffers, *sizes])

    def _place(self, buffer: Buffer, index: Index, count: Extent | None = None) -> Value:
        """An address; code with checks notes a failure if so many elements are not there."""
        if self.debug and count is not None:
            first = self.index_value(index)
            last = self.add(first, self.number(count))
            outside = self.or_(self.lt(first, 0), self.lt(self.number(buffer.size), last))
            self.fail_outside(outside, buffer, first)
        return self.address(buffer, index)

    def _array(self, words: Sequence[str]) -> str:
        """An array on the stack of words, each given with its type."""
        at = self.writer.slot(f"[{max(len(words), 1)} x i64]")
        for i, word in enumerate(words):
            place = self.writer.pure(f"getelementptr i64, ptr {at}, i64 {i}", 0, cheap=True)
            self.writer.line(f"store {word}, ptr {place}")
        return at

    def _call_all(self, launches: Sequence[Launch], args: Sequence[str], counts: Sequence[Value]) -> None:
        for launch, array, count in zip(launches, args, counts, strict=True):
            symbol = self.symbol_of(launch.function)
            self.writer.declare(f"void @{symbol}(ptr, i64, i64)")
            self.writer.line(f"call void @{symbol}(ptr {array}, i64 0, i64 {count.parts[0]})")

    def _share(self, launches: Sequence[Launch], args: Sequence[str], counts: Sequence[Value]) -> None:
        words: list[str] = []
        for launch, array, count in zip(launches, args, counts, strict=True):
            symbol = self.symbol_of(launch.function)
            self.writer.declare(f"void @{symbol}(ptr, i64, i64)")
            grain = max(1, ceil(GRAIN_WORK / launch.cost)) if launch.cost else 1 << 30
            words += [f"ptr @{symbol}", f"ptr {array}", f"i64 {count.parts[0]}", f"i64 {grain}"]
        self.writer.declare("void @weft_wave(ptr, i64)")
        self.writer.line(f"call void @weft_wave(ptr {self._array(words)}, i64 {len(launches)})")

    # Calls back

    def _host(self, s: Host) -> None:
        inputs, outputs = (
            self._array([f"ptr {self._place(*place).parts[0]}" for place in places])
            for places in (s.inputs, s.outputs)
        )
        sizes = self._array([f"i64 {self.value(v).parts[0]}" for v in s.sizes])
        function, program = self._word(HOST, "ptr"), self._word(PROGRAM, "i64")
        args = f"i64 {program}, i64 {s.number}, ptr {inputs}, ptr {outputs}, ptr {sizes}"
        if self._modes:
            self._set_mode(self._modes[0])
        self.writer.line(f"call void {function}({args})")
        if self._modes:
            self._set_mode(self._modes[1])

    def _word(self, number: int, type_: str) -> str:
        """A word of the context that stays as it is."""
        at = self.writer.pure(f"getelementptr i64, ptr %context, i64 {number}", 0, cheap=True)
        return self.writer.pure(f"load {type_}, ptr {at}, !invariant.load !{{}}", 0, cheap=True)

    # Profile

    def _recorded(self, way: Callable[[Statement], None]) -> Callable[[Statement], None]:
        """A way to write statements, with the time that they take put down in a record of their own."""

        def write(s: Statement) -> None:
            with self._record():
                way(s)

        return write

    def _now(self) -> str:
        self.writer.declare("i64 @weft_now()")
        return self.writer.here("call i64 @weft_now()")

    @contextmanager
    def _record(self) -> Iterator[None]:
        w = self.writer
        base, number = self._word(PROFILE, "ptr"), self._records
        self._records += 1
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

    >>> from weft.backends.llvm.main import recorded_statements
    >>> from weft.loop.ir import Block, Function, Leave, Program
    >>> main = Function("f", (), (), Block([Leave()]))
    >>> recorded_statements(Program(main, 0, 0, (), {}, 0, (), (), ()))
    []
    """
    return [s for s in statements(program.main.body) if isinstance(s, _RECORDED)]


def emit_main(
    program: Program, symbol: str, symbol_of: Callable[[Function], str], target: Target, *,
    debug: bool = False, profile: bool = False,
) -> str:  # fmt: skip
    """The main function of a program as LLVM assembly; ``symbol_of`` names the functions of kernels.

    >>> from weft.backends.llvm.main import emit_main
    >>> from weft.backends.llvm.target import host_target
    >>> from weft.loop.ir import Block, Function, Program
    >>> empty = Program(Function("f", (), (), Block()), 0, 0, (), {}, 0, (), (), ())
    >>> "define i64 @run(ptr %context" in emit_main(empty, "run", lambda f: f.name, host_target())
    True
    """
    writer = Writer()
    main = Main(program, symbol_of, writer, target, debug=debug, profile=profile)
    main.write_all()
    # Not so the context: Python writes to it, by an address of its own, when a call back fails.
    params = "ptr %context, ptr noalias %buffers, ptr noalias %arena, ptr noalias %sizes"
    return module_text(f"define i64 @{symbol}({params})", writer, len(main.aliases), target)
