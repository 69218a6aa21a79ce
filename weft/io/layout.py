"""The layout of files: that of safetensors, with checksums among the metadata.

A file is the length of its header (8 bytes, little-endian), the header (JSON, padded with spaces to a
multiple of 64 bytes), and the data of the arrays one after the other, those with the longest elements first,
so that each is aligned where the file is mapped into memory. Nothing in a file is believed before it is
checked, and no more is allocated than the file is long.
"""

from __future__ import annotations

import json
import mmap as memory
import os
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from math import prod
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from weft.base.aligned import ALIGNMENT, empty_aligned
from weft.base.dtypes import DTYPES, DType, bfloat16, bool_, kind
from weft.errors import FileError
from weft.io.atomic import replacing

Array = np.ndarray[Any, Any]

VERSION = 1
LONGEST_HEADER = 100_000_000  # bytes, as elsewhere in the world of safetensors
_CODES = {bool_: "BOOL", bfloat16: "BF16"} | {
    d: f"{kind(d).upper()}{8 * d.itemsize}" for d in DTYPES if d not in (bool_, bfloat16) and kind(d) != "c"
}
_DTYPES = {code: dtype for dtype, code in _CODES.items()} | {"C64": np.dtype(np.complex64)}
_MARK = "weft.checksum"  # of the header, in which it is itself zero
_NEEDED = frozenset({"weft.version", "weft.kind", "weft.checksums", _MARK})
_ZERO = "0" * 8
_WORTH_A_THREAD = 1 << 19  # bytes of a file


class Contents(NamedTuple):
    """What is in a file: arrays by name, and metadata; ``kind`` is "" for a file that weft did not write."""

    arrays: dict[str, Array]
    metadata: dict[str, str]
    kind: str


