"""Feeds: what users give for placeholders, checked and made arrays, with errors that name the placeholder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from weft.base.concrete import is_on_device
from weft.base.dtypes import DType, kind
from weft.base.frames import format_location
from weft.base.sizes import Size, bind, solve
from weft.capture.static.block import places
from weft.errors import ArgumentError, DtypeError, ShapeError, WeftError
from weft.ir.graph import Array, Graph, Value
from weft.tensor.creation import asarray
from weft.tensor.tensor import Tensor
from weft.transform.captured import not_capturing

_KINDS = {"b": "b", "i": "biu", "u": "biu", "f": "biuf", "c": "biufc"}  # by kind, the kinds that become it


def feed_items(op: str, graph: Graph, feeds: Any) -> Iterable[tuple[Any, Any]]:
    """What is fed, with what for; an error if it is no mapping."""
    if feeds is None:
        return ()
    if not isinstance(feeds, Mapping):
        names = ", ".join(f'"{v.name}": ...' for v in graph.inputs)
        got = type(feeds).__name__
        raise ArgumentError(op, f"feeds must be a dict, got {got}", hint=f"write {{{names}}}")
    return feeds.items()


def check_feeds(graph: Graph, given: Mapping[Value, Any]) -> dict[Value, Array]:
    """The arrays of feeds, in the dtypes of the placeholders, with shapes that agree with each other too.

    Those of tensors on a device stay there.
    """
    with not_capturing():
        fed = {value: _as_array(value, item) for value, item in given.items()}
    sizes: dict[str, int] = {}
    tellers: dict[str, Value] = {}
    for _ in range(2):  # a later one may tell the name that an earlier one left open
        for value, array in fed.items():
            _check_shape(value, array, sizes, tellers)
    return fed


def describe(value: Value) -> str:
    """A placeholder in words, with its line."""
    place = places.get(value)
    name = value.name or f"the value of type {value.type}"
    return name if place is None else f"{name} (at {format_location(place.place)})"


def _as_array(value: Value, item: Any) -> Array:
    target = value.type.dtype
    if isinstance(item, Tensor):
        if item.dtype != target:
            raise _wrong_dtype(value, item.dtype)
        given = item._value()
        array: Array = given._data if is_on_device(given._data) else given._array("feed")
        return array
    try:
        plain = isinstance(item, np.ndarray | np.generic)
        array = np.asarray(item) if plain else asarray(item)._array("feed")
        letter = kind(array.dtype)
    except (WeftError, KeyError) as error:
        raise ArgumentError(
            "feed", f"{describe(value)} must be fed a tensor, an array or numbers, got {type(item).__name__}"
        ) from error
    if letter not in _KINDS[kind(target)]:
        raise _wrong_dtype(value, array.dtype)
    if not plain and kind(target) in "fc" and letter in "fc":
        array = asarray(item, dtype=target)._array("feed")  # as numbers: the default dtype would round them
    with np.errstate(all="ignore"):
        out: Array = array.astype(target)
    if kind(target) in "iu" and not (out == array).all():
        raise DtypeError(
            "feed", f"{describe(value)} must be fed numbers that {target.name} holds, got others"
        )
    return out


def _wrong_dtype(value: Value, got: DType) -> DtypeError:
    return DtypeError(
        "feed",
        f"{describe(value)} must be fed {value.type.dtype.name}, got {got.name}",
        hint=f"cast it with .astype(weft.{value.type.dtype.name})",
    )


def _check_shape(value: Value, array: Array, sizes: dict[str, int], tellers: dict[str, Value]) -> None:
    wanted = value.type.shape
    got = f"shape {array.shape}"
    if len(wanted) != array.ndim:
        raise ShapeError("feed", f"{describe(value)} must be fed {value.type}, got {got}")
    for size, actual in zip(wanted, array.shape, strict=True):
        known = bind(size, sizes)
        if isinstance(known, Size):
            before = set(sizes)
            try:
                solve(known, actual, sizes)
            except ShapeError:
                raise ShapeError("feed", f"{describe(value)} must be fed {value.type}, got {got}") from None
            tellers.update((name, value) for name in set(sizes) - before)
        elif known != actual:
            raise ShapeError(
                "feed",
                f"{describe(value)} must be fed {value.type}, got {got}" + _because(size, sizes, tellers),
            )


def _because(size: Any, sizes: Mapping[str, int], tellers: Mapping[str, Value]) -> str:
    if not isinstance(size, Size):
        return ""
    told = [
        f"{name}={sizes[name]} in {describe(tellers[name])}"
        for name in sorted(size.names())
        if name in tellers
    ]
    return f", where {', '.join(told)}" if told else ""
