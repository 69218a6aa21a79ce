"""Operators in converted code: those of the user's classes run as converted functions.

Python's rules say which operand is asked: the left one first, unless the right one is of a subclass that
has its own reflected method; where both answer NotImplemented, it is a TypeError.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from weft.capture.program.classes import MISSING, class_attribute
from weft.capture.runtime.apart import mapped
from weft.capture.runtime.equality import are_equal, is_comparable
from weft.capture.runtime.iterators import iterable_of
from weft.capture.runtime.lists import GraphList, check_growth
from weft.capture.runtime.methods import may_have_methods, method_of
from weft.capture.runtime.mixed import changed, mixed_in_place, note_computed
from weft.capture.runtime.number import Number
from weft.capture.runtime.opaque import is_opaque, note_new
from weft.capture.runtime.owners import CONTAINERS, note_made
from weft.capture.runtime.places import before_change
from weft.capture.runtime.text import percent
from weft.capture.runtime.truth import not_
from weft.capture.runtime.untold import change_watched
from weft.capture.runtime.users_keys import note_keys
from weft.capture.runtime.whole import items, whole
from weft.capture.runtime.written import values_asked_for
from weft.tensor.mode import call_user, thread
from weft.tensor.tensor import Tensor

ARITHMETIC: dict[str, str] = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "truediv",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "@": "matmul",
    "&": "and",
    "|": "or",
    "^": "xor",
    "<<": "lshift",
    ">>": "rshift",
}
COMPARISONS: dict[str, tuple[str, str]] = {
    "<": ("lt", "gt"),
    "<=": ("le", "ge"),
    ">": ("gt", "lt"),
    ">=": ("ge", "le"),
    "==": ("eq", "eq"),
    "!=": ("ne", "ne"),
}
_NAMES: dict[str, tuple[str, str]] = {s: (f"__{n}__", f"__r{n}__") for s, n in ARITHMETIC.items()}
_NAMES |= {s: (f"__{a}__", f"__{b}__") for s, (a, b) in COMPARISONS.items()}
_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {s: getattr(operator, a) for s, (a, _) in _NAMES.items()}
_IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    f"{s}=": getattr(operator, f"__i{n}__") for s, n in ARITHMETIC.items()
}
_UNARY: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "-": ("__neg__", operator.neg),
    "+": ("__pos__", operator.pos),
    "~": ("__invert__", operator.invert),
}
_CHANGING = frozenset(f"__i{n}__" for n in ARITHMETIC.values())
_OF_SEQUENCES = frozenset({"__add__", "__mul__", "__rmul__", *_CHANGING})
_SEQUENCES = (list, tuple, str, bytes, bytearray)  # whose + and * come after those of the other operand


def binary(sign: str, left: Any, right: Any) -> Any:
    """``left + right``, or another operator or comparison of two operands."""
    if thread.capture is None:
        return _FUNCTIONS[sign](left, right)
    if may_have_methods(left) or may_have_methods(right):
        first, second = _NAMES[sign]
        if method_of(left, first) or method_of(right, second) or _inverts(sign, left, right):
            return _dispatch(sign, left, right)
    if sign in ("==", "!=") and is_comparable(left, right):
        return are_equal(left, right, partial(binary, "==")) is (sign == "==")
    for x in (left, right):
        if isinstance(x, set | frozenset):
            note_keys(x)
    if sign == "%" and isinstance(left, str):
        return percent(left, values_asked_for(right))
    left, right = _beside(left, right), _beside(right, left)
    out = _FUNCTIONS[sign](whole(left), whole(right))
    return (
        note_made(out)
        if isinstance(out, CONTAINERS)
        else note_computed(note_new(out), _FUNCTIONS[sign], left, right)
    )


def _beside(x: Any, other: Any) -> Any:
    """A number as a library's own numbers take it, such as decimals: it is looked at and guarded."""
    return x.kind(x) if isinstance(x, Number) and type(other).__module__ in _EXACT else x


_EXACT = ("decimal", "_decimal", "_pydecimal", "fractions")


