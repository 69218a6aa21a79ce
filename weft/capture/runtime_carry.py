"""What a loop of the graph carries from one iteration to the next.

A body is traced with a guess of what each variable is: tensors flow, plain values stay. Where an iteration
leaves something else (a number that counts, a flag that a tensor sets) the guess is mended by ``Replan``
and the body traced again, until it holds. A variable without a use of its value before the loop may change
its type freely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.capture.runtime_meet import Statement, is_ours, is_result
from weft.capture.runtime_places import ContentsSlot, Places, take_places, was_read, write_place
from weft.capture.runtime_state import (
    Mismatch,
    Plan,
    carried_tensors,
    describe,
    join,
    plan_of,
    rebuild,
    zeros_of,
)
from weft.capture.undefined import Undefined, is_undefined
from weft.errors import CaptureError
from weft.tensor.mode import thread
from weft.transform.slots import Slot


class Fresh(NamedTuple):
    """A variable without a value at the start of an iteration; nothing of it comes out of the loop."""

    value: Undefined


class Late(NamedTuple):
    """A variable without a value at the start of an iteration, whose last value comes out of the loop."""

    value: Undefined
    plan: Plan


Entry = Plan | Fresh | Late


class Grown(NamedTuple):
    """A list that each iteration appends to: what is appended, and the tensors of it."""

    slot: ContentsSlot
    before: list[Any]
    plans: list[Plan]
    tensors: list[Any]


class Replan(Exception):  # noqa: N818 - says that another way must be taken
    """The guess of what a loop carries did not hold."""


class Carry:
    """The variables and places of a loop.

    Attributes:
        settles: whether each variable has kept its type so far; if not, the first iteration may be peeled.
    """

    def __init__(self, names: Sequence[str], state: tuple[Any, ...], at: Statement, *, runs: bool) -> None:
        self.names = names
        self.state = state
        self.at = at
        self.runs = runs  # at least once, for sure
        self.entries: list[Entry] = [Fresh(v) if is_undefined(v) else plan_of(v) for v in state]
        self.places: Places = {}
        self.plans: dict[tuple[Any, ...], Plan] = {}
        self.grown: dict[tuple[Any, ...], Grown] = {}
        self.settles = True

    # Into the loop

    def initial(self) -> list[Any]:
        """The tensors that flow into the loop."""
        out: list[Any] = []
        for entry, value in zip(self.entries, self.state, strict=True):
            if isinstance(entry, Plan):
                out += carried_tensors(value, entry)
            elif isinstance(entry, Late):
                out += zeros_of(entry.plan)
        for key, (_, content) in self.places.items():
            out += carried_tensors(content, self.plans[key])
        return out

    def enter(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The variables at the start of an iteration; places hold what they then hold."""
        rest = iter(tensors)
        values = [_value(entry, before, rest) for entry, before in zip(self.entries, self.state, strict=True)]
        for key, (slot, before) in self.places.items():
            content = _value(self.plans[key], before, rest)
            if self.plans[key].types:
                thread.capture.before_write(slot)
                slot.put(content)
        return tuple(values)

    # Out of an iteration

    def leave(self, values: Sequence[Any]) -> list[Any]:
        """The tensors at the end of an iteration, if all is as guessed."""
        found = take_places(thread.capture)
        entries = [self._next(*row) for row in zip(self.entries, values, self.names, self.state, strict=True)]
        mended = any(a is not b for a, b in zip(entries, self.entries, strict=True))
        self.entries = entries
        mended = self._leave_places(found) or mended
        if mended:
            raise Replan
        out: list[Any] = []
        for entry, value in zip(self.entries, values, strict=True):
            if not isinstance(entry, Fresh):
                out += carried_tensors(value, entry.plan if isinstance(entry, Late) else entry)
        for key, (_, before) in self.places.items():
            out += carried_tensors(found[key][1] if key in found else before, self.plans[key])
        return out

    def _next(self, entry: Entry, value: Any, name: str, before: Any) -> Entry:
        """The entry of a variable, given what an iteration left in it; the same object if nothing changes."""
        if is_undefined(value):
            return entry if isinstance(entry, Fresh) else Fresh(value)
        if isinstance(entry, Fresh):
            return Late(entry.value, plan_of(value)) if self.runs or is_ours(name) else entry
        old = entry.plan if isinstance(entry, Late) else entry
        try:
            new = join(old, plan_of(value))
        except Mismatch:
            return self._mismatch(name, entry, plan_of(value))
        if all(a is b for a, b in zip(old.parts, new.parts, strict=True)):
            return entry
        return Late(entry.value, new) if isinstance(entry, Late) else new

    def _mismatch(self, name: str, entry: Entry, after: Plan) -> Entry:
        if isinstance(entry, Late):
            raise self.changed(name, entry.plan, after)
        self.settles = False
        assert isinstance(entry, Plan)
        error = self.changed(name, entry, after)
        if is_result(name):
            raise error
        return Fresh(Undefined(name, error.message.removeprefix(f"{name} "), error.hint or ""))

    def changed(self, name: str, before: Plan, after: Plan) -> CaptureError:
        """The error where a variable does not stay what it is."""
        what = "what the function returns" if is_result(name) else name
        return CaptureError(
            self.at.kind,
            f"{what} must stay what it is in {self.at}, got {describe(before)} before and {describe(after)} "
            "after an iteration",
            hint=f"give it the type {describe(after)} before the loop, or another name inside",
        )

    # Places

    def _leave_places(self, found: Places) -> bool:
        mended = False
        self.grown = {}
        for key, (slot, content) in found.items():
            known = key in self.places
            before = self.places[key][1] if known else slot.get()
            if not known and isinstance(slot, ContentsSlot) and (grown := _growth(slot, before, content)):
                self.grown[key] = self._checked(grown)
                continue
            mended = self._leave_place(key, slot, before, content) or mended
        return mended

    def _leave_place(self, key: tuple[Any, ...], slot: Slot, before: Any, content: Any) -> bool:
        old = self.plans.get(key) or plan_of(before)
        try:
            new = join(old, plan_of(content))
        except Mismatch as found:
            self.settles = False
            raise CaptureError(
                self.at.kind,
                f"{slot.describe()} must stay what it is in {self.at}, got {found.first} before and "
                f"{found.second} after an iteration",
            ) from None
        if key in self.plans and all(a is b for a, b in zip(old.parts, new.parts, strict=True)):
            return False
        unchanged = all(a is b for a, b in zip(plan_of(before).parts, new.parts, strict=True))
        if unchanged and not new.types:
            return False
        self.places[key] = (slot, before)
        self.plans[key] = new
        return True

    def _checked(self, grown: Grown) -> Grown:
        if was_read(grown.slot.obj):
            raise CaptureError(
                self.at.kind,
                f"a list that {self.at} appends to must not be read in the loop",
                hint="keep what the next iteration needs in a variable of its own",
            )
        return grown

    @property
    def stacked(self) -> list[Any]:
        """The tensors that come out of the loop for each iteration."""
        return [t for g in self.grown.values() for t in g.tensors]

    # After the loop

    def results(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The variables after the loop; places hold what they then hold."""
        rest = iter(tensors)
        values = []
        for entry, name, before in zip(self.entries, self.names, self.state, strict=True):
            if isinstance(entry, Fresh):
                values.append(self._undefined(name, entry))
            else:
                plan = entry.plan if isinstance(entry, Late) else entry
                values.append(_value(plan, before, rest) if isinstance(entry, Plan) else _rebuilt(plan, rest))
        for key, (slot, before) in self.places.items():
            write_place(slot, _value(self.plans[key], before, rest))
        return tuple(values)

    def _undefined(self, name: str, entry: Fresh) -> Undefined:
        if entry.value.why:
            return entry.value
        why = f"is assigned only inside {self.at}, which may run no iteration"
        return Undefined(name, why, f"give {name} a value before the loop")


def _value(entry: Entry, before: Any, rest: Any) -> Any:
    if isinstance(entry, Fresh):
        return entry.value
    if isinstance(entry, Late):
        _rebuilt(entry.plan, rest)
        return entry.value
    return _rebuilt(entry, rest) if entry.types else before


def _rebuilt(plan: Plan, rest: Any) -> Any:
    return rebuild(plan, [next(rest) for _ in plan.types])


def _growth(slot: ContentsSlot, before: Any, content: Any) -> Grown | None:
    """What was appended to a list, if that is all that happened to it."""
    if not isinstance(slot.obj, list) or len(content) <= len(before):
        return None
    if any(a is not b for a, b in zip(before, content, strict=False)):
        return None
    items = content[len(before) :]
    plans = [plan_of(item) for item in items]
    tensors = [t for item, plan in zip(items, plans, strict=True) for t in carried_tensors(item, plan)]
    return Grown(slot, before, plans, tensors)
