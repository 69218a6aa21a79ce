"""The gradients that a loop of the graph sets: which tensors they are, in a turn and after the loop.

A loop carries a gradient by its value, so one that a turn leaves must be a tensor that it made, which nothing
else holds. The one from before the loop may be held by others. It is the gradient until a turn replaces it,
and a change in place reaches those others as long: where that can matter, it flows along whether one has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.capture.runtime.entries import Replan
from weft.capture.runtime.mixed import as_flag
from weft.capture.runtime.number import number_of
from weft.errors import CaptureError
from weft.ops.alias import CHOICE, link_choice
from weft.tensor.alias import with_ancestors
from weft.tensor.choices import Truth, both, either, negation
from weft.tensor.dispatch import wrap
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.captured import Captured
from weft.transform.slots import DataSlot, GradSlot

Key = tuple[Any, ...]


class Gradients:
    """The gradients that a loop sets."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._told: list[Key] = []  # those of which it flows whether a turn has replaced them
        self._flags: dict[Key, Any] = {}  # and whether one has, in the region that runs
        self._starts: dict[Key, tuple[Any, Any]] = {}  # what they were when the turn began, with its data
        self._set: dict[Key, tuple[GradSlot, Any]] = {}  # those that a turn sets, and what was there before

    @property
    def count(self) -> int:
        """How many tensors flow for them."""
        return len(self._told)

    def begin(self) -> list[Any]:
        """What flows into the loop."""
        return [number_of(False).tensor for _ in self._told]

    def enter(self, flags: Sequence[Any]) -> None:
        """Let those that a loop carries, and has not replaced yet, be what they were before it."""
        self._flags = dict(zip(self._told, flags, strict=True))
        self._starts = {}
        journal: dict[Key, tuple[Any, Any]] = thread.capture.journal
        for key, (slot, before) in journal.items():
            held = slot.get() if isinstance(slot, GradSlot) else None
            if isinstance(held, Tensor):
                flag = self._flags.get(key)
                if flag is not None and isinstance(before, Tensor) and held is not before:
                    link_choice(held, flag, wrap(held._data, held._node), before)
                self._starts[key] = held, held._data

    def leave(self, out: Iterable[Any]) -> list[Any]:
        """What flows out of a turn, which leaves these tensors in variables, places and lists.

        Raises:
            CaptureError: a gradient is a tensor that others hold, too.
            Replan: more must flow.
        """
        capture = thread.capture
        seen = {id(x) for t in out for x in with_ancestors(t)}
        self._set, count = {}, len(self._told)
        journal: dict[Key, tuple[Any, Any]] = capture.journal
        for key, (slot, before) in [*journal.items()]:
            held = slot.get() if isinstance(slot, GradSlot) else before
            if held is before:
                continue
            start, data = self._starts.get(key, (before, None))
            self._set[key] = slot, before
            shown = [] if held is None else self._shown(held, start)
            if not seen.isdisjoint(map(id, shown)):
                raise self._refused()
            seen.update(map(id, shown))
            if isinstance(before, Tensor) and key not in self._flags:
                changed = DataSlot(before).key in capture.journal
                changed = changed or (start is not before and start._data is not data)
                if changed or (held is not start and _may_be(held, start) is not False):
                    self._told.append(key)
        if len(self._told) > count:
            raise Replan
        return [as_flag(self._is_replaced(key)) for key in self._told]

    def _shown(self, held: Any, start: Any) -> list[Any]:
        """The tensors that a gradient may be, or is a view of, other than what it was when the turn began."""
        shown, waiting = list[Any](), [held]
        while waiting:
            x = waiting.pop()
            if x is start:
                continue
            if hasattr(x, "_link") and x._link[1] is CHOICE:
                waiting += [x._link[0], x._link[2].other]
            shown.append(x)
        ancestors = [y for x in shown for y in ([x] if _is_choice(x) else with_ancestors(x))]
        assigned = thread.capture.root.notes.assigned
        is_given = any(id(x) in assigned for x in (held, *ancestors))
        if is_given and any(x is start or not _is_made_here(x) for x in ancestors):
            raise self._refused()
        return ancestors

    def _refused(self) -> CaptureError:
        return CaptureError(
            "grad",
            f"a gradient that {self._where} sets must be a tensor that it makes and that nothing else "
            "holds after it, got one that is held",
            hint="set it to a copy, such as x * 1.0, or set it before or after the loop",
        )

    def _is_replaced(self, key: Key) -> Truth:
        """Whether this turn, or one before, has replaced a gradient."""
        if key not in self._set:
            return self._flags[key]
        slot, before = self._set[key]
        held = slot.get()
        start, _ = self._starts.get(key, (before, None))
        return either(self._flags[key], True if held is None else negation(_may_be(held, start)))

    def results(self, flags: Sequence[Any], ran: Truth) -> None:
        """Let those that no turn has replaced be, after the loop, what they were before it.

        Args:
            flags: what flows out.
            ran: whether there was a turn: True, or a tensor that says so.
        """
        told: dict[Key, Any] = dict(zip(self._told, flags, strict=True))
        for key, (slot, before) in self._set.items():
            new = slot.get()
            truth: Any = told.get(key, ran)
            if isinstance(new, Tensor) and isinstance(before, Tensor) and truth is not True:
                link_choice(new, truth, wrap(new._data, new._node), before)
        self._starts, self._set, self._flags = {}, {}, {}


def _is_choice(tensor: Any) -> bool:
    return hasattr(tensor, "_link") and tensor._link[1] is CHOICE


def _may_be(tensor: Any, other: Any) -> Truth:
    """Whether a tensor is another one: True, False, or a truth value of the run."""
    if tensor is other:
        return True
    if not _is_choice(tensor):
        return False
    parent, _, args = tensor._link
    first = both(args.truth, _may_be(parent, other))
    return either(first, both(negation(args.truth), _may_be(args.other, other)))


def _is_made_here(tensor: Any) -> bool:
    """Whether the running region made a tensor itself, and not only what one from around it holds by now."""
    capture, data = thread.capture, tensor._data
    is_own = isinstance(data, Captured) and data.capture is capture
    return is_own and DataSlot(tensor).key not in capture.journal
