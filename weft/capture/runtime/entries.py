"""What a loop knows of each variable and place that it carries: its entry, and how that is found."""

from __future__ import annotations

from typing import Any

from weft.base.records import NamedTuple
from weft.base.trees import tree_flatten
from weft.capture.runtime.places import ContentsSlot
from weft.capture.runtime.state import Fixed, Plan, is_leaf
from weft.capture.runtime.undefined import Undefined, is_undefined
from weft.tensor.tensor import Tensor


def kept_parts(entry: Any, value: Any, given: Any, before: Any, changed: set[int]) -> Any:
    """An entry, where a tensor in a tree that was only changed in place is the one of before the loop."""
    if not isinstance(entry, Plan) or is_undefined(value) or is_undefined(given) or is_undefined(before):
        return entry
    (news, shape), (olds, other), (firsts, start) = (
        tree_flatten(x, is_leaf=is_leaf) for x in (value, given, before)
    )
    if not shape == other == start == entry.structure:
        return entry
    rows = list(zip(entry.parts, news, olds, firsts, strict=True))
    if not any(
        new is old and id(new) in changed and isinstance(first, Tensor) for _, new, old, first in rows
    ):
        return entry
    parts = [
        Fixed(first) if new is old and id(new) in changed and isinstance(first, Tensor) else part
        for part, new, old, first in rows
    ]
    return entry._replace(parts=tuple(parts))


class Fresh(NamedTuple):
    """A variable without a value at the start of an iteration; nothing of it comes out of the loop."""

    value: Undefined


class Late(NamedTuple):
    """A variable without a value at the start of an iteration, whose last value comes out of the loop."""

    value: Undefined
    plan: Plan


class Same(NamedTuple):
    """A variable that holds one list or tensor throughout; what happens to that is the matter of its slot."""

    value: Any


Entry = Plan | Fresh | Late | Same


class Grown(NamedTuple):
    """A list that each iteration appends to: what is appended, and the tensors of it."""

    slot: ContentsSlot
    before: list[Any]
    plans: list[Plan]
    tensors: list[Any]


class Seen(NamedTuple):
    """A list that each iteration appends to, and whose length or last item is looked at in the loop.

    Attributes:
        slot: its contents.
        before: what it held before the loop.
        last: what its last item is, None if nobody asks for it or there is none before the loop.
    """

    slot: ContentsSlot
    before: list[Any]
    last: Plan | None


class Replan(Exception):  # noqa: N818 - says that another way must be taken
    """The guess of what a loop carries did not hold."""
