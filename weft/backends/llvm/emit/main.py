"""The main function of a program in LLVM assembly: where its buffers are, launches, and calls back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from weft.backends.llvm.emit.alias import program_aliases
from weft.backends.llvm.emit.heap import Heap
from weft.backends.llvm.emit.instructions import instruction_set
from weft.backends.llvm.emit.lanes import statements
from weft.backends.llvm.emit.launches import HOST, PROGRAM, Launches, context_word
from weft.backends.llvm.emit.places import element_type
from weft.backends.llvm.emit.records import RECORDED, Recorder
from weft.backends.llvm.emit.statements import Statements
from weft.backends.llvm.emit.types import Value
from weft.backends.llvm.emit.writer import Writer, module_text
from weft.backends.llvm.target import Target
from weft.base.dtypes import int64
from weft.loop.ir import Allocate, Bind, Buffer, Free, Function, Host, Launch, Leave, Program, Wave


class Main:
    """Writes the main function of a program."""

    def __init__(
        self, program: Program, symbol_of: Callable[[Function], str], target: Target, *, debug: bool,
        profile: bool,
    ) -> None:  # fmt: skip
        self.writer = Writer()
        self._program = program
        self._modes: tuple[str, str] | None = None
        self._heap = Heap(self.writer)
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
            Leave: self._leave,
        }
        if self._recorder is not None:
            ways |= {kind: self._recorder.recorded(ways[kind]) for kind in RECORDED}

    def text(self, symbol: str) -> str:
        """The module."""
        self._write()
        # Not so the context: Python writes to it, by an address of its own, when a call back fails.
        params = "ptr %context, ptr noalias %buffers, ptr noalias %arena, ptr noalias %sizes"
        head = f"define i64 @{symbol}({params}) {self.code.machine.attributes}"
        return module_text(head, self.writer, len(self.code.places.aliases))

    def _write(self) -> None:
        program = self._program
        for buffer in program.heap:
            self._heap.add(buffer)
        self._find_sizes()
        for buffer in program.main.scratch:
            slot = self.writer.slot(f"[{buffer.size} x {element_type(buffer.dtype)}]", align=64)
            self._scratch[buffer] = Value(int64, (slot,), 0, 0)
        buffers = dict.fromkeys([*program.main.buffers, *program.arena, *program.heap, *program.main.scratch])
        self.code.places.numbers = {buffer: i for i, buffer in enumerate(buffers)}
        self.code.places.aliases = program_aliases(program)
        self._modes = self._begin_flushing() if program.flushes else None
        self.code.block(program.main.body)
        self._end()

    def _end(self) -> None:
        """Put all back as it was, and tell whether there was a failure."""
        w = self.writer
        w.jump("exit")
        w.begin("exit")
        if self._modes:
            self._set_mode(self._modes[0])
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

    def _leave(self, s: Leave) -> None:
        w = self.writer
        failed = w.here(f"icmp ne i64 {w.here('load i64, ptr %context')}, 0")
        end = w.label("end")
        w.branch(failed, "exit", end, unlikely=True)
        w.begin(end)

    def _host(self, s: Host) -> None:
        launches = self._launches
        inputs, outputs = (
            launches.array([f"ptr {launches.place(*place).parts[0]}" for place in places])
            for places in (s.inputs, s.outputs)
        )
        sizes = launches.array([f"i64 {self.code.indices.value(v).parts[0]}" for v in s.sizes])
        function, program = (context_word(self.writer, *word) for word in ((HOST, "ptr"), (PROGRAM, "i64")))
        args = f"i64 {program}, i64 {s.number}, ptr {inputs}, ptr {outputs}, ptr {sizes}"
        if self._modes:
            self._set_mode(self._modes[0])
        self.writer.line(f"call void {function}({args})")
        if self._modes:
            self._set_mode(self._modes[1])


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
