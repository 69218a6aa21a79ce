"""Lists, tuples and dicts that Python compares item by item, where items have an ``__eq__`` of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.capture.runtime.methods import method_of
from weft.capture.runtime.whole import items

Equal = Callable[[Any, Any], Any]
_DEEPEST = 8  # containers in each other that are looked into


def has_users_equality(*found: Any, depth: int = 0) -> bool:
    """Whether one of some things, or an item of one, is compared by a method of the user."""
    for x in found:
        if isinstance(x, list | tuple | dict) and not getattr(x, "is_grown", False):
            inner = dict.values(x) if isinstance(x, dict) else (*x,)
            if depth < _DEEPEST and any(has_users_equality(y, depth=depth + 1) for y in inner):
                return True
        elif method_of(x, "__eq__") is not None:
            return True
    return False


def is_comparable(left: Any, right: Any) -> bool:
    """Whether two things are compared item by item, by methods of the user."""
    alike = any(isinstance(left, kind) and isinstance(right, kind) for kind in (list, tuple, dict))
    return alike and has_users_equality(left, right)


def are_equal(left: Any, right: Any, equal: Equal) -> bool:
    """Whether two lists, tuples or dicts hold the same or equal items."""
    items(left)
    items(right)
    if len(left) != len(right):
        return False
    if isinstance(left, dict):
        return all(key in right and _same(value, right[key], equal) for key, value in left.items())
    return all(_same(a, b, equal) for a, b in zip(left, right, strict=True))


def _same(a: Any, b: Any, equal: Equal) -> bool:
    return a is b or bool(equal(a, b))


def position_in(container: Sequence[Any], x: Any, equal: Equal, *bounds: int) -> int:
    """The position of the first item that is another thing, or equal to it."""
    items(container)
    start, stop = (*bounds, None, None)[:2]
    for i in range(*slice(start, stop).indices(len(container))):
        if _same(container[i], x, equal):
            return i
    raise ValueError(f"{type(container).__name__}.index(x): x not in {type(container).__name__}")


def count_in(container: Sequence[Any], x: Any, equal: Equal) -> int:
    """How many items are another thing, or equal to it."""
    return sum(_same(item, x, equal) for item in items(container))
