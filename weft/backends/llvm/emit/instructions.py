"""What machines have instructions for: what else differs in the text that is written for them.

``InstructionSet`` is a machine that has nothing of its own; a subclass says what it has. Numbers times powers
of two are one instruction of AVX-512, which LLVM knows for one register at a time: wider values are taken
apart, and put together again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from weft.backends.llvm.emit.registers import Registers
from weft.backends.llvm.emit.types import REGISTER, Value, vector
from weft.backends.llvm.emit.writer import Writer
from weft.backends.llvm.target import Target
from weft.base.dtypes import DType
from weft.base.records import NamedTuple
from weft.loop.dots import DOTS, expanded

if TYPE_CHECKING:
    from weft.backends.llvm.emit.scalars import Scalars

_AVX512 = 64  # bytes of a register


class Form(NamedTuple):
    """An instruction as LLVM has it.

    Attributes:
        feature: that a processor needs for it.
        intrinsic: its name.
        words: the type of a register of words.
        size: bytes of a register.
        picks: whether its second operand may be a lane of a register, for all lanes; its operands may be
            exchanged then.
    """

    feature: str
    intrinsic: str
    words: str
    size: int
    picks: bool = False


class InstructionSet:
    """A machine that has no more than LLVM has everywhere.

    Attributes:
        target: its name, and the sizes of its registers.
        converts_half: whether float16 is converted by an instruction.
        rounds_bfloat16: whether an instruction rounds to bfloat16.
        pairs_halves: whether two numbers of 16 bits are a register.
        has_minimum: whether there are minima and maxima that are NaN where either operand is.
        underflows_freely: whether what is below the normal numbers takes no longer than others.
        flush_bits: of its mode: what is below the normal numbers is taken for zero, read and written.
        prefers_unmasked: whether it is better to read something that is there than to branch around a load.
        fuses: whether a product and a sum are one instruction, see ``Reals``.
        may_fuse: what lets LLVM decide that, where it is not.
        picks_words: whether an instruction on words takes a lane of a register for all lanes.
        quick: functions that it has instructions for that are good enough for half precision.
    """

    converts_half = False
    rounds_bfloat16 = False
    pairs_halves = False
    has_minimum = False
    underflows_freely = False
    prefers_unmasked = False
    flush_bits = 0
    fuses = False
    may_fuse = ""
    picks_words = False
    quick: frozenset[str] = frozenset()

    def __init__(self, target: Target) -> None:
        self.target = target

    def has_feature(self, name: str) -> bool:
        """Whether the target says that it has a feature, by LLVM's name."""
        return f"+{name}" in self.target.features.split(",")

    @property
    def dots(self) -> tuple[str, ...]:
        """The instructions of ``weft.loop.dots`` that it has.

        >>> from weft.backends.llvm.emit.instructions import instruction_set
        >>> from weft.backends.llvm.target import Target
        >>> instruction_set(Target("aarch64", "generic", "+neon,+dotprod", 16, 32)).dots
        ('dot_i8',)
        """
        return tuple(name for name in DOTS if self.form_of(name) is not None)

    def form_of(self, dot: str) -> Form | None:
        """Such an instruction as LLVM has it for this machine; None where it has none."""
        return None

    @property
    def attributes(self) -> str:
        """Of functions for it."""
        return f'nounwind "prefer-vector-width"="{8 * self.target.vector_bytes}"'

    def possible_lanes(self, count: int) -> int:
        """As many lanes as are asked for, or fewer where LLVM cannot take so many."""
        return count

    def has_masks(self, dtype: DType) -> bool:
        """Whether there are loads and stores with masks; else each lane takes a branch."""
        return False

    def has_scale(self, x: Value) -> bool:
        """Whether there is an instruction for x 2**n, and x fills registers."""
        return False

    def scaled(self, registers: Registers, x: Value, n: Value, keep: Value) -> Value:
        """x 2**n, and 0 where ``keep`` is not set, at no cost: nothing is computed that could underflow."""
        raise NotImplementedError

    def quickly(self, e: Scalars, function: str, x: Value) -> Value:
        """One of the quick functions, of a number in a register of 32 bits."""
        raise NotImplementedError

    def dot(self, e: Scalars, name: str, total: Value, x: Value, y: Value) -> Value:
        """An instruction of ``weft.loop.dots``, register by register, or by what is on every machine."""
        form, lanes = self.form_of(name), max(v.lanes for v in (total, x, y))
        count = lanes * total.dtype.itemsize // form.size if form is not None else 0
        if form is None or count.bit_count() != 1 or count * form.size != lanes * total.dtype.itemsize:
            return cast(Value, expanded(e, name, total, x, y))
        return _by_registers(e.registers, form, (total, x, y), count)

    def remainder(self, registers: Registers, x: Value, y: Value) -> Value:
        """What is left of x / y rounded towards zero, of floating numbers, exactly."""
        return registers.instruction("frem", x.dtype, x, y)


