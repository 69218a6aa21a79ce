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
from weft.tensor.alias import family_of, is_aliased, root_of

Twins = dict[int, tuple[tuple[Any, Any, str], ...]]  # by id of a tensor: itself, its twin, where it got it
Doubts = dict[int, tuple[Any, str]]  # by id of a tensor


def relatives(tensor: Any) -> list[Any]:
    """A tensor with those that show elements of its base, which a change of it reaches."""
    return family_of(tensor) if is_aliased(tensor) else [tensor]


def note_twins(twins: Twins, one: Any, other: Any, where: str) -> None:
    """Note that two tensors are one on some way through a statement, or that one is a view of the other."""
    for x in relatives(one):
        for y in relatives(other):
            if x is not y:
                a, b = weakref.ref(x), weakref.ref(y)
                twins[id(x)] = (*twins.get(id(x), ()), (a, b, where))
                twins[id(y)] = (*twins.get(id(y), ()), (b, a, where))


def inherit_twins(twins: Twins, old: Any, new: Any, where: str = "a loop") -> None:
    """Note that what may be one with a tensor may be one with another that stands for it."""
    for own, other, place in twins.get(id(old), ()):
        twin = other()
        if own() is old and twin is not None and twin is not new:
            note_twins(twins, twin, new, place)
    for other in relatives(old):
        if other is not old and other is not new:
            note_twins(twins, other, new, where)


def pairs_of_one(twins: Twins, tensors: Sequence[Any]) -> list[tuple[int, int]]:
    """The pairs of positions at which tensors are one, or may be, or have a base in common."""
    out, first = [], dict[int, list[int]]()
    for i, tensor in enumerate(tensors):
        same = first.setdefault(id(root_of(tensor)), [])
        out += [(k, i) for k in same]
        same.append(i)
        for own, other, _ in twins.get(id(tensor), ()):
            if own() is tensor and (twin := other()) is not None:
                out += [(k, i) for k in first.get(id(root_of(twin)), ()) if k != i and tensors[k] is twin]
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
    """Say that a tensor, with its views, should have changed, on some way, though it did not."""
    for x in relatives(tensor):
        doubts[id(x)] = (weakref.ref(x), where)


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
