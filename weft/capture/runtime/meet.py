"""Where the two ways of an ``if`` meet: each variable becomes one thing again, or an error that names it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from weft.base.dtypes import result_dtype
from weft.base.frames import user_location
from weft.base.notebook import place_text
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.base.trees import tree_flatten
from weft.capture.runtime.deciding import by_value, may_decide, nested
from weft.capture.runtime.items import padded
from weft.capture.runtime.joined import settle_joined, truths_of
from weft.capture.runtime.mixed import note_met, truths_in
from weft.capture.runtime.number import KINDS, Number, number_of
from weft.capture.runtime.places import (
    ContentsSlot,
    Places,
    note_handed_on,
    take_places,
    write_place,
)
from weft.capture.runtime.raising import ends_way
from weft.capture.runtime.state import (
    BLANK,
    Carried,
    Fixed,
    Mismatch,
    Part,
    Plan,
    is_leaf,
    join,
    number_kind,
    plan_of,
    rebuild,
)
from weft.capture.runtime.ties import Ties
from weft.capture.runtime.undefined import Undefined, is_undefined
from weft.errors import CaptureError, WeftError
from weft.ir.graph import Value
from weft.ir.types import TensorType
from weft.ops.op import type_of
from weft.ops.select import cast
from weft.ops.size import size
from weft.ops.view.primitives import broadcast_to
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.building import Capture
from weft.transform.captured import is_cut, name_of
from weft.transform.control.flat import run_cond
from weft.transform.control.regions import Region, has_gradient
from weft.transform.control.unmet import until_met
from weft.transform.slots import DataSlot, GradSlot
from weft.transform.staging import Unsettled

_OURS = re.compile(r"_(returned|value|break|continue|done)(_?\d+)?$")


def is_ours(name: str) -> bool:
    """Whether a variable is one that conversion made: flags of jumps, and the value to return."""
    return _OURS.match(name) is not None


def is_result(name: str) -> bool:
    """Whether a variable holds what the function is to return."""
    return name.startswith("_value") and is_ours(name)


class Statement(NamedTuple):
    """A statement of the user, for messages."""

    kind: str
    location: tuple[str, int] | None

    @classmethod
    def here(cls, kind: str) -> Statement:
        """The statement that the user's code is at."""
        return cls(kind, user_location(2))

    def __str__(self) -> str:
        if self.location is None:
            return f"the `{self.kind}`"
        return f"the `{self.kind}` at {place_text(*self.location)}"


class Way(NamedTuple):
    """How a branch ended: values of the variables, places it changed, the number of each output by id.

    One that ended by an exception has that, and the values of before.
    """

    values: tuple[Any, ...]
    places: Places
    numbers: dict[int, int]
    error: Exception | None = None


def meet(
    predicate: Any,
    branches: Sequence[Callable[[], tuple[Any, ...]]],
    state: tuple[Any, ...],
    names: Sequence[str],
    at: Statement,
) -> tuple[Any, ...]:
    """The variables after an ``if`` whose predicate is a tensor: a ``cond`` goes into the graph.

    Python chooses, by the value, where one of them cannot be a part of the graph.
    """

    def attempted() -> tuple[Any, ...]:
        ways: list[Way] = []
        merger = _Merger(names, at, ways)
        functions = [_traced(branch, state, ways) for branch in branches]
        with nested(at.location):
            outs = run_cond(predicate, functions, [], join=merger.join)
        if all(way.error is not None for way in ways):
            raise _error_of(predicate, ways)
        values = merger.results(predicate, outs)
        for (key, (slot, _)), content in zip(merger.places.items(), values[len(names) :], strict=True):
            kept = merger.kept.get(key, [])
            write_place(slot, [*kept, *content[len(kept) :]] if kept else content)
        merger.tie_gradients()
        return tuple(values[: len(names)])

    try:
        return until_met(attempted)
    except Exception as error:
        if not may_decide(error):
            raise
        refused = error
    return branches[0 if by_value(predicate, refused) else 1]()


def _error_of(predicate: Any, ways: Sequence[Way]) -> Exception:
    """The exception where both ways end by one; a root can tell which it is."""
    taken = 0 if thread.capture.region or Number(bool, predicate).value() else 1
    error = ways[taken].error
    assert error is not None
    return error


