"""Elements as trees of arrays: how they are taken apart and turned into tensors.

Inside a pipeline the leaves are NumPy arrays, numbers and texts; tensors are what the training loop gets. A
Python list is a leaf, and becomes an array in a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from weft.base.dtypes import canonical
from weft.data.stage import Element, Where
from weft.errors import ArgumentError, DomainError


def tuple_like(head: Any, parts: Sequence[Any]) -> Any:
    """A tuple of parts, named if the given one is."""
    return type(head)(*parts) if hasattr(head, "_fields") else tuple(parts)


def map_tree(function: Callable[[Any], Any], tree: Any) -> Any:
    """A tree of what a function gives for each leaf."""
    if isinstance(tree, tuple):
        return tuple_like(tree, [map_tree(function, x) for x in tree])
    if isinstance(tree, dict):
        return {k: map_tree(function, x) for k, x in tree.items()}
    return function(tree)


def leaves_of(tree: Any) -> list[Any]:
    """The leaves of a tree, in order."""
    if isinstance(tree, tuple):
        return [leaf for part in tree for leaf in leaves_of(part)]
    if isinstance(tree, dict):
        return [leaf for part in tree.values() for leaf in leaves_of(part)]
    return [tree]


# Between tensors and arrays


# types of leaves that need no look; most elements are made of them
_PLAIN = frozenset(
    {np.ndarray, int, float, bool, str, bytes, list, *[np.dtype(name).type for name in "?bhilqBHILQefdFD"]}
)


def to_arrays(element: Element) -> Element:
    """An element with arrays in place of tensors."""
    kind = type(element)
    if kind in _PLAIN:
        return element
    if kind is tuple and _PLAIN.issuperset(map(type, element)):
        return element
    return map_tree(_to_array, element)


def _to_array(leaf: Any) -> Any:
    return leaf._value().numpy() if isinstance(leaf, weft.Tensor) else leaf


def to_tensors(element: Element) -> Element:
    """An element with tensors in place of arrays, sharing their memory; what weft has no dtype for stays."""
    if type(element) is np.ndarray:
        return _to_tensor(element)
    if isinstance(element, tuple | dict):
        return map_tree(to_tensors, element)
    if isinstance(element, np.ndarray | np.generic):
        return _to_tensor(np.asarray(element))
    return element


def _to_tensor(array: Any) -> Any:
    dtype = array.dtype
    if canonical(dtype) is None:
        return array
    return weft.from_numpy(array if dtype.isnative else array.astype(dtype.newbyteorder("=")))


# Parts of elements


def parts_of(op: str, element: Element, on: Where) -> tuple[int | str | None, ...]:
    """Which parts of an element a stage works on: those named, the first of a tuple, or all of an array."""
    if on is not None:
        found = on if isinstance(on, tuple) else (on,)
        for key in found:
            _check_part(op, element, key)
        return found
    if isinstance(element, tuple):
        return (0,)
    if isinstance(element, dict):
        names = ", ".join(map(repr, element))
        raise ArgumentError(op, f"on must name parts of an element that is a dict, one of {names}")
    return (None,)


def _check_part(op: str, element: Element, key: int | str) -> None:
    known = range(len(element)) if isinstance(element, tuple) else element
    if not isinstance(element, tuple | dict) or key not in known:
        got = list(element) if isinstance(element, dict) else type(element).__name__
        raise DomainError(op, f"on must name a part of each element, got {key!r} for {got}")


def change_parts(
    element: Element, keys: tuple[int | str | None, ...], function: Callable[[Any], Any]
) -> Element:
    """An element with some of its parts replaced by what a function gives for them."""
    if keys == (None,):
        return function(np.asarray(element))
    if keys == (0,) and type(element) is tuple:
        return (function(np.asarray(element[0])), *element[1:])
    if isinstance(element, dict):
        return {k: function(np.asarray(x)) if k in keys else x for k, x in element.items()}
    return tuple_like(element, [function(np.asarray(x)) if k in keys else x for k, x in enumerate(element)])
