"""Where elements come from: arrays, datasets, files, generators."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

import weft
from weft.base.frames import user_location
from weft.base.public import public
from weft.data import check
from weft.data.pipeline import Pipeline
from weft.data.stage import Arrays, Element, Files, Generator, Items
from weft.data.tree import leaves_of, map_tree
from weft.errors import ArgumentError, DomainError, ShapeError


@public
def from_arrays(*arrays: Any) -> Pipeline:
    """A pipeline of the rows of arrays, tensors, or trees of them.

    Args:
        arrays: one of them makes elements that are its rows; several make tuples.

    >>> import numpy as np
    >>> from weft import data
    >>> data.from_arrays(np.zeros((5, 2)), np.arange(5))
    pipeline {
      %0: (f64[2], i64[]) = arrays(count=5)
      return %0
    }
    >>> len(data.from_arrays({"x": np.zeros((5, 2)), "y": np.arange(5)}))
    5
    """
    if not arrays:
        raise ArgumentError("from_arrays", "takes at least one array, got none")
    return arrays_pipeline("arrays", arrays[0] if len(arrays) == 1 else arrays)


def arrays_pipeline(origin: str, tree: Any, path: str | None = None) -> Pipeline:
    """A pipeline of the rows of a tree of arrays, which came from somewhere."""
    op = f"from_{origin}"
    found = map_tree(lambda leaf: _as_rows(op, leaf), tree)
    counts = [len(leaf) for leaf in leaves_of(found)]
    if not counts:
        raise ArgumentError(op, "takes at least one array, got none")
    if len(set(counts)) > 1:
        raise ShapeError(
            op, f"arrays must have as many rows as each other, got {', '.join(map(str, counts))}"
        )
    location = user_location(3)
    return Pipeline(Arrays(tree=found, count=counts[0], origin=origin, path=path, location=location))


def _as_rows(op: str, leaf: Any) -> Any:
    if isinstance(leaf, weft.Tensor):
        leaf = leaf._value().numpy()
    try:
        array = np.asanyarray(leaf)
    except ValueError:
        hint = "rows of different length: data.from_dataset(rows).batch(n, ragged=True)"
        raise ShapeError(op, "rows must have one shape, got several", hint=hint) from None
    if isinstance(leaf, list) and array.dtype == np.float64:
        array = array.astype(weft.get_default_dtype())
    if array.ndim == 0:
        raise ShapeError(op, f"arrays must have rows, got {leaf!r}")
    if array.dtype.hasobject:
        hint = "data.from_dataset takes a list of any objects"
        raise ArgumentError(op, f"arrays must be of numbers or texts, got dtype {array.dtype}", hint=hint)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


@public
def from_dataset(dataset: Any) -> Pipeline:
    """A pipeline of the items of a ``data.Dataset``, a list, or what has ``__len__`` and ``__getitem__``.

    >>> from weft import data
    >>> [x for x in data.from_dataset(["a", "b"])]
    ['a', 'b']
    """
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        hint = "what can only be iterated over goes through data.from_generator"
        got = type(dataset).__name__
        raise ArgumentError(
            "from_dataset", f"takes an object with __len__ and __getitem__, got {got}", hint=hint
        )
    return Pipeline(Items(dataset=dataset, location=user_location(2)))


@public
def from_files(paths: Any, read: Callable[[str], Element]) -> Pipeline:
    """A pipeline of what a function reads from each file, when its turn comes.

    Args:
        paths: a list of them, or a pattern such as ``"images/*.npy"``; what it matches is sorted.
        read: from a path to an element. If it returns many, ``flatten()`` makes elements of them.

    >>> import numpy as np, tempfile
    >>> from weft import data
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for i in range(3):
    ...         np.save(f"{folder}/{i}.npy", np.full(2, i))
    ...     list(data.from_files(f"{folder}/*.npy", np.load).batch(3))
    [tensor([[0, 0],
            [1, 1],
            [2, 2]])]
    """
    check.function("from_files", read)
    if isinstance(paths, str | os.PathLike):
        found = sorted(glob.glob(os.fspath(paths), recursive=True))
        if not found:
            raise DomainError(
                "from_files", f"the pattern must match files, got none for {os.fspath(paths)!r}"
            )
    else:
        found = [os.fspath(path) for path in paths]
    return Pipeline(Files(paths=tuple(found), count=len(found), read=read, location=user_location(2)))


@public
def from_generator(function: Callable[[], Iterable[Element] | Iterator[Element]]) -> Pipeline:
    """A pipeline of what an iterator gives.

    Args:
        function: called at the start of each epoch; returns an iterator. To resume in the middle of an epoch
            it is called again and what was seen is dropped, so it must give the same each time.

    >>> from weft import data
    >>> def count():
    ...     yield from (1, 2, 3)
    >>> list(data.from_generator(count))
    [1, 2, 3]
    """
    if not callable(function):
        hint = "pass the function itself, not what it returns"
        got = type(function).__name__
        raise ArgumentError("from_generator", f"takes a function, got {got}", hint=hint)
    return Pipeline(Generator(function=function, location=user_location(2)))  # type: ignore[arg-type]


@public
def from_npy(paths: Any) -> Pipeline:
    """A pipeline of the rows of .npy files, of which only what is used is read: they are mapped into memory.

    Args:
        paths: one, or a tuple or dict of them.

    >>> import numpy as np, tempfile
    >>> from weft import data
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.arange(4))
    ...     list(data.from_npy(f"{folder}/x.npy").batch(4))
    [tensor([0, 1, 2, 3])]
    """
    names = [os.fspath(leaf) for leaf in leaves_of(paths)]
    tree = map_tree(lambda path: _open_npy(os.fspath(path)), paths)
    return arrays_pipeline("npy", tree, ", ".join(names))


def _open_npy(path: str) -> Any:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise DomainError(
            "from_npy", f"the file must be an array of numbers, got {path}", hint=str(error)
        ) from error
