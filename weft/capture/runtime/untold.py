"""Changes that nobody tells a capture of: those of Python's own library, of NumPy, and of weft's objects.

Such code is called as it is. What it is given, and the object whose method it is, are compared before and
after the call: a change of something from outside would be made by the capture alone, not by each call, so it
is undone and refused. Where captured code that it calls has told of the change, all is well.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from weft.base.records import NamedTuple
from weft.capture.runtime.number import Number
from weft.capture.runtime.owners import is_made_inside
from weft.errors import CaptureError
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.captured import Captured

_CONTAINERS = (list, dict, set, deque, bytearray)
_PLAIN: tuple[type, ...] = (str, bytes, int, float, complex, type(None), type, Tensor, Number)
_PLAIN = (*_PLAIN, types.FunctionType, types.MethodType, types.ModuleType)
_MOST = 10_000  # items of a container that are compared
_MOST_CONTAINERS = 1000
_DEEPEST = 3  # how far inside of what a call is given containers are looked for


class _Seen(NamedTuple):
    """A container before a call: the object whose attributes it holds, or None, and what was in it."""

    obj: Any
    owner: Any
    before: Any


def call_watched(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of a library, and raise where it changes something from outside."""
    seen = list(_seen([getattr(function, "__self__", None), *args, *kwargs.values()]))
    out = function(*args, **kwargs)
    _check(function, seen, lambda new: True)
    return out


def call_weft_watched(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of weft; raise where its object keeps a tensor of the capture, or is set up anew."""
    seen = list(_seen([getattr(function, "__self__", None)]))
    out = function(*args, **kwargs)
    sets_up = getattr(function, "__name__", "").startswith(_SETTING_UP)
    _check(function, seen, (lambda new: True) if sets_up else _is_captured)
    return out


_SETTING_UP = ("register_", "add_")  # methods of modules and optimizers: hooks, buffers, modules, groups


def change_watched(change: Callable[..., Any], obj: Any, *args: Any) -> None:
    """Set or delete an item of an object of a library, and raise where something from outside has changed."""
    call_watched(change, (obj, *args), {})


def _is_captured(x: Any) -> bool:
    """Whether something is a tensor or number of the graph, or holds one."""
    if isinstance(x, dict | list | tuple) and not is_made_inside(x):
        return any(map(_is_captured, x.values() if isinstance(x, dict) else x))
    if isinstance(x, Tensor):
        return type(x._data) is Captured and not thread.capture.root.has_lent(x)
    return isinstance(x, Number)


def _check(function: Any, seen: Iterable[_Seen], counts: Callable[[Any], bool]) -> None:
    found = [(s, [k for k, new in _differences(s.obj, s.before) if counts(new)]) for s in seen]
    untold = [s for s, keys in found if not all(_is_told(s, k) for k in keys)]
    for s in untold:
        _restore(s)
    if untold:
        raise _error(function, untold[0])


def _seen(found: Iterable[Any]) -> Iterator[_Seen]:
    """The containers among some objects, the attributes of these, and the containers in all of them."""
    known: set[int] = set()
    root = thread.capture.root
    waiting = [(x, 0) for x in found if root.is_named(x) or id(x) in root.notes.outside]
    while waiting and len(known) < _MOST_CONTAINERS:
        x, depth = waiting.pop()
        if isinstance(x, _PLAIN) or id(x) in known or is_made_inside(x):
            continue
        known.add(id(x))
        own = getattr(x, "__dict__", None) if depth == 0 else None
        for at, owner in ((x, None), (own, x)):
            if isinstance(at, _CONTAINERS) and len(at) <= _MOST:
                yield _Seen(at, owner, _copy(at))
                if depth < _DEEPEST:
                    waiting += [(y, depth + 1) for y in _inner(at, owner) if isinstance(y, _CONTAINERS)]


def _inner(x: Any, owner: Any) -> Iterable[Any]:
    """What a container holds."""
    if isinstance(x, dict):
        return [v for k, v in x.items() if not _is_own_affair(owner, k)]
    return x if isinstance(x, list | deque) else ()


def _is_own_affair(owner: Any, key: Any) -> bool:
    """Whether something is a private attribute of an object of a library, such as a cache."""
    is_private = owner is not None and isinstance(key, str) and key.startswith("_")
    return is_private and not any(c.__module__.startswith("weft") for c in type(owner).__mro__)


def _copy(x: Any) -> Any:
    return dict(x) if isinstance(x, dict) else set(x) if isinstance(x, set) else [*x]


def _differences(x: Any, before: Any) -> Iterator[tuple[Any, Any]]:
    """The keys or positions at which a container holds something else than before, and what that is."""
    if isinstance(x, dict):
        yield from ((k, v) for k, v in x.items() if before.get(k, _Seen) is not v)
        yield from ((k, None) for k in before if k not in x)
    elif isinstance(x, set):
        yield from ((k, k) for k in x ^ before)
    elif len(x) != len(before):
        yield ..., None
    else:
        pairs = zip(x, before, strict=True)
        yield from ((i, a) for i, (a, b) in enumerate(pairs) if a is not b and not _is_equal(a, b))


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
    x = seen.obj
    if isinstance(x, list | bytearray):
        x[:] = seen.before
    else:
        x.clear()
        (x.extend if isinstance(x, deque) else x.update)(seen.before)


def _error(function: Any, seen: _Seen) -> CaptureError:
    name = getattr(function, "__name__", type(function).__name__)
    what = type(seen.obj if seen.owner is None else seen.owner).__name__
    return CaptureError(
        name,
        f"captured code must not change a {what} from outside in a way that it cannot follow, which only the "
        "capture would do, not each call",
        hint=f"call {name} outside of the captured function",
    )
