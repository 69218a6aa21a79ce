"""A library asks the processor, before anything else, whether it has the instructions that were used.

Where it has not, ``create`` says so; the program would be killed otherwise. Features are those that LLVM
names, as far as it writes instructions of them for the code of weft.
"""

from __future__ import annotations

import platform
from functools import reduce

import llvmlite.binding as llvm
from llvmlite import ir

from weft.backends.llvm.export.code import I32, I64, Code, Unit, half, word
from weft.backends.llvm.features import ARM_BITS, CAPABILITIES
from weft.backends.llvm.target import Target, host_target
from weft.errors import DomainError

_X86 = "x86_64-unknown-linux-gnu"
_ARM = "aarch64-unknown-linux-gnu"

# By name, machines that all processors from some year on can stand in for.
_TARGETS = {
    "x86-64-v2": Target(_X86, "x86-64-v2", "", vector_bytes=16, registers=16),
    "x86-64-v3": Target(_X86, "x86-64-v3", "", vector_bytes=32, registers=16),
    "x86-64-v4": Target(_X86, "x86-64-v4", "", vector_bytes=64, registers=32),
    "x86-64-v4-bf16": Target(_X86, "x86-64-v4", "+avx512vnni,+avx512bf16", vector_bytes=64, registers=32),
    "armv8-a": Target(_ARM, "generic", "+neon,+fp-armv8", vector_bytes=16, registers=32),
    "armv8.6-a": Target(
        _ARM, "generic", "+neon,+fp-armv8,+dotprod,+i8mm,+bf16", vector_bytes=16, registers=32
    ),
}
_GENERIC = {"x86_64": "x86-64-v2", "amd64": "x86-64-v2", "aarch64": "armv8-a", "arm64": "armv8-a"}


def target_named(cpu: str) -> Target:
    """The machine with a name: "host", "generic", or a level such as "x86-64-v3".

    >>> from weft.backends.llvm.export.processor import target_named
    >>> target_named("x86-64-v3").vector_bytes
    32
    """
    if cpu == "host":
        return host_target()
    name = _GENERIC.get(platform.machine().lower(), cpu) if cpu == "generic" else cpu
    if name not in _TARGETS:
        known = ", ".join(['"host"', '"generic"', *[f'"{n}"' for n in _TARGETS]])
        raise DomainError("export_library", f"cpu must be one of {known}, got {cpu!r}")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return _TARGETS[name]


def is_arm(target: Target) -> bool:
    """Whether a machine is one of ARM's."""
    return target.triple.startswith(("aarch64", "arm64"))


def is_here(target: Target) -> bool:
    """Whether a machine is of the kind that this program runs on."""
    return is_arm(target) == is_arm(host_target())


_A, _B, _C, _D = range(4)  # registers that cpuid answers in
_EXTENDED = 0x80000001
_LEAVES = 0  # the leaf that tells how many there are

# By feature, where cpuid tells of it: leaf, subleaf, register and bit.
X86_BITS = {
    "sse3": (1, 0, _C, 0),
    "ssse3": (1, 0, _C, 9),
    "fma": (1, 0, _C, 12),
    "sse4.1": (1, 0, _C, 19),
    "sse4.2": (1, 0, _C, 20),
    "movbe": (1, 0, _C, 22),
    "popcnt": (1, 0, _C, 23),
    "avx": (1, 0, _C, 28),
    "f16c": (1, 0, _C, 29),
    "lzcnt": (_EXTENDED, 0, _C, 5),
    "bmi": (7, 0, _B, 3),
    "avx2": (7, 0, _B, 5),
    "bmi2": (7, 0, _B, 8),
    "avx512f": (7, 0, _B, 16),
    "avx512dq": (7, 0, _B, 17),
    "avx512ifma": (7, 0, _B, 21),
    "avx512cd": (7, 0, _B, 28),
    "avx512bw": (7, 0, _B, 30),
    "avx512vl": (7, 0, _B, 31),
    "avx512vbmi": (7, 0, _C, 1),
    "avx512vbmi2": (7, 0, _C, 6),
    "gfni": (7, 0, _C, 8),
    "avx512vnni": (7, 0, _C, 11),
    "avx512bitalg": (7, 0, _C, 12),
    "avx512vpopcntdq": (7, 0, _C, 14),
    "avx512fp16": (7, 0, _D, 23),
    "avxvnni": (7, 1, _A, 4),
    "avx512bf16": (7, 1, _A, 5),
}
_SAVED_BY_THE_SYSTEM = (1, 0, _C, 27)  # whether it says which registers it keeps from thread to thread
_WIDE, _WIDER = 0x06, 0xE6  # the bits that say so of registers of 32 bytes, and of 64

_LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64-v2": ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}


def needed_features(target: Target) -> set[str]:
    """What a processor must have to stand in for a machine.

    >>> from weft.backends.llvm.export.processor import needed_features
    >>> from weft.backends.llvm.export.processor import target_named
    >>> sorted(needed_features(target_named("x86-64-v2")))
    ['popcnt', 'sse3', 'sse4.1', 'sse4.2', 'ssse3']
    """
    known = ARM_BITS if is_arm(target) else X86_BITS
    named = {word[1:] for word in target.features.split(",") if word.startswith("+")}
    levels = [
        features for level, features in _LEVELS.items() if level <= target.cpu and target.cpu in _LEVELS
    ]
    return named.union(*levels) & known.keys()


def plain_machine(target: Target) -> Target:
    """The least machine of the same kind, for code that runs before the question."""
    return Target(target.triple, "generic" if is_arm(target) else "x86-64", "", 16, target.registers)


def write_question(unit: Unit, target: Target) -> ir.Value:
    """A function that gives 1 if the processor has all that is needed, and 0 if not."""
    c = unit.function("has_instructions", I64)
    features = needed_features(target)
    if is_arm(target):
        answers = _ask_system(c, features)
    else:
        answers = _ask_processor(c, features) if is_here(target) else []
    c.give(c.b.zext(reduce(c.b.and_, answers), I64) if answers else word(1))
    return c.function


def _ask_system(c: Code, features: set[str]) -> list[ir.Value]:
    answers = []
    for number, which in enumerate(CAPABILITIES):
        bits = [bit for at, bit in (ARM_BITS[f] for f in features) if at == number]
        if bits:
            answers.append(_all_set(c, c.call("getauxval", I64, word(which)), bits))
    return answers


def _ask_processor(c: Code, features: set[str]) -> list[ir.Value]:
    """Leaves that are not there answer anything, so their number comes first."""
    bits = {X86_BITS[f] for f in features} | ({_SAVED_BY_THE_SYSTEM} if "avx" in features else set())
    last = max([leaf for leaf, *_ in bits if leaf != _EXTENDED], default=_LEAVES)
    with c.unlikely(c.compare("<", c.b.extract_value(_cpuid(c, _LEAVES, 0), _A), last)):
        c.give(word(0))
    answers = []
    for leaf, subleaf, register in sorted({place[:3] for place in bits}):
        found = c.b.extract_value(_cpuid(c, leaf, subleaf), register)
        answers.append(
            _all_set(c, found, [bit for *at, bit in bits if tuple(at) == (leaf, subleaf, register)])
        )
    if "avx" in features:
        with c.unlikely(c.b.not_(reduce(c.b.and_, answers))):
            c.give(word(0))
        wanted = _WIDER if "avx512f" in features else _WIDE
        kept = c.b.and_(_kept_registers(c), half(wanted))
        answers.append(c.compare("==", kept, wanted))
    return answers


def _all_set(c: Code, found: ir.Value, bits: list[int]) -> ir.Value:
    mask = ir.Constant(found.type, sum(1 << bit for bit in bits))
    return c.b.icmp_unsigned("==", c.b.and_(found, mask), mask)


def _cpuid(c: Code, leaf: int, subleaf: int) -> ir.Value:
    kind = ir.FunctionType(ir.LiteralStructType([I32] * 4), [I32, I32])
    registers = "={ax},={bx},={cx},={dx},{ax},{cx}"
    return c.b.call(ir.InlineAsm(kind, "cpuid", registers, side_effect=True), [half(leaf), half(subleaf)])


def _kept_registers(c: Code) -> ir.Value:
    """Which registers the system keeps; may be asked only where it says."""
    kind = ir.FunctionType(ir.LiteralStructType([I32] * 2), [I32])
    found = c.b.call(ir.InlineAsm(kind, "xgetbv", "={ax},={dx},{cx}", side_effect=True), [half(0)])
    return c.b.extract_value(found, _A)
