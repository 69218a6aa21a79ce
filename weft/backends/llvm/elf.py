"""Object files put together to an image: bytes that run wherever they are put in memory.

This is what a linker does, for the little that LLVM asks for in code of ours: 64-bit ELF for x86-64 and ARM
with relative addresses (``relocations``). All that is left open is a table of addresses: of what is outside
(``imports``), and of places in the image itself (``rebased``). What is not understood is an
``UnknownObjectError``.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from struct import Struct, pack_into
from struct import error as StructError

from weft.backends.llvm.image import Image
from weft.backends.llvm.relocations import ARCHITECTURES, PAGE, X86_64, Counts, Of, UnknownObjectError
from weft.base.records import NamedTuple

__all__ = ["UnknownObjectError", "make_image"]

_HEADER = Struct("<16sHHIQQQIHHHHHH")
_SECTION = Struct("<IIQQQQIIQQ")
_SYMBOL = Struct("<IBBHQQ")
_RELOCATION = Struct("<QQq")
_RELOCATABLE = 1
_WRITE, _ALLOCATED, _CODE, _LOCAL_DATA = 1, 2, 4, 0x400
_SYMBOLS, _RELOCATIONS, _NOTHING = 2, 4, 8  # kinds of sections; the last has a size and no bytes
_LARGEST = 1 << 28
_ALIGNMENTS = frozenset(1 << n for n in range(13))


class _Section(NamedTuple):
    kind: int
    flags: int
    data: bytes
    size: int
    info: int
    alignment: int


class _Symbol(NamedTuple):
    """A symbol: in which section of its object and where; the section is 0 if it is defined elsewhere."""

    name: str
    section: int
    value: int
    is_local: bool


class _Object:
    """The parts of an object file."""

    def __init__(self, data: bytes) -> None:
        ident, kind, machine, *_, offset, _, _, _, _, size, count, names = _HEADER.unpack_from(data)
        if ident[:6] != b"\x7fELF\x02\x01" or (kind, size) != (_RELOCATABLE, _SECTION.size):
            raise UnknownObjectError("no object file of 64 bits")
        if machine not in ARCHITECTURES:
            known = " or ".join(item.name for item in ARCHITECTURES.values())
            raise UnknownObjectError(f"no object file for {known}")
        self.architecture = ARCHITECTURES[machine]
        rows = [_SECTION.unpack_from(data, offset + i * size) for i in range(count)]
        self.sections = [_section(row, data) for row in rows]
        strings = self.sections[names].data
        self.names = [_text(strings, row[0]) for row in rows]
        self.symbols: list[_Symbol] = []
        for row, section in zip(rows, self.sections, strict=True):
            if section.kind == _SYMBOLS:
                self.symbols = _symbols(section.data, self.sections[row[6]].data)
        self.relocations = [
            (section.info, _RELOCATION.iter_unpack(section.data))
            for section in self.sections
            if section.kind == _RELOCATIONS
        ]

    def is_kept(self, number: int) -> bool:
        """Whether a section is in the image: not so those for debuggers and for unwinding the stack."""
        section = self.sections[number]
        return bool(section.flags & _ALLOCATED) and self.names[number] != ".eh_frame" and section.size > 0


def _section(row: Sequence[int], data: bytes) -> _Section:
    _, kind, flags, _, offset, size, _, info, alignment, _ = row
    if flags & _LOCAL_DATA or alignment > PAGE or (alignment or 1) not in _ALIGNMENTS or size > _LARGEST:
        raise UnknownObjectError("a section of an unknown kind")
    content = b"" if kind == _NOTHING else data[offset : offset + size]
    if kind != _NOTHING and len(content) != size:
        raise UnknownObjectError("a section beyond the end")
    return _Section(kind, flags, content, size, info, alignment or 1)


def _symbols(data: bytes, strings: bytes) -> list[_Symbol]:
    found = []
    for name, info, _, section, value, _ in _SYMBOL.iter_unpack(data):
        if section >= 0xFF00 and info & 15 != 4:  # absolute and common ones; 4 is the name of a file
            raise UnknownObjectError("a symbol in no section")
        found.append(_Symbol(_text(strings, name), section if section < 0xFF00 else 0, value, info >> 4 == 0))
    return found


def _text(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode()


def make_image(objects: Sequence[bytes], wanted: Sequence[str]) -> Image:
    """The image of object files, of which some functions are wanted.

    >>> from weft.backends.llvm.elf import make_image
    >>> make_image([], []).data
    b''
    """
    try:
        return _Linker([_Object(data) for data in objects]).image(wanted)
    except (IndexError, KeyError, ValueError, OverflowError, StructError) as error:
        raise UnknownObjectError(str(error)) from error


class _Linker:
    """Puts sections side by side, and writes the addresses into them."""

    def __init__(self, objects: Sequence[_Object]) -> None:
        self._objects = objects
        kinds = {item.architecture.name: item.architecture for item in objects}
        if len(kinds) > 1:
            raise UnknownObjectError(f"objects for {' and '.join(kinds)}")
        self._machine = next(iter(kinds.values()), X86_64)
        self._data = bytearray()
        self._places: dict[tuple[int, int], int] = {}  # by object and section
        self._defined: dict[str, int] = {}
        self._imports: dict[str, int] = {}
        self._rebased: list[int] = []
        self._table: dict[str | int, int] = {}  # slots by name outside, or by place inside
        self._jumps: dict[str, int] = {}

    def image(self, wanted: Sequence[str]) -> Image:
        self._lay_out(lambda flags: not flags & _WRITE)
        self._lay_out_jumps()
        self._data += bytes(-len(self._data) % max(PAGE, mmap.PAGESIZE))
        fixed = len(self._data)
        self._lay_out(lambda flags: bool(flags & _WRITE))
        self._define()
        for number, item in enumerate(self._objects):
            for section, rows in item.relocations:
                if item.is_kept(section):
                    for row in rows:
                        self._relocate(number, section, *row)
        self._write_jumps()
        exports = {name: self._defined[name] for name in wanted}
        return Image(bytes(self._data), fixed, exports, self._imports, self._rebased)

    def _lay_out(self, belongs: Callable[[int], bool]) -> None:
        for number, item in enumerate(self._objects):
            for i, section in enumerate(item.sections):
                if item.is_kept(i) and belongs(section.flags):
                    self._data += bytes(-len(self._data) % section.alignment)
                    self._places[number, i] = len(self._data)
                    self._data += section.data + bytes(section.size - len(section.data))
        if len(self._data) > _LARGEST:
            raise UnknownObjectError("too much of it")

    def _lay_out_jumps(self) -> None:
        """Room for a jump to each function outside that is called."""
        inside = {s.name for item in self._objects for s in item.symbols if s.section}
        self._data += bytes(-len(self._data) % self._machine.jump_size)
        for item in self._objects:
            for symbol in item.symbols:
                known = symbol.name in inside or symbol.name in self._jumps
                if symbol.name and not symbol.section and not known:
                    self._jumps[symbol.name] = len(self._data)
                    self._data += bytes(self._machine.jump_size)

    def _define(self) -> None:
        for number, item in enumerate(self._objects):
            for symbol in item.symbols:
                if symbol.section and not symbol.is_local and item.is_kept(symbol.section):
                    if symbol.name in self._defined:
                        raise UnknownObjectError(f"{symbol.name} is defined twice")
                    self._defined[symbol.name] = self._places[number, symbol.section] + symbol.value

    def _relocate(self, number: int, section: int, offset: int, info: int, addend: int) -> None:
        """Write an address into a section."""
        symbol = self._objects[number].symbols[info >> 32]
        kind, at = info & 0xFFFFFFFF, self._places[number, section] + offset
        row = self._machine.relocations.get(kind)
        if row is None:
            raise UnknownObjectError(f"relocation {kind}")
        if offset + row.field.size > self._objects[number].sections[section].size:
            raise UnknownObjectError("an address beyond its section")
        value = self._meant(row.of, self._place(number, symbol), symbol.name, addend)
        if row.counts is Counts.ABSOLUTE:
            self._rebased.append(at)
        elif row.counts is Counts.RELATIVE:
            value -= at
        elif row.counts is Counts.PAGES:
            value = value // PAGE - at // PAGE
        else:
            value %= PAGE
        end = at + row.field.size
        self._data[at:end] = row.field.filled(bytes(self._data[at:end]), value)

    def _meant(self, of: Of, place: int | None, name: str, addend: int) -> int:
        """The place in the image that an address is of."""
        if of is Of.SLOT:
            if addend and not self._machine.counts_slots:
                raise UnknownObjectError("the slot of a place beside a name")
            return self._slot(name if place is None else place) + addend
        if place is None and of is Of.CALL:
            self._slot(name)
            return self._jumps[name] + addend
        if place is None:
            raise UnknownObjectError(f"{name} is outside")
        return place + addend

    def _place(self, number: int, symbol: _Symbol) -> int | None:
        """Where a symbol is in the image; None if it is outside."""
        if symbol.section:
            return self._places[number, symbol.section] + symbol.value
        return self._defined.get(symbol.name)

    def _slot(self, what: str | int) -> int:
        """The place of an address in the table: of a name outside, or of a place inside."""
        if what not in self._table:
            self._data += bytes(-len(self._data) % 8)
            at = self._table[what] = len(self._data)
            self._data += bytes(8)
            if isinstance(what, str):
                self._imports[what] = at
            else:
                pack_into("<q", self._data, at, what)
                self._rebased.append(at)
        return self._table[what]

    def _write_jumps(self) -> None:
        for name, at in self._jumps.items():
            if name in self._imports:
                self._data[at : at + self._machine.jump_size] = self._machine.jump(at, self._imports[name])
