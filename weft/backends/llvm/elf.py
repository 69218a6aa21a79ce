"""Object files put together to an image: bytes that run wherever they are put in memory.

This is what a linker does, for the little that LLVM asks for in code of ours: 64-bit ELF for x86-64 with
relative addresses. All that is left open is a table of addresses: of what is outside (``imports``), and of
places in the image itself (``rebased``). What is not understood is an ``UnknownObjectError``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, pack_into
from struct import error as StructError

from weft.backends.llvm.image import Image
from weft.base.records import NamedTuple

PAGE = 4096
_HEADER = Struct("<16sHHIQQQIHHHHHH")
_SECTION = Struct("<IIQQQQIIQQ")
_SYMBOL = Struct("<IBBHQQ")
_RELOCATION = Struct("<QQq")
_X86_64, _RELOCATABLE = 62, 1
_WRITE, _ALLOCATED, _CODE, _LOCAL_DATA = 1, 2, 4, 0x400
_SYMBOLS, _RELOCATIONS, _NOTHING = 2, 4, 8  # kinds of sections; the last has a size and no bytes
_LARGEST = 1 << 28
_ALIGNMENTS = frozenset(1 << n for n in range(13))
_JUMP = b"\xff\x25"  # jmp *offset(%rip)
_JUMP_SIZE = 8

# Relocations, by the ABI of x86-64
_ABSOLUTE_64, _RELATIVE_32, _CALL, _TABLE, _RELATIVE_64, _TABLE_X, _TABLE_REX = 1, 2, 4, 9, 24, 41, 42


class UnknownObjectError(Exception):
    """An object file has something that is not understood."""


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
        if ident[:6] != b"\x7fELF\x02\x01" or (kind, machine, size) != (_RELOCATABLE, _X86_64, _SECTION.size):
            raise UnknownObjectError("no object file for x86-64")
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
        self._data += bytes(-len(self._data) % PAGE)
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
        self._data += bytes(-len(self._data) % _JUMP_SIZE)
        for item in self._objects:
            for symbol in item.symbols:
                known = symbol.name in inside or symbol.name in self._jumps
                if symbol.name and not symbol.section and not known:
                    self._jumps[symbol.name] = len(self._data)
                    self._data += bytes(_JUMP_SIZE)

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
        if (
            offset + (8 if kind in (_ABSOLUTE_64, _RELATIVE_64) else 4)
            > self._objects[number].sections[section].size
        ):
            raise UnknownObjectError("an address beyond its section")
        place = self._place(number, symbol)
        if kind in (_TABLE, _TABLE_X, _TABLE_REX):
            self._write(at, self._slot(symbol.name if place is None else place) + addend - at)
        elif kind == _CALL and place is None:
            self._slot(symbol.name)
            self._write(at, self._jumps[symbol.name] + addend - at)
        elif place is None:
            raise UnknownObjectError(f"{symbol.name} is outside")
        elif kind in (_RELATIVE_32, _CALL):
            self._write(at, place + addend - at)
        elif kind == _RELATIVE_64:
            self._write(at, place + addend - at, "<q")
        elif kind == _ABSOLUTE_64:
            self._write(at, place + addend, "<q")
            self._rebased.append(at)
        else:
            raise UnknownObjectError(f"relocation {kind}")

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
                self._write(at, what, "<q")
                self._rebased.append(at)
        return self._table[what]

    def _write(self, at: int, value: int, form: str = "<i") -> None:
        if form == "<i" and not -(2**31) <= value < 2**31:
            raise UnknownObjectError("an address too far away")
        pack_into(form, self._data, at, value)

    def _write_jumps(self) -> None:
        for name, at in self._jumps.items():
            if name in self._imports:
                self._data[at : at + 2] = _JUMP
                self._write(at + 2, self._imports[name] - (at + 6))
