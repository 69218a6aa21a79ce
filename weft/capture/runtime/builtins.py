"""Builtins in converted code, where they meet tensors or Numbers of a capture: they give values of the graph.

``HANDLERS`` maps a builtin to a function of its arguments, which does what the builtin does on everything
plain.
"""

from __future__ import annotations

import builtins
import math
import operator
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from weft.base.dtypes import kind as kind_of
from weft.base.sizes import Size
from weft.capture.runtime.lists import GraphList
from weft.capture.runtime.meet import truth_of
from weft.capture.runtime.methods import call_method_of
from weft.capture.runtime.mixed import note_computed, truth_of_class
from weft.capture.runtime.number import KINDS, Number, number_of
from weft.capture.runtime.number_checks import TOTAL, check_function, check_whole
from weft.capture.runtime.operators import ARITHMETIC, COMPARISONS, augmented, binary
from weft.capture.runtime.rounding import rounded
from weft.capture.runtime.text import emit_print, emit_warning
from weft.capture.runtime.truth import as_bool, is_staged
from weft.capture.runtime.written import as_repr, as_text, formatted
from weft.errors import CaptureError
from weft.ops.op import OPS
from weft.ops.select import cast
from weft.ops.size import size_value
from weft.tensor.tensor import Tensor

Handler = Callable[..., Any]
HANDLERS: dict[Any, Handler] = {}


def handles(*functions: Any) -> Callable[[Handler], Handler]:
    """Enter a handler for builtins."""

    def enter(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(functions, handler))
        return handler

    return enter


# Numbers


def _as_number(tensor: Any, kind: type) -> Number:
    """A tensor of one element as a Python number; a gradient does not flow through it."""
    flat = tensor._value()
    flat = flat.reshape(()) if flat.ndim else flat
    if kind is bool:
        return Number(bool, truth_of(flat))
    if kind is int and kind_of(flat.dtype) == "f":
        check_whole(flat)
    bits = 8 * flat.dtype.itemsize if kind_of(flat.dtype) in "iu" else 64
    bound = 2**bits if bits < 64 else None
    return Number(kind, flat if flat.dtype == KINDS[kind] else cast(flat, dtype=KINDS[kind]), None, bound)


@handles(bool)
def _bool(*args: Any) -> Any:
    return as_bool(args[0]) if len(args) == 1 else bool(*args)


@handles(int)
def _int(*args: Any, **kwargs: Any) -> Any:
    return _convert(int, args, kwargs)


@handles(float)
def _float(*args: Any) -> Any:
    return _convert(float, args, {})


