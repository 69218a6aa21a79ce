"""A runtime for converted code that does plain Python, and notes what it was asked to do."""

from __future__ import annotations

import builtins
import contextlib
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from weft.capture.convert.functions import convert_function, is_converted

asked: Counter[str] = Counter()
follow = False  # whether calls convert what they call


class Undefined:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name} has no value>"


def undefined(name: str) -> Undefined:
    return Undefined(name)


def load(value: Any, name: str) -> Any:
    if isinstance(value, Undefined):
        raise UnboundLocalError(
            f"cannot access local variable {name!r} where it is not associated with a value"
        )
    return value


def raised(error: Any) -> Any:
    return error


def unfinished() -> tuple[type[BaseException], ...]:
    return ()


def started() -> int:
    return 0


def finishing(count: int) -> Any:
    return contextlib.nullcontext()


def decorator(function: Any) -> Any:
    return function


def base(kind: Any) -> Any:
    return kind


def statements() -> None:
    pass


def returned(value: Any) -> Any:
    return None if isinstance(value, Undefined) else value


def if_stmt(test: Any, then: Any, orelse: Any, state: tuple[Any, ...], names: Sequence[str]) -> Any:
    asked["if"] += 1
    assert len(state) == len(names)
    out = then(*state) if test else orelse(*state)
    assert len(out) == len(names)
    return out


def while_stmt(test: Any, body: Any, state: tuple[Any, ...], names: Sequence[str]) -> Any:
    asked["while"] += 1
    while test(*state):
        state = body(*state)
        assert len(state) == len(names)
    return state


def for_stmt(iterable: Any, body: Any, state: tuple[Any, ...], names: Sequence[str], more: Any) -> Any:
    asked["for"] += 1
    items = iter(iterable)
    while more is None or more(*state):
        try:
            item = next(items)
        except StopIteration:
            break
        state = body(item, *state)
        assert len(state) == len(names)
    return state


def if_exp(test: Any, then: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
    return then() if test else orelse()


def and_(*thunks: Callable[[], Any]) -> Any:
    for thunk in thunks:
        value = thunk()
        if thunk is not thunks[-1] and not value:
            break
    return value


def or_(*thunks: Callable[[], Any]) -> Any:
    for thunk in thunks:
        value = thunk()
        if thunk is not thunks[-1] and value:
            break
    return value


def all_true(*thunks: Callable[[], Any]) -> bool:
    return all(thunk() for thunk in thunks)


def any_true(*thunks: Callable[[], Any]) -> bool:
    return any(thunk() for thunk in thunks)


def is_(left: Any, right: Any) -> bool:
    return left is right


def is_not(left: Any, right: Any) -> bool:
    return left is not right


def subject(x: Any) -> Any:
    return x


def not_(x: Any) -> bool:
    return not x


def whole(x: Any) -> Any:
    return x


items = whole
mapped = whole


SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "is": operator.is_,
    "is not": operator.is_not,
    "in": lambda a, b: a in b,
    "not in": lambda a, b: a not in b,
}


def compare(left: Any, rest: Sequence[tuple[str, Callable[[], Any]]]) -> Any:
    for i, (sign, thunk) in enumerate(rest):
        right = thunk()
        result = SIGNS[sign](left, right)
        if i + 1 < len(rest) and not result:
            return result
        left = right
    return result


def assert_stmt(test: Callable[[], Any], message: Callable[[], Any] | None) -> None:
    if not test():
        raise AssertionError(*(() if message is None else (message(),)))


def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    asked["call"] += 1
    if follow and type(function).__name__ == "function" and not is_converted(function):
        function = convert_function(function, _self) or function
    return function(*args, **kwargs)


def call_method(obj: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    return call(builtins.getattr(obj, name), *args, **kwargs)


def getattr(obj: Any, name: str) -> Any:
    return builtins.getattr(obj, name)


def setattr(obj: Any, name: str, value: Any) -> None:
    builtins.setattr(obj, name, value)


def delattr(obj: Any, name: str) -> None:
    builtins.delattr(obj, name)


def getitem(obj: Any, key: Any) -> Any:
    return obj[key]


def setitem(obj: Any, key: Any, value: Any) -> None:
    obj[key] = value


def delitem(obj: Any, key: Any) -> None:
    del obj[key]


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "@": operator.matmul,
    "/": operator.truediv,
    "%": operator.mod,
    "**": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "//": operator.floordiv,
}
UNARY: dict[str, Callable[[Any], Any]] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}


def binary(sign: str, left: Any, right: Any) -> Any:
    return (SIGNS | ARITHMETIC)[sign](left, right)


def unary(sign: str, x: Any) -> Any:
    return UNARY[sign](x)


def trying(kinds: Any) -> Any:
    return contextlib.nullcontext()


def managed(x: Any) -> Any:
    return x


def formatted(x: Any, conversion: int, spec: str) -> str:
    shown = {-1: x, ord("s"): str, ord("r"): repr, ord("a"): ascii}[conversion]
    return format(x if conversion == -1 else shown(x), spec)


AUGMENTED = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "@=": operator.imatmul,
    "/=": operator.itruediv,
    "%=": operator.imod,
    "**=": operator.ipow,
    "<<=": operator.ilshift,
    ">>=": operator.irshift,
    "|=": operator.ior,
    "^=": operator.ixor,
    "&=": operator.iand,
    "//=": operator.ifloordiv,
}


def augmented(sign: str, current: Any, value: Any) -> Any:
    return AUGMENTED[sign](current, value)


def joined(text: str) -> str:
    return text


def new_list(made: list[Any]) -> list[Any]:
    return made


def new_dict(made: dict[Any, Any]) -> dict[Any, Any]:
    return made


def new_set(made: set[Any]) -> set[Any]:
    return made


class _Self:
    """This module, as converted code gets it."""

    def __getattr__(self, name: str) -> Any:
        if name not in globals():
            raise AttributeError(name)
        return globals()[name]


_self = _Self()
runtime = _self
