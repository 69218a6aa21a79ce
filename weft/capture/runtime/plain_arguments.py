"""Which arguments of weft's functions Python must know: axes, sizes and counts, by the annotations.

Those that only a run tells are looked at, which leaves a guard. Others are operands, or say it themselves
where they are used (``plain_number`` of ``weft.ops.op``).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from weft.base.records import NamedTuple
from weft.capture.runtime.number import Number
from weft.tensor.tensor import Tensor


class _Parameters(NamedTuple):
    """The parameters of a function: whether each is one that Python must know.

    Attributes:
        positional: of those by position, in order.
        rest: of those that ``*rest`` takes.
        named: by name.
    """

    positional: tuple[bool, ...]
    rest: bool
    named: dict[str, bool]


def plain_arguments(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a function of weft, with Python's numbers where these must be known."""
    if not any(map(_holds_number, (*args, *kwargs.values()))):
        return args, kwargs
    known = _parameters(_declared(function))
    start = 1 if hasattr(function, "__self__") else 0
    flags = (*known.positional[start:], *[known.rest] * len(args))
    positional = tuple(_looked_at(x) if flag else x for x, flag in zip(args, flags, strict=False))
    named = {k: _looked_at(x) if known.named.get(k) else x for k, x in kwargs.items()}
    return positional, named


def _holds_number(x: Any) -> bool:
    return isinstance(x, Number) or (_is_sequence(x) and any(map(_holds_number, x)))


def _looked_at(x: Any) -> Any:
    """An axis or size, or several: each that only a run tells is looked at, which leaves a guard."""
    if isinstance(x, Number):
        return x.value()
    if not _is_sequence(x):
        return x
    return tuple(map(_looked_at, x)) if type(x) is tuple else [*map(_looked_at, x)]


def _is_sequence(x: Any) -> bool:
    return type(x) is tuple or (isinstance(x, list) and not getattr(x, "is_grown", False))


def _declared(function: Any) -> Callable[..., Any]:
    """The function that says what a method takes: of one that works in place, its sibling."""
    name = getattr(function, "__name__", "")
    sibling = getattr(Tensor, name[:-1], None) if name.endswith("_") and not name.startswith("_") else None
    found: Callable[..., Any] = inspect.unwrap(getattr(function, "__func__", function))
    return found if sibling is None or _says(found) else inspect.unwrap(sibling)


def _says(function: Callable[..., Any]) -> bool:
    """Whether the parameters of a function have names."""
    return not {"args", "kwargs"} <= set(getattr(function, "__annotations__", ()))


@lru_cache(maxsize=2048)
def _parameters(function: Callable[..., Any]) -> _Parameters:
    notes = getattr(function, "__annotations__", {})
    code = getattr(function, "__code__", None)
    if code is None:
        return _Parameters((), False, {})
    names = code.co_varnames
    count = code.co_argcount + code.co_kwonlyargcount
    named = {name: _is_known(notes.get(name)) for name in names[:count]}
    has_rest = bool(code.co_flags & inspect.CO_VARARGS)
    rest = has_rest and _is_known(notes.get(names[count]))
    return _Parameters(tuple(named[n] for n in names[: code.co_argcount]), rest, named)


def _is_known(note: Any) -> bool:
    """Whether an annotation says that something is an axis, a size, a count or a truth value."""
    words = set(re.findall(r"\w+", note)) if isinstance(note, str) else set()
    return bool(words & _PLAIN) and not words & _OTHERS


_PLAIN = frozenset({"int", "bool", "PerAxis", "Axes", "ShapeLike"})
_OTHERS = frozenset({"Tensor", "Array", "Operand", "Number", "float", "object", "Any"})
