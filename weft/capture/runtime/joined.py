"""Containers that are one of two, or of several: which one only a run tells.

Where two ways leave different lists or dicts in a variable, what they hold is joined, as a new container. To
read that is right. A change must reach the one that the run picked, and a change of one of those that were
there before is seen by who holds the new one: both are refused, as nothing carries which one it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

from weft.base.records import NamedTuple
from weft.capture.runtime.owners import is_from_outside, is_made_here, was_there
from weft.capture.runtime.undefined import Undefined
from weft.errors import CaptureError
from weft.ops.op import TensorLike
from weft.tensor.choices import Truth, both, negation
from weft.tensor.mode import thread

_KINDS = (list, dict, set)
Places = Collection[tuple[Any, ...]]  # by their keys
Outer = Callable[[int, Any], Any]  # what a tensor of a way flowed out as
Cases = tuple[tuple[Truth, Any], ...]


class Joined(NamedTuple):
    """A container with those that it may be, which were there before.

    Attributes:
        made: the new container.
        ways: those that it may be, by id.
        where: the statement that joined them.
        new: whether it may be none of them, but one that a way made.
        cases: which one it is, each with a truth value of the region; None where nothing tells.
        pick: of what ways or turns have left, a truth value outside of all regions, and what it is where that
            holds and where it does not.
    """

    made: Any
    ways: dict[int, Any]
    where: str
    new: bool
    cases: Cases | None = None
    pick: tuple[Any, Any, Any] | None = None


def settle_joined(
    made: Any, ways: Sequence[Any], where: str, changed: Places, truth: Any = None, outer: Outer | None = None
) -> Any:
    """What was joined of some ways, with those containers themselves that are one on all ways.

    Of the others it is noted which they may be. They must not be among the places that a way has changed:
    what they held there is known of the places alone. A truth picks one of two ways, if there is one, and
    ``outer`` gives what a truth value of a way flowed out as; of a loop, for which there is none, the truth
    tells whether there was a turn.
    """
    if _may_change(made):
        one, *others = _candidates(ways).values()
        if not others and was_there(one) and id(one) not in thread.capture.root.notes.stale:
            return one
        if any(_is_changed(x, changed) for x in (one, *others)):
            raise _error("change", made, where)
    _note(made, ways, where, truth=truth, outer=outer)
    for key, (part, *rest) in _children(made, ways).items():
        new = settle_joined(part, rest, where, changed, truth, outer)
        if new is not part:
            made = _with_part(made, key, new)
    return made


def settle_carried(
    made: Any, before: Any, entered: Any, last: Any, where: str, changed: Places, ran: Any
) -> Any:
    """Likewise what a loop has carried.

    Args:
        made: what it is after the loop.
        before: what it was before.
        entered: what stood for it in a turn.
        last: what it was when the turn ended; if that is what stood for it, no turn assigns another one.
        where: the loop.
        changed: the places that a turn changes.
        ran: whether there was a turn: True, or a tensor that says so.
    """
    left = _with_before(last, entered, before)
    if left is not last and left is not before:
        thread.capture.root.notes.entered[id(left)] = left
    return settle_joined(made, [left, before], where, changed, ran)


def _with_before(last: Any, entered: Any, before: Any) -> Any:
    """What a turn left, with what was there before the loop in all places that it has not assigned."""
    if last is entered:
        return before
    for key, (part, one, other) in _children(last, [entered, before]).items():
        new = _with_before(part, one, other)
        if new is not part:
            last = _with_part(copy(last), key, new)
    return last


def _may_change(x: Any) -> bool:
    """Whether something is a container that can be changed; dataclasses are such, too."""
    if isinstance(x, _KINDS):
        return True
    return is_dataclass(x) and not isinstance(x, type) and not x.__dataclass_params__.frozen  # type: ignore[attr-defined]


def _is_changed(x: Any, changed: Places) -> bool:
    if isinstance(x, _KINDS):
        return ("contents", id(x)) in changed
    return any(key[:2] == ("attr", id(x)) for key in changed)


def _with_part(made: Any, key: Any, part: Any) -> Any:
    """A container that was joined, with something else in it; a tuple is made anew."""
    if isinstance(made, dict):
        dict.__setitem__(made, key, part)
    elif isinstance(made, list):
        list.__setitem__(made, key, part)
    elif is_dataclass(made):
        object.__setattr__(made, key, part)
    else:
        parts = [*made[:key], part, *made[key + 1 :]]
        made = tuple(parts) if type(made) is tuple else type(made)(*parts)
    return made


def may_be_one(x: Any, y: Any) -> bool:
    """Whether two containers, or others, may be one in a run, though they are two in the capture."""
    notes = thread.capture.root.notes
    if not notes.origins and not notes.entered:
        return False
    if any(isinstance(x, kind) is not isinstance(y, kind) for kind in (*_KINDS, tuple)):
        return False
    (one, known), (other, told) = _ones(x), _ones(y)
    return not one.isdisjoint(other) or not (known and told)


def _ones(x: Any) -> tuple[set[int], bool]:
    """What something may be on some way, by id, and whether that is all."""
    if thread.capture.root.notes.entered.get(id(x)) is x:
        return {id(x)}, False
    origin = origin_of(x)
    if origin is None or origin.pick is None:
        return {id(x)}, True
    found = [_ones(way) for way in origin.pick[1:]]
    return set().union(*[ids for ids, _ in found]), all(known for _, known in found)


def note_entered(made: Any, before: Any, where: str) -> None:
    """Note of what stands for something in a turn of a loop which containers it and its parts may be."""
    if made is not before and (_may_change(made) or isinstance(made, tuple)):
        thread.capture.root.notes.entered[id(made)] = made
    _note(made, [before], where, new=True)  # of an earlier turn
    for part, other in _children(made, [before]).values():
        note_entered(part, other, where)


def _note(
    made: Any,
    ways: Sequence[Any],
    where: str,
    *,
    new: bool = False,
    truth: Any = None,
    outer: Outer | None = None,
) -> None:
    """Note which containers one may be that were there before; or a new one."""
    if len(ways) == 2 and not any(made is x for x in ways) and (_may_change(made) or isinstance(made, tuple)):
        told = None if truth is True or thread.capture.region else truth
        thread.capture.root.notes.origins[id(made)] = Joined(made, {}, where, True, pick=(told, *ways))
    if not _may_change(made):
        return
    candidates = _candidates(ways)
    found = {key: x for key, x in candidates.items() if _may_change(x) and was_there(x)}
    if found and not any(made is x for x in ways):
        known = thread.capture.root.notes.joined
        new = new or len(found) < len(candidates)
        for key in [key for key in found if key in known]:  # which may be others themselves
            found |= known[key].ways
        is_told = outer is not None or not (was_there(ways[0]) or id(ways[0]) in known)
        if truth is True and is_told:
            return  # a new one
        # else a turn of a loop may have left what was there before
        cases = _joined_cases(ways, truth, outer) if truth is not None and is_told else None
        known[id(made)] = Joined(made, found, where, new, cases)


def _joined_cases(ways: Sequence[Any], truth: Truth, outer: Outer | None) -> Cases | None:
    """Which container one is that is the first of two ways where a truth holds."""
    out: list[tuple[Truth, Any]] = []
    for k, (way, taken) in enumerate(zip(ways, (truth, negation(truth)), strict=True)):
        found = _cases_of(way, None if outer is None else functools.partial(outer, k))
        if found is None:
            return None
        out += [(both(taken, told), x) for told, x in found]
    return tuple(out)


def _cases_of(x: Any, outer: Callable[[Any], Any] | None) -> Cases | None:
    """Which container one is that a way left, as far as somebody knows."""
    joined = thread.capture.root.notes.joined.get(id(x))
    if joined is None or was_there(x):
        return ((True, x),)
    if joined.cases is None or outer is None:
        return None
    out: list[tuple[Truth, Any]] = []
    for truth, way in joined.cases:
        found = _cases_of(way, outer)
        if found is None:
            return None
        out += [(both(outer(truth), told), y) for told, y in found]
    return tuple(out)


def truths_of(value: Any) -> Iterator[Any]:
    """The tensors that say which containers some parts of a value are, which a region has left."""
    known = thread.capture.root.notes.joined
    waiting = [value] if known else []
    seen: set[int] = set()
    while waiting:
        x = waiting.pop()
        if id(x) in seen or (x is not value and is_from_outside(x)):
            continue
        seen.add(id(x))
        joined = known.get(id(x))
        if joined is not None and not was_there(x):
            waiting += [way for _, way in joined.cases or ()]
            yield from (truth for truth, _ in joined.cases or () if isinstance(truth, TensorLike))
        waiting += [part for part, *_ in _children(x, [x]).values()]


def _candidates(ways: Sequence[Any]) -> dict[int, Any]:
    """What something may be on some ways, by id; one that a region made to stand for others is these."""
    known = thread.capture.root.notes.joined
    found: dict[int, Any] = {}
    for x in ways:
        joined = known.get(id(x))
        if joined is None or was_there(x):
            found[id(x)] = x
        else:
            found |= _candidates([*joined.ways.values()])
            found |= {id(x): x} if joined.new else {}
    return found


def _children(made: Any, ways: Sequence[Any]) -> dict[Any, tuple[Any, ...]]:
    """By key, what stands in the same place of some containers, if they are alike."""
    if isinstance(made, dict) and all(isinstance(x, dict) and x.keys() == made.keys() for x in ways):
        return {key: (made[key], *[x[key] for x in ways]) for key in made}
    if isinstance(made, list | tuple) and all(
        isinstance(x, list | tuple) and len(x) == len(made) for x in ways
    ):
        return dict(enumerate(zip(made, *ways, strict=True)))
    if is_dataclass(made) and all(type(x) is type(made) for x in ways):
        names = [f.name for f in fields(made)]
        return {name: tuple([getattr(x, name) for x in (made, *ways)]) for name in names}
    return {}


def before_joined_change(obj: Any) -> list[Any]:
    """Raise where a container is to change of which only a run tells which one it is.

    If all that it may be was made in the region that runs, maybe nobody looks at them any more: then it is
    what the variable holds, and those others must not be read, changed or given away. They are returned, with
    those that may be the one which is to change.
    """
    notes = thread.capture.root.notes
    if not notes.joined:
        return []
    _check_current(obj, "change")
    found: dict[int, Any] = {}
    joined = notes.joined.get(id(obj))
    if joined is not None:
        if not all(is_made_here(x) and not isinstance(x, set) for x in (obj, *joined.ways.values())):
            raise _error("change", obj, joined.where)
        notes.stale.update(dict.fromkeys(joined.ways, joined.where))
        found |= joined.ways
    for key, other in notes.joined.items():
        if id(obj) in other.ways:
            notes.stale.setdefault(key, other.where)
            found[key] = other.made
    return list(found.values())


def unreadable(obj: Any) -> Any:
    """What a container holds instead, that must not be read: whoever uses it is told."""
    kind = _name_of(obj)
    why = "must not be read where that may have been changed since under another name"
    item = Undefined(f"what a {kind} holds", why, _DOES["read"][1])
    if is_dataclass(obj):
        return {f.name: item for f in fields(obj)}
    return dict.fromkeys(obj, item) if isinstance(obj, dict) else [item] * len(obj)


def before_joined_read(obj: Any) -> None:
    """Raise where a container is read that may be one which was changed since."""
    _check_current(obj, "read")


def joined_of(obj: Any) -> Joined | None:
    """Which containers one may be that leaves a capture; raises if one of them was changed since."""
    _check_current(obj, "leave")
    joined = thread.capture.root.notes.joined.get(id(obj))
    return joined if joined is not None and joined.made is obj else None


def origin_of(obj: Any) -> Joined | None:
    """Of a container that ways or turns have left, what it is on each way, new ones too."""
    origin = thread.capture.root.notes.origins.get(id(obj))
    return origin if origin is not None and origin.made is obj else None


def cannot_leave(joined: Joined) -> CaptureError:
    """The error where a container leaves of which nobody can say after a run which one it is."""
    return _error("leave", joined.made, joined.where)


def check_not_ended(obj: Any) -> None:
    """Raise if something is an iterator of which nobody knows how far it has come."""
    ended = thread.capture.root.notes.ended.get(id(obj))
    if ended is not None:
        raise CaptureError(
            "next",
            f"a {type(obj).__name__} must not be used {ended[1]}",
            hint="take its items into a list before",
        )


def _check_current(obj: Any, what: str) -> None:
    """Raise if a container may be another one that was changed, or an iterator is at an unknown place."""
    check_not_ended(obj)
    where = thread.capture.root.notes.stale.get(id(obj))
    if where is not None:
        raise _error(what, obj, where, since=True)


_DOES = {
    "change": ("captured code must not change", "change it inside of the branches, or a copy of it"),
    "read": ("captured code must not read", "read it before the other one is changed"),
    "leave": (
        "captured code must not return or store",
        "return or store it inside of the branches; one that a branch replaces may change its items instead",
    ),
}


def _error(what: str, obj: Any, where: str, *, since: bool = False) -> CaptureError:
    does, hint = _DOES[what]
    kind = _name_of(obj)
    told = ", of which one has been changed since" if since else ""
    return CaptureError(
        kind, f"{does} a {kind} of which only the run tells which one it is, after {where}{told}", hint=hint
    )


def _name_of(obj: Any) -> str:
    return next((k.__name__ for k in _KINDS if isinstance(obj, k)), type(obj).__name__)
