"""A kernel for NVIDIA's processors in LLVM assembly.

An iteration of the parallel loop is a block of the grid, one of the threads loop a thread. Vectors are
written out where a loop says so, as wide as it says. Private memory is on a thread's stack, where LLVM finds
that it fits into registers; shared memory is a variable of the module, and what goes beyond the part that
every kernel has is asked for by launches.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.backends.cuda.emit import remainder
from weft.backends.llvm.emit.instructions import InstructionSet
from weft.backends.llvm.emit.kernel import Kernel, unwritten
from weft.backends.llvm.emit.lanes import Varying
from weft.backends.llvm.emit.loops import Loops
from weft.backends.llvm.emit.places import element_type
from weft.backends.llvm.emit.registers import Registers
from weft.backends.llvm.emit.scalars import Scalars
from weft.backends.llvm.emit.types import REGISTER, Value, vector
from weft.backends.llvm.target import Target
from weft.base.dtypes import float32, int64
from weft.loop import ir
from weft.loop.ir import Buffer, Function, Loop
from weft.loop.walk import statements
from weft.ops.elementary import LN2

TRIPLE = "nvptx64-nvidia-cuda"
_BARRIER = "@llvm.nvvm.barrier.cta.sync.aligned.all"
WAIT = "griddepcontrol.wait;"  # of kernels that come early: for all before it in a graph, and what they wrote
_LET_OTHERS_COME = "griddepcontrol.launch_dependents;"
_SHARED_ALIGNMENT = 16
_DECLARED = 48 << 10  # bytes of shared memory that a kernel may declare
_RESIDENT = 512  # threads of a multiprocessor, at least: fewer cannot hide how long memory takes


def nvptx_target(architecture: str = "sm_90") -> Target:
    """A card of an architecture, as the writers of LLVM text see it.

    >>> from weft.backends.cuda.emit.kernel import nvptx_target
    >>> nvptx_target("sm_80").cpu
    'sm_80'
    """
    version = {"sm_80": 81, "sm_90": 81}.get(architecture, 86)  # from 8.1 on parameters may take 32 KB
    return Target(TRIPLE, architecture, f"+ptx{version}", vector_bytes=16, registers=32)


def waits_for_others(architecture: str) -> bool:
    """Whether kernels for an architecture wait by themselves for what comes before them in a graph.

    >>> from weft.backends.cuda.emit.kernel import waits_for_others
    >>> [waits_for_others(name) for name in ("sm_80", "sm_90", "sm_100")]
    [False, True, True]
    """
    return int("".join(c for c in architecture if c.isdigit())) >= 90


class Nvptx(InstructionSet):
    """NVIDIA's virtual instructions; functions are the same polynomials as on processors.

    But for those that half precision is made of: ``ex2`` and ``rcp`` have errors of 2^-22. That of a power of
    two is times its exponent, so it is 2^-17 at most. What is below the normal numbers is 0 in ``sigmoid``,
    and in powers of what is surely not positive, of which a softmax is made.
    """

    converts_half = True
    rounds_bfloat16 = True
    pairs_halves = True
    has_minimum = True
    underflows_freely = True
    may_fuse = " contract"
    attributes = "nounwind"
    quick = frozenset({"exp", "sigmoid"})

    def quickly(self, e: Scalars, function: str, x: Value) -> Value:
        """By instructions that are not exact."""
        single = Value(float32, x.parts, x.lanes, x.scope, x.number)
        if function == "exp":
            name = "ex2.approx.ftz.f" if e.sign(single) < 0 else "ex2.approx.f"
            out = self._in_lanes(e.registers, name, e.mul(single, 1 / LN2))
        else:
            power = self._in_lanes(e.registers, "ex2.approx.ftz.f", e.mul(single, -1 / LN2))
            out = self._in_lanes(e.registers, "rcp.approx.ftz.f", e.add(power, 1))
        return Value(x.dtype, out.parts, out.lanes, out.scope)

    def _in_lanes(self, registers: Registers, name: str, x: Value) -> Value:
        """An instruction of one number, lane by lane."""
        w, type_ = registers.writer, vector(x.lanes, "float")
        w.declare(f"float @llvm.nvvm.{name}(float)")
        if not x.lanes:
            out = w.here(f"call float @llvm.nvvm.{name}(float {x.parts[0]})")
            return Value(x.dtype, (out,), 0, w.depth)
        out = "poison"
        for i in range(x.lanes):
            one = w.here(f"call float @llvm.nvvm.{name}(float {registers.lane(x, str(i)).parts[0]})")
            out = w.here(f"insertelement {type_} {out}, float {one}, i64 {i}")
        return Value(x.dtype, (out,), x.lanes, w.depth)

    def remainder(self, registers: Registers, x: Value, y: Value) -> Value:
        """By a function of our own, lane by lane: what LLVM writes for PTX is not exact."""
        lanes, scalar = max(x.lanes, y.lanes), REGISTER[x.dtype]
        if not lanes:
            return self._left(registers, x, y)
        pairs = [[registers.lane(registers.in_lanes(v, lanes), str(i)) for v in (x, y)] for i in range(lanes)]
        out, type_, w = "poison", vector(lanes, scalar), registers.writer
        for i, (a, b) in enumerate(pairs):
            one = self._left(registers, a, b).parts[0]
            out = w.here(f"insertelement {type_} {out}, {scalar} {one}, i64 {i}")
        return Value(x.dtype, (out,), lanes, w.depth)

    def _left(self, registers: Registers, x: Value, y: Value) -> Value:
        w, wide = registers.writer, REGISTER[x.dtype] == "double"
        parts = [v.parts[0] if wide else w.here(f"fpext float {v.parts[0]} to double") for v in (x, y)]
        found = w.here(f"call double {remainder.NAME}(double {parts[0]}, double {parts[1]})")
        found = found if wide else w.here(f"fptrunc double {found} to float")
        return Value(x.dtype, (found,), 0, w.depth)


class GridLoops(Loops):
    """Loops of a kernel: each thread has its block and its number."""

    def loop(self, s: Loop) -> None:
        """Write a loop in the way of its kind."""
        if s.kind == "threads":
            self._number(s, "%thread")
        else:
            super().loop(s)

    def parallel(self, s: Loop) -> None:
        """The iteration of this block."""
        self._number(s, "%block")

    def _number(self, s: Loop, name: str) -> None:
        first = self.value(s.start)
        self.indices.variables[s.variable] = self.indices.sum(first, Value(int64, (name,), 0, 0))
        self.block(s.body)

    def vector(self, s: Loop, varying: Varying) -> None:
        """Vectors where the loop says how many lanes; else one iteration after the other."""
        if s.lanes:
            super().vector(s, varying)
        else:
            self.serial(s, self.value(s.start), self.value(s.stop))


class GridKernel(Kernel):
    """Writes a kernel of a grid.

    Attributes:
        alignments: of the addresses of its parameters, in bytes.
        shared: lines that define its shared memory.
    """

    loops = GridLoops

    def __init__(self, function: Function, machine: InstructionSet, alignments: Mapping[Buffer, int]) -> None:
        super().__init__(function, machine, debug=False)
        self.alignments = alignments
        self.shared: list[str] = []
        self.code.ways[ir.Barrier] = lambda s: self._barrier()
        self._symbol = ""
        self._asked = _asked_for(function)[0]
        self._waits = waits_for_others(machine.target.cpu)

    def text(self, symbol: str) -> str:
        """The module: its shared memory, then the function."""
        self._symbol = symbol
        text = super().text(symbol)
        helpers = [*remainder.DECLARATIONS, remainder.TEXT] if remainder.NAME in text else []
        return "\n".join([*helpers, text, *self.shared, ""])

    def _barrier(self) -> None:
        self.writer.declare(f"void {_BARRIER}(i32)")
        self.writer.line(f"call void {_BARRIER}(i32 0)")

    def head(self, symbol: str) -> str:
        """The definition, up to its parameters."""
        constants, reused = unwritten(self.function), self._reused()
        parameters = ["ptr addrspace(1) %in_context"] if can_fail(self.function) else []
        for i, buffer in enumerate(self.function.buffers):
            how = " readonly" if buffer in constants else ""
            apart = "" if buffer in reused else " noalias"
            align = max(self.alignments.get(buffer, 0), 1)
            parameters.append(f"ptr addrspace(1){apart}{how} align {align} %in{i}")
        parameters += [f"i64 %size{i}" for i in range(len(self.function.sizes))]
        return f"define ptx_kernel void @{symbol}({', '.join(parameters)}) {self.shape()}"

    def shape(self) -> str:
        """How many threads a block has, and how many blocks there are at once, which bounds registers."""
        count = thread_count(self.function)
        holds = any(b.space == "private" for b in self.function.scratch)
        wanted = _RESIDENT if holds or count <= _RESIDENT // 2 else 2 * _RESIDENT
        return f'"nvvm.maxntid"="{count}" "nvvm.minctasm"="{min(max(wanted // count, 1), 32)}"'

    def _reused(self) -> set[Buffer]:
        return {self.function.buffers[i] for pair in self.function.reuses for i in pair}

    def parameters(self) -> None:
        """Addresses as the writer has them, scratch memory, and who this thread is."""
        w, function = self.writer, self.function
        if self._waits:
            # Whatever comes after this kernel comes when this one has begun, so that one waits at a time.
            for instruction in (WAIT, _LET_OTHERS_COME):
                w.line(f'call void asm sideeffect "{instruction}", "~{{memory}}"()')
        for name, register in (("thread", "tid"), (self.block_name(), "ctaid")):
            w.declare(f"i32 @llvm.nvvm.read.ptx.sreg.{register}.x()")
            w.line(f"%{name}32 = call i32 @llvm.nvvm.read.ptx.sreg.{register}.x()")
            w.line(f"%{name} = zext i32 %{name}32 to i64")
        self.addresses()
        for buffer in function.scratch:
            self.pointers[buffer] = Value(int64, (self._scratch(buffer),), 0, 0)
        own = dict.fromkeys(function.scratch, _SHARED_ALIGNMENT)
        self.code.places.alignments = {**self.alignments, **own}

    def block_name(self) -> str:
        """The number of a block."""
        return "block"

    def addresses(self) -> None:
        """What the function is given."""
        w, function = self.writer, self.function
        if can_fail(function):
            w.line("%context = addrspacecast ptr addrspace(1) %in_context to ptr")
        for i, buffer in enumerate(function.buffers):
            w.line(f"%buffer{i} = addrspacecast ptr addrspace(1) %in{i} to ptr")
            self.pointers[buffer] = Value(int64, (f"%buffer{i}",), 0, 0)
        for i, name in enumerate(function.sizes):
            self.sizes[name] = Value(int64, (f"%size{i}",), 0, 0)

    def _scratch(self, buffer: Buffer) -> str:
        """Private memory on the stack, or shared memory of the block."""
        type_ = f"[{buffer.size} x {element_type(buffer.dtype)}]"
        if buffer.space != "shared":
            return self.writer.slot(type_, align=_SHARED_ALIGNMENT)
        if buffer in self._asked:
            return self._at_launch(self._asked[buffer])
        name = f"@{self._symbol}_shared{len(self.shared)}"
        self.shared.append(f"{name} = internal addrspace(3) global {type_} undef, align {_SHARED_ALIGNMENT}")
        self.writer.line(f"%shared{len(self.shared)} = addrspacecast ptr addrspace(3) {name} to ptr")
        return f"%shared{len(self.shared)}"

    def _at_launch(self, offset: int) -> str:
        """Shared memory of the block that the launch asks for."""
        name = f"@{self._symbol}_asked"
        line = f"{name} = external addrspace(3) global [0 x i8], align {_SHARED_ALIGNMENT}"
        if line not in self.shared:
            self.shared.append(line)
        place = self.writer.here(f"getelementptr i8, ptr addrspace(3) {name}, i64 {offset}")
        return self.writer.here(f"addrspacecast ptr addrspace(3) {place} to ptr")


class WaveKernel(GridKernel):
    """Writes a kernel that does what many launches of a function would: a block finds the one that it is of.

    What they are given is one row of words, ``many`` times the number of the first block, addresses, sizes.
    """

    def __init__(
        self, function: Function, machine: InstructionSet, alignments: Mapping[Buffer, int], many: int
    ) -> None:
        super().__init__(function, machine, alignments)
        self.many = many
        self.each = 1 + len(function.buffers) + len(function.sizes)

    def head(self, symbol: str) -> str:
        """The definition, up to its parameters."""
        row = f"ptr byval([{self.many * self.each} x i64]) align 8 %table"
        return f"define ptx_kernel void @{symbol}({row}) {self.shape()}"

    def addresses(self) -> None:
        """What the launch of this block is given, from the row."""
        w, first = self.writer, self._find()
        w.line(f"%block = sub i64 %whole, {self._given(first, 0, 'i64')}")
        for i, buffer in enumerate(self.function.buffers):
            pointer = self._given(first, 1 + i, "ptr addrspace(1)")
            w.line(f"%buffer{i} = addrspacecast ptr addrspace(1) {pointer} to ptr")
            self.pointers[buffer] = Value(int64, (f"%buffer{i}",), 0, 0)
        for i, name in enumerate(self.function.sizes):
            word = self._given(first, 1 + len(self.function.buffers) + i, "i64")
            self.sizes[name] = Value(int64, (word,), 0, 0)

    def block_name(self) -> str:
        """The number of a block of all of them."""
        return "whole"

    def _find(self) -> str:
        """Where the words of the launch begin: the last one that does not begin after this block."""
        w, found = self.writer, "0"
        step = 1 << max((self.many - 1).bit_length() - 1, 0)
        while step and self.many > 1:
            next_ = w.here(f"add i64 {found}, {step * self.each}")
            inside = w.here(f"icmp ult i64 {next_}, {self.many * self.each}")
            safe = w.here(f"select i1 {inside}, i64 {next_}, i64 {found}")
            begins = self._given(safe, 0, "i64")
            after = w.here(f"icmp ule i64 {begins}, %whole")
            found = w.here(f"select i1 {after}, i64 {safe}, i64 {found}")
            step >>= 1
        return found

    def _given(self, first: str, number: int, type_: str) -> str:
        w = self.writer
        at = w.here(f"add i64 {first}, {number}")
        place = w.here(f"getelementptr i64, ptr %table, i64 {at}")
        return w.here(f"load {type_}, ptr {place}, align 8")


def _asked_for(function: Function) -> tuple[dict[Buffer, int], int]:
    """The buffers in shared memory that a launch asks for, with their places, and how many bytes they take.

    It is those that are too large to be declared beside the others.
    """
    shared = sorted([b for b in function.scratch if b.space == "shared"], key=_room)
    found, declared, at = {}, 0, 0
    for buffer in shared:
        declared += _room(buffer)
        if declared > _DECLARED:
            found[buffer] = at
            at += _room(buffer)
    return found, at


def _room(buffer: Buffer) -> int:
    """The bytes that a buffer takes, up to where the next one may begin."""
    assert isinstance(buffer.size, int)
    return -(-buffer.size * buffer.dtype.itemsize // _SHARED_ALIGNMENT) * _SHARED_ALIGNMENT


def asked_bytes(function: Function) -> int:
    """Shared memory that a launch of a kernel must ask for.

    >>> import numpy as np
    >>> from weft.backends.cuda.emit.kernel import asked_bytes
    >>> from weft.loop.builder import Builder
    >>> b = Builder()
    >>> few, many = (b.scratch(f"x{n}", np.dtype("f4"), n, "shared") for n in (32, 20000))
    >>> asked_bytes(b.function("f", written=[]))
    80000
    """
    return _asked_for(function)[1]


def can_fail(function: Function) -> bool:
    """Whether a kernel notes failures, so that it is given where to."""
    return any(isinstance(s, ir.Fail) for s in statements(function.body))


def grid_of(function: Function) -> Loop:
    """The parallel loop of a kernel: its blocks."""
    last = function.body.statements[-1]
    assert isinstance(last, Loop), f"{function.name} has no grid"
    return last


def thread_count(function: Function) -> int:
    """The threads of a block."""
    last = grid_of(function).body.statements[-1]
    if not isinstance(last, Loop) or last.kind != "threads":
        return 1
    count = (last.stop - last.start).offset
    assert isinstance(count, int)
    return count


def emit_grid_kernel(
    function: Function,
    symbol: str,
    target: Target,
    alignments: Mapping[Buffer, int] | None = None,
    many: int = 1,
) -> str:
    """A kernel of a grid as LLVM assembly, or one that does what many launches of it would.

    >>> import numpy as np
    >>> from weft.backends.cuda.emit.kernel import emit_grid_kernel, nvptx_target
    >>> from weft.loop.builder import Builder
    >>> b = Builder()
    >>> x = b.buffer("x", np.dtype("f4"), 128)
    >>> with b.parallel(4) as block, b.threads(32) as thread:
    ...     b.store(x, block * 32 + thread, 1.0)
    >>> "ptx_kernel void @ones" in emit_grid_kernel(b.function("f", written=[x]), "ones", nvptx_target())
    True
    """
    if many > 1:
        return WaveKernel(function, Nvptx(target), alignments or {}, many).text(symbol)
    return GridKernel(function, Nvptx(target), alignments or {}).text(symbol)
