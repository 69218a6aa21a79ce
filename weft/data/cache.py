"""Elements that are kept: those of a stream in memory, and those of any stage in .npy files.

What is kept is what the input gives in its epoch 0, whenever it is asked for; so it does not matter which
epoch came first, and a run that is resumed keeps the same.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from typing import IO, Any

import numpy as np

from weft.data.access import Access, ArraysAccess, CacheAccess
from weft.data.stage import Arrays, Cache, Element
from weft.data.stream import Open, State, Stream
from weft.data.text import fingerprint
from weft.data.tree import leaves_of
from weft.errors import ArgumentError, DomainError, ShapeError

_INDEX = "elements.json"

# In memory


class Kept:
    """What a cache has of a stream so far, and the stream, to read on from there."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.elements: list[Element] = []
        self.complete = False
        self.source: Stream | None = None
        self.state: State | None = None

    def extend(self, open_: Open) -> bool:
        """Read one more element; whether there was one."""
        if self.complete:
            return False
        if self.source is None:
            self.source = open_(0, self.state)
        try:
            self.elements.append(self.source.next())
        except StopIteration:
            self.complete = True
            self.close()
            return False
        self.state = self.source.state()
        return True

    def close(self) -> None:
        """End the stream; a later epoch reads on where it was."""
        source, self.source = self.source, None
        if source is not None:
            source.close()


class CacheStream(Stream):
    """Elements of a stream, read once."""

    def __init__(self, kept: Kept, open_: Open, state: State | None) -> None:
        self._kept = kept
        self._open = open_
        self._position: int = state["position"] if state else 0

    def next(self) -> Element:
        with self._kept.lock:
            while len(self._kept.elements) <= self._position:
                if not self._kept.extend(self._open):
                    raise StopIteration
            self._position += 1
            return self._kept.elements[self._position - 1]

    def state(self) -> State:
        return {"position": self._position}

    def close(self) -> None:
        with self._kept.lock:
            self._kept.close()


def filled_cache(open_: Open) -> Access:
    """All elements of a stage, read at once: by the workers that make them, which would be gone later."""
    source = open_(0, None)
    elements: list[Element] = []
    try:
        while True:
            elements.append(source.next())
    except StopIteration:
        return CacheAccess(_Elements(elements))
    finally:
        source.close()


class _Elements(Access):
    def __init__(self, elements: list[Element]) -> None:
        self._elements = elements

    def size(self) -> int:
        return len(self._elements)

    def get(self, epoch: int, i: int) -> Element:
        return self._elements[i]


# On disk


def disk_cache(stage: Cache, open_: Open) -> Access:
    """Elements of a stage, from files; these are written first if they are not there."""
    path = str(stage.path)
    if not os.path.exists(os.path.join(path, _INDEX)):
        _write(path, stage, open_(0, None))
    with open(os.path.join(path, _INDEX)) as file:
        index = json.load(file)
    if index["stages"] != fingerprint(stage.inputs[0], paths=True):
        hint = f"delete {path}, or cache to another directory"
        raise DomainError(
            "cache", f"the files must be of the same stages, got those of {index['stages']}", hint=hint
        )
    tree = _decode(index["tree"], path)
    return ArraysAccess(Arrays(tree=tree, count=index["count"]))


def _write(path: str, stage: Cache, source: Stream) -> None:
    """Write all elements beside the place where they belong, and move them there when all is done."""
    parent = os.path.dirname(os.path.abspath(path))
    os.makedirs(parent, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=".weft-cache-", dir=parent)
    try:
        count, tree = _write_elements(folder, source)
        with open(os.path.join(folder, _INDEX), "w") as file:
            json.dump(
                {"stages": fingerprint(stage.inputs[0], paths=True), "count": count, "tree": tree}, file
            )
        os.rename(folder, path)
    except OSError:
        if not os.path.exists(os.path.join(path, _INDEX)):  # else another process was faster
            raise
    finally:
        source.close()
        shutil.rmtree(folder, ignore_errors=True)


def _write_elements(folder: str, source: Stream) -> tuple[int, Any]:
    files: list[_Column] = []
    count, tree = 0, None
    try:
        while True:
            try:
                element = source.next()
            except StopIteration:
                return count, tree
            leaves = [np.asarray(leaf) for leaf in leaves_of(element)]
            if count == 0:
                tree = _encode(element, iter(range(len(leaves))))
                files = [_Column(os.path.join(folder, f"{k}.npy"), x) for k, x in enumerate(leaves)]
            for column, leaf in zip(files, leaves, strict=True):
                column.append(leaf, count)
            count += 1
    finally:
        for column in files:
            column.close(count)


class _Column:
    """A .npy file that grows row by row; its header has room for the final number of rows."""

    def __init__(self, path: str, first: Any) -> None:
        self._shape, self._dtype = first.shape, first.dtype
        self._file: IO[bytes] = open(path, "wb")  # noqa: SIM115 - closed by close
        self._write_header(0)

    def _write_header(self, count: int) -> None:
        described = np.lib.format.dtype_to_descr(self._dtype)
        header = {"descr": described, "fortran_order": False, "shape": (count, *self._shape)}
        np.lib.format.write_array_header_2_0(self._file, header)

    def append(self, row: Any, i: int) -> None:
        if row.shape != self._shape or row.dtype != self._dtype:
            message = f"elements on disk must be alike, got {row.dtype}{list(row.shape)} for element {i}"
            hint = "cache() without a path keeps elements of any shape, in memory"
            raise ShapeError("cache", f"{message} after {self._dtype}{list(self._shape)}", hint=hint)
        self._file.write(np.ascontiguousarray(row).tobytes())

    def close(self, count: int) -> None:
        self._file.seek(0)
        self._write_header(count)
        self._file.close()


def _encode(tree: Any, numbers: Any) -> Any:
    """The containers of a tree as JSON, with the number of a file in the place of each leaf."""
    if isinstance(tree, tuple):
        return [_encode(x, numbers) for x in tree]
    if isinstance(tree, dict):
        if not all(isinstance(k, str) for k in tree):
            raise ArgumentError("cache", f"keys of elements on disk must be texts, got {list(tree)}")
        return {k: _encode(x, numbers) for k, x in tree.items()}
    return next(numbers)


def _decode(tree: Any, path: str) -> Any:
    if isinstance(tree, list):
        return tuple(_decode(x, path) for x in tree)
    if isinstance(tree, dict):
        return {k: _decode(x, path) for k, x in tree.items()}
    return () if tree is None else np.load(os.path.join(path, f"{tree}.npy"), mmap_mode="r")
