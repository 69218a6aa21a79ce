"""Lists that loops of a graph append to: what they hold afterwards, and how they are stacked at no cost.

After a loop whose number of iterations is known the list holds the rows of the stacked tensor. After one of
which only a run tells it, the list is *grown*: it stands for a tensor whose first size has a name, and what
Python can do with it is what that tensor can.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.base.trees import register_tree
from weft.capture.number import Number
from weft.capture.runtime_carry import Carry, Grown
from weft.capture.runtime_places import before_change
from weft.capture.runtime_state import Plan, rebuild
from weft.errors import CaptureError
from weft.ops.rows import rows
from weft.tensor.mode import thread


class GraphList(list[Any]):
    """A list made by captured code; it may come to stand for the rows of a tensor, as many as a run makes."""

    stacked_rows: Any = None

    def _need_plain(self, what: str) -> None:
        if self.stacked_rows is not None:
            raise CaptureError(
                "list",
                f"{what} needs a list of known length, got one that a loop grows as often as a run tells",
                hint="use weft.stack(list), an index, len(), or a loop over it",
            )

    def __getitem__(self, index: Any) -> Any:
        if self.stacked_rows is None:
            return super().__getitem__(index)
        return self.stacked_rows[index.tensor if isinstance(index, Number) else index]

    def __iter__(self) -> Iterator[Any]:
        self._need_plain("this use")
        return super().__iter__()

    def __len__(self) -> int:
        self._need_plain("len() outside of captured code")
        return super().__len__()

    def copy(self) -> list[Any]:
        """A list of what it holds, plain unless it stands for rows."""
        if self.stacked_rows is None:
            return list(list.__iter__(self))
        out = GraphList()
        out.stacked_rows = self.stacked_rows
        return out

    def __reduce__(self) -> Any:
        return list, (list(self),)


def _refused(name: str) -> Any:
    plain = getattr(list, name)

    def method(self: GraphList, *args: Any, **kwargs: Any) -> Any:
        self._need_plain(f"list.{name}")
        return plain(self, *args, **kwargs)

    method.__name__ = name
    return method


_NEED_LENGTH = "append extend insert pop remove reverse sort index count __add__ __mul__ __contains__"
for _name in _NEED_LENGTH.split():
    setattr(GraphList, _name, _refused(_name))


def _flatten(x: GraphList) -> tuple[Sequence[Any], str]:
    return ([x.stacked_rows], "rows") if x.stacked_rows is not None else (list(x), "items")


def _unflatten(kind: str, children: Sequence[Any]) -> Any:
    return list(children[0]) if kind == "rows" else list(children)


register_tree(GraphList, _flatten, _unflatten)


def grow(carry: Carry, stacks: Sequence[Any], count: int | None) -> None:
    """Give the lists that a loop appended to what it left in them; count is None if only a run tells it."""
    rest = iter(stacks)
    for grown in carry.grown.values():
        columns = [next(rest) for _ in grown.tensors]
        before_change(grown.slot.obj)
        if count is None:
            _stand_for(grown, columns)
        else:
            _fill(grown, columns, count)


def _fill(grown: Grown, columns: Sequence[Any], count: int) -> None:
    """Append the items of all iterations, in order."""
    split = [rows.on_tensors(column, count=count) for column in columns]
    target = grown.slot.obj
    start = len(target)
    for i in range(count):
        rest = iter([column[i] for column in split])
        for plan in grown.plans:
            list.append(target, rebuild(plan, [next(rest) for _ in plan.types]))
    if start == 0 and len(columns) == 1 and _is_tensor(grown.plans):
        known = thread.capture.notes.setdefault("stacks", {})
        known[id(target)] = (target, list(target), columns[0])


def _is_tensor(plans: Sequence[Plan]) -> bool:
    return len(plans) == 1 and plans[0].structure.items == (None,) and plans[0].parts[0].kind is None  # type: ignore[union-attr]


def _stand_for(grown: Grown, columns: Sequence[Any]) -> None:
    target = grown.slot.obj
    fits = isinstance(target, GraphList) and not len(target) and _is_tensor(grown.plans)
    if not fits:
        raise _not_one_tensor()
    target.stacked_rows = columns[0]


def _not_one_tensor() -> CaptureError:
    return CaptureError(
        "append",
        "a loop of unknown length must append one tensor in each iteration, to a list that was empty",
        hint="start with [], and append tensors to several lists instead of tuples to one",
    )


def stacked(x: Any) -> Any:
    """The tensor whose rows a list holds, if a loop of the running capture made it; else None."""
    if isinstance(x, GraphList) and x.stacked_rows is not None:
        return x.stacked_rows
    known = thread.capture.notes.get("stacks", {}).get(id(x))
    if known is None or known[0] is not x or len(known[1]) != list.__len__(x):
        return None
    return known[2] if all(a is b for a, b in zip(known[1], x, strict=True)) else None
