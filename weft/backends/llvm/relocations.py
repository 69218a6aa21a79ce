"""What addresses object files leave open, for each architecture: what is to be written, and how.

One table an architecture, from the numbers of its ABI to rows: *what* the address is of (a place, its slot in
the table of addresses, or something that is called), *how* it counts (from where it stands, in pages, or only
its place in a page), and the field of the instruction that takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from struct import pack, unpack_from

from weft.base.records import NamedTuple

PAGE = 4096  # of addresses; pages of memory may be larger


class UnknownObjectError(Exception):
    """An object file has something that is not understood."""


class Of(Enum):
    """What an address is of."""

    PLACE = "a place in the image"
    SLOT = "its slot in the table of addresses"
    CALL = "a function, or a jump to one that is outside"


class Counts(Enum):
    """How an address counts."""

    ABSOLUTE = "as it is, which is known when the image is in memory"
    RELATIVE = "from where it stands"
    PAGES = "in pages from the one where it stands"
    IN_PAGE = "from the beginning of its page"


class Field(NamedTuple):
    """Bits that take an address: how many bytes they stand in, and these bytes from those before."""

    size: int
    filled: Callable[[bytes, int], bytes]


class Relocation(NamedTuple):
    """A row of the tables below."""

    of: Of
    counts: Counts
    field: Field


class Architecture(NamedTuple):
    """What a linker must know of processors.

    Attributes:
        name: for messages.
        relocations: by their numbers.
        jump_size: bytes that a jump to an address of the table takes.
        jump: the jump, from its place and that of the slot.
        counts_slots: whether what is added to a slot's address counts from the slot, not from what it is of.
    """

    name: str
    relocations: Mapping[int, Relocation]
    jump_size: int
    jump: Callable[[int, int], bytes]
    counts_slots: bool


def _number(form: str, bits: int) -> Field:
    def filled(_: bytes, value: int) -> bytes:
        return pack(form, _signed(value, bits))

    return Field(bits // 8, filled)


def _signed(value: int, bits: int, shift: int = 0) -> int:
    """A value without its last bits, which must be 0; it must fit in some bits with a sign."""
    if value & ((1 << shift) - 1):
        raise UnknownObjectError("an address that is not a multiple of its unit")
    value >>= shift
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise UnknownObjectError("an address too far away")
    return value


_WORD, _LONG = _number("<i", 32), _number("<q", 64)


# x86-64


def _x86_jump(at: int, slot: int) -> bytes:
    return b"\xff\x25" + pack("<i", slot - (at + 6)) + b"\0\0"  # jmp *offset(%rip)


_RELATIVE_SLOT = Relocation(Of.SLOT, Counts.RELATIVE, _WORD)
X86_64 = Architecture(
    "x86-64",
    {
        1: Relocation(Of.PLACE, Counts.ABSOLUTE, _LONG),
        2: Relocation(Of.PLACE, Counts.RELATIVE, _WORD),
        4: Relocation(Of.CALL, Counts.RELATIVE, _WORD),
        9: _RELATIVE_SLOT,
        24: Relocation(Of.PLACE, Counts.RELATIVE, _LONG),
        41: _RELATIVE_SLOT,
        42: _RELATIVE_SLOT,
    },
    jump_size=8,
    jump=_x86_jump,
    counts_slots=True,
)


# 64-bit ARM: fields are parts of instructions of four bytes


def _bits(field: int, encoded: Callable[[int], int]) -> Field:
    """A field of an instruction, which other bits of it are kept around."""

    def filled(before: bytes, value: int) -> bytes:
        [instruction] = unpack_from("<I", before)
        return pack("<I", (instruction & ~field) | encoded(value))

    return Field(4, filled)


def _branch(value: int) -> int:
    return _signed(value, 26, 2) & 0x3FFFFFF


def _near(value: int) -> int:
    return (_signed(value, 19, 2) & 0x7FFFF) << 5


def _halves(value: int) -> int:
    value = _signed(value, 21)
    return (value & 3) << 29 | (value >> 2 & 0x7FFFF) << 5


def _offset(shift: int) -> Field:
    """Twelve bits of an addition, or of a load or store that counts in units of what it loads."""
    return _bits(0xFFF << 10, lambda value: _signed(value, 13, shift) << 10)


_ADR, _BRANCH = _bits(0x60FFFFE0, _halves), _bits(0x3FFFFFF, _branch)


def _arm_jump(at: int, slot: int) -> bytes:
    """The address into x16, which is for this; a slot is a multiple of 8."""
    page = _ADR.filled(pack("<I", 0x90000010), slot // PAGE - at // PAGE)  # adrp x16, page
    load = _offset(3).filled(pack("<I", 0xF9400210), slot % PAGE)  # ldr x16, [x16, offset]
    return page + load + pack("<II", 0xD61F0200, 0xD503201F)  # br x16; nop


AARCH64 = Architecture(
    "64-bit ARM",
    {
        257: Relocation(Of.PLACE, Counts.ABSOLUTE, _LONG),
        260: Relocation(Of.PLACE, Counts.RELATIVE, _LONG),
        261: Relocation(Of.PLACE, Counts.RELATIVE, _WORD),
        273: Relocation(Of.PLACE, Counts.RELATIVE, _bits(0x7FFFF << 5, _near)),
        274: Relocation(Of.PLACE, Counts.RELATIVE, _ADR),
        275: Relocation(Of.PLACE, Counts.PAGES, _ADR),
        277: Relocation(Of.PLACE, Counts.IN_PAGE, _offset(0)),
        278: Relocation(Of.PLACE, Counts.IN_PAGE, _offset(0)),  # loads and stores of 1, 2, 4, 8, 16 bytes
        284: Relocation(Of.PLACE, Counts.IN_PAGE, _offset(1)),
        285: Relocation(Of.PLACE, Counts.IN_PAGE, _offset(2)),
        286: Relocation(Of.PLACE, Counts.IN_PAGE, _offset(3)),
        299: Relocation(Of.PLACE, Counts.IN_PAGE, _offset(4)),
        280: Relocation(Of.CALL, Counts.RELATIVE, _bits(0x7FFFF << 5, _near)),
        282: Relocation(Of.CALL, Counts.RELATIVE, _BRANCH),
        283: Relocation(Of.CALL, Counts.RELATIVE, _BRANCH),
        311: Relocation(Of.SLOT, Counts.PAGES, _ADR),
        312: Relocation(Of.SLOT, Counts.IN_PAGE, _offset(3)),
    },
    jump_size=16,
    jump=_arm_jump,
    counts_slots=False,
)

ARCHITECTURES: Mapping[int, Architecture] = {62: X86_64, 183: AARCH64}  # by their numbers in ELF
