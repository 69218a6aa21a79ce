"""What a loop of the graph carries from one iteration to the next.

A body is traced with a guess of what each variable is: tensors flow, plain values stay. Where an iteration
leaves something else (a number that counts, a flag that a tensor sets) the guess is mended by ``Replan``
and the body traced again, until it holds. A variable without a use of its value before the loop may change
its type freely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.trees import tree_flatten
from weft.capture.number import Number, number_of
from weft.capture.runtime_entries import Entry, Fresh, Grown, Late, Replan, Same, Seen, kept_parts, may_be
from weft.capture.runtime_items import Past, check_fixed, last_of, length_of
from weft.capture.runtime_meet import Statement, is_ours, is_result
from weft.capture.runtime_places import (
    ContentsSlot,
    Places,
    is_made_inside,
    take_places,
    what_was_read,
    write_place,
)
from weft.capture.runtime_state import (
    Mismatch,
    Plan,
    carried_tensors,
    describe,
    is_leaf,
    join,
    plan_of,
    plan_with,
    rebuild,
    zeros_of,
)
from weft.capture.runtime_ties import Ends, bases_of, is_around
from weft.capture.undefined import Undefined, is_undefined
from weft.errors import CaptureError
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.captured import name_value
from weft.transform.slots import DataSlot, Slot
from weft.transform.twins import (
    doubtful,
    inherit_twins,
    note_twins,
    pairs_of_one,
    put_in_doubt,
    relatives,
)


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
        self.entries: list[Entry] = [_first_entry(v) for v in state]
        self.places: Places = {}
        self.plans: dict[tuple[Any, ...], Plan] = {}
        self.grown: dict[tuple[Any, ...], Grown] = {}
        self.seen: dict[tuple[Any, ...], Seen] = {}
        self._entered: dict[tuple[Any, ...], list[Any]] = {}  # what lists in seen held at the start
        self.given: tuple[Any, ...] = ()  # the variables at the start
        self._held: dict[tuple[Any, ...], Any] = {}  # the contents of places then
        self._data: list[tuple[Any, Any]] = []  # the tensors at the start, with the data they had
        self._started: list[Any] = []  # the tensors before the loop
        self.settles = True
        self._may_stay: list[bool] = [True] * len(names)  # whether a turn may leave a variable as it was
        self._ones: list[tuple[int, int]] = []  # positions of tensors that may be one after a turn
        self._kin: list[tuple[int, Any]] = []  # tensors that what a turn leaves has a base in common with
        self._left: list[Any] = []  # the tensors that a turn left
        self._touched: list[int] = []  # positions of tensors that a turn changes in place

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
        for seen in self.seen.values():
            out += _seen_tensors(seen.before, seen.last)
        self._started = out
        return out

    def _held_before(self) -> list[bool]:
        """For each tensor that flows, whether it is one that a variable or place held before the loop."""
        out: list[bool] = []
        for entry in self.entries:
            if isinstance(entry, Plan | Late):
                plan = entry if isinstance(entry, Plan) else entry.plan
                out += [isinstance(entry, Plan)] * len(plan.types)
        for key in self.places:
            out += [True] * len(self.plans[key].types)
        return out

    def enter(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The variables at the start of an iteration; places hold what they then hold."""
        rest = iter(tensors)
        self._name(tensors)
        self._data = [(t, t._data) for t in tensors]
        for started, t in zip(self._started, tensors, strict=True):
            inherit_twins(thread.capture.twins, started, t)
        values = [_value(entry, before, rest) for entry, before in zip(self.entries, self.state, strict=True)]
        for key, (slot, before) in self.places.items():
            content = _value(self.plans[key], before, rest)
            self._held[key] = content
            if self.plans[key].types:
                thread.capture.before_write(slot)
                slot.put(content)
        for key, seen in self.seen.items():
            count = Number(int, next(rest))
            content = [Past(count)] if seen.last is None else [Past(count - 1), _rebuilt(seen.last, rest)]
            self._entered[key] = content
            thread.capture.before_write(seen.slot)
            seen.slot.put(content)
        self.given = tuple(values)
        return self.given

    def _name(self, tensors: Sequence[Any]) -> None:
        """Call the inputs of a region as the variables are that they hold."""
        rest = iter(tensors)
        for entry, name in zip(self.entries, self.names, strict=True):
            plan = entry.plan if isinstance(entry, Late) else entry
            types = plan.types if isinstance(plan, Plan) else []
            for i in range(len(types)):
                name_value(next(rest), name if len(types) == 1 else f"{name}.{i}")

    # Out of an iteration

    def leave(self, values: Sequence[Any]) -> list[Any]:
        """The tensors at the end of an iteration, if all is as guessed."""
        found = take_places(thread.capture)
        entries = [self._next(*row) for row in zip(self.entries, values, self.names, self.state, strict=True)]
        entries = self._kept(entries, values)
        mended = any(a is not b for a, b in zip(entries, self.entries, strict=True))
        self.entries = entries
        mended = self._leave_places(found) or mended
        if mended:
            raise Replan
        out: list[Any] = []
        for entry, value in zip(self.entries, values, strict=True):
            if not isinstance(entry, Fresh | Same):
                out += carried_tensors(value, entry.plan if isinstance(entry, Late) else entry)
        for key, (_, before) in self.places.items():
            out += carried_tensors(found[key][1] if key in found else before, self.plans[key])
        for key, seen in self.seen.items():
            out += _seen_tensors(found[key][1] if key in found else self._entered[key], seen.last)
        self._check_shared(self._started)
        self._check_shared(out)
        self._check_doubts()
        rows = zip(values, self.given, strict=True)
        self._may_stay = [may_be(thread.capture.twins, v, g) for v, g in rows]
        self._ones = pairs_of_one(thread.capture.twins, out)
        self._kin = [(i, x) for i, t in enumerate(out) for x in relatives(t) if x is not t]
        self._left = list(out)
        changed = [t._data is not data for t, data in self._data]
        self._touched = self._reached([i for i, is_changed in enumerate(changed) if is_changed], out)
        used = any(thread.capture.uses(self._started[i]) for i in self._touched)
        used = used or any(is_around(x) for i in self._touched for x in bases_of(out[i]))  # in the next turn
        if used or any(changed[i] or changed[k] for i, k in self._ones):
            self.settles = False
            raise doubtful(str(self.at))
        if any(stays and self._is_doubtful(g) for stays, g in zip(self._may_stay, self.given, strict=True)):
            self.settles = False
            raise doubtful(str(self.at))
        return out

    def _reached(self, touched: list[int], out: Sequence[Any]) -> list[int]:
        """The positions of tensors that some iteration changes: others may come to stand where these do."""
        place = {id(t): k for k, (t, _) in enumerate(self._data)}
        for i in touched:  # which grows on the way
            origin = place.get(id(out[i]), i)
            if origin not in touched:
                touched.append(origin)
        return touched

    def _is_doubtful(self, given: Any) -> bool:
        """Whether a tensor that a variable held at the start was put in doubt by the iteration."""
        found = thread.capture.doubts
        leaves = tree_flatten(given, is_leaf=is_leaf)[0] if found else []
        return any(id(x) in found and found[id(x)][0]() is x for x in leaves)

    def _check_doubts(self) -> None:
        """Raise if the next iteration reads what this one put in doubt."""
        region = thread.capture
        known = {} if region.parent is None else region.parent.doubts
        for key, (reference, where) in region.doubts.items():
            tensor = reference()
            if key not in known and tensor is not None and region.uses(tensor):
                self.settles = False
                raise doubtful(where)

    def _check_shared(self, tensors: Sequence[Any]) -> None:
        """Raise if what the iteration changes in place is one tensor with what another variable starts as."""
        region, inputs = thread.capture, {id(t) for t, _ in self._data}
        slots = [slot for slot, _ in region.journal.values() if isinstance(slot, DataSlot)]
        changed = {id(slot.tensor) for slot in slots} - inputs
        held = [id(x) for t in tensors for x in relatives(t)]
        rows = zip(self._data, tensors, strict=True)
        own = [x for (t, data), x in rows if t._data is not data]  # that variables alone hold, as it seems
        shared = any(held.count(id(x)) > 1 or region.uses(x) for t in own for x in relatives(t))
        if shared or not changed.isdisjoint(held):
            self.settles = False
            raise CaptureError(
                self.at.kind,
                f"a tensor that {self.at} changes in place must be held by one variable, got it in several "
                "of which one is assigned another tensor",
                hint="write `x = x + y` in place of `x += y`, or take a copy with .clone() before the loop",
            )

    def _kept(self, entries: list[Entry], values: Sequence[Any]) -> list[Entry]:
        """Entries, where a variable that was changed in place and not assigned is one tensor throughout.

        Others may hold that tensor too, and see the change.
        """
        changed = {id(t) for t, data in self._data if t._data is not data}
        if not changed:
            return entries
        rows = zip(entries, values, self.given, self.state, strict=True)
        return [
            Same(b)
            if id(v) in changed and v is g and isinstance(b, Tensor)
            else kept_parts(e, v, g, b, changed)
            for e, v, g, b in rows
        ]

    def _next(self, entry: Entry, value: Any, name: str, before: Any) -> Entry:
        """The entry of a variable, given what an iteration left in it; the same object if nothing changes."""
        if is_undefined(value):
            return entry if isinstance(entry, Fresh) else Fresh(value)
        if isinstance(entry, Fresh):
            return Late(entry.value, plan_of(value)) if self.runs or is_ours(name) else entry
        if isinstance(entry, Same):
            return entry if value is entry.value else self._joined(plan_of(before), value, name)
        return self._joined(entry, value, name)

    def _joined(self, entry: Plan | Late, value: Any, name: str) -> Entry:
        old = entry.plan if isinstance(entry, Late) else entry
        try:
            new = join(old, plan_with(old, value))
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
            before = self._entered.get(key, self.places[key][1] if known else slot.get())
            if (
                not known
                and isinstance(slot, ContentsSlot)
                and (grown := self._growth(slot, before, content))
            ):
                self.grown[key] = grown
                mended = self.look(key, grown, content) or mended
                continue
            mended = self._leave_place(key, slot, before, content) or mended
        return mended

    def _leave_place(self, key: tuple[Any, ...], slot: Slot, before: Any, content: Any) -> bool:
        old = self.plans.get(key) or plan_of(before)
        try:
            new = join(old, plan_with(old, content))
            new = self._kept_in_place(key, new, content, before)
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

    def _kept_in_place(self, key: tuple[Any, ...], plan: Plan, content: Any, before: Any) -> Plan:
        """The plan of a place, where a tensor in it that was only changed in place is one throughout."""
        changed = {id(t) for t, data in self._data if t._data is not data}
        if not changed or key not in self._held:
            return plan
        kept = kept_parts(plan, content, self._held[key], before, changed)
        return kept if isinstance(kept, Plan) else plan

    def _growth(self, slot: ContentsSlot, before: Any, content: Any) -> Grown | None:
        """What was appended to a list, if that is all that happened to it."""
        if not isinstance(slot.obj, list) or len(content) <= len(before):
            return None
        if any(a is not b for a, b in zip(before, content, strict=False)):
            return None
        items = content[len(before) :]
        check_fixed(items, self.at)
        plans = [plan_of(item) for item in items]
        tensors = [t for item, plan in zip(items, plans, strict=True) for t in carried_tensors(item, plan)]
        return Grown(slot, before, plans, tensors)

    def look(self, key: tuple[Any, ...], grown: Grown, content: list[Any] | None = None) -> bool:
        """Provide for what the running region read of a list that the loop appends to; is that new?"""
        what = what_was_read(grown.slot.obj)
        if "all" in what:
            raise CaptureError(
                self.at.kind,
                f"of a list that {self.at} appends to the loop must read the last item and the length alone",
                hint="keep what the next iteration needs in a variable of its own",
            )
        old = self.seen.get(key)
        if not what and old is None:
            return False
        before = grown.slot.get() if old is None else old.before
        last = None if old is None else old.last
        if before and (last is not None or "last" in what):
            last = self._last(plan_of(last_of(before)) if last is None else last, content)
        if old is not None and last is old.last:
            return False
        self.seen[key] = Seen(grown.slot, before, last)
        return True

    def _last(self, old: Plan, content: list[Any] | None) -> Plan:
        """What the last item of a list is before and after an iteration."""
        if content is None:
            return old
        try:
            new = join(old, plan_of(last_of(content)))
        except Mismatch as found:
            self.settles = False
            raise CaptureError(
                self.at.kind,
                f"the items of a list must be alike in {self.at}, got {found.first} and {found.second}",
            ) from None
        return old if all(a is b for a, b in zip(old.parts, new.parts, strict=True)) else new

    @property
    def stacked(self) -> list[Any]:
        """The tensors that come out of the loop for each iteration."""
        return [t for g in self.grown.values() for t in g.tensors]

    # After the loop

    def results(self, tensors: Sequence[Any], ran: Any) -> tuple[Any, ...]:
        """The variables after the loop; places hold what they then hold.

        Args:
            tensors: what flowed out.
            ran: whether there was a turn at all: True, or a tensor that says so.
        """
        for i in self._touched:  # whoever holds the tensor of before the loop should have seen the change
            self._check_outside(self._started[i])
            put_in_doubt(thread.capture.doubts, self._started[i], str(self.at))
        ends = Ends(self._started, [t for t, _ in self._data], self._left, self._held_before(), str(self.at))
        self._check_places(ends)
        tensors = ends.tied(tensors, ran)
        for i, k in self._ones:
            note_twins(thread.capture.twins, tensors[i], tensors[k], str(self.at))
        for i, other in self._kin:
            if i in ends.untied:
                note_twins(thread.capture.twins, tensors[i], other, str(self.at))
        self._left = []
        rest = iter(tensors)
        values = []
        for entry, name, before in zip(self.entries, self.names, self.state, strict=True):
            if isinstance(entry, Fresh):
                values.append(self._undefined(name, entry))
            elif isinstance(entry, Same):
                values.append(before)
            else:
                plan = entry.plan if isinstance(entry, Late) else entry
                values.append(_value(plan, before, rest) if isinstance(entry, Plan) else _rebuilt(plan, rest))
        for key, (slot, before) in self.places.items():
            content = _value(self.plans[key], before, rest)
            write_place(slot, content)
        return tuple(values)

    def _check_places(self, ends: Ends) -> None:
        """Raise if turns hand tensors from one place of Python to another: nobody knows which it then is."""
        count = sum(len(self.plans[key].types) for key in self.places)
        last = len(self._held_before())
        if any(ends.is_handed_on(i) for i in range(last - count, last)):
            self.settles = False
            raise doubtful(str(self.at))

    def _check_outside(self, tensor: Any) -> None:
        """Raise if a tensor that the first turn alone changes in place lives outside of the capture."""
        root = thread.capture.root
        if any(hasattr(root, "is_outside") and root.is_outside(x) for x in relatives(tensor)):
            self.settles = False
            raise CaptureError(
                self.at.kind,
                f"a tensor from outside that {self.at} changes in place must stay in its variable, got one "
                "whose variable is assigned another tensor",
                hint="write `x = x + y` in place of `x += y`, or take a copy with .clone() before the loop",
            )

    def _undefined(self, name: str, entry: Fresh) -> Undefined:
        if entry.value.why:
            return entry.value
        why = f"is assigned only inside {self.at}, which may run no iteration"
        return Undefined(name, why, f"give {name} a value before the loop")


def _value(entry: Entry, before: Any, rest: Any) -> Any:
    if isinstance(entry, Fresh | Same):
        return entry.value
    if isinstance(entry, Late):
        _rebuilt(entry.plan, rest)
        return entry.value
    return _rebuilt(entry, rest) if entry.types else before


def _rebuilt(plan: Plan, rest: Any) -> Any:
    return rebuild(plan, [next(rest) for _ in plan.types])


def _first_entry(value: Any) -> Entry:
    if is_undefined(value):
        return Fresh(value)
    return Same(value) if isinstance(value, list) and is_made_inside(value) else plan_of(value)


def _seen_tensors(content: list[Any], last: Plan | None) -> list[Any]:
    """The length of a list and its last item, as tensors."""
    tensors = [] if last is None else carried_tensors(last_of(content), last)
    return [number_of(length_of(content)).tensor, *tensors]
