"""Changes that nobody tells a capture of: those of Python's own library, of NumPy, and of weft's objects.

Such code is called as it is. What it is given, and the object whose method it is, are compared before and
after the call: a change of something from outside would be made by the capture alone, not by each call, so it
is undone and refused. Where captured code that it calls has told of the change, all is well. In a branch or a
loop, and where the capture may go back, what captured code made is compared, too, and its changes are told.
"""

from __future__ import annotations

import operator
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from weft.base.records import NamedTuple
from weft.capture.program.slots import MISSING, AttrSlot
from weft.capture.runtime.number import Number
from weft.capture.runtime.opaque import (
    StateSlot,
    before_opaque_change,
    is_opaque,
    is_sealed,
    note_new,
    opaque_change,
    whole_array,
    with_article,
)
from weft.capture.runtime.owners import CONTAINERS, is_made_here, is_made_inside, note_made
from weft.capture.runtime.places import ContentsSlot, write_place
from weft.errors import CaptureError
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.captured import Captured

_CONTAINERS = (*CONTAINERS, deque, bytearray)
_PLAIN: tuple[type, ...] = (str, bytes, int, float, complex, type(None), type, Tensor, Number)
_PLAIN = (*_PLAIN, types.FunctionType, types.MethodType, types.ModuleType)
_MOST = 10_000  # items of a container that are compared
_MOST_CONTAINERS = 1000
_DEEPEST = 3  # how far inside of what a call is given containers are looked for


class _Seen(NamedTuple):
    """A container before a call.

    Attributes:
        obj: the container, or an array, or a dict of attributes.
        owner: the object whose attributes it holds, or None.
        before: what was in it.
        is_outside: whether it was there before the capture.
    """

    obj: Any
    owner: Any
    before: Any
    is_outside: bool


