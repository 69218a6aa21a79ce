"""Which tensor each variable and place of a loop refers to, carried from turn to turn where it matters.

The tensors that flow through a loop stand at *positions*: those of the variables, then those of places. What
flows are values. Mostly that is all: who a tensor is matters only where one is changed in place, and then to
all positions that may come to refer to it. These are *told apart*: beside its value such a position carries
a number that says which of a few candidates it refers to,

- a tensor from around the loop (what the variable held before it, say),
- the *cell* of a position: the tensor that it, or one after it, got in an earlier turn,
- a view of what a further, hidden position refers to, by known steps.

At the start of a turn the tensor of such a position is a choice of its candidates (``weft.ops.alias``), so
that a change goes where eager code would make it. At the end of a turn every reference is read off the links
(``weft.capture.runtime.refs``), and cells are named anew: several positions that refer to one tensor refer to
the cell of the first of them. After the loop the same choice is made with the last numbers.

Where nothing in the loop is changed in place, positions that may refer to one tensor are *frozen* after it:
if one of them is changed later, the capture begins again and tells all positions apart (``Restart``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.capture.runtime.appended import Appended, Items, counts_of
from weft.capture.runtime.entries import Replan
from weft.capture.runtime.mixed import NO_NUMBER, NumberWays, as_flag, note_mixed
from weft.capture.runtime.number import number_of
from weft.capture.runtime.positions import Candidate, Cell, Position, Steps, Taken
from weft.capture.runtime.refs import (
    Case,
    Components,
    New,
    Outer,
    Ref,
    Start,
    View,
    chosen,
    decided,
    flat,
    holds,
    is_outer,
    numbers_of,
    outers,
    put_numbers,
    ref_of,
    related,
    show_the_same,
    take_numbers,
    tokens,
    with_graph,
)
from weft.capture.runtime.state import zeros
from weft.capture.runtime.ties import is_around
from weft.errors import CaptureError
from weft.ir.types import TensorType
from weft.ops.alias import PATH, link_choice, link_path
from weft.ops.op import type_of
from weft.tensor.choices import Truth, both, negation
from weft.tensor.dispatch import wrap
from weft.tensor.mode import thread
from weft.transform.frozen import Telling, check_frozen, check_picked, freeze, hand_on, is_frozen
from weft.transform.slots import DataSlot

Named = list[tuple[Case, Any]]  # what a position refers to, and of a view the tensor that it is

_MOST_CANDIDATES = 12
_FROZEN = ("frozen", 0)  # stands for all tensors that loops inside may have made one


class References:
    """The references of a loop.

    Attributes:
        appended: what the turns append to lists.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._types: list[Any] = []
        self._started: list[Any] = []
        self._held: list[bool | None] = []
        self._told: dict[int, Position] = {}
        self._before: Sequence[NumberWays] = ()  # where each position is a number, before the loop
        self._ends: Sequence[NumberWays] = ()  # and at the end of a turn
        self._flags: dict[
            int, Any
        ] = {}  # by position that may be one, whether it is, in the region that runs
        self._kinds: dict[int, frozenset[type]] = {}  # and of which kinds
        self._given: list[tuple[Any, Any]] = []  # the tensors at the start of a turn, with their data
        self._starts: dict[int, int] = {}
        self._stands: dict[int, Any] = {}
        self._codes: dict[int, Any] = {}
        self._numbers: dict[tuple[int, int], list[Any]] = {}
        self._refs: list[Ref | None] = []
        self._shared: set[int] = set()  # positions that may refer to what others refer to, not told apart
        self._linked: set[int] = set()  # positions whose tensors these may be
        self._bases: dict[int, Any] = {}
        self._views: dict[Taken, Any] = {}  # the tensors of views, each of which several may refer to
        self._after: dict[int, list[Case]] = {}
        self._mended = False
        self.appended = Appended(where)

    # Into a turn

    def begin(
        self, started: Sequence[Any], held: Sequence[bool | None], numbers: Sequence[NumberWays]
    ) -> list[Any]:
        """What flows beside the tensors of the positions.

        Args:
            started: the tensors before the loop.
            held: for each whether a variable held it; None of what is no tensor to the user.
            numbers: for each on which ways the user had a number there.
        """
        types = [(type_of(t), h) for t, h in zip(started, held, strict=True)]
        if types != self._types:  # another plan of what flows: positions have other numbers
            self._types, self._told, self._flags, self._kinds = types, {}, {}, {}
        self._started, self._held, self._before = list(started), list(held), numbers
        for tensor in started:
            thread.capture.meet(tensor)
        out: list[Any] = []
        for i, told in self._told.items():
            if told.has_code():
                out.append(number_of(0).tensor)
            if told.type is not None and Cell(i) in told.candidates:
                out.append(zeros(told.type))
            for steps in told.views:
                out += map(zeros, steps.types)
        self._flag(numbers)
        return out + [as_flag(numbers[i].truth) for i in self._flags]

    def enter(self, tensors: Sequence[Any]) -> list[Any]:
        """The tensors of the positions at the start of a turn, given what flows."""
        count = len(self._started)
        self._read(tensors)
        given = self._tensors(tensors[:count])
        self._given = [(t, t._data) for t in given]
        self._starts = {id(t): i for i, t in reversed(list(enumerate(given)))}
        self._starts |= {id(t): i for i, t in self._bases.items() if id(t) not in self._starts}
        for i, flag in self._flags.items():
            if not is_outer(given[i]):
                note_mixed(given[i], NumberWays(self._kinds[i], flag), self._where)
        return given

    def _flag(self, numbers: Sequence[NumberWays]) -> bool:
        """Let it flow of each position that may be a number whether it is one; are there new ones?"""
        new = False
        for i, ways in enumerate(numbers):
            if not ways.kinds <= self._kinds.get(i, frozenset()):
                self._kinds[i] = self._kinds.get(i, frozenset()) | ways.kinds
                self._flags.setdefault(i)
                new = True
        return new

    def _read(self, tensors: Sequence[Any]) -> None:
        count = len(self._started)
        rest = iter(tensors[count:])
        self._stands = dict(enumerate(tensors[:count]))
        self._codes, self._numbers = {}, {}
        for i, told in self._told.items():
            if told.has_code():
                self._codes[i] = next(rest)
            if told.type is not None and Cell(i) in told.candidates:
                self._stands[i] = next(rest)
            for k, steps in enumerate(told.views):
                self._numbers[i, k] = [next(rest) for _ in steps.types]
        self._flags = {i: next(rest) for i in self._flags}

    def _tensors(self, shown: Sequence[Any]) -> list[Any]:
        """The tensor of each position, tied to the candidates of it."""
        self._bases, self._views = {}, {}
        return [self._tensor(i) if i in self._told else t for i, t in enumerate(shown)]

    def _tensor(self, i: int) -> Any:
        candidates = self._told[i].candidates
        out = self._candidate(i, candidates[-1])
        for k in reversed(range(len(candidates) - 1)):
            truth, first = self._refers(i, k), self._candidate(i, candidates[k])
            new = self._copy(i) if i in self._stands else chosen(truth, first, out)
            link_choice(new, truth, first, out)
            out = new
        return out

    def _copy(self, i: int) -> Any:
        """Another tensor of the value that flows at a position."""
        return wrap(self._stands[i]._data, self._stands[i]._node)

    def _refers(self, i: int, k: int) -> Truth:
        return self._codes[i] == number_of(k).tensor

    def _candidate(self, i: int, candidate: Candidate) -> Any:
        if isinstance(candidate, Outer):
            return candidate.tensor
        if isinstance(candidate, Cell):
            return self._stands[candidate.position]
        if candidate not in self._views:
            self._views[candidate] = self._view(*candidate)
        return self._views[candidate]

    def _view(self, i: int, k: int) -> Any:
        base, steps = self._base(i, k), self._steps(i, k)
        out = self._copy(i) if i in self._stands else PATH.get(base, steps)
        link_path(out, base, steps)
        return out

    def _base(self, i: int, k: int) -> Any:
        hidden = self._told[i].views[k].base
        if hidden not in self._bases:
            self._bases[hidden] = self._tensor(hidden)
        return self._bases[hidden]

    def _steps(self, i: int, k: int) -> Any:
        return put_numbers(self._told[i].views[k].steps, self._numbers[i, k])

    # Out of a turn

    @property
    def given(self) -> list[Any]:
        """The tensors of the positions at the start of the turn."""
        return [t for t, _ in self._given]

    @property
    def changed(self) -> set[int]:
        """The ids of tensors that were held at the start of the turn, not told apart, and then changed."""
        rows = enumerate(self._given)
        return {id(t) for i, (t, data) in rows if i not in self._told and t._data is not data}

    def leave(self, ends: Sequence[Any], numbers: Sequence[NumberWays], appended: Sequence[Any]) -> list[Any]:
        """What flows out of a turn beside the tensors that it leaves; raises Replan if more must be told.

        Args:
            ends: the tensors that the turn leaves at the positions.
            numbers: for each on which ways the user has a number there.
            appended: those that it appends to lists.
        """
        rows = zip(ends, self._held, strict=True)
        self._refs = [None if held is None else ref_of(t, self._starts) for t, held in rows]
        self.appended.refs = [ref_of(t, self._starts) for t in appended]
        self._ends, self._mended = numbers, self._flag(numbers)
        self._tell(self._components())
        root = thread.capture.root
        for i in self._told if root.telling < Telling.REFERENCES else ():
            if i < len(ends):
                check_picked(root.frozen, ends[i])
        cases = {i: flat(self._ref(i), self._at_start) for i in self._told if i < len(ends)}
        self._hide(cases)
        self._name(cases)
        if self._mended:  # all that this turn shows is found at once: each further turn is traced anew
            raise Replan
        out: list[Any] = []
        for i, told in self._told.items():
            out += self._flowing(i, told, cases)
        return out + [as_flag(numbers[i].truth) for i in self._flags]

    def _ref(self, i: int) -> Ref:
        ref = self._refs[i]
        assert ref is not None, "what is no tensor to the user is never told apart"
        return ref

    def _components(self) -> Components:
        """Positions and tensors that may come to show the same elements."""
        found = Components()
        for i, ref in enumerate(self._refs):
            if ref is not None:
                before = [("tensor", id(t)) for t in related(self._started[i])] if self._held[i] else []
                unknown = [_FROZEN] if self._may_be_others(i, ref) else []
                found.join([("position", i), *tokens(ref), *before, *unknown])
        for ref in self.appended.refs:
            found.join(list(tokens(ref)))
        return found

    def _may_be_others(self, i: int, ref: Ref) -> bool:
        """Whether a loop inside may have made one what a position held or holds and what others do."""
        frozen = thread.capture.root.frozen
        return any(is_frozen(frozen, t) for t in (self._given[i][0], *outers(ref)))

    def _tell(self, found: Components) -> None:
        """Find the positions that must be told apart, and those that will have to be."""
        hot = self._hot(found)
        counts = counts_of(self._all())
        self.appended.look(self._refs, found, hot)
        shared = [i for i, r in enumerate(self._refs) if r is not None and self._is_shared(i, r, counts)]
        linked = {found.find(("position", i)) for i in shared}
        wanted = hot | linked if thread.capture.root.telling else hot
        self._shared = {i for i in shared if found.find(("position", i)) not in hot}
        self._linked = {i for i in range(len(self._refs)) if found.find(("position", i)) in linked - hot}
        new = [
            i
            for i, ref in enumerate(self._refs)
            if ref is not None and i not in self._told and found.find(("position", i)) in wanted
        ]
        for i in new:
            self._told[i] = Position([Outer(self._started[i]) if self._held[i] else Cell(i)])
            self._mended = True

    def _all(self) -> list[Ref]:
        return [r for r in (*self._refs, *self.appended.refs) if r is not None]

    def _hot(self, found: Components) -> set[Any]:
        """The sets of which a turn changes something in place, that was there before it."""
        slots = [slot for slot, _ in thread.capture.journal.values() if isinstance(slot, DataSlot)]
        hot = {found.find(("tensor", id(slot.tensor))) for slot in slots}
        for i, (t, data) in enumerate(self._given):
            if t._data is not data:
                if self._held[i] is None:
                    raise self.appended.refused("the last item of a list that a loop appends to")
                hot.add(found.find(("position", i)))
        for ref in self._all():
            if any(found.find(t) in hot for t in tokens(ref)):
                for tensor in outers(ref):
                    check_frozen(thread.capture.root.frozen, tensor)
        return hot

    def _is_shared(self, i: int, ref: Ref, counts: Mapping[int, int]) -> bool:
        """Whether a position may be left with a tensor that something else refers to, too."""
        frozen = thread.capture.root.frozen
        if any(is_frozen(frozen, t) for t in outers(ref)):
            return True
        if isinstance(ref, Start):
            return ref.position != i or not self._held[i]
        return not isinstance(ref, Outer) or (type(ref) is New and counts[id(ref.tensor)] > 1)

    def _at_start(self, i: int) -> list[Case]:
        """What a position referred to at the start of the turn."""
        told = self._told[i]
        last = len(told.candidates) - 1
        out = []
        for k, candidate in enumerate(told.candidates):
            what: Any = candidate
            if isinstance(candidate, Taken):
                base = Start(self._told[candidate.position].views[candidate.number].base)
                what = View(base, self._steps(*candidate), self._type_at(i), candidate)
            out.append(Case(True if k == last else self._refers(i, k), what))
        return out

    def _hide(self, cases: dict[int, list[Case]]) -> None:
        """Let each view among the leaves be one of its position, whose base is a hidden one."""
        seen: list[Named] = []
        for i in list(cases):
            seen.append([row for case in cases[i] for row in self._hidden(i, case, seen, cases)])
            cases[i] = [case for case, _ in seen[-1]]
        for told in self._told.values():
            for steps in told.views:  # of which this turn leaves none: it stays what it is
                if steps.base not in cases:
                    cases[steps.base] = self._at_start(steps.base)

    def _hidden(self, i: int, case: Case, seen: Sequence[Named], cases: dict[int, list[Case]]) -> Named:
        """A leaf of a position, if it is a view as one of a position seen before, or of its own."""
        if not isinstance(case.what, View):
            return [(case, None)]
        told, who = self._told[i], case.what.who
        found = [Case(both(case.truth, c.truth), c.what) for c in _of_one(who, seen)]
        if not any(c.truth is case.truth for c in found):
            for truth, (base, steps) in self._grounded(case):
                k = self._number_of(told, steps, self._type_of(base))
                cases.setdefault(told.views[k].base, []).append(Case(truth, base))
                found.append(Case(truth, (Taken(i, k), steps)))
        return [(c, who) for c in found]

    def _grounded(self, case: Case) -> list[Case]:
        """A view as a decision between views of what are none: each a leaf with all steps from there."""
        out = []
        for truth, leaf in flat(case.what.base, self._at_start):
            truth = both(case.truth, truth)
            if isinstance(leaf, View):
                whole = leaf._replace(steps=(*leaf.steps, *case.what.steps), type=case.what.type)
                out += self._grounded(Case(truth, whole))
            else:
                out.append(Case(truth, (leaf, case.what.steps)))
        return out

    def _number_of(self, told: Position, path: Any, kind: TensorType) -> int:
        """The number of a view among those of its position."""
        numbers: list[Any] = []
        steps = take_numbers(path, numbers)
        for k, known in enumerate(told.views):
            if self._told[known.base].type == kind and show_the_same(known.steps, steps, kind):
                return k
        hidden = len(self._types) + sum(p.type is not None for p in self._told.values())
        self._told[hidden] = Position([], kind)
        told.views.append(Steps(steps, tuple(type_of(x) for x in numbers), hidden))
        self._check_count(told.views)
        self._mended = True
        return len(told.views) - 1

    def _type_of(self, leaf: Outer | Cell) -> TensorType:
        return type_of(leaf.tensor) if isinstance(leaf, Outer) else self._type_at(leaf.position)

    def _type_at(self, i: int) -> TensorType:
        """The type of the tensor at a position."""
        found: TensorType = self._types[i][0] if i < len(self._types) else self._told[i].type
        return found

    def _name(self, cases: dict[int, list[Case]]) -> None:
        """Name cells anew: what several refer to is the cell of the first of them."""
        order = sorted(cases)
        self._after = {}
        for i in order:
            before = [q for q in order if q < i]
            named = [c for case in cases[i] for c in self._named(i, case, before, cases)]
            self._after[i] = named
            told = self._told[i]
            for case in named:
                if case.what not in told.candidates:
                    told.candidates.append(case.what)
                    self._mended = True
            self._check_count(told.candidates)

    def _named(self, i: int, case: Case, before: Sequence[int], cases: dict[int, list[Case]]) -> list[Case]:
        leaf = case.what
        if type(leaf) is Outer:
            return [case]
        if not isinstance(leaf, New | Cell):
            return [Case(case.truth, leaf[0])]
        out = []
        for q in before:
            if any(c.what == leaf for c in cases[q]):
                truth = both(case.truth, holds(cases[q], leaf))
                out.append(Case(truth, Cell(q)))
                if truth is case.truth:
                    return out
        return [*out, Case(case.truth, Cell(i))]

    def _check_count(self, found: Sequence[Any]) -> None:
        if len(found) > _MOST_CANDIDATES:
            raise CaptureError(
                "capture",
                f"a variable that is changed in place must be one of {_MOST_CANDIDATES} tensors, got more "
                f"in {self._where}",
                hint="write `x = x + y` in place of `x += y`, or take a copy with .clone()",
            )

    def _flowing(self, i: int, told: Position, cases: dict[int, list[Case]]) -> list[Any]:
        out: list[Any] = []
        if told.has_code():
            codes = [Case(c.truth, told.candidates.index(c.what)) for c in self._after[i]]
            out.append(_number(decided(codes, _choose_code)))
        if told.type is not None and Cell(i) in told.candidates:
            out.append(self._content(i, cases[i], told))
        for k, steps in enumerate(told.views):
            found = [Case(c.truth, c.what[1]) for c in cases[i] if self._is_view(c.what, Taken(i, k))]
            for n in range(len(steps.types)):
                numbers = [Case(c.truth, numbers_of(c.what)[n]) for c in found]
                out.append(decided(numbers, chosen) if numbers else self._numbers[i, k][n])
        return out

    def _is_view(self, leaf: Any, taken: Taken) -> bool:
        return not isinstance(leaf, Outer | Cell) and leaf[0] == taken

    def _content(self, i: int, cases: Sequence[Case], told: Position) -> Any:
        """What is in the cell of a hidden position after the turn."""
        found = [
            Case(c.truth, c.what.tensor if isinstance(c.what, New) else self._stands[c.what.position])
            for c in cases
            if isinstance(c.what, New | Cell)
        ]
        return decided(found, chosen) if found else self._stands[i]

    # After the loop

    def results(self, tensors: Sequence[Any], ran: Truth, items: Sequence[Items]) -> list[Any]:
        """The tensors of the positions after the loop, given what flows out of it.

        Args:
            tensors: what flows out.
            ran: whether there was a turn at all: True, or a tensor that says so.
            items: what the turns have appended.
        """
        count = len(self._started)
        self._read(tensors)
        out = [with_graph(t) for t in self._tensors(tensors[:count])]
        for i in range(count):
            if i in self.appended.last:
                out[i] = self.appended.last_item(i, items, out[i], ran)
            elif i not in self._told:
                out[i] = self._result(i, out[i], ran)
        self._note_numbers(out, ran)
        self._freeze(out, leaves=any(x.all is not None for x in items))
        self._forget()
        return out

    def _note_numbers(self, out: Sequence[Any], ran: Truth) -> None:
        """Note which positions may be numbers after the loop."""
        for i, flag in self._flags.items():
            kinds = self._ends[i].kinds | (NO_NUMBER if ran is True else self._before[i]).kinds
            if kinds and out[i] is not self._started[i]:
                note_mixed(out[i], NumberWays(kinds, flag), self._where)

    def _forget(self) -> None:
        """Let go of tensors of regions that have ended."""
        self._given, self._starts, self._stands, self._bases = [], {}, {}, {}
        self._refs, self._codes, self._numbers, self._after = [], {}, {}, {}
        self._before, self._ends, self._flags = (), (), dict.fromkeys(self._flags)
        self.appended.refs = []

    def _result(self, i: int, new: Any, ran: Truth) -> Any:
        before, ref, held = self._started[i], self._refs[i], self._held[i]
        if ref is None:
            return new
        if isinstance(ref, Start) and ref.position == i and held:
            return before  # no turn assigns another one
        if i in self._shared:
            return new
        last = ref.tensor if type(ref) is Outer else new
        if ran is True or (not held and last is new):
            return last
        if last is new:
            last = wrap(new._data, new._node)
        link_choice(new, ran, last, before if held else wrap(new._data))
        return new

    def _freeze(self, out: Sequence[Any], *, leaves: bool) -> None:
        """Note what must not be changed in place later without telling references apart.

        Args:
            out: the tensors of the positions.
            leaves: whether a call gives away the very items of lists.
        """
        frozen = thread.capture.root.frozen
        for ref, tensor in zip(self._refs, out, strict=True):
            if ref is not None and any(is_frozen(frozen, t) for t in outers(ref)):
                for x in related(tensor):  # a choice, and what it may be
                    hand_on(frozen, outers(ref), x)
        for i in self._linked - self._told.keys():
            before = [self._started[i]] if self._held[i] else []
            after = [out[i]] if i in self._shared else []
            for t in (*after, *self._around(self._refs[i]), *before):
                for x in related(t):
                    freeze(frozen, x, self._where, told_by=Telling.REFERENCES)
        if thread.capture.root.telling < Telling.ITEMS:
            around = [t for ref in self.appended.refs for t in self._around(ref)]
            for t in (*[out[i] for i in self.appended.positions], *around):
                for x in related(t):
                    freeze(frozen, x, self._where, told_by=Telling.ITEMS, leaves=leaves)

    def _around(self, ref: Ref | None) -> list[Any]:
        return [] if ref is None else [t for t in outers(ref) if is_around(t)]


def _of_one(who: Any, seen: Sequence[Named]) -> Iterator[Case]:
    """Where positions refer to one tensor, a view, and as which view of theirs."""
    for rows in seen:
        passed: Truth = True
        for case, other in rows:
            if other == who:
                yield Case(both(passed, case.truth), case.what)
            passed = both(passed, negation(case.truth))


def _choose_code(truth: Truth, a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and a == b:
        return a
    return chosen(truth, _number(a), _number(b))


def _number(code: Any) -> Any:
    return number_of(code).tensor if isinstance(code, int) else code