class _Entry(NamedTuple):
    """Where an array is in the data, and what it is."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


# Writing


def write_file(path: str, arrays: Mapping[str, Array], kind: str, metadata: Mapping[str, str]) -> None:
    """Write arrays, which are not complex, and metadata; the file is there when all of it is on the disk."""
    ordered = sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize)
    blocks = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for _, a in ordered]
    entries: dict[str, Any] = {}
    at = 0
    for (name, array), block in zip(ordered, blocks, strict=True):
        offsets = [at, at := at + len(block)]
        entries[name] = {"dtype": _CODES[array.dtype], "shape": list(array.shape), "data_offsets": offsets}
    sums = {name: _checksum(block) for (name, _), block in zip(ordered, blocks, strict=True)}
    own = {
        "weft.version": str(VERSION),
        "weft.kind": kind,
        **metadata,
        "weft.checksums": json.dumps(sums),
        _MARK: _ZERO,
    }
    header = _padded(json.dumps({"__metadata__": own, **entries}, separators=(",", ":")).encode())
    header = _marked(header, _checksum(header))
    with replacing(path) as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for block in blocks:
            file.write(block.data)


def _padded(header: bytes) -> bytes:
    if len(header) > LONGEST_HEADER - ALIGNMENT:
        message = f"names and structure must take at most {LONGEST_HEADER} bytes, got {len(header)}"
        raise FileError("save", message, hint="put long lists of numbers into tensors")
    return header + b" " * (-(len(header) + 8) % ALIGNMENT)


def _checksum(data: Any) -> str:
    return f"{zlib.crc32(data):08x}"


def _marked(header: bytes, checksum: str) -> bytes:
    """The header with its own checksum in place of the one that is there."""
    before, mark, after = header.partition(f'"{_MARK}":"'.encode())
    return before + mark + checksum.encode() + after[len(checksum) :] if mark else header


# Reading


def read_file(op: str, path: str, *, mmap: bool, verify: bool) -> Contents:
    """What is in a file.

    Args:
        op: that reads, for errors.
        path: of the file.
        mmap: map the file into memory instead of reading it; arrays are then read-only.
        verify: compare the checksums of all data.
    """
    return Reading(op, path, mmap=mmap, verify=verify).contents()


class Reading:
    """A file whose data is read and compared with its checksums in a thread, while others see its header.

    Attributes:
        metadata: that of the header, which is checked.
        kind: of the file; "" if weft did not write it.
        types: dtypes and shapes of the arrays by name.
    """

    def __init__(self, op: str, path: str, *, mmap: bool, verify: bool) -> None:
        self._problem = Problem(op, path)
        self._arrays: dict[str, Array] = {}
        self._failed: list[BaseException] = []
        self._thread: threading.Thread | None = None
        with ExitStack() as stack:
            file = stack.enter_context(open(path, "rb"))
            size = os.fstat(file.fileno()).st_size
            header = _read_header(file, size, self._problem)
            start = 8 + len(header)
            entries, self.metadata = _parse_header(header, size - start, self._problem)
            self.kind = _check_own(header, self.metadata, self._problem)
            self.types = {entry.name: (entry.dtype, entry.shape) for entry in entries}
            self._verifies = verify and bool(self.kind)
            if mmap:
                self._arrays = _mapped(file, start, entries)
            elif size < _WORTH_A_THREAD:
                self._read(file, start, entries)
            else:
                self._thread = threading.Thread(target=self._read, args=(file, start, entries))
                self._thread.start()
                stack.pop_all()  # that thread closes the file

    def _read(self, file: BinaryIO, start: int, entries: Sequence[_Entry]) -> None:
        try:
            with file:
                # Weights are read by vectors, again and again; other tensors may be written in place.
                make = empty_aligned if self.kind == "graph" else np.empty
                self._arrays = _loaded(file, start, entries, self._problem, make)
            self._check()
        except BaseException as error:
            self._failed.append(error)

    def _check(self) -> None:
        if self._verifies:
            self._verifies = False
            _verify(self._arrays, self.metadata, self._problem)

    def contents(self) -> Contents:
        """All of it, read and checked."""
        if self._thread is not None:
            self._thread.join()
        if self._failed:
            raise self._failed[0]
        self._check()
        for name, array in self._arrays.items():
            if array.dtype == bool_ and array.size and array.view(np.uint8).max() > 1:
                raise self._problem(f"the bools of {name!r} must be 0 or 1, got others")
        return Contents(self._arrays, self.metadata, self.kind)


class Problem(NamedTuple):
    """Makes the errors about one file."""

    op: str
    path: str

    def __call__(self, message: str, hint: str | None = None) -> FileError:
        """An error that names the file."""
        return FileError(self.op, f"{os.path.basename(self.path)}: {message}", hint=hint)


_DAMAGED = "the file is damaged, or is no weft or safetensors file"


def _read_header(file: BinaryIO, size: int, problem: Problem) -> bytes:
    if size < 8:
        raise problem(f"must begin with 8 bytes of length, got a file of {size} bytes", _DAMAGED)
    length = int.from_bytes(file.read(8), "little")
    if length > LONGEST_HEADER:
        raise problem(f"the header must take at most {LONGEST_HEADER} bytes, got {length}", _DAMAGED)
    if length > size - 8:
        raise problem(
            f"the header must be whole, got {size - 8} of {length} bytes", "the file is cut off or damaged"
        )
    header = file.read(length)
    if len(header) < length:
        raise problem("must not change while it is read")
    return header


def _parse_header(header: bytes, size: int, problem: Problem) -> tuple[list[_Entry], dict[str, str]]:
    found = parse_json(header, "the header", problem)
    if not isinstance(found, dict):
        raise problem(f"the header must be a JSON object, got a {type(found).__name__}", _DAMAGED)
    metadata = found.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise problem("the metadata must be strings by name, got something else", _DAMAGED)
    entries = [_entry(name, item, problem) for name, item in found.items()]
    entries.sort(key=lambda e: (e.begin, e.end))
    at = 0
    for entry in entries:
        if entry.begin != at:
            raise problem(f"the data of {entry.name!r} must begin at {at}, got {entry.begin}", _DAMAGED)
        at = entry.end
    if at != size:
        hint = "the file is cut off" if size < at else _DAMAGED
        raise problem(f"there must be {at} bytes of data, got {size}", hint)
    return entries, metadata


def _entry(name: str, item: Any, problem: Problem) -> _Entry:
    if not isinstance(item, dict) or item.keys() != {"dtype", "shape", "data_offsets"}:
        raise problem(f"of {name!r} dtype, shape and data_offsets must be given, got others", _DAMAGED)
    dtype = _DTYPES.get(item["dtype"]) if isinstance(item["dtype"], str) else None
    if dtype is None:
        raise problem(f"the dtype of {name!r} must be one of {', '.join(_DTYPES)}, got {item['dtype']!r}")
    shape, offsets = item["shape"], item["data_offsets"]
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2 or len(shape) > 64:
        raise problem(f"shape and offsets of {name!r} must be lists of sizes, got others", _DAMAGED)
    begin, end = offsets
    if prod(shape) * dtype.itemsize != end - begin:
        wanted = prod(shape) * dtype.itemsize
        raise problem(f"the data of {name!r} must take {wanted} bytes, got {end - begin}", _DAMAGED)
    return _Entry(name, dtype, tuple(shape), begin, end)


def _are_sizes(x: Any) -> bool:
    return isinstance(x, list) and all(type(n) is int and 0 <= n < 2**62 for n in x)


def _check_own(header: bytes, metadata: Mapping[str, str], problem: Problem) -> str:
    """The kind of a file that weft wrote, whose header is checked; "" of one that it did not."""
    if not any(name.startswith("weft.") for name in metadata):
        return ""
    if not metadata.keys() >= _NEEDED:
        missing = ", ".join(sorted(_NEEDED - metadata.keys()))
        raise problem(f"a file of weft must say its {missing}, got none", _DAMAGED)
    if metadata[_MARK] != _checksum(_marked(header, _ZERO)):
        raise problem("the checksum of the header must agree with it, got another", "the file is damaged")
    version = metadata["weft.version"]
    if version != str(VERSION):
        hint = "it was written by a newer weft; update this one"
        raise problem(f"the version of the file must be {VERSION}, got {version!r}", hint)
    return metadata["weft.kind"]


def _loaded(
    file: BinaryIO,
    start: int,
    entries: Sequence[_Entry],
    problem: Problem,
    make: Callable[[tuple[int, ...], DType], Array],
) -> dict[str, Array]:
    """The arrays, each in memory of its own."""
    file.seek(start)
    arrays: dict[str, Array] = {}
    for entry in entries:
        array = _empty(entry, problem, make)
        block = array.reshape(-1).view(np.uint8)
        if file.readinto(block.data) != len(block):  # type: ignore[attr-defined]
            raise problem("must not change while it is read")
        arrays[entry.name] = array
    return arrays


def _empty(entry: _Entry, problem: Problem, make: Callable[[tuple[int, ...], DType], Array]) -> Array:
    try:
        return make(entry.shape, entry.dtype)
    except ValueError as error:  # an empty array whose other sizes are too large
        raise problem(f"the shape of {entry.name!r} must be possible, got {entry.shape}") from error


def _mapped(file: BinaryIO, start: int, entries: Sequence[_Entry]) -> dict[str, Array]:
    """The arrays, as read-only views of the file."""
    mapping = memory.mmap(file.fileno(), 0, access=memory.ACCESS_READ)
    arrays: dict[str, Array] = {}
    for entry in entries:
        if entry.begin == entry.end:
            array = np.zeros(entry.shape, entry.dtype)
        else:
            count = (entry.end - entry.begin) // entry.dtype.itemsize
            array = np.frombuffer(mapping, entry.dtype, count, start + entry.begin).reshape(entry.shape)
        arrays[entry.name] = array if array.flags.aligned else array.copy()
    return arrays


def _verify(arrays: Mapping[str, Array], metadata: Mapping[str, str], problem: Problem) -> None:
    sums = parse_json(metadata["weft.checksums"], "the list of checksums", problem)
    if not isinstance(sums, dict) or sums.keys() != arrays.keys():
        raise problem("there must be a checksum of each array, got others", _DAMAGED)
    for name, array in arrays.items():
        if _checksum(array.reshape(-1).view(np.uint8)) != sums[name]:
            raise problem(f"the data of {name!r} must agree with its checksum", "the file is damaged")


def parse_json(text: bytes | str, what: str, problem: Problem) -> Any:
    """What a JSON text of a file says; names must not come twice, and nesting is bounded."""
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise problem(f"{what} must not be nested so deep", _DAMAGED) from None
    except ValueError as error:  # that of JSON itself and of UTF-8 too
        raise problem(f"{what} must be JSON, got something else ({error})", _DAMAGED) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found