def _convert(kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = _special(args[0], _CONVERSIONS[kind]) if len(args) == 1 else NotImplemented
    if given is not NotImplemented:
        return given if type(given) is kind else _convert(kind, (given,), {})
    if len(args) != 1 or kwargs or not is_staged(args[0]):
        return size_number(kind, args[0]) if args and isinstance(args[0], Size) else kind(*args, **kwargs)
    x = args[0]
    if isinstance(x, Number):
        if x.kind is float and kind is int:
            check_whole(x.tensor)
        form = x.form if x.kind is int else None
        return x if x.kind is kind else Number(kind, x.as_kind(kind), form, x.bound)
    if x.size != 1 or kind_of(x.dtype) == "c":
        return kind(x)  # raises in the user's terms
    return _as_number(x, kind)


_CONVERSIONS = {int: ("__int__", "__index__", "__trunc__"), float: ("__float__", "__index__")}


def _special(x: Any, names: Sequence[str], *args: Any) -> Any:
    """What the first special method of the user gives; NotImplemented if there is none of these."""
    for name in names:
        out = call_method_of(x, name, *args)
        if out is not NotImplemented:
            return out
    return NotImplemented


def size_number(kind: Any, size: Size) -> Any:
    """A named size as a number."""
    return size if kind is int else Number(kind, size_value(size, KINDS[kind]))


def item(tensor: Any) -> Any:
    """``tensor.item()``: the Python number that it holds."""
    if not is_staged(tensor) or tensor.size != 1 or kind_of(tensor.dtype) == "c":
        return tensor.item()
    return _as_number(tensor, {"b": bool, "i": int, "u": int, "f": float}[kind_of(tensor.dtype)])


@handles(builtins.abs)
def _abs(x: Any) -> Any:
    out = call_method_of(x, "__abs__")
    return note_computed(abs(x), abs, x) if out is NotImplemented else out


@handles(round)
def _round(x: Any, digits: Any = None) -> Any:
    if not is_staged(x):
        given = () if digits is None else (digits,)
        out = call_method_of(x, "__round__", *given)
        return round(x, *given) if out is NotImplemented else out
    if isinstance(x, Tensor):
        return round(x) if digits is None else round(x, operator.index(digits))
    if digits is not None:
        return rounded(x, operator.index(digits))
    if x.kind is not float:
        return x
    check_whole(x.tensor)
    return Number(int, cast(OPS["round"].on_tensors(x.tensor), dtype=KINDS[int]))


@handles(divmod)
def _divmod(x: Any, y: Any) -> Any:
    for a, name, b in ((x, "__divmod__", y), (y, "__rdivmod__", x)):
        out = call_method_of(a, name, b)
        if out is not NotImplemented:
            return out
    return (binary("//", x, y), binary("%", x, y)) if is_staged(x) or is_staged(y) else divmod(x, y)


@handles(pow)
def _pow(x: Any, y: Any, *mod: Any) -> Any:
    return binary("**", x, y) if not mod else pow(x, y, *mod)


@handles(type)
def _type(*args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and isinstance(args[0], Number | GraphList | Size):
        return args[0].kind if isinstance(args[0], Number) else list if isinstance(args[0], list) else int
    return type(*args, **kwargs)


@handles(isinstance)
def _isinstance(x: Any, classes: Any) -> Any:
    truth = truth_of_class(x, classes) if isinstance(x, Tensor) else None
    if truth is not None:
        return Number(bool, truth) if isinstance(truth, Tensor) else truth
    if isinstance(x, Number):
        return isinstance(x.kind(), classes)
    return isinstance(x, classes) or (isinstance(x, Size) and isinstance(0, classes))


@handles(callable)
def _callable(x: Any) -> bool:
    return callable(x)


@handles(hash)
def _hash(x: Any) -> Any:
    out = call_method_of(x, "__hash__")
    return hash(x) if out is NotImplemented else out


for _sign, _name in ARITHMETIC.items():
    HANDLERS[getattr(operator, f"__{_name}__")] = partial(binary, _sign)
    HANDLERS[getattr(operator, f"__i{_name}__")] = partial(augmented, f"{_sign}=")
for _sign, (_name, _) in COMPARISONS.items():
    HANDLERS[getattr(operator, _name)] = partial(binary, _sign)


# Text


@handles(str)
def _str(*args: Any, **kwargs: Any) -> Any:
    return as_text(args[0]) if len(args) == 1 and not kwargs else str(*args, **kwargs)


@handles(repr)
def _repr(x: Any) -> Any:
    return as_repr(x)


@handles(format)
def _format(x: Any, spec: str = "") -> Any:
    return formatted(x, -1, spec)


@handles(print)
def _print(*args: Any, sep: Any = None, end: Any = None, file: Any = None, flush: bool = False) -> None:
    if file is not None:
        raise CaptureError(
            "print",
            "captured code must print to standard output, got file=, which only this capture would write to",
            hint="print without file=, or return the values and write them outside",
        )
    emit_print([as_text(x) for x in args], sep, end)


@handles(warnings.warn)
def _warn(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None) -> None:
    emit_warning(message if isinstance(message, Warning) else as_text(message), category)


# math


def _floats(name: str, plain: Any) -> Handler:
    def handler(*args: Any) -> Any:
        if not any(map(is_staged, args)):
            return plain(*args)
        operands = [number_of(item(x) if isinstance(x, Tensor) else x).as_kind(float) for x in args]
        out = OPS[name].on_tensors(*operands)
        if name not in TOTAL:
            check_function(name, out, *operands)
        return Number(float, out)

    return handler


def _whole(name: str, plain: Any) -> Handler:
    def handler(x: Any) -> Any:
        if not is_staged(x):
            return plain(x)
        number = item(x) if isinstance(x, Tensor) else x
        if number.kind is not float:
            return number
        check_whole(number.tensor)
        return Number(int, cast(OPS[name].on_tensors(number.tensor), dtype=KINDS[int]))

    return handler


def _test(name: str, plain: Any) -> Handler:
    def handler(x: Any) -> Any:
        if not is_staged(x):
            return plain(x)
        number = item(x) if isinstance(x, Tensor) else x
        return Number(bool, OPS[name].on_tensors(number.as_kind(float)))

    return handler


_SAME_NAMES = (
    "sqrt exp expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh"
)
for _name in (*_SAME_NAMES.split(), "hypot", "atan2", "copysign", "fmod", "pow"):
    HANDLERS[getattr(math, _name)] = _floats(_name, getattr(math, _name))
for _name, _op in (("fabs", "abs"), ("erf", "erf"), ("erfc", "erfc"), ("lgamma", "lgamma")):
    HANDLERS[getattr(math, _name)] = _floats(_op, getattr(math, _name))
for _name in ("floor", "ceil", "trunc"):
    HANDLERS[getattr(math, _name)] = _whole(_name, getattr(math, _name))
for _name in ("isnan", "isinf", "isfinite"):
    HANDLERS[getattr(math, _name)] = _test(_name, getattr(math, _name))
