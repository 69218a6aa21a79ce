"""The data of a library, its weights and constants: inside, as data that nobody writes, or in a file beside.

Data inside is mapped with the library when it is loaded, read when it is used, and shared by processes. The
file beside is one that ``weft.load`` reads too; the library takes it only if its header, checksums and all,
is the one that was written with the library.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from weft.backends.library import ALIGNMENT, Storage
from weft.errors import DomainError
from weft.io.layout import Array, write_file
from weft.io.trees import Encoder

INSIDE_LIMIT = 1 << 30  # bytes: code reaches data by offsets of 31 bits
DATA = "weft_data"


def choose_place(weights: str, arrays: Sequence[Array]) -> str:
    """Whether the data is to be "inside" or "beside"."""
    if weights not in ("auto", "inside", "beside"):
        message = f'weights must be "auto", "inside" or "beside", got {weights!r}'
        raise DomainError("export_library", message)
    total = sum(a.nbytes for a in arrays)
    if weights == "inside" and total > INSIDE_LIMIT:
        message = f"weights inside a library must take at most {INSIDE_LIMIT} bytes, got {total}"
        raise DomainError("export_library", message, hint='use weights="beside"')
    return weights if weights != "auto" else "inside" if total <= INSIDE_LIMIT else "beside"


def store_inside(arrays: Sequence[Array], path: Path, *, arm: bool) -> Storage:
    """Write the data as an object file for the linker, if there is any."""
    size = sum(array.nbytes for array in arrays)
    offsets = write_data_object(path, DATA, arrays, arm=arm)
    return Storage(offsets, DATA if size else None, None, size)


def store_beside(weights: Mapping[str, Array], constants: Sequence[Array], path: Path) -> Storage:
    """Write the data to a file that stays beside the library."""
    encoder = Encoder("export_library")
    tree = encoder.encode({"weights": dict(weights), "constants": list(constants)})
    notes = [*tree["dict"]["weights"]["dict"].values(), *tree["dict"]["constants"]]
    write_file(
        os.fspath(path), encoder.arrays, "tree", {"weft.tree": json.dumps(tree, separators=(",", ":"))}
    )
    with open(path, "rb") as file:
        length = file.read(8)
        header = length + file.read(int.from_bytes(length, "little"))
    entries = json.loads(header[8:])
    names = [note.get("data", note["array"]) for note in notes]
    offsets = [len(header) + entries[name]["data_offsets"][0] for name in names]
    return Storage(tuple(offsets), None, header, os.path.getsize(path))


# An object file: ELF, for machines of 64 bits that count bytes from the lowest

_X86, _ARM = 62, 183
_HEADER, _SECTION, _SYMBOL = 64, 64, 24  # bytes of each
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3  # kinds of sections
_ALLOCATED = 2
_GLOBAL_OBJECT, _HIDDEN = (1 << 4) | 1, 2
_NAMES = b"\0.rodata\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack\0"


def write_data_object(path: Path, symbol: str, arrays: Sequence[Array], *, arm: bool) -> tuple[int, ...]:
    """Write arrays one after the other; gives where each begins, counted from the symbol.

    >>> import pathlib, tempfile, numpy as np
    >>> from weft.library.storage import write_data_object
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
        sections = [  # name, kind, flags, address, offset, size, link, info, alignment, size of an entry
            (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
            (_title(".rodata"), _PROGBITS, _ALLOCATED, 0, _HEADER, size, 0, 0, ALIGNMENT, 0),
            (_title(".symtab"), _SYMTAB, 0, 0, symbols, 2 * _SYMBOL, 3, 1, 8, _SYMBOL),
            (_title(".strtab"), _STRTAB, 0, 0, texts, len(names), 0, 0, 1, 0),
            (_title(".shstrtab"), _STRTAB, 0, 0, titles, len(_NAMES), 0, 0, 1, 0),
            (_title(".note.GNU-stack"), _PROGBITS, 0, 0, titles, 0, 0, 0, 1, 0),
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
