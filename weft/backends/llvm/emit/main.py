"""The main function of a program in LLVM assembly: where its buffers are, memory, launches, calls back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from weft.backends.llvm.emit.instructions import instruction_set
from weft.backends.llvm.emit.kernel import program_aliases
from weft.backends.llvm.emit.lanes import statements
from weft.backends.llvm.emit.launches import (
    HOST,
    POLL,
    PROGRAM,
    RECORDED,
    STOP,
    Launches,
    Recorder,
    context_word,
)
from weft.backends.llvm.emit.places import OUT_OF_MEMORY, element_type
from weft.backends.llvm.emit.statements import Statements
from weft.backends.llvm.emit.types import Value, constant
from weft.backends.llvm.emit.writer import Writer, module_text
from weft.backends.llvm.emit.zones import Zones, mark_of, zones_text
from weft.backends.llvm.target import Target
from weft.base.dtypes import int64
from weft.loop.ir import Allocate, Bind, Buffer, Free, Function, Host, Launch, Leave, Program, Wave


class Heap:
    """Writes what makes these buffers larger, and what frees them; with zones around them, if checked."""

    def __init__(self, writer: Writer, *, checked: bool) -> None:
        self._writer = writer
        self._checked = checked
        self._slots: dict[Buffer, tuple[str, str]] = {}  # where its address is, and how many bytes it has

    def __contains__(self, buffer: Buffer) -> bool:
        return buffer in self._slots

    def add(self, buffer: Buffer) -> None:
        """Have a buffer, of no size yet."""
        self._slots[buffer] = self._writer.slot("ptr", "null"), self._writer.slot("i64", "0")

    def base(self, buffer: Buffer) -> Value:
        """Where a buffer begins at this place."""
        return Value(int64, (self._address(buffer),), 0, self._writer.depth)

    def room(self, buffer: Buffer) -> Value | None:
        """How many bytes a buffer has at this place; None of a buffer that is elsewhere."""
        if buffer not in self._slots:
            return None
        held = self._writer.here(f"load i64, ptr {self._slots[buffer][1]}")
        return Value(int64, (held,), 0, self._writer.depth)

    def _address(self, buffer: Buffer) -> str:
        return self._writer.here(f"load ptr, ptr {self._slots[buffer][0]}")

    def allocate(self, code: Statements, s: Allocate) -> None:
        """See to it that a buffer has room for so many elements; a list that grows is copied rarely."""
        w, e = self._writer, code.scalars
        slot, room = self._slots[s.buffer]
        count, each = code.indices.index_value(s.count), constant(s.buffer.dtype.itemsize, int64)
        size = code.indices.product(count, each)
        held = Value(int64, (w.here(f"load i64, ptr {room}"),), 0, w.depth)
        grow, kept, end = w.label("grow"), w.label("kept"), w.label("end")
        w.room()
        w.branch(e.lt(held, size).parts[0], grow, end)
        with w.scope(is_loop=False, surely=False):
            w.begin(grow)
            larger = e.max(size, e.add(held, held))
            new = self._grown(code, s.buffer, held.parts[0], larger.parts[0])
            missing = Value(int64, (w.here(f"ptrtoint ptr {new} to i64"),), 0, w.depth)
            refused = e.eq(missing, 0)
            code.failures.fail(refused, OUT_OF_MEMORY, (size,))
            w.branch(refused.parts[0], "exit", kept, unlikely=True)
            w.begin(kept)
            w.line(f"store ptr {new}, ptr {slot}")
            w.line(f"store i64 {larger.parts[0]}, ptr {room}")
            w.jump(end)
        w.begin(end)

    def _grown(self, code: Statements, buffer: Buffer, held: str, size: str) -> str:
        w, old = self._writer, self._address(buffer)
        if self._checked:
            mark = mark_of(code.places.numbers[buffer])
            return w.here(f"call ptr @weft_grow(ptr {old}, i64 {held}, i64 {size}, i8 {mark})")
        w.declare("ptr @realloc(ptr, i64)")
        return w.here(f"call ptr @realloc(ptr {old}, i64 {size})")

    def free(self, s: Free) -> None:
        """Give the memory of a buffer back."""
        slot, room = self._slots[s.buffer]
        self._release(self._address(s.buffer))
        self._writer.line(f"store ptr null, ptr {slot}")
        self._writer.line(f"store i64 0, ptr {room}")

    def end(self, failed: str, parameters: dict[Buffer, int]) -> None:
        """Free all but outputs, which are handed over unless there was a failure."""
        w = self._writer
        for buffer in self._slots:
            memory = self._address(buffer)
            if buffer in parameters:
                place = w.here(f"getelementptr ptr, ptr %buffers, i64 {parameters[buffer]}")
                is_fine = w.here(f"icmp eq i64 {failed}, 0")
                w.line(f"store ptr {w.here(f'select i1 {is_fine}, ptr {memory}, ptr null')}, ptr {place}")
                memory = w.here(f"select i1 {is_fine}, ptr null, ptr {memory}")
            self._release(memory)

    def _release(self, memory: str) -> None:
        if not self._checked:
            self._writer.declare("void @free(ptr)")
        self._writer.line(f"call void @{'weft_drop' if self._checked else 'free'}(ptr {memory})")


class Main:
    """Writes the main function of a program."""

    def __init__(
        self, program: Program, symbol_of: Callable[[Function], str], target: Target, *, debug: bool,
        profile: bool,
    ) -> None:  # fmt: skip
        self.writer = Writer()
        self._program = program
        self._modes: tuple[str, str] | None = None
        self._heap = Heap(self.writer, checked=debug)
        self._bound: dict[str, str] = {}  # by name of a size that the run tells, where it is kept
        self._sizes: dict[str, Value] = {}
        self._scratch: dict[Buffer, Value] = {}
        self._parameters = {buffer: i for i, buffer in enumerate(program.main.buffers)}
        machine = instruction_set(target)
        self.code = Statements(self.writer, machine, self._base, self._named_size, debug=debug)
        self._launches = Launches(self.code, symbol_of)
        self._recorder = Recorder(self.writer) if profile else None
        ways = self.code.ways
        ways |= {
            Launch: self._launches.launch,
            Wave: self._launches.wave,
            Host: self._host,
            Allocate: partial(self._heap.allocate, self.code),
            Free: self._heap.free,
            Bind: self._bind,
            Leave: lambda s: self._leave() if s.loop is None else self._ask(s.loop),
        }
        if self._recorder is not None:
            ways |= {kind: self._recorder.recorded(ways[kind]) for kind in RECORDED}
        self._zones = Zones(self.code, program, self._heap.room, self._leave) if debug else None
        if self._zones is not None:
            ways |= {kind: self._zones.around(way) for kind, way in ways.items()}

    def text(self, symbol: str) -> str:
        """The module."""
        self._write()
        # Not so the context: Python writes to it, by an address of its own, when a call back fails.
        params = "ptr %context, ptr noalias %buffers, ptr noalias %arena, ptr noalias %sizes"
        head = f"define i64 @{symbol}({params}) {self.code.machine.attributes}"
        text = module_text(head, self.writer, len(self.code.places.aliases))
        return text if self._zones is None else f"{zones_text()}\n{text}"

    def _write(self) -> None:
        program = self._program
        for buffer in program.heap:
            self._heap.add(buffer)
        self._find_sizes()
        for buffer in program.main.scratch:
            slot = self.writer.slot(f"[{buffer.size} x {element_type(buffer.dtype)}]", align=64)
            self._scratch[buffer] = Value(int64, (slot,), 0, 0)
        buffers = dict.fromkeys([*program.main.buffers, *program.arena, *program.heap, *program.main.scratch])
        self.code.places.numbers = {buffer: -1 - i for i, buffer in enumerate(buffers)}  # below a kernel's
        self.code.places.aliases = program_aliases(program)
        self._modes = self._begin_flushing() if program.flushes else None
        self.code.body(program.main.body)
        self._end()

    def _end(self) -> None:
        """Put all back as it was, and tell whether there was a failure."""
        w = self.writer
        w.jump("exit")
        w.begin("exit")
        if self._modes:
            self._set_mode(self._modes[0])
        if self._zones is not None:
            for buffer in self._program.heap:
                self._zones.look(buffer)
        failed = w.here("load i64, ptr %context")
        self._heap.end(failed, self._parameters)
        if self._recorder is not None:
            self._recorder.end()
        w.line(f"ret i64 {failed}")

    # Numbers below the normal ones

    def _begin_flushing(self) -> tuple[str, str]:
        """Have the processor take them for zero; the modes before and now."""
        self.writer.declare("i64 @weft_mode()")
        before = self.writer.here("call i64 @weft_mode()")
        now = self.writer.here(f"or i64 {before}, {self.code.machine.flush_bits}")
        self._set_mode(now)
        return before, now

    def _set_mode(self, mode: str) -> None:
        self.writer.declare("void @weft_set_mode(i64)")
        self.writer.line(f"call void @weft_set_mode(i64 {mode})")

    # Where buffers and sizes are

    def _find_sizes(self) -> None:
        """Read the sizes that are known when the function begins; have places for the others."""
        main = self._program.main
        bound = {s.name for s in statements(main.body) if isinstance(s, Bind)}
        for i, name in enumerate(main.sizes):
            at = self.writer.here(f"getelementptr i64, ptr %sizes, i64 {i}")
            if name in bound:
                self._bound[name] = at
            else:
                text = f"load i64, ptr {at}, !invariant.load !{{}}"
                self._sizes[name] = Value(int64, (self.writer.here(text),), 0, 0)
        for name in sorted(bound.difference(self._bound)):
            self._bound[name] = self.writer.slot("i64", "0")

    def _base(self, buffer: Buffer) -> Value:
        """Where a buffer begins."""
        w = self.writer
        if buffer in self._heap:
            return self._heap.base(buffer)
        if buffer in self._parameters:
            at = w.pure(f"getelementptr ptr, ptr %buffers, i64 {self._parameters[buffer]}", 0, cheap=True)
            return Value(int64, (w.pure(f"load ptr, ptr {at}, !invariant.load !{{}}", 0, cheap=True),), 0, 0)
        if buffer in self._scratch:
            return self._scratch[buffer]
        offset = self.code.indices.number(self._program.arena[buffer])
        at = w.pure(f"getelementptr i8, ptr %arena, i64 {offset.parts[0]}", offset.scope, cheap=True)
        return Value(int64, (at,), 0, offset.scope)

    def _named_size(self, name: str) -> Value:
        """The value of a named size at this place."""
        if name not in self._bound:
            return self._sizes[name]
        return Value(int64, (self.writer.here(f"load i64, ptr {self._bound[name]}"),), 0, self.writer.depth)

    def _bind(self, s: Bind) -> None:
        self.writer.line(f"store i64 {self.code.indices.value(s.value).parts[0]}, ptr {self._bound[s.name]}")

    # Failures, and calls back

    def _leave(self) -> None:
        w = self.writer
        failed = w.here(f"icmp ne i64 {w.here('load i64, ptr %context')}, 0")
        end = w.label("end")
        w.branch(failed, "exit", end, unlikely=True)
        w.begin(end)

    def _ask(self, failure: int) -> None:
        """End if somebody wants it; this is done in each iteration, so all but one load is out of the way."""
        w = self.writer
        ask, end = w.label("ask"), w.label("end")
        at = w.pure(f"getelementptr i64, ptr %context, i64 {STOP}", 0, cheap=True)
        wanted = w.here(f"load atomic i64, ptr {at} monotonic, align 8")
        w.branch(w.here(f"icmp ne i64 {wanted}, 0"), ask, end, unlikely=True)
        with w.scope(is_loop=False, surely=False):
            w.begin(ask)
            with self._own_mode():
                poll = w.here(f"load ptr, ptr {w.here(f'getelementptr i64, ptr %context, i64 {POLL}')}")
                ended = w.here(f"call i64 {poll}(ptr %context, i64 {failure + 1})")
            w.branch(w.here(f"icmp ne i64 {ended}, 0"), "exit", end)
        w.begin(end)

    @contextmanager
    def _own_mode(self) -> Iterator[None]:
        """Let what is called here compute in the mode that the caller of the program has."""
        if self._modes:
            self._set_mode(self._modes[0])
        yield
        if self._modes:
            self._set_mode(self._modes[1])

    def _host(self, s: Host) -> None:
        launches = self._launches
        inputs, outputs = (
            launches.array([f"ptr {launches.place(*place).parts[0]}" for place in places])
            for places in (s.inputs, s.outputs)
        )
        sizes = launches.array([f"i64 {self.code.indices.value(v).parts[0]}" for v in s.sizes])
        function, program = (context_word(self.writer, *word) for word in ((HOST, "ptr"), (PROGRAM, "i64")))
        args = f"i64 {program}, i64 {s.number}, ptr {inputs}, ptr {outputs}, ptr {sizes}"
        with self._own_mode():
            self.writer.line(f"call void {function}({args})")


def emit_main(
    program: Program, symbol: str, symbol_of: Callable[[Function], str], target: Target, *,
    debug: bool = False, profile: bool = False,
) -> str:  # fmt: skip
    """The main function of a program as LLVM assembly; ``symbol_of`` names the functions of kernels.

    >>> from weft.backends.llvm.emit.main import emit_main
    >>> from weft.backends.llvm.target import host_target
    >>> from weft.loop.ir import Block, Function, Program
    >>> empty = Program(Function("f", (), (), Block()), 0, 0, (), {}, 0, (), (), ())
    >>> "define i64 @run(ptr %context" in emit_main(empty, "run", lambda f: f.name, host_target())
    True
    """
    return Main(program, symbol_of, target, debug=debug, profile=profile).text(symbol)