def _inverts(sign: str, left: Any, right: Any) -> bool:
    """Whether ``!=`` is the opposite of the user's ``==``."""
    return sign == "!=" and bool(method_of(left, "__eq__") or method_of(right, "__eq__"))


def _dispatch(sign: str, left: Any, right: Any) -> Any:
    """What Python's rules make of an operator with a method of the user."""
    for x, name, y in _order(sign, left, right):
        out = _ask(x, name, y)
        if out is not NotImplemented:
            return out
    if sign in ("==", "!="):
        return (left is right) is (sign == "==")
    if isinstance(left, _SEQUENCES):
        return _FUNCTIONS[sign](left, right)
    kinds = f"{type(left).__name__!r} and {type(right).__name__!r}"
    if sign in COMPARISONS:
        raise TypeError(f"{sign!r} not supported between instances of {kinds}")
    raise TypeError(f"unsupported operand type(s) for {sign}: {kinds}")


def _order(sign: str, left: Any, right: Any) -> Sequence[tuple[Any, str, Any]]:
    first, second = _NAMES[sign]
    ways = ((left, first, right), (right, second, left))
    a, b = type(left), type(right)
    if a is b:
        return ways if sign in COMPARISONS else ways[:1]
    own = class_attribute(b, second)
    if issubclass(b, a) and (sign in COMPARISONS or own is not class_attribute(a, second)):
        return ways[::-1] if own is not MISSING else ways
    return ways


def _ask(x: Any, name: str, y: Any) -> Any:
    """What one operand makes of an operator."""
    method = method_of(x, name)
    if method is not None:
        return call_user(method, x, y)
    if name == "__ne__" and class_attribute(type(x), name) is object.__ne__:
        same = _ask(x, "__eq__", y)
        return same if same is NotImplemented else not_(same)
    found = class_attribute(type(x), name)
    if found is MISSING or (isinstance(x, (*_SEQUENCES, *CONTAINERS)) and name in _OF_SEQUENCES):
        return NotImplemented
    own = getattr(type(x), name)
    return change_watched(own, x, whole(y)) if name in _CHANGING else own(x, y)


def unary(sign: str, x: Any) -> Any:
    """``-x``, ``+x`` or ``~x``."""
    name, function = _UNARY[sign]
    method = method_of(x, name)
    if method is not None:
        return call_user(method, x)
    return note_computed(note_new(function(whole(x))), function, x)


def augmented(sign: str, current: Any, operand: Any) -> Any:
    """``current += operand``: changed in place where its class does so."""
    if thread.capture is None:
        return _IN_PLACE[sign](current, operand)
    if isinstance(current, Tensor):
        mixed = mixed_in_place(current)
        if mixed is not None:
            return changed(mixed, sign, binary(sign[:-1], current, operand))
        if isinstance(operand, Number):
            operand = operand.next_to(current)
    name = f"__i{ARITHMETIC[sign[:-1]]}__"
    if may_have_methods(current) or may_have_methods(operand):
        out = _ask(current, name, operand)
        if out is not NotImplemented:
            return out
        if not isinstance(current, CONTAINERS):
            return binary(sign[:-1], current, operand)
    if isinstance(current, CONTAINERS):
        return _change_container(sign, current, operand)
    if is_opaque(current):
        return change_watched(_IN_PLACE[sign], current, whole(operand))
    if class_attribute(type(current), name) is MISSING:  # a number, text
        return binary(sign[:-1], current, operand)
    return _IN_PLACE[sign](current, whole(operand))


def _change_container(sign: str, current: Any, operand: Any) -> Any:
    """``items += more``, of a list, dict or set."""
    if sign == "*=":
        operand = operator.index(operand)
    else:
        operand = mapped(operand) if isinstance(current, dict) else items(iterable_of(operand))
    check_growth(current, sign)
    before_change(current)
    if isinstance(current, GraphList) and sign == "+=":
        current.extend(operand)
        return current
    if isinstance(current, GraphList):
        current.need_plain(f"list {sign}")
    if isinstance(current, list) and sign == "*=":  # whose own method may make another list
        return list.__imul__(current, operand)
    return _IN_PLACE[sign](current, operand)