def _traced(
    branch: Callable[[], tuple[Any, ...]], state: tuple[Any, ...], ways: list[Way]
) -> Callable[[list[Any]], list[Any]]:
    """A branch as a function that gives the tensors of what it assigned."""

    def run(_: list[Any]) -> list[Any]:
        try:
            values = branch()
        except Exception as error:
            if not ends_way(error):
                raise
            take_places(thread.capture)
            ways.append(Way(state, {}, {}, error.with_traceback(None)))
            return []
        places = take_places(thread.capture)
        tensors: list[Any] = []
        numbers: dict[int, int] = {}
        changed = [v for v, before in zip(values, state, strict=True) if v is not before]
        for value in (*changed, *[content for _, content in places.values()]):
            for leaf in tree_flatten(value, is_leaf=is_leaf)[0]:
                if isinstance(leaf, Tensor | Number) and id(leaf) not in numbers:
                    numbers[id(leaf)] = len(tensors)
                    tensors.append(leaf.tensor if isinstance(leaf, Number) else leaf)
        ways.append(Way(values, places, numbers))
        return tensors

    return run


class _Merger:
    """Finds what each variable is after both branches, and lets them give it."""

    def __init__(self, names: Sequence[str], at: Statement, ways: list[Way]) -> None:
        self.names = names
        self.at = at
        self.ways = ways
        self.places: Places = {}
        self.kept: dict[tuple[Any, ...], list[Any]] = {}  # by list, the items that no branch changed
        self.found: list[Any] = []  # for each variable and place a Plan, or its value as Fixed
        self.pairs: list[list[Any]] = []  # and what it is after each branch
        self.gradients: list[tuple[GradSlot, tuple[Any, Any]]] = []  # those that a way replaced, after each
        self.ties = Ties([], [])

    def join(self, regions: Sequence[Region]) -> None:
        """Give the regions the outputs that are wanted of them."""
        for way in self.ways:
            self.places |= {k: (slot, None) for k, (slot, _) in way.places.items() if k not in self.places}
        outputs: list[list[Value]] = [[], []]
        constant: list[list[bool]] = [[], []]
        for i, name in enumerate(self.names):
            self._add(name, [way.values[i] for way in self.ways], regions, outputs, constant)
        for key, (slot, _) in self.places.items():
            contents = [way.places[key][1] if key in way.places else slot.get() for way in self.ways]
            if isinstance(slot, ContentsSlot) and isinstance(slot.obj, list):
                self.kept[key] = _common_start(slot.get(), contents)
                alive = all(way.error is None for way in self.ways)
                if alive and hasattr(slot.obj, "is_grown"):  # see weft.capture.runtime.lists.GraphList
                    contents = padded(slot.get(), contents) or contents
            note_handed_on(slot, slot.get(), contents)
            self._add(slot.describe(), contents, regions, outputs, constant)
        self.gradients = _gradients(regions)
        ended = [*self.pairs, *[list(pair) for _, pair in self.gradients]]
        ways = [[pair[k] for pair in ended] for k in (0, 1)]
        told = [[t for x in way for t in (*truths_in(x), *truths_of(x))] for way in ways]
        self.ties = Ties(ways, told)
        for k, tensor in self.ties.exports:
            value, cut = tensor._data.value, is_cut(tensor)
            if cut and regions[k].capture.records:
                value = regions[k].capture.stop(value)
            outputs[k].append(value)
            outputs[1 - k].append(zeros_in(regions[1 - k].capture, value.type))
            constant[k].append(cut)
            constant[1 - k].append(True)
        for region, values, flags in zip(regions, outputs, constant, strict=True):
            region.outputs[:] = values
            region.constant[:] = flags

    def _add(
        self, name: str, pair: list[Any], regions: Sequence[Region], outputs: Any, constant: Any
    ) -> None:
        plan = self._merge(name, pair)
        self.found.append(plan)
        if isinstance(plan, Fixed):
            self.pairs.append(pair)
            return
        pair = [x if way.error is None else Undefined(name) for x, way in zip(pair, self.ways, strict=True)]
        self.pairs.append(pair)
        for k, (value, region, way) in enumerate(zip(pair, regions, self.ways, strict=True)):
            leaves = (
                [None] * len(plan.parts) if is_undefined(value) else tree_flatten(value, is_leaf=is_leaf)[0]
            )
            for leaf, part in zip(leaves, plan.parts, strict=True):
                if isinstance(part, Carried):
                    found, cut = _value_in(region, way, leaf, part)
                    outputs[k].append(found)
                    constant[k].append(cut)

    def _merge(self, name: str, pair: list[Any]) -> Plan | Fixed:
        a, b = pair
        if a is b:
            return Fixed(a)
        for way, other in zip(self.ways, (b, a), strict=True):
            if way.error is not None:
                return Fixed(other) if is_undefined(other) else plan_of(other)
        missing = [is_undefined(v) for v in pair]
        if all(missing):
            return Fixed(a if a.why else b)
        untold = next((v for v in pair if is_undefined(v) and v.where is not None), None)
        if untold is not None:
            return Fixed(untold)  # Python may decide an `if` inside, where it is read
        if any(missing):
            return self._one_sided(name, a if missing[1] else b, assigned_if=missing[1])
        try:
            return _join_values(a, b)
        except Mismatch as found:
            promoted = _promoted(a, b) if self.at.kind in ("and", "or") else None
            return self._conflict(name, found, pair) if promoted is None else promoted

    def _one_sided(self, name: str, value: Any, *, assigned_if: bool) -> Plan | Fixed:
        if is_ours(name):
            return plan_of(value)
        why = f"is assigned only where {self.at} is {'true' if assigned_if else 'false'}"
        return Fixed(Undefined(name, why, f"give {name} a value before the `{self.at.kind}`"))

    def _conflict(self, name: str, found: Mismatch, pair: list[Any]) -> Fixed:
        what = "what the function returns" if is_result(name) else name
        ways = f"{found.first} where {self.at} is true and {found.second} where it is false"
        why = f"must be the same on both ways, got {ways}"
        hint = "give it one shape and dtype on both ways, or compute it with weft.where"
        if all(isinstance(v, list) for v in pair) and len(pair[0]) != len(pair[1]):
            hint = "append on both ways, such as weft.where(condition, x, 0), or keep a mask beside the list"
        if all(isinstance(v, dict) for v in pair) and (keys := pair[0].keys() ^ pair[1].keys()):
            hint = f"set the key {min(map(repr, keys))} before the `{self.at.kind}`, or on both ways"
        plain = all(
            not any(isinstance(x, Tensor | Number) for x in tree_flatten(v, is_leaf=is_leaf)[0]) for v in pair
        )
        nothing = any(v is None for v in pair)
        told = _differ_by_objects(*pair) or self.at.kind in ("and", "or")
        if plain and not nothing and not is_ours(name):
            hint = "what a tensor decides must be a tensor or a number"
            where = self.at.location if told else None
            return Fixed(Undefined(what, why, hint, where))  # harmless unless something reads it
        kind = Unsettled if told and not (nothing and is_result(name)) else CaptureError
        raise kind(self.at.kind, f"{what} {why}", hint=hint)

    def tie_gradients(self) -> None:
        """Let gradients that may be tensors which others hold, too, be choices of these."""
        for slot, pair in self.gradients:
            new = slot.get()
            if isinstance(new, Tensor):
                slot.put(self.ties.tied_gradient(new, pair))

    def results(self, predicate: Any, outs: Sequence[Any]) -> list[Any]:
        """The values of all variables and places, with the outputs of the node in them."""
        ties = self.ties
        ties.begin(predicate, outs[len(outs) - len(ties.exports) :])
        rest = iter(outs)
        values = []
        together: dict[tuple[int, int], Any] = {}
        for plan, pair in zip(self.found, self.pairs, strict=True):
            if isinstance(plan, Fixed):
                values.append(plan.value)
            else:
                news = [next(rest) for _ in plan.types]
                value = rebuild(plan, ties.tied(plan, pair, news))
                note_met(value, pair, str(self.at), predicate, ties.outer)
                if all(way.error is None for way in self.ways):
                    value = settle_joined(value, pair, str(self.at), self.places, predicate, ties.outer)
                if all(isinstance(x, list | dict) for x in pair):  # others may hold the same two
                    value = together.setdefault((id(pair[0]), id(pair[1])), value)
                values.append(value)
        return values


