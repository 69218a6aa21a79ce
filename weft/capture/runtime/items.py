"""What stands in a list of captured code where its length is no Python number.

``Maybe`` is an item that is there if a flag of the graph holds: what a branch appended. ``Chunk`` stands for
the rows of a tensor, as many as a run makes: what a loop appended. ``Past`` stands, in the body of a loop,
for the items of iterations before. The functions here compute with lists that hold such things.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from weft.base.records import NamedTuple
from weft.base.trees import register_tree, tree_flatten, tree_unflatten
from weft.capture.runtime.number import KINDS, Number, number_of
from weft.capture.runtime.state import (
    BLANK,
    Carried,
    Fixed,
    Mismatch,
    Plan,
    carried_tensors,
    describe,
    is_leaf,
    join,
    number_kind,
    plan_of,
    rebuild,
    zeros_of,
)
from weft.errors import CaptureError
from weft.ir.types import TensorType
from weft.ops.index_axis import take
from weft.ops.op import OPS
from weft.ops.places import true_places
from weft.ops.select import cast
from weft.ops.view.primitives import concat, reshape, stack
from weft.tensor.choices import choice_of
from weft.tensor.mode import enable_grad
from weft.tensor.tensor import Tensor
from weft.transform.fresh import fresh_size


class Maybe:
    """An item of a list that is there if a flag holds: a bool or a Number."""

    __slots__ = ("flag", "item")

    def __init__(self, flag: Any, item: Any) -> None:
        self.flag = flag
        self.item = item


register_tree(Maybe, lambda x: ((x.flag, x.item), None), lambda _, children: Maybe(*children))


class Chunk:
    """Items of a list, as many as a tensor has rows: tensors, or Python numbers of a kind."""

    __slots__ = ("kind", "rows")

    def __init__(self, rows: Any, kind: Any = None) -> None:
        self.rows = rows
        self.kind = kind

    @property
    def part(self) -> Carried:
        """What each item is."""
        return Carried(TensorType(self.rows.shape[1:], self.rows.dtype), self.kind)


class Past:
    """The items of a list that were appended before, in an iteration of a loop: a count, a Number."""

    __slots__ = ("count",)

    def __init__(self, count: Number) -> None:
        self.count = count


Grown = (Maybe, Chunk, Past)


def is_grown(content: Sequence[Any]) -> bool:
    """Whether only a run tells how many items a list has."""
    return any(isinstance(x, Grown) for x in content)


def length_of(content: Sequence[Any]) -> Any:
    """The number of items: an int, or a Number."""
    total: Any = 0
    for x in content:
        if isinstance(x, Maybe):
            total = total + Number(int, number_of(x.flag).as_kind(int))
        elif isinstance(x, Chunk):
            size = x.rows.shape[0]
            total = total + (size if isinstance(size, int) else number_of(size))
        else:
            total = total + (x.count if isinstance(x, Past) else 1)
    return total


def last_of(content: Sequence[Any]) -> Any:
    """The last item."""
    x = content[-1]
    if isinstance(x, Maybe):
        earlier = content[:-1]
        if not earlier or (len(earlier) == 1 and isinstance(earlier[0], Past)):
            return x.item  # there is no other that it could be
        return chosen(x.flag, x.item, last_of(earlier))
    if isinstance(x, Chunk):
        with enable_grad():
            return item_of(x.rows[-1], x.kind)
    if isinstance(x, Past):
        raise CaptureError(
            "list",
            "a loop of the graph may read the last item of a list and its length, got another one",
            hint="keep what the next iteration needs in a variable of its own",
        )
    return x


def total_of(content: Sequence[Any]) -> Any:
    """The sum of the items."""
    total: Any = 0
    for x in content:
        if isinstance(x, Maybe):
            total = total + chosen(x.flag, x.item, _zero_like(x.item))
        elif isinstance(x, Chunk):
            total = total + item_of(
                x.rows.sum(axis=0, dtype=None if x.kind is None else x.rows.dtype), x.kind
            )
        else:
            total = total + last_of([x])
    return total


def _zero_like(item: Any) -> Any:
    plan = Plan(_LEAF, (single_part(plan_of(item)),))
    return rebuild(plan, zeros_of(plan))


def chosen(flag: Any, item: Any, other: Any) -> Any:
    """One of two items that are alike."""
    try:
        plan = join(plan_of(item), plan_of(other))
    except Mismatch as found:
        raise _unlike(found.first, found.second) from None
    test = number_of(flag).tensor
    pairs = zip(carried_tensors(item, plan), carried_tensors(other, plan), strict=True)
    return rebuild(plan, [choice_of(test, a, b) for a, b in pairs])


def item_tensors(item: Any) -> list[Any]:
    """The tensors that an item of a list is made of."""
    if isinstance(item, Chunk):
        return [item.rows]
    return [x for x in tree_flatten(item, is_leaf=is_leaf)[0] if isinstance(x, Tensor)]


def item_of(row: Any, kind: Any) -> Any:
    """A row as an item of a list."""
    return row if kind is None else Number(kind, row)


def _unlike(*got: str) -> CaptureError:
    return CaptureError(
        "append",
        "the items of a list whose length a tensor decides must be tensors of one shape and dtype, "
        f"or numbers, got {' and '.join(got)}",
        hint="append one tensor at a time, to several lists instead of tuples to one",
    )


# Rows


class Rows(NamedTuple):
    """All items of a list, as the rows of a tensor, and the kind of Python number that they are."""

    tensor: Any
    kind: Any


@enable_grad()
def rows_of(content: Sequence[Any]) -> Rows:
    """The items of a list as the rows of a tensor, with the graphs that they have."""
    part = _common([_part(x) for x in content], mixes=False)
    parts: list[Any] = []
    for single, run in groupby(content, lambda x: not isinstance(x, Chunk)):
        members = list(run)
        parts += [_run(members, part)] if single else [_in_dtype(x.rows, part) for x in members]
    return Rows(parts[0] if len(parts) == 1 else concat(parts, axis=0), part.kind)


def _run(items: Sequence[Any], part: Carried) -> Any:
    """The rows of items next to each other; those that are not there are left out."""
    plan = Plan(_LEAF, (part,))
    rows = stack([carried_tensors(_inner(x), plan)[0] for x in items])
    if not any(isinstance(x, Maybe) for x in items):
        return rows
    return picked(rows, stack([number_of(x.flag if isinstance(x, Maybe) else True).tensor for x in items]))


def picked(rows: Any, flags: Any) -> Any:
    """The rows where a flag holds."""
    return take(rows, true_places.on_tensors(flags, trips=fresh_size()), axis=0)


_LEAF = tree_flatten(0)[1]


def _inner(x: Any) -> Any:
    return x.item if isinstance(x, Maybe) else x


def _part(x: Any) -> Any:
    """What an item is, or each of a chunk."""
    if isinstance(x, Chunk):
        return x.part
    if isinstance(x, Past):
        last_of([x])
    return single_part(plan_of(_inner(x)))


def single_part(plan: Plan) -> Carried:
    """The part of a plan that is one tensor or number."""
    if plan.structure != _LEAF:
        raise _unlike(describe(plan))
    part = plan.parts[0]
    if isinstance(part, Carried):
        return part
    kind = number_kind(part.value)
    if kind is not None:
        return Carried(TensorType((), KINDS[kind]), kind)
    joined = join(plan, Plan(_LEAF, (Fixed(BLANK),))).parts[0]
    if not isinstance(joined, Carried):
        raise _unlike(describe(plan))
    return joined


def _common(parts: Sequence[Carried], *, mixes: bool = True) -> Carried:
    """What items are in common; numbers of Python and tensors are mixed only by loops."""
    kinds = [p.kind for p in parts]
    if not mixes and None in kinds and any(kinds):
        raise _unlike("a tensor", "a Python number")
    plan = Plan(_LEAF, (parts[0],))
    try:
        for part in parts[1:]:
            plan = join(plan, Plan(_LEAF, (part,)))
    except Mismatch as found:
        raise _unlike(found.first, found.second) from None
    (out,) = plan.parts
    assert isinstance(out, Carried)
    return out


def _in_dtype(rows: Any, part: Carried) -> Any:
    return rows if rows.dtype == part.type.dtype else cast(rows, dtype=part.type.dtype)


# What a loop appended


@enable_grad()
def interleaved(plans: Sequence[Plan], columns: Sequence[Any]) -> Chunk:
    """The items of all iterations in order: what each plan says is one item of an iteration."""
    rest = iter(columns)
    pairs = [[next(rest) for _ in plan.types] for plan in plans]
    maybe = [_is_maybe(plan) for plan in plans]
    part = _common([_item_part(plan) for plan in plans])
    count = columns[0].shape[0]
    values = [_in_dtype(_value_column(p, c, count), part) for p, c in zip(plans, pairs, strict=True)]
    rows = _woven(values)
    if not any(maybe):
        return Chunk(rows, part.kind)
    flags = [
        _flag_column(p, c, count) if m else _filled(True, count)
        for p, c, m in zip(plans, pairs, maybe, strict=True)
    ]
    return Chunk(picked(rows, _woven(flags)), part.kind)


def _is_maybe(plan: Plan) -> bool:
    return getattr(plan.structure.items[0], "kind", None) is Maybe


def _item_plan(plan: Plan) -> Plan:
    if not _is_maybe(plan):
        return plan
    if plan.structure.items[1:] != (None, None):
        raise _unlike("a tuple or list")
    return Plan(_LEAF, plan.parts[1:])


def _item_part(plan: Plan) -> Carried:
    return single_part(_item_plan(plan))


def _value_column(plan: Plan, columns: Sequence[Any], count: Any) -> Any:
    (part,) = _item_plan(plan).parts
    return columns[-1] if isinstance(part, Carried) else _filled(part.value, count)


def _flag_column(plan: Plan, columns: Sequence[Any], count: Any) -> Any:
    flag = plan.parts[0]
    return columns[0] if isinstance(flag, Carried) else _filled(flag.value, count)


def _filled(value: Any, count: Any) -> Any:
    """One value in each iteration."""
    tensor = number_of(value).tensor if number_kind(value) is not None else value
    return OPS["broadcast_to"].on_tensors(tensor, shape=(count, *tensor.shape))


def _woven(columns: Sequence[Any]) -> Any:
    """The elements of columns, row by row."""
    if len(columns) == 1:
        return columns[0]
    both = stack(list(columns), axis=1)
    return reshape(both, shape=(both.shape[0] * len(columns), *both.shape[2:]))


# Where branches meet


def padded(before: Sequence[Any], pair: Sequence[list[Any]]) -> list[list[Any]] | None:
    """Contents of one length, of a list that two branches appended to; None if they did something else.

    What one of them appended is in the other a ``Maybe`` that is not there.
    """
    start = len(before)
    for content in pair:
        if len(content) < start or any(a is not b for a, b in zip(before, content, strict=False)):
            return None
    tails = [content[start:] for content in pair]
    if len(tails[0]) == len(tails[1]) and not any(isinstance(x, Maybe) for tail in tails for x in tail):
        return None
    if any(isinstance(x, Chunk) for tail in tails for x in tail):
        raise CaptureError(
            "append",
            "a loop inside a branch or loop of the graph must append a fixed number of items to a list from "
            "around it, got one whose length only a run tells",
            hint="append to a list of its own, and use weft.stack(list) there",
        )
    here = [[x if isinstance(x, Maybe) else Maybe(True, x) for x in tail] for tail in tails]
    gone = [[Maybe(False, _blank(x.item)) for x in tail] for tail in here]
    return [[*before, *here[0], *gone[1]], [*before, *gone[0], *here[1]]]


def _blank(item: Any) -> Any:
    """An item that is not there: nobody reads its tensors."""
    leaves, structure = tree_flatten(item, is_leaf=is_leaf)
    return tree_unflatten(structure, [BLANK if isinstance(x, Tensor | Number) else x for x in leaves])


def check_fixed(items: Sequence[Any], at: Any) -> None:
    """Raise if an iteration appended as many items as only a run tells."""
    if any(isinstance(x, Chunk) for x in items):
        raise CaptureError(
            "append",
            f"each iteration of {at} must append a fixed number of items, got a loop in it that appends as "
            "often as a run tells",
            hint="append to a list of its own in the inner loop, and use weft.stack(list) there",
        )
