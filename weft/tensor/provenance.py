"""How arrays came about while anomalies are looked for: the op and the line of each, and what went in.

Nothing here keeps an array alive, and only the newest ops are known, so that a long program can be watched.
Names are found when an error is made: in the frames of the user's functions that are running then.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from weft.base.concrete import is_on_device
from weft.base.frames import PACKAGE, format_location
from weft.base.records import NamedTuple
from weft.ops.nan import describe_range, describe_type
from weft.ops.op import Array

_MOST_KNOWN = 10_000
_MOST_SHOWN = 8


class _Given(NamedTuple):
    """What went into an op: the number of the op that made it, 0 of a leaf; the array, and it in words."""

    number: int
    array: weakref.ref[Any]
    text: str


class _Made(NamedTuple):
    """An op that ran."""

    op: str
    location: tuple[str, int] | None
    inputs: tuple[_Given, ...]
    output: weakref.ref[Any]


class Provenance:
    """The newest ops that ran, by the arrays that they made."""

    def __init__(self) -> None:
        self._made: dict[int, _Made] = {}
        self._numbers: dict[int, int] = {}  # by id of an array, the op that made it
        self._count = 0

    def note(
        self, op: str, location: tuple[str, int] | None, inputs: Sequence[Any], outs: Sequence[Any]
    ) -> None:
        """Take down an op that made arrays of others."""
        given = tuple([_Given(self._number(a), weakref.ref(a), _text(a)) for a in inputs])
        for out in outs:
            self._count += 1
            self._made[self._count] = _Made(op, location, given, weakref.ref(out))
            self._numbers[id(out)] = self._count
        while len(self._made) > _MOST_KNOWN:
            oldest = next(iter(self._made))
            del self._made[oldest]
        if len(self._numbers) > 2 * _MOST_KNOWN:
            self._numbers = {k: n for k, n in self._numbers.items() if n in self._made}

    def _number(self, array: Array) -> int:
        number = self._numbers.get(id(array), 0)
        made = self._made.get(number)
        return number if made is not None and made.output() is array else 0

    def path_to(self, array: Array) -> tuple[str, ...]:
        """How an array follows from the leaves, line by line."""
        last = self._number(array)
        names = _names_of_arrays(sys._getframe(1))
        queue = [last] if last else []
        for number in queue:
            queue += dict.fromkeys(
                g.number
                for g in self._made[number].inputs
                if g.number in self._made and g.number not in queue
            )
        shown = sorted(queue[:_MOST_SHOWN])
        labels = {number: f"%{i}" for i, number in enumerate(shown)}
        given = [g for number in sorted(queue) for g in self._made[number].inputs if not g.number]
        leaves = dict.fromkeys(filter(None, (_leaf(g, names) for g in given)))
        gap = [f"... {len(queue) - len(shown)} more ops ..."] if len(queue) > len(shown) else []
        return (*leaves, *gap, *[self._line(n, labels, names) for n in shown])

    def _line(self, number: int, labels: dict[int, str], names: dict[int, str]) -> str:
        made = self._made[number]
        arguments = ", ".join(_name(g.array, names) or labels.get(g.number) or g.text for g in made.inputs)
        text = f"{_name(made.output, names) or labels[number]} = {made.op}({arguments})"
        return text if made.location is None else f"{text}  at {format_location(made.location)}"


def _name(array: weakref.ref[Any], names: dict[int, str]) -> str:
    found = array()
    return "" if found is None else names.get(id(found), "")


def _leaf(given: _Given, names: dict[int, str]) -> str:
    array, name = given.array(), _name(given.array, names)
    if array is None or not (name or array.ndim):
        return ""
    return f"{name or 'a leaf'}: {describe_range(array.to_host() if is_on_device(array) else array)}"


def _text(array: Array) -> str:
    """A number as it is, anything else by its type."""
    return f"{array.item():g}" if array.ndim == 0 and array.dtype.kind in "biuf" else describe_type(array)


def _names_of_arrays(frame: FrameType | None) -> dict[int, str]:
    """By id of an array, what the tensor that holds it is called in the functions that are running."""
    names: dict[int, str] = {}
    while frame is not None:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            for name, value in list(frame.f_locals.items()):
                for path, tensor in _tensors_in(name, value):
                    names.setdefault(id(tensor._data), path)
        frame = frame.f_back
    return names


def _tensors_in(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The tensors that a local variable is or holds, with their names; of a module its parameters."""
    if hasattr(type(value), "_data"):
        yield name, value
    elif hasattr(type(value), "named_parameters"):
        for path, parameter in value.named_parameters():
            yield f"{name}.{path}", parameter