def _gradients(regions: Sequence[Region]) -> list[tuple[GradSlot, tuple[Any, Any]]]:
    """The gradients that are other tensors after a region than before, with what they are after each."""
    found = {k: c.slot for r in regions for k, c in r.changes.items() if isinstance(c.slot, GradSlot)}
    out = []
    for key, slot in found.items():
        one, other = (r.changes[key].held if key in r.changes else slot.get() for r in regions)
        if one is not other:
            out.append((slot, (one, other)))
    return out


def _differ_by_objects(a: Any, b: Any) -> bool:
    """Whether two values differ by what no value of a graph can be: nothing, an object, another structure."""
    if isinstance(a, dict) and isinstance(b, dict):
        return [*a] != [*b] or any(_differ_by_objects(a[k], b[k]) for k in a)
    if any(getattr(x, "is_grown", False) for x in (a, b)):  # a list of open length
        return False
    kind = next((k for k in (list, tuple) if isinstance(a, k) and isinstance(b, k)), None)
    if kind is not None:
        rows = [[*kind.__iter__(x)] for x in (a, b)]
        return len(rows[0]) != len(rows[1]) or any(map(_differ_by_objects, *rows))
    if any(isinstance(x, dict | list | tuple | set) for x in (a, b)):
        return type(a) is not type(b) or a is not b
    return a is not b and any(x is None or _is_object(x) for x in (a, b))