def call_watched(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of a library, and raise where it changes something from outside."""
    owner = getattr(function, "__self__", None)
    if is_sealed(owner) and getattr(function, "__name__", "") in _SEALED_CHANGES:
        before_opaque_change(owner, function.__name__)
    given = (owner, *args, *kwargs.values())
    seen = list(_seen(given if isinstance(function, _CALLED) else (function, *given)))
    try:
        out = function(*args, **kwargs)
    finally:
        _check(function, seen, lambda new: True)
    return _note_given(note_new(out))


_CALLED = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type, np.ufunc)
_SEALED_CHANGES = frozenset(
    {"update", "compress", "decompress", "flush", "put", "put_nowait", "get", "get_nowait"}
)


def call_weft_watched(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of weft; raise where its object keeps a tensor of the capture, or is set up anew."""
    seen = list(_seen([getattr(function, "__self__", None)]))
    out = function(*args, **kwargs)
    sets_up = getattr(function, "__name__", "").startswith(_SETTING_UP)
    _check(function, seen, (lambda new: True) if sets_up else _is_captured)
    return _note_given(out)


_SETTING_UP = ("register_", "add_")  # methods of modules and optimizers: hooks, buffers, modules, groups


def change_watched(change: Callable[..., Any], obj: Any, *args: Any) -> Any:
    """Change an object of a library by an operator, and raise where something from outside has changed."""
    return call_watched(change, (obj, *args), {})


def _note_given(out: Any) -> Any:
    """Note that a function made the containers that it gave, if they hold what belongs to the capture."""
    waiting = [out]
    while waiting:
        x = waiting.pop()
        if isinstance(x, tuple):
            waiting += x
        elif isinstance(x, list | dict) and not is_made_inside(x) and not _is_outside(x) and _is_captured(x):
            note_made(x)
            waiting += x.values() if isinstance(x, dict) else list.__iter__(x)
    return out


def _items(x: list[Any] | tuple[Any, ...]) -> Iterable[Any]:
    """The items of a list or tuple as they are held."""
    return list.__iter__(x) if isinstance(x, list) else x


def _is_captured(x: Any) -> bool:
    """Whether something is a tensor or number of the graph, or holds one."""
    if isinstance(x, dict | list | tuple) and not is_made_inside(x):
        return any(map(_is_captured, x.values() if isinstance(x, dict) else _items(x)))
    if isinstance(x, Tensor):
        return type(x._data) is Captured and not thread.capture.root.has_lent(x)
    return isinstance(x, Number)


def _check(function: Any, seen: Iterable[_Seen], counts: Callable[[Any], bool]) -> None:
    found = [(s, [k for k, new in _differences(s.obj, s.before) if counts(new)]) for s in seen]
    untold = [s for s, keys in found if s.is_outside and not all(_is_told(s, k) for k in keys)]
    for s in untold:
        _restore(s)
    if untold:
        raise _error(function, untold[0])
    changes = [c for s, keys in found if not s.is_outside for c in _changes(s, keys)]
    after = [(slot, slot.get()) for slot, _ in changes]
    for slot, before in reversed(changes):
        slot.put(before)
    for slot, now in after:
        _tell(slot, now, _name_of(function))


def _seen(found: Iterable[Any]) -> Iterator[_Seen]:
    """The containers among some objects, the attributes of these, and the containers in all of them."""
    known: set[int] = set()
    capture = thread.capture
    goes_back = capture.region or len(capture._attempts) > 1  # of a root the first one begins it again
    waiting = [(whole_array(x), 0, False) for x in found]
    while waiting and len(known) < _MOST_CONTAINERS:
        x, depth, is_outside = waiting.pop()
        if isinstance(x, _PLAIN) or id(x) in known or is_sealed(x):
            continue
        is_outside = (is_outside or is_opaque(x) or _is_outside(x)) and not is_made_inside(x)
        if not is_outside and not goes_back:
            continue
        known.add(id(x))
        own = getattr(x, "__dict__", None) if depth == 0 else None
        for at, owner in ((x, None), (own, x)):
            if is_opaque(at):
                if _may_change(at):
                    yield _Seen(at, owner, StateSlot(at).get(), is_outside)
            elif isinstance(at, CONTAINERS) and len(at) <= _MOST:
                yield _Seen(at, owner, ContentsSlot(at).get(), is_outside)
            else:
                continue
            if depth < _DEEPEST:
                inner = [y for y in _inner(at, owner if is_outside else None) if _is_container(y)]
                if owner is not None and _is_of_region(owner):
                    _note_parts(inner)
                waiting += [(whole_array(y), depth + 1, is_outside) for y in inner]


def _note_parts(found: Iterable[Any]) -> None:
    """Note that containers were made with an object that holds them, unless they were there before."""
    for x in found:
        if not _is_outside(x) and not is_made_inside(x):
            note_made(x)


def _is_outside(x: Any) -> bool:
    """Whether something is known to have been there before the capture."""
    root = thread.capture.root
    return root.is_named(x) or id(x) in root.notes.outside


def _is_container(x: Any) -> bool:
    return isinstance(x, CONTAINERS) or is_opaque(x)


def _may_change(x: Any) -> bool:
    """Whether something opaque is looked at: no array that cannot change, or that is too large."""
    return not isinstance(x, np.ndarray) or (x.flags.writeable and x.nbytes <= _MOST_BYTES)


_MOST_BYTES = 1 << 26


def _inner(x: Any, owner: Any) -> Iterable[Any]:
    """What a container holds."""
    if isinstance(x, dict):
        return [v for k, v in x.items() if not _is_own_affair(owner, k)]
    return x if isinstance(x, list | deque) else ()


def _is_own_affair(owner: Any, key: Any) -> bool:
    """Whether something is a private attribute of an object of a library, such as a cache."""
    is_private = owner is not None and isinstance(key, str) and key.startswith("_")
    return is_private and not any(c.__module__.startswith("weft") for c in type(owner).__mro__)


def _differences(x: Any, before: Any) -> Iterator[tuple[Any, Any]]:
    """The keys or positions at which a container holds something else than before, and what that is."""
    if is_opaque(x) and not isinstance(x, _CONTAINERS):
        if not _is_alike(StateSlot(x).get(), before):
            yield ..., None
    elif isinstance(x, OrderedDict) and [*x] != [*before]:
        yield ..., None
    elif isinstance(x, dict):
        yield from ((k, v) for k, v in x.items() if before.get(k, _Seen) is not v)
        yield from ((k, None) for k in before if k not in x)
    elif isinstance(x, set):
        yield from ((k, k) for k in x ^ before)
    elif len(x) != len(before):
        yield ..., None
    else:
        pairs = zip(x, before, strict=True)
        yield from ((i, a) for i, (a, b) in enumerate(pairs) if a is not b and not _is_equal(a, b))


def _is_alike(a: Any, b: Any) -> bool:
    """Whether two contents of one object are the same."""
    if isinstance(a, np.ndarray):
        if a.shape != b.shape:
            return False
        return a.tobytes() == b.tobytes() if a.dtype != object else all(map(operator.is_, a.flat, b.flat))
    if isinstance(a, tuple):
        return all(map(_is_alike, a, b))
    if isinstance(a, dict):
        return all(_is_alike(a[k], b[k]) for k in a)
    return bool(a == b)


def _is_equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and isinstance(a, int | float | str | bytes) and a == b


def _is_told(seen: _Seen, key: Any) -> bool:
    """Whether the capture knows that something has changed."""
    root, obj, owner = thread.capture.root, seen.obj, seen.owner
    if _is_own_affair(owner, key):
        return True
    item = ("item", id(obj), key) if owner is None else ("attr", id(owner), key)
    return bool(root.is_written(item) or root.is_written(("contents", id(obj))))


def _restore(seen: _Seen) -> None:
    slot = ContentsSlot(seen.obj) if isinstance(seen.obj, CONTAINERS) else StateSlot(seen.obj)
    slot.put(seen.before)


def _changes(seen: _Seen, keys: list[Any]) -> Iterator[tuple[Any, Any]]:
    """The places of something that captured code made, and that has changed untold, with what they held."""
    slot: Any
    if seen.owner is not None:
        for key in keys:
            slot = AttrSlot(seen.owner, key)
            if not _is_noted(slot, seen.owner):
                yield slot, seen.before.get(key, MISSING)
    elif keys:
        slot = ContentsSlot(seen.obj) if isinstance(seen.obj, CONTAINERS) else StateSlot(seen.obj)
        if not _is_noted(slot, seen.obj):
            yield slot, seen.before


def _is_noted(slot: Any, obj: Any) -> bool:
    """Whether the running capture knows what a place held before."""
    capture = thread.capture
    if capture.region and not _is_of_region(obj) and slot.key not in capture.journal:
        return False
    return all(slot.key in attempt for attempt in capture._attempts)


def _is_of_region(obj: Any) -> bool:
    """Whether something came to be in the running branch or loop."""
    return is_made_here(obj) or id(obj) in thread.capture.notes.received


def _tell(slot: Any, now: Any, what: str) -> None:
    """Tell the running capture of a change that it did not see, and make it."""
    obj = slot.obj if isinstance(slot, ContentsSlot) else slot.owner
    if type(slot) is StateSlot:
        before_opaque_change(obj, what)
        slot.put(now)
    elif type(slot) is ContentsSlot or is_made_inside(obj):
        write_place(slot, now)
    elif thread.capture.region and not _is_of_region(obj):
        raise opaque_change(obj, what)
    else:
        thread.capture.remember(slot)
        slot.put(now)


def _name_of(function: Any) -> str:
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


def _error(function: Any, seen: _Seen) -> CaptureError:
    name = _name_of(function)
    what = type(seen.obj if seen.owner is None else seen.owner).__name__
    return CaptureError(
        name,
        f"captured code must not change {with_article(what)} from outside in a way that it cannot follow, "
        "which only the capture would do, not each call",
        hint=f"call {name} outside of the captured function",
    )
