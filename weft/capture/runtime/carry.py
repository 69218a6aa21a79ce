"""What a loop of the graph carries from one iteration to the next.

A body is traced with a guess of what each variable is: tensors flow, plain values stay. Where an iteration
leaves something else (a number that counts, a flag that a tensor sets) the guess is mended by ``Replan``
and the body traced again, until it holds. A variable without a use of its value before the loop may change
its type freely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.capture.runtime.appended import Items
from weft.capture.runtime.entries import Entry, Fresh, Grown, Late, Replan, Same, Seen, kept_parts
from weft.capture.runtime.gradients import Gradients
from weft.capture.runtime.items import Chunk, Past, check_fixed, item_tensors, last_of, length_of
from weft.capture.runtime.joined import note_entered, settle_carried
from weft.capture.runtime.meet import Statement, is_ours, is_result
from weft.capture.runtime.mixed import NO_NUMBER, NumberWays, carried_ways
from weft.capture.runtime.number import Number, number_of
from weft.capture.runtime.owners import is_made_inside, note_outside
from weft.capture.runtime.places import (
    ContentsSlot,
    Places,
    note_handed_on,
    take_places,
    what_was_read,
    write_place,
)
from weft.capture.runtime.references import References
from weft.capture.runtime.state import (
    Carried,
    Mismatch,
    Plan,
    carried_tensors,
    describe,
    held_leaves,
    join,
    plan_of,
    plan_with,
    rebuild,
    zeros_of,
)
from weft.capture.runtime.undefined import Undefined, is_undefined
from weft.errors import CaptureError
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.captured import name_value
from weft.transform.frozen import Telling, freeze
from weft.transform.slots import Slot


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
        self._end_contents: dict[tuple[Any, ...], Any] = {}  # and at the end
        self._end_values: Sequence[Any] = ()  # the variables at the end
        self.references = References(str(at))
        self.gradients = Gradients(str(at))
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
        for seen in self.seen.values():
            out += _seen_tensors(seen.before, seen.last)
        told = self.references.begin(out, self._held_before(len(out)), self._numbers_before(len(out)))
        return out + told + self.gradients.begin()

    def _held_before(self, count: int) -> list[bool | None]:
        """For each tensor that flows, whether it was held before the loop; None where it is a number."""
        out: list[bool | None] = []
        for entry, value in zip(self.entries, self.state, strict=True):
            if isinstance(entry, Plan):
                out += held_leaves(value, entry)
            elif isinstance(entry, Late):
                out += [False if p.kind is None else None for p in entry.plan.parts if isinstance(p, Carried)]
        for key, (_, content) in self.places.items():
            out += held_leaves(content, self.plans[key])
        return [*out, *[None] * (count - len(out))]

    def _numbers_before(self, count: int) -> list[NumberWays]:
        """For each tensor that flows, on which ways the user had a number there before the loop."""
        out: list[NumberWays] = []
        for entry, value in zip(self.entries, self.state, strict=True):
            if isinstance(entry, Plan):
                out += carried_ways(value, entry)
            elif isinstance(entry, Late):
                out += [NO_NUMBER] * len(entry.plan.types)
        for key, (_, content) in self.places.items():
            out += carried_ways(content, self.plans[key])
        return [*out, *[NO_NUMBER] * (count - len(out))]

    def enter(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The variables at the start of an iteration; places hold what they then hold."""
        self._name(tensors)
        self.gradients.enter(tensors[len(tensors) - self.gradients.count :])
        rest = iter(self.references.enter(tensors))
        values = [_value(entry, before, rest) for entry, before in zip(self.entries, self.state, strict=True)]
        for value, before in zip(values, self.state, strict=True):
            note_entered(value, before, str(self.at))
        for key, (slot, before) in self.places.items():
            content = _value(self.plans[key], before, rest)
            self._held[key] = content
            note_entered(content, before, str(self.at))
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
        self._end_values, self._end_contents = values, {key: content for key, (_, content) in found.items()}
        out: list[Any] = []
        numbers: list[NumberWays] = []
        for entry, value in zip(self.entries, values, strict=True):
            if not isinstance(entry, Fresh | Same):
                plan = entry.plan if isinstance(entry, Late) else entry
                out += carried_tensors(value, plan)
                numbers += carried_ways(value, plan)
        for key, (_, before) in self.places.items():
            content = found[key][1] if key in found else before
            out += carried_tensors(content, self.plans[key])
            numbers += carried_ways(content, self.plans[key])
        for key, seen in self.seen.items():
            out += _seen_tensors(found[key][1] if key in found else self._entered[key], seen.last)
        return out + self._left(out, [*numbers, *[NO_NUMBER] * (len(out) - len(numbers))])

    def _left(self, out: Sequence[Any], numbers: Sequence[NumberWays]) -> list[Any]:
        """What flows besides the tensors that a turn leaves: which ones these are."""
        try:
            told = self.gradients.leave([*out, *self.stacked])
            return self.references.leave(out, numbers, self.stacked) + told
        except CaptureError:
            self.settles = False
            raise

    def _kept(self, entries: list[Entry], values: Sequence[Any]) -> list[Entry]:
        """Entries, where a variable that was changed in place and not assigned is one tensor throughout.

        Others may hold that tensor too, and see the change.
        """
        changed = self.references.changed
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
        if not isinstance(slot, ContentsSlot):
            note_outside(before)  # which nothing may have read, so that nothing has noted it
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
        if key not in self.places:
            note_handed_on(slot, before, [content])
        self.places[key] = (slot, before)
        self.plans[key] = new
        return True

    def _kept_in_place(self, key: tuple[Any, ...], plan: Plan, content: Any, before: Any) -> Plan:
        """The plan of a place, where a tensor in it that was only changed in place is one throughout."""
        changed = self.references.changed
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

    def freeze_items(self) -> None:
        """Note which items of lists, now after the loop, may be one with what variables hold."""
        if thread.capture.root.telling == Telling.ITEMS:
            return
        kept = iter(self.references.appended.own)
        for grown in self.grown.values():
            own = [next(kept) for _ in grown.tensors]
            if not all(own):
                items = list.__getitem__(grown.slot.obj, slice(len(grown.before), None))
                for item in items:
                    for t in item_tensors(item):
                        leaves = not isinstance(item, Chunk)
                        frozen = thread.capture.root.frozen
                        freeze(frozen, t, str(self.at), told_by=Telling.ITEMS, leaves=leaves)

    @property
    def stacked(self) -> list[Any]:
        """The tensors that come out of the loop for each iteration."""
        return [t for g in self.grown.values() for t in g.tensors]

    # After the loop

    def results(self, tensors: Sequence[Any], ran: Any, items: Sequence[Items]) -> tuple[Any, ...]:
        """The variables after the loop; places hold what they then hold.

        Args:
            tensors: what flowed out.
            ran: whether there was a turn at all: True, or a tensor that says so.
            items: what was appended to lists.
        """
        self.gradients.results(tensors[len(tensors) - self.gradients.count :], ran)
        tensors = self.references.results(tensors, ran, items)
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
            entered = self._held[key]
            last = self._end_contents.get(key, entered)
            row = (content, before, entered, last, str(self.at), self.places, ran)
            write_place(slot, settle_carried(*row))
        rows = zip(values, self.state, self.given, self._end_values, strict=True)
        return tuple([settle_carried(*row, str(self.at), self.places, ran) for row in rows])

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