def _is_object(x: Any) -> bool:
    """Whether something is no value of a graph: which object or text it is only Python can tell."""
    return isinstance(x, Enum) or not isinstance(x, _VALUES)


_VALUES = (Tensor, Number, int, float, complex, list, tuple, dict, set)


def _promoted(a: Any, b: Any) -> Plan | None:
    """What ``a and b`` is of tensors of one shape and two dtypes: of the dtype that both promote to."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape):
        return None
    try:
        dtype = result_dtype("where", a.dtype, b.dtype)
    except WeftError:
        return None
    return Plan(plan_of(a).structure, (Carried(TensorType(a.shape, dtype)),))


def _common_start(before: list[Any], contents: Sequence[list[Any]]) -> list[Any]:
    """The first items of a list that are the same objects after all branches."""
    count = 0
    for row in zip(before, *contents, strict=False):
        if any(x is not row[0] for x in row):
            break
        count += 1
    return before[:count]


def _join_values(a: Any, b: Any) -> Plan | Fixed:
    """What a variable is that is one of two values; a leaf that is one object on both ways is no output."""
    leaves_a, structure = tree_flatten(a, is_leaf=is_leaf)
    leaves_b, other = tree_flatten(b, is_leaf=is_leaf)
    plan = join(plan_of(a), plan_of(b))
    if structure != other:
        return plan
    pairs = zip(leaves_a, leaves_b, plan.parts, strict=True)
    parts: tuple[Part, ...] = tuple(Fixed(x) if x is y else part for x, y, part in pairs)
    return Plan(structure, parts)


def _value_in(region: Region, way: Way, leaf: Any, part: Carried) -> tuple[Value, bool]:
    """The value that a leaf is in a region, of the type wanted, and whether no gradient flows through it."""
    capture = region.capture
    if leaf is None or leaf is BLANK:
        return zeros_in(capture, part.type), True
    if isinstance(leaf, Size):
        return capture.emit(size, [], {"value": leaf, "dtype": part.type.dtype})[0].value, True
    if number_kind(leaf) is not None:
        return capture.number(np.asarray(leaf, part.type.dtype)).value, True
    if id(leaf) in way.numbers:
        place = way.numbers[id(leaf)]
        value, cut = _given(region)[place]
    else:
        value, cut = _value_around(region, leaf.tensor if isinstance(leaf, Number) else leaf)
    if value.type.dtype != part.type.dtype:
        value = capture.emit(cast, [value], {"dtype": part.type.dtype})[0].value
    return value, cut


def _value_around(region: Region, tensor: Any) -> tuple[Value, bool]:
    """The value at the end of a region of a tensor from around it, which it may have changed in place."""
    change = region.changes.get(DataSlot(tensor).key)
    if change is not None and change.value is not None:
        return change.value, change.constant
    value = Value(type_of(tensor), name_of(tensor))
    region.imports.append((value, tensor))
    return value, not has_gradient(tensor)


def _given(region: Region) -> list[tuple[Value, bool]]:
    return list(zip(region.outputs, region.constant, strict=True))


def zeros_in(capture: Capture, t: TensorType) -> Value:
    """A value of zeros in a capture."""
    zero = capture.number(np.zeros((), t.dtype)).value
    if not t.shape:
        return zero
    (out,) = capture.emit(broadcast_to, [zero], {"shape": t.shape})
    return out.value


def as_predicate(test: Any) -> Any:
    """A tensor or Number as one truth value: a 0-d bool tensor; more elements are the usual error."""
    if isinstance(test, Number):
        return truth_of(test.tensor)
    if not isinstance(test, Tensor):
        return number_of(bool(test)).tensor
    if test.size != 1:
        bool(test)  # raises in the user's terms
    return truth_of(test.reshape(()) if test.ndim else test)


def truth_of(tensor: Any) -> Any:
    """A tensor as truth values."""
    return tensor if tensor.dtype == KINDS[bool] else tensor != 0
