"""Twins: tensors that may or may not be one, because a variable was assigned on one way only.

After ``y = x``, then ``if c: y = y * 2``, the variable y holds a new tensor on one way and x itself on the
other. A change of x in place then reaches y on one way alone, which the graph does not know. So it is in
doubt what y is, and an error to read it; that nobody does is the common case, and costs nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from weft.errors import CaptureError

Twins = dict[int, tuple[tuple[Any, Any, str], ...]]  # by id of a tensor: itself, its twin, where it got it
Doubts = dict[int, tuple[Any, str]]  # by id of a tensor


def note_twins(twins: Twins, one: object, other: object, where: str) -> None:
    """Note that two tensors are one on some way through a statement."""
    a, b = weakref.ref(one), weakref.ref(other)
    twins[id(one)] = (*twins.get(id(one), ()), (a, b, where))
    twins[id(other)] = (*twins.get(id(other), ()), (b, a, where))


def inherit_twins(twins: Twins, old: object, new: object) -> None:
    """Note that what may be one with a tensor may be one with another that stands for it."""
    for own, other, where in twins.get(id(old), ()):
        twin = other()
        if own() is old and twin is not None and twin is not new:
            note_twins(twins, twin, new, where)


def pairs_of_one(twins: Twins, tensors: Sequence[Any]) -> list[tuple[int, int]]:
    """The pairs of positions at which tensors are one, or may be."""
    out, first = [], dict[int, list[int]]()
    for i, tensor in enumerate(tensors):
        same = first.setdefault(id(tensor), [])
        out += [(k, i) for k in same]
        same.append(i)
        for own, other, _ in twins.get(id(tensor), ()):
            if own() is tensor:
                out += [(k, i) for k in first.get(id(other()), ()) if k != i and tensors[k] is other()]
    return out


def are_twins(twins: Twins, one: object, other: object) -> bool:
    """Whether two tensors may be one."""
    return any(a() is one and b() is other for a, b, _ in twins.get(id(one), ()))


def spread_doubt(twins: Twins, doubts: Doubts, tensor: object) -> None:
    """Told before a tensor changes in place: what its twins are is then in doubt."""
    for own, other, where in twins.get(id(tensor), ()):
        twin = other()
        if own() is tensor and twin is not None:
            doubts[id(twin)] = (other, where)


def put_in_doubt(doubts: Doubts, tensor: object, where: str) -> None:
    """Say that a tensor should have changed, on some way, though it did not."""
    doubts[id(tensor)] = (weakref.ref(tensor), where)


def check_doubt(doubts: Doubts, tensor: object) -> None:
    """Raise if it is in doubt what a tensor is."""
    reference, where = doubts[id(tensor)]
    if reference() is tensor:
        raise doubtful(where)


def doubtful(where: str) -> CaptureError:
    """The error of a tensor that may have been changed in place by another name."""
    return CaptureError(
        "capture",
        "a tensor that is changed in place must be held by one variable, got one that is in another as well "
        f"on one way through {where} and not on the other",
        hint="write `x = x + y` in place of `x += y`, or take a copy with .clone() before",
    )
