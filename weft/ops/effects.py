"""Ops that do something besides giving values: ``print`` writes text, ``check`` stops a run.

Both hold their text as literal pieces with a place for an operand between each two. They are never left out,
merged or moved across each other, so a graph prints in the order in which the program did.
"""

from __future__ import annotations

import builtins
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from weft.base.dtypes import bool_
from weft.base.hooks import hooks
from weft.base.records import NamedTuple
from weft.errors import CheckError, DtypeError, ShapeError, WeftError
from weft.ir.types import TensorType
from weft.ops.families import primitive
from weft.ops.op import Array, no_gradient


class Place(NamedTuple):
    """How an operand is written: as a tensor, with notes after its elements, or as a number in a format.

    Attributes:
        style: "tensor" or "number".
        detail: the notes of a tensor, such as ``grad_fn=<MulBackward>``; the format of a number.
    """

    style: str
    detail: str = ""


_origin: ContextVar[object] = ContextVar("origin", default="cpu")


@contextmanager
def copied_from(device: object) -> Iterator[None]:
    """Write tensors as those of a device: the arrays that kernels of the host get here are copies from it."""
    token = _origin.set(device)
    try:
        yield
    finally:
        _origin.reset(token)


def compose_text(pieces: Sequence[str], places: Sequence[Place], arrays: Sequence[Array]) -> str:
    """The pieces with what the arrays hold between them."""
    out = pieces[0]
    for piece, place, array in zip(pieces[1:], places, arrays, strict=True):
        out += _write(Place(*place), array) + piece
    return out


def _write(place: Place, array: Array) -> str:
    if place.style == "tensor":
        return hooks.tensor_text(array, str(_origin.get()), place.detail)
    value = array.reshape(()).item()
    return format(float(value) if type(value).__name__ == "bfloat16" else value, place.detail)


class Said(threading.local):
    """What runs of this thread print, where a run may turn out not to be the one that a call needs.

    Attributes:
        texts: what was printed since somebody began to take note of it; None if nobody does.
        before: what a run has printed that did not serve: the next one, which does it again, leaves it out.
        muted: whether nothing is printed.
    """

    def __init__(self) -> None:
        self.texts: list[str] | None = None
        self.before: list[str] = []
        self.muted = False

    def write(self, text: str, out: Callable[[str], object] | None = None) -> None:
        """Print a text, or give it to another function, unless it was printed before."""
        if self.muted:
            return
        if self.texts is not None:
            self.texts.append(text)
        if self.before and self.before[0] == text:
            del self.before[0]
            return
        self.before.clear()
        (out or sys.stdout.write)(text)

    @contextmanager
    def noting(self) -> Iterator[list[str]]:
        """Take note of what is printed meanwhile."""
        around, self.texts = self.texts, []
        try:
            yield self.texts
        finally:
            if around is not None:
                around += self.texts
            self.texts = around

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Print nothing meanwhile: what runs is to change nothing."""
        around, self.muted = self.muted, True
        try:
            yield
        finally:
            self.muted = around


said = Said()


def _print(
    *xs: Array, pieces: tuple[str, ...], places: tuple[Any, ...], warning: tuple[Any, ...] = ()
) -> tuple[Array, ...]:
    """Write a text, or warn of it: by the name of a class of warnings, the file and the line."""
    said.write(compose_text(pieces, places, xs), partial(_warn, *warning) if warning else None)
    return ()


def _warn(category: str, file: str, line: int, text: str) -> None:
    kind = error_class(category)
    told = kind if issubclass(kind, Warning) else UserWarning
    warnings.warn_explicit(text, told, file, line, registry=_warned.setdefault(file, {}))


_warned: dict[str, dict[Any, Any]] = {}  # by file, what was warned of, as filters ask


print_text = primitive(
    "print",
    type_rule=lambda *xs, pieces, places, warning=(): (),
    eval=_print,
    vjp=no_gradient("has no result"),
    batch=None,
    samples=None,
    outputs=0,
    effect=True,
    host=True,
)


def _check_type(
    condition: TensorType,
    *xs: TensorType,
    pieces: tuple[str, ...],
    places: tuple[Any, ...],
    error: tuple[Any, ...] = (),
) -> tuple[TensorType, ...]:
    if condition.dtype != bool_:
        raise DtypeError("assert", f"the condition must be bool, got {condition.dtype.name}")
    if condition.shape != ():
        raise ShapeError("assert", f"the condition must be 0-d, got {condition}", hint="use weft.all(x)")
    return ()


_raised: WeakValueDictionary[str, type[BaseException]] = WeakValueDictionary()


def register_error(kind: type[BaseException]) -> str:
    """The name by which a check knows a class of exceptions, which it is to raise."""
    name = start = f"{kind.__module__}.{kind.__qualname__}"
    number = 1
    while _raised.get(name, kind) is not kind:
        number += 1
        name = f"{start}#{number}"
    _raised[name] = kind
    return name


def error_class(name: str) -> type[BaseException]:
    """The class of exceptions that a check knows by a name; an error of weft's own if nobody knows it."""
    kind = _raised.get(name, getattr(builtins, name.removeprefix("builtins."), None))
    return kind if isinstance(kind, type) and issubclass(kind, BaseException) else CheckError


def _exception(text: str, error: tuple[str, str, bool]) -> BaseException:
    """The exception of the user that a check raises; an error of weft's own where its class is not known."""
    name, where, has_text = error
    kind = error_class(name)
    if kind is CheckError:
        return CheckError("raise", f"{name}: {text}")
    if issubclass(kind, WeftError):
        return kind(*text.split(": ", 1))
    args = (text,) if has_text else ()
    made = kind.__new__(kind, *args)
    made.args = args
    if where:
        made.add_note(f"  at {where}")
    return made


def _check(
    condition: Array,
    *xs: Array,
    pieces: tuple[str, ...],
    places: tuple[Any, ...],
    error: tuple[Any, ...] = (),
) -> tuple[Array, ...]:
    if condition:
        return ()
    text = compose_text(pieces, places, xs)
    if error:
        raise _exception(text, error)
    raise CheckError("assert", text or "the condition must hold")


check = primitive(
    "check",
    type_rule=_check_type,
    eval=_check,
    vjp=no_gradient("has no result"),
    batch=None,
    samples=None,
    outputs=0,
    effect=True,
    raises=Exception,
)
