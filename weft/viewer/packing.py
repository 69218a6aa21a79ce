"""What the page knows, packed: a page of 100,000 nodes should be small, and quick to read.

Records become rows of numbers. What many of them share (ops, types, attributes, places, paths) is written
once, in ``words``; the records of a graph are stretches of numbers. ``page/unpack.js`` undoes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SHARED = ("kind", "op", "types", "attrs", "numbers", "path", "part", "at", "gives")  # fields that are words
FIELDS = ("values", "inputs", *SHARED)  # of a row, in this order; rows end with the last that is not empty


def pack(data: Mapping[str, Any]) -> dict[str, Any]:
    """Data of a page in a short form.

    >>> node = {"kind": "op", "op": "tanh", "values": [1], "inputs": [0]}
    >>> packed = pack({"stages": [{"name": "captured", "records": [0]}], "records": [node]})
    >>> packed["records"], packed["words"]
    ([[1, [0], 1, 2]], [0, 'op', 'tanh'])
    """
    words: dict[Any, int] = {}
    packed = dict(data)
    packed["records"] = [_row(record, words) for record in data["records"]]
    packed["words"] = [0, *(_plain(word) for word in words)]
    packed["stages"] = [{**s, "records": stretches(s["records"])} for s in data["stages"]]
    if "backward" in data:
        packed["backward"] = pack(data["backward"])
    return packed


def _row(record: Mapping[str, Any], words: dict[Any, int]) -> list[Any]:
    values, inputs = record.get("values", ()), record.get("inputs", ())
    row: list[Any] = [values[0] if len(values) == 1 else list(values), list(inputs) or 0]
    for field in SHARED:
        found = record.get(field)
        row.append(words.setdefault(_hashable(found), len(words) + 1) if found else 0)
    while row[-1] == 0:
        row.pop()
    return row


class _Attrs(tuple[Any, ...]):
    """The items of a dictionary, which are not those of a list."""


def _hashable(word: Any) -> Any:
    if isinstance(word, dict):
        return _Attrs([*word.items(), "attrs"])
    return word if isinstance(word, str) else tuple(word)


def _plain(word: Any) -> Any:
    return dict(word[:-1]) if isinstance(word, _Attrs) else word


def stretches(numbers: Iterable[int]) -> list[int]:
    """Numbers as stretches of following ones: where each begins, and how many they are.

    >>> stretches([4, 5, 6, 1])
    [4, 3, 1, 1]
    """
    found: list[int] = []
    following = -1
    for number in numbers:
        if number == following:
            found[-1] += 1
        else:
            found += [number, 1]
        following = number + 1
    return found
