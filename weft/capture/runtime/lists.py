"""Lists made by captured code: what they hold after loops and branches that appended to them.

After a loop whose number of iterations is known, and that appends in each, a list holds the rows of the
stacked tensor. Otherwise it is *grown* (see ``weft.capture.runtime.items``): only a run tells its length, and
what Python can do with it is what a tensor with a first axis of such a size can.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.base.trees import register_tree
from weft.capture.runtime.appended import Items
from weft.capture.runtime.carry import Carry
from weft.capture.runtime.entries import Grown
from weft.capture.runtime.items import (
    Chunk,
    Maybe,
    Rows,
    interleaved,
    is_grown,
    item_of,
    item_tensors,
    last_of,
    length_of,
    rows_of,
)
from weft.capture.runtime.mixed import NumberWays, mixed_of, note_mixed
from weft.capture.runtime.number import Number, number_of
from weft.capture.runtime.owners import is_outside
from weft.capture.runtime.places import before_change
from weft.capture.runtime.refs import related
from weft.capture.runtime.state import Plan, rebuild
from weft.errors import ArgumentError, CaptureError
from weft.ops.effects import check, register_error
from weft.ops.rows import rows
from weft.tensor.mode import enable_grad, thread
from weft.transform.frozen import Telling, freeze


class GraphList(list[Any]):
    """A list made by captured code; it may come to have a length that only a run tells."""

    @property
    def content(self) -> list[Any]:
        """What it holds, as it is held."""
        return list(list.__iter__(self))

    @property
    def is_grown(self) -> bool:
        """Whether only a run tells its length."""
        return is_grown(self.content)

    @property
    def rows(self) -> Rows:
        """Its items as the rows of a tensor: what is done to a row, must be done to the item."""
        return shown_rows(self.content)

    @property
    def graph_length(self) -> Any:
        """Its length: an int or a Number."""
        return length_of(self.content)

    def need_plain(self, what: str) -> None:
        """Raise if only a run tells how many items there are."""
        if self.is_grown:
            raise CaptureError(
                "list",
                f"{what} needs a list of known length, got one that grows as often as a run tells",
                hint="use weft.stack(list), an index, len(), or a loop over it",
            )

    def __getitem__(self, index: Any) -> Any:
        if not self.is_grown:
            return super().__getitem__(index)
        content = self.content
        if isinstance(index, int) and not isinstance(index, bool):
            if index == -1 and _ends_with_some(content):
                return last_of(content)
            if 0 <= index < len(content) and not is_grown(content[: index + 1]):
                return content[index]
        with enable_grad():  # items have the graphs that they have, also where nothing records
            tensor, kind = self.rows
            if isinstance(index, slice):
                return GraphList([Chunk(tensor[index], kind)])
            return item_of(tensor[index.as_kind(int) if isinstance(index, Number) else index], kind)

    def __iter__(self) -> Iterator[Any]:
        self.need_plain("this use")
        return super().__iter__()

    def __len__(self) -> int:
        self.need_plain("len() outside of captured code")
        return super().__len__()

    def __repr__(self) -> str:
        self.need_plain("text")
        return super().__repr__()

    def copy(self) -> list[Any]:
        """A list of what it holds."""
        return GraphList(self.content) if self.is_grown else self.content

    def extend(self, items: Any) -> None:
        """Append items, those of another grown list too."""
        super().extend(items.content if isinstance(items, GraphList) else items)

    def __reduce__(self) -> Any:
        return list, (list(self),)


def _ends_with_some(content: Sequence[Any]) -> bool:
    """Whether the end of a list tells its last item: not where a run may find that a loop filled in none."""
    rest = list(content)
    while rest and isinstance(rest[-1], Maybe):
        rest.pop()
    if len(rest) < 2 or not isinstance(rest[-1], Chunk):
        return True
    size = rest[-1].rows.shape[0]
    return isinstance(size, int) and size > 0


def shown_rows(content: Sequence[Any]) -> Rows:
    """The items of a list as the rows of a tensor, for who takes single ones of them."""
    found = rows_of(content)
    if found.kind is not None or (len(content) == 1 and isinstance(content[0], Chunk)):
        return found
    root = thread.capture.root
    if root.telling == Telling.ITEMS:
        raise CaptureError(
            "list",
            "an item of a list whose length a tensor decides must not be changed in place, as it may be one "
            "with others",
            hint="append a copy with .clone()",
        )
    items = [t for x in content for t in item_tensors(x)]
    for t in (found.tensor, *[t for item in items for t in related(item)]):
        freeze(root.frozen, t, "a list whose length a tensor decides", told_by=Telling.ITEMS, leaves=False)
    return found


def _refused(name: str) -> Any:
    plain = getattr(list, name)

    def method(self: GraphList, *args: Any, **kwargs: Any) -> Any:
        for x in (self, *args):
            if isinstance(x, GraphList):
                x.need_plain(f"list.{name}")
        return plain(self, *args, **kwargs)

    method.__name__ = name
    return method


_NEED_LENGTH = (
    "insert pop remove reverse sort index count __add__ __mul__ __contains__ __delitem__ __eq__ __ne__ "
    "__lt__ __le__ __gt__ __ge__ __reversed__"
)
for _name in _NEED_LENGTH.split():
    setattr(GraphList, _name, _refused(_name))


def _reflected_add(self: GraphList, other: Any) -> Any:
    self.need_plain("list +")
    return NotImplemented


GraphList.__radd__ = _reflected_add  # type: ignore[attr-defined]


def check_plain(x: Any, what: str) -> None:
    """Raise if something is a list, or holds one, of which only a run tells how many items it has."""
    if isinstance(x, GraphList):
        x.need_plain(what)
    if isinstance(x, list | tuple):
        for y in x:
            check_plain(y, what)
    elif isinstance(x, dict):
        for y in x.values():
            check_plain(y, what)


def _flatten(x: GraphList) -> tuple[Sequence[Any], Any]:
    if not x.is_grown:
        return list(x), "items"
    tensor, kind = x.rows
    return [tensor], kind


def _unflatten(kind: Any, children: Sequence[Any]) -> Any:
    if kind == "items":
        return list(children)
    if thread.capture is not None:
        return GraphList([Chunk(children[0], kind)])
    return list(children[0]) if kind is None else children[0].tolist()


register_tree(GraphList, _flatten, _unflatten)


def grow(carry: Carry, stacks: Sequence[Any], count: int | None) -> list[Items]:
    """Give the lists that a loop appended to what it left in them; count is None if only a run tells it.

    In a region items stay items, each with its flag: a loop around cannot collect what has a size of its own.
    """
    columns: dict[int, Items] = {}  # by what a turn appends, once though it is appended twice
    for tensor, stack in zip(carry.stacked, stacks, strict=True):
        mixed = mixed_of(tensor)
        if mixed is not None:
            note_mixed(stack, NumberWays(mixed.ways.kinds, None), mixed.where)
        columns.setdefault(id(tensor), Items(stack))
    for grown in carry.grown.values():
        target = grown.slot.obj
        before_change(target)
        if count is not None and (thread.capture.region or not _has_maybe(grown.plans)):
            _fill(grown, columns, count)
        elif not isinstance(target, GraphList) or not grown.tensors:
            raise _not_graph_list()
        else:
            _check_woven(carry, grown)
            list.append(target, interleaved(grown.plans, [columns[id(t)].rows for t in grown.tensors]))
    return [columns[id(t)] for t in carry.stacked]


def _check_woven(carry: Carry, grown: Grown) -> None:
    """Raise if it must be known which tensors items are that become rows among others."""
    if carry.references.appended.last and (len(grown.tensors) > 1 or _has_maybe(grown.plans)):
        raise CaptureError(
            "append",
            f"a tensor that {carry.at} appends besides others, as often as a run tells, must be one that "
            "nothing else refers to",
            hint="append a copy with .clone()",
        )


def _has_maybe(plans: Sequence[Plan]) -> bool:
    return any(getattr(plan.structure.items[0], "kind", None) is Maybe for plan in plans)


def _fill(grown: Grown, columns: dict[int, Items], count: int) -> None:
    """Append the items of all iterations, in order."""
    for key in map(id, grown.tensors):
        found = columns[key]
        if found.all is None:
            with enable_grad():
                columns[key] = found._replace(all=rows.on_tensors(found.rows, count=count))
        mixed = mixed_of(found.rows)
        if mixed is not None:
            for item in columns[key].all:
                note_mixed(item, mixed.ways, mixed.where)
    split = [columns[id(t)].all for t in grown.tensors]
    target = grown.slot.obj
    start = list.__len__(target)
    for i in range(count):
        rest = iter([column[i] for column in split])
        for plan in grown.plans:
            list.append(target, rebuild(plan, [next(rest) for _ in plan.types]))
    if start == 0 and len(split) == 1 and _is_tensor(grown.plans):
        known = thread.capture.notes.stacks
        items = [(x, x._data) for x in target]
        known[id(target)] = (target, items, columns[id(grown.tensors[0])].rows)


def _is_tensor(plans: Sequence[Plan]) -> bool:
    return len(plans) == 1 and plans[0].structure.items == (None,) and plans[0].parts[0].kind is None  # type: ignore[union-attr]


def _not_graph_list() -> CaptureError:
    return CaptureError(
        "append",
        "a loop of unknown length must append tensors or numbers, to a list that captured code made",
        hint="start with [] in the captured function",
    )


def stacked(x: Any) -> Any:
    """The tensor whose rows a list holds, if a loop of the running capture made it; else None."""
    if isinstance(x, GraphList) and x.is_grown:
        return rows_of(x.content).tensor
    known = thread.capture.notes.stacks.get(id(x))
    if known is None or known[0] is not x or len(known[1]) != list.__len__(x):
        return None
    is_kept = all(a is b and a._data is data for (a, data), b in zip(known[1], x, strict=True))
    return known[2] if is_kept else None


def check_some(op: str, items: Any) -> None:
    """Let the run raise if a list that is to be joined, of a length that it tells, is empty."""
    if not isinstance(items, GraphList) or not items.is_grown:
        return
    given = (register_error(ArgumentError), "", True)
    text = f"{op}: at least one tensor is needed, got none"
    length: Any = number_of(items.graph_length)
    check.on_tensors((length > 0).tensor, pieces=(text,), places=(), error=given)


def check_growth(obj: Any, method: str) -> None:
    """Raise where a container from outside changes in a way that a capture cannot keep."""
    if is_outside(obj) and not isinstance(obj, GraphList):
        raise CaptureError(
            method,
            f"captured code must not change the length of a {type(obj).__name__} from outside, "
            "which only the capture would do, not each call",
            hint="return the value, and let the caller keep it; or give a list as many items as it has, as "
            "`rows[:] = [*rows[1:], row]`",
        )
