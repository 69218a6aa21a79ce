"""Items of Python sequences at a position that only a run tells: which of several tensors one is.

As long as none of them is changed in place, and no two of them leave the function, the elements are enough: a
row of all of them. Where it matters, the capture begins again and tells (``weft.transform.frozen``): a loop
of a known number of turns is written out, so that the position is known, and elsewhere the item is a choice
of all of them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.capture.runtime.mixed import NumberWays, mixed_of, note_mixed
from weft.capture.runtime.number import Number
from weft.errors import CaptureError
from weft.ops.view.primitives import stack
from weft.tensor.alias import family_of
from weft.tensor.choices import choice_of, chosen_if
from weft.tensor.dispatch import captured_constant
from weft.tensor.mode import enable_grad, thread
from weft.tensor.tensor import Tensor
from weft.transform.frozen import Again, Restart, Telling, freeze
from weft.transform.slots import DataSlot

MOST_CHOICES = 16  # tensors that one of may be picked to be changed


class WriteOut(Again):
    """The innermost loop must be written out, as it asks which tensor of a list a turn has."""


class _Loops(threading.local):
    def __init__(self) -> None:
        self.writable: list[bool] = []  # of the loops that are traced, innermost last


_loops = _Loops()


@contextmanager
def tracing_loop(*, writable: bool) -> Iterator[None]:
    """While a loop is traced; a writable one catches WriteOut."""
    _loops.writable.append(writable)
    try:
        yield
    finally:
        _loops.writable.pop()


def pick_tensor(items: Sequence[Any], key: Number) -> Tensor:
    """The item of a sequence of tensors of one type at a position."""
    out = _picked(list(items), key)
    mixed = next((m for m in map(mixed_of, items) if m is not None), None)
    if mixed is not None:
        note_mixed(out, NumberWays(mixed.ways.kinds, None), mixed.where)
    thread.capture.root.notes.picked = (items, key, weakref.ref(out))
    return out


def is_own_item(items: object, key: Number, value: object) -> bool:
    """Whether a value that is assigned is the item itself: the second half of ``items[key] += y``."""
    last = thread.capture.root.notes.picked
    return last is not None and last[0] is items and last[1] is key and last[2]() is value


def _picked(tensors: Sequence[Tensor], key: Number) -> Tensor:
    root = thread.capture.root
    position = key.as_kind(int)
    if root.telling < Telling.REFERENCES:
        if _are_changed(tensors):
            raise Restart(Telling.REFERENCES)
        with enable_grad():  # the item has the graph that it has, also where nothing records
            rows = stack(_each_if_chosen(tensors, position))
            out = rows[position]
        for x in (rows, out, *tensors):  # a view of the item is a view of the rows
            freeze(root.frozen, x, "an item of a list", told_by=Telling.REFERENCES)
        return out
    if _loops.writable and _loops.writable[-1]:
        raise WriteOut
    if len(tensors) > MOST_CHOICES:
        raise CaptureError(
            "capture",
            f"which tensor of a list is changed must be one of at most {MOST_CHOICES}, got {len(tensors)}",
            hint="use one tensor with a row for each, such as weft.stack(items), and change its rows",
        )
    return _choice(tensors, position)


def _are_changed(tensors: Sequence[Tensor]) -> bool:
    """Whether a loop or branch around has changed one of some tensors: in another turn it may be the item."""
    slots = {DataSlot(x).key for t in tensors for x in family_of(t)}
    capture = thread.capture
    while capture.parent is not None:
        if not slots.isdisjoint(capture.journal):
            return True
        capture = capture.parent
    return False


def _each_if_chosen(tensors: Sequence[Tensor], position: Tensor) -> list[Tensor]:
    """Tensors of which the one at a position gets a gradient."""
    if not any(map(thread.capture.has_gradient, tensors)):
        return list(tensors)
    known = _from_start(len(tensors), position)
    return [chosen_if(known == i, x) for i, x in enumerate(tensors)]


def _from_start(count: int, position: Tensor) -> Any:
    """A position counted from 0 on, or an error of the run."""
    numbers: Any = captured_constant(np.arange(count))
    return numbers[position]


def _choice(tensors: Sequence[Tensor], position: Tensor) -> Tensor:
    """The tensor at a position, as a choice of the first and the rest."""
    known = _from_start(len(tensors), position)
    out = tensors[-1]
    for i in reversed(range(len(tensors) - 1)):
        out = choice_of(known == i, tensors[i], out)
    return out