class Arm(InstructionSet):
    """ARM's, of 64 bits."""

    converts_half = True
    has_minimum = True
    flush_bits = 0x1080000  # FZ and FZ16 of FPCR
    fuses = True
    picks_words = True

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.prefers_unmasked = target.vector_bytes == 16

    def possible_lanes(self, count: int) -> int:
        """Not three: LLVM aborts where three are cut from i64 to i8 and stored."""
        return 2 if count == 3 else count

    def form_of(self, dot: str) -> Form | None:
        """SDOT and BFDOT."""
        form = _ARM_DOTS.get(dot)
        return form if form is not None and self.has_feature(form.feature) else None


class X86(InstructionSet):
    """x86-64: by the size of its vectors SSE, AVX2 or AVX-512."""

    flush_bits = 0x8040  # FTZ and DAZ of MXCSR

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.converts_half = self.fuses = target.vector_bytes >= 32
        self.prefers_unmasked = target.vector_bytes == 16

    def has_masks(self, dtype: DType) -> bool:
        """Of all elements from AVX-512 on, of 4 and 8 bytes from AVX2 on."""
        wide = self.target.vector_bytes
        return wide == 64 or (wide == 32 and dtype.itemsize in (4, 8))

    def has_scale(self, x: Value) -> bool:
        """For whole registers of AVX-512.

        >>> import weft
        >>> from weft.backends.llvm.emit.instructions import instruction_set
        >>> from weft.backends.llvm.emit.types import Value
        >>> from weft.backends.llvm.target import Target
        >>> x = Value(weft.float32, ("%x",), lanes=32, scope=0)
        >>> targets = Target("x86_64-linux", "", "", 64, 32), Target("aarch64", "", "", 16, 32)
        >>> [instruction_set(target).has_scale(x) for target in targets]
        [True, False]
        """
        sizes = (_AVX512, 2 * _AVX512, 4 * _AVX512)
        return self.target.vector_bytes == _AVX512 and x.lanes * x.dtype.itemsize in sizes

    def scaled(self, registers: Registers, x: Value, n: Value, keep: Value) -> Value:
        """By ``vscalef``, a register at a time."""
        writer = registers.writer
        lanes = _AVX512 // x.dtype.itemsize
        scope = max(x.scope, n.scope)
        pieces = []
        for i in range(x.lanes // lanes):
            operands = [_piece(writer, v, i * lanes, lanes, scope) for v in (x, n, keep)]
            pieces.append(_scalef(writer, REGISTER[x.dtype], lanes, operands, scope))
        while len(pieces) > 1:
            type_, pairs = vector(lanes, REGISTER[x.dtype]), zip(pieces[::2], pieces[1::2], strict=True)
            pieces = [_joined(writer, type_, lanes, pair, scope) for pair in pairs]
            lanes *= 2
        return Value(x.dtype, (pieces[0],), x.lanes, writer.home(scope))

    def form_of(self, dot: str) -> Form | None:
        """VPDPBUSD and VDPBF16PS."""
        form = _X86_DOTS.get((dot, self.target.vector_bytes))
        return form if form is not None and self.has_feature(form.feature) else None


_ARM_DOTS = {
    "dot_i8": Form("dotprod", "aarch64.neon.sdot.v4i32.v16i8", "<16 x i8>", 16, picks=True),
    "dot_bf16": Form("bf16", "aarch64.neon.bfdot.v4f32.v8bf16", "<8 x bfloat>", 16, picks=True),
}
_X86_DOTS = {
    ("dot_u8i8", 64): Form("avx512vnni", "x86.avx512.vpdpbusd.512", "<64 x i8>", 64),
    ("dot_u8i8", 32): Form("avxvnni", "x86.avx512.vpdpbusd.256", "<32 x i8>", 32),
    ("dot_bf16", 64): Form("avx512bf16", "x86.avx512bf16.dpbf16ps.512", "<32 x bfloat>", 64),
}


def instruction_set(target: Target) -> InstructionSet:
    """The instructions of a machine."""
    if target.triple.startswith(("aarch64", "arm64")):
        return Arm(target)
    return X86(target)


def _by_registers(
    registers: Registers, form: Form, operands: tuple[Value, Value, Value], count: int
) -> Value:
    """An instruction on so many registers."""
    writer, scope, scalar = registers.writer, max(x.scope for x in operands), REGISTER[operands[0].dtype]
    lanes = max(x.lanes for x in operands)
    piece = lanes // count
    if form.picks and not operands[1].lanes:
        operands = operands[0], operands[2], operands[1]
    type_ = vector(piece, scalar)
    writer.declare(f"{type_} @llvm.{form.intrinsic}({type_}, {form.words}, {form.words})")
    pieces = []
    for i in range(count):
        total, x, y = (_register(registers, v, i * piece, piece, scope) for v in operands)
        words = [writer.pure(f"bitcast <{piece} x i32> {v} to {form.words}", scope) for v in (x, y)]
        given = ", ".join([f"{type_} {total}", *[f"{form.words} {w}" for w in words]])
        pieces.append(writer.pure(f"call {type_} @llvm.{form.intrinsic}({given})", scope))
    while len(pieces) > 1:
        type_, pairs = vector(piece, scalar), zip(pieces[::2], pieces[1::2], strict=True)
        pieces = [_joined(writer, type_, piece, pair, scope) for pair in pairs]
        piece *= 2
    return Value(operands[0].dtype, (pieces[0],), lanes, writer.home(scope))


def _register(registers: Registers, x: Value, first: int, lanes: int, scope: int) -> str:
    """Some lanes of a value; of one that is the same in all lanes, so many of it."""
    if not x.lanes:
        return registers.wide(x, lanes)[0]
    return _piece(registers.writer, x, first, lanes, scope)


def _scalef(writer: Writer, scalar: str, lanes: int, operands: list[str], scope: int) -> str:
    type_ = vector(lanes, scalar)
    name = f"@llvm.x86.avx512.mask.scalef.p{'s' if scalar == 'float' else 'd'}.512"
    writer.declare(f"{type_} {name}({type_}, {type_}, {type_}, i{lanes}, i32)")
    x, n, keep = operands
    mask = writer.pure(f"bitcast <{lanes} x i1> {keep} to i{lanes}", scope)
    nearest = 4  # rounding as the mode says
    arguments = f"{type_} {x}, {type_} {n}, {type_} zeroinitializer, i{lanes} {mask}, i32 {nearest}"
    return writer.pure(f"call {type_} {name}({arguments})", scope)


def _piece(writer: Writer, x: Value, first: int, lanes: int, scope: int) -> str:
    if x.lanes == lanes:
        return x.parts[0]
    type_ = vector(x.lanes, REGISTER[x.dtype])
    order = ", ".join([f"i32 {first + i}" for i in range(lanes)])
    text = f"shufflevector {type_} {x.parts[0]}, {type_} poison, <{lanes} x i32> <{order}>"
    return writer.pure(text, scope)


def _joined(writer: Writer, type_: str, lanes: int, pair: tuple[str, str], scope: int) -> str:
    order = ", ".join([f"i32 {i}" for i in range(2 * lanes)])
    text = f"shufflevector {type_} {pair[0]}, {type_} {pair[1]}, <{2 * lanes} x i32> <{order}>"
    return writer.pure(text, scope)
