"""Arrays as an object file: data that is never written, under one name, for a linker to take.

The format is ELF's, for machines of 64 bits that count bytes from the lowest: a header, the data, tables of
symbols and of their names, and a table of sections.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from weft.backends.library import ALIGNMENT
from weft.io.layout import Array

_X86, _ARM = 62, 183
_HEADER, _SECTION, _SYMBOL = 64, 64, 24  # bytes of each
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3  # kinds of sections
_ALLOCATED = 2
_GLOBAL_OBJECT, _HIDDEN = (1 << 4) | 1, 2
_NAMES = b"\0.rodata\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack\0"


class _Section(NamedTuple):
    """What the table says of a section, in its order."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


def write_data_object(path: Path, symbol: str, arrays: Sequence[Array], *, arm: bool) -> tuple[int, ...]:
    """Write arrays one after the other; gives where each begins, counted from the symbol.

    >>> import pathlib, tempfile, numpy as np
    >>> from weft.library.data_object import write_data_object
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "data.o"
    >>> write_data_object(path, "data", [np.zeros(3), np.ones(2, np.int8)], arm=False)
    (0, 64)
    """
    with open(path, "wb") as file:
        file.write(bytes(_HEADER))
        offsets = _write_arrays(file, arrays)
        size = file.tell() - _HEADER
        names = b"\0" + symbol.encode() + b"\0"
        object_of = struct.pack("<IBBHQQ", 1, _GLOBAL_OBJECT, _HIDDEN, 1, 0, size)
        symbols = _written(file, bytes(_SYMBOL) + object_of)
        texts = _written(file, names)
        titles = _written(file, _NAMES)
        sections = [
            _Section(0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
            _Section(_title(".rodata"), _PROGBITS, _ALLOCATED, 0, _HEADER, size, 0, 0, ALIGNMENT, 0),
            _Section(_title(".symtab"), _SYMTAB, 0, 0, symbols, 2 * _SYMBOL, 3, 1, 8, _SYMBOL),
            _Section(_title(".strtab"), _STRTAB, 0, 0, texts, len(names), 0, 0, 1, 0),
            _Section(_title(".shstrtab"), _STRTAB, 0, 0, titles, len(_NAMES), 0, 0, 1, 0),
            _Section(_title(".note.GNU-stack"), _PROGBITS, 0, 0, titles, 0, 0, 0, 1, 0),
        ]
        table = _written(file, b"".join([struct.pack("<IIQQQQIIQQ", *s) for s in sections]))
        file.seek(0)
        file.write(_header(_ARM if arm else _X86, table, len(sections)))
    return offsets


def _write_arrays(file: BinaryIO, arrays: Sequence[Array]) -> tuple[int, ...]:
    offsets: list[int] = []
    for array in arrays:
        _written(file, b"", ALIGNMENT)
        offsets.append(file.tell() - _HEADER)
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return tuple(offsets)


def _written(file: BinaryIO, data: bytes, alignment: int = 8) -> int:
    """Write bytes from a multiple of an alignment on; gives where they begin."""
    file.write(bytes(-file.tell() % alignment))
    begin = file.tell()
    file.write(data)
    return begin


def _title(name: str) -> int:
    return _NAMES.index(f"\0{name}\0".encode()) + 1


def _header(machine: int, table: int, count: int) -> bytes:
    """The header of an object with a table of sections, the last but one of which holds their names."""
    magic = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    sizes = (_HEADER, 0, 0, _SECTION, count, count - 2)
    return magic + struct.pack("<HHIQQQIHHHHHH", 1, machine, 1, 0, 0, table, 0, *sizes)
