"""How a library whose weights are in a file beside it maps that file into memory."""

from __future__ import annotations

from llvmlite import ir

from weft.backends.library import Storage
from weft.backends.llvm.export.code import I8, I32, I64, NULL, PTR, Code, Unit, half, word
from weft.backends.llvm.export.layout import BASE, MAPPED

_PATH_BYTES = 4096
_READ_ONLY, _TO_END = 0, 2  # of open and lseek
_PROT_READ, _MAP_PRIVATE = 1, 2
_SLASH = 47


def write_mapping(unit: Unit, storage: Storage, name: str) -> ir.Value:
    """A function of a handle and a path, NULL for that beside the library; it gives whether all is well."""
    c = unit.function("map_weights", I64, PTR, PTR)
    handle, given = c.args
    path = c.room(1)
    c.put(path, 0, given)
    with c.when(c.is_null(given)):
        c.put(path, 0, _path_beside(c, f"{name}.weft"))
    file = c.call("open", I32, c.pointer(path, 0), half(_READ_ONLY), more=[half(0)])
    with c.unlikely(c.compare("<", file, 0)):
        c.give(word(0))
    size = c.call("lseek", I64, file, word(0), half(_TO_END))
    with c.unlikely(c.compare("!=", size, storage.size)):
        c.call("close", I32, file)
        c.give(word(0))
    found = c.call("mmap", PTR, NULL, size, half(_PROT_READ), half(_MAP_PRIVATE), file, word(0))
    c.call("close", I32, file)
    with c.unlikely(c.compare("==", c.b.ptrtoint(found, I64), -1)):
        c.give(word(0))
    c.put(handle, BASE, found)
    c.put(handle, MAPPED, size)
    _compare_header(c, handle, found, storage.header or b"")
    c.give(word(1))
    return c.function


def _path_beside(c: Code, name: str) -> ir.Value:
    """The path of a file in the folder of this library."""
    info = c.room(4)
    path = c.room(_PATH_BYTES // 8)
    known = c.call("dladdr", I32, c.function, info)
    with c.unlikely(c.compare("==", known, 0)):
        c.give(word(0))
    own = c.pointer(info, 0)  # the path of the library, as the loader has it
    slash = c.call("strrchr", PTR, own, half(_SLASH))
    begin = c.b.ptrtoint(own, I64)
    length = c.b.add(c.b.sub(c.b.ptrtoint(slash, I64), begin), word(1))
    length = c.b.select(c.is_null(slash), word(0), length)
    with c.unlikely(c.compare(">", length, _PATH_BYTES - len(name.encode()) - 1)):
        c.give(word(0))
    c.copy(path, own, length)
    c.copy(c.byte(path, length), c.unit.text(name), word(len(name.encode()) + 1))
    return path


def _compare_header(c: Code, handle: ir.Value, found: ir.Value, header: bytes) -> None:
    data = ir.Constant(ir.ArrayType(I8, len(header)), bytearray(header))
    differs = c.call("memcmp", I32, found, c.unit.constant(data), word(len(header)))
    with c.unlikely(c.compare("!=", differs, 0)):
        write_unmap(c, handle)
        c.give(word(0))


def write_unmap(c: Code, handle: ir.Value) -> None:
    """Give the mapping of a handle back."""
    c.call("munmap", I32, c.pointer(handle, BASE), c.word(handle, MAPPED))
