"""Writers of functions of two and three numbers: arithmetic, angles, activations."""

from __future__ import annotations

from math import pi
from typing import Any

from weft.base.dtypes import bool_, int64
from weft.interop.forms.elements import highest, lowest
from weft.onnx.writers.elementwise import is_finite, write_signbit
from weft.onnx.writers.registry import Write, emitted, enter_writers, writer
from weft.onnx.writers.writer import Ref, Writer, is_float

# Arithmetic; of bools a sum is an or, a product an and


def _with_truth(operator: str, of_bools: str) -> Write:
    return lambda w, x, y: w.emit(of_bools if x.dtype == bool_ else operator, x, y)


enter_writers(
    {
        "add": _with_truth("Add", "Or"),
        "mul": _with_truth("Mul", "And"),
        "maximum": _with_truth("Max", "Or"),
        "minimum": _with_truth("Min", "And"),
        "sub": emitted("Sub"),
        "div": emitted("Div"),
        "fmod": lambda w, x, y: w.emit("Mod", x, y, fmod=1) if is_float(x) else _guarded(w, x, y, fmod=1),
    }
)


@writer("remainder")
def write_remainder(w: Writer, x: Ref, y: Ref) -> Any:
    """The remainder with the sign of y."""
    if not is_float(x):
        return _guarded(w, x, y, fmod=0)
    rest = w.emit("Mod", x, y, fmod=1)
    out = w.emit("Where", _is_below(w, rest, y), w.emit("Add", rest, y), rest)
    return w.emit("Where", w.emit("Equal", rest, 0), write_copysign(w, rest, y), out)


@writer("floor_divide")
def write_floor_divide(w: Writer, x: Ref, y: Ref) -> Any:
    """The quotient rounded down: what the remainder leaves is divided without rest."""
    if not is_float(x):
        safe = _nonzero(w, y)
        whole = w.emit("Sub", x, w.emit("Mod", x, safe))
        return _zero_where_zero(w, y, w.emit("Div", whole, safe))
    quotient = w.emit("Div", x, y)
    rest = w.emit("Mod", x, y, fmod=1)
    exact = w.emit("Div", w.emit("Sub", x, rest), y)
    whole = w.emit("Round", w.emit("Sub", exact, w.cast(_is_below(w, rest, y), x.dtype)))
    whole = write_copysign(w, whole, quotient)
    finite = w.emit("And", is_finite(w, x), w.emit("And", is_finite(w, y), is_finite(w, quotient)))
    return w.emit("Where", finite, whole, quotient)


def _is_below(w: Writer, rest: Ref, y: Ref) -> Ref:
    """Whether a remainder has the other sign than y."""
    other = w.emit("Xor", w.emit("Less", rest, 0), w.emit("Less", y, 0))
    out: Ref = w.emit("And", w.emit("Not", w.emit("Equal", rest, 0)), other)
    return out


def _is_never_zero(w: Writer, y: Ref) -> bool:
    array = w.known(y)
    return array is not None and bool((array != 0).all())


def _nonzero(w: Writer, y: Ref) -> Ref:
    """y with 1 for 0, which integers cannot be divided by."""
    if _is_never_zero(w, y):
        return y
    out: Ref = w.emit("Where", w.emit("Equal", y, 0), w.constant(1, y.dtype), y)
    return out


def _zero_where_zero(w: Writer, y: Ref, out: Ref) -> Ref:
    if _is_never_zero(w, y):
        return out
    kept: Ref = w.emit("Where", w.emit("Equal", y, 0), w.constant(0, y.dtype), out)
    return kept


def _guarded(w: Writer, x: Ref, y: Ref, fmod: int) -> Ref:
    return _zero_where_zero(w, y, w.emit("Mod", x, _nonzero(w, y), fmod=fmod))


@writer("pow")
def write_pow(w: Writer, x: Ref, y: Ref) -> Any:
    """x to the power of y; of integers to a negative power 1 / x**-y rounded towards zero."""
    if is_float(x):
        return w.emit("Mul", x, x) if _number(w, y) == 2 else w.emit("Pow", x, y)
    exponents, dtype = w.known(y), x.dtype
    x, y = w.cast(x, int64), w.cast(y, int64)
    return w.cast(_integer_power(w, x, y, exponents), dtype)


def _integer_power(w: Writer, x: Ref, y: Ref, exponents: Any) -> Any:
    if exponents is not None and (exponents >= 0).all():
        return w.emit("Pow", x, y)
    odd = w.emit("Sub", 1, w.emit("Mul", w.emit("Mod", y, 2), 2))
    unit = w.emit("Where", w.emit("Equal", x, -1), odd, w.constant(0, x.dtype))
    unit = w.emit("Where", w.emit("Equal", x, 1), w.constant(1, x.dtype), unit)
    power = w.emit("Pow", x, w.emit("Max", y, 0))
    return w.emit("Where", w.emit("Less", y, 0), unit, power)


@writer("clip", "hardtanh")
def write_clip(w: Writer, x: Ref, y: Ref, z: Ref) -> Any:
    """x between y and z; one operator if these are numbers."""
    low, high = w.known(y), w.known(z)
    if low is None or high is None or low.shape or high.shape or low > high:
        return w.emit("Min", w.emit("Max", x, y), z)
    bounds = [None if low == lowest(x.dtype) else y, None if high == highest(x.dtype) else z]
    if bounds[1] is None:
        bounds.pop()
    return w.emit("Clip", x, *bounds) if bounds != [None] else x


# Angles, lengths, signs


@writer("atan2")
def write_atan2(w: Writer, x: Ref, y: Ref) -> Any:
    """The angle of the point (y, x): the arc tangent of the quotient, turned into the right quadrant."""
    zero, one = w.constant(0, x.dtype), w.constant(1, x.dtype)
    negative, half_turn = write_signbit(w, y), w.constant(pi, x.dtype)
    both = w.emit("And", w.emit("IsInf", x), w.emit("IsInf", y))
    top = w.emit("Where", both, w.emit("Sign", x), x)
    bottom = w.emit("Where", both, w.emit("Sign", y), y)
    origin = w.emit("And", w.emit("Equal", x, 0), w.emit("Equal", y, 0))
    slope = w.emit("Div", top, w.emit("Where", origin, one, bottom))
    turn = w.emit("Where", negative, write_copysign(w, half_turn, x), zero)
    angle = w.emit("Where", origin, w.emit("Mul", x, 1), w.emit("Atan", slope))
    turned = w.emit("Add", angle, turn)
    return write_copysign(w, turned, x)


@writer("copysign")
def write_copysign(w: Writer, x: Ref, y: Ref) -> Any:
    """The size of x with the sign of y."""
    one, minus = w.constant(1, x.dtype), w.constant(-1, x.dtype)
    sign = w.emit("Where", write_signbit(w, y), minus, one)
    return w.emit("Mul", w.emit("Abs", x), sign)  # a zero too gets its sign


@writer("logaddexp")
def write_logaddexp(w: Writer, x: Ref, y: Ref) -> Any:
    """log(exp(x) + exp(y)), without overflow."""
    apart = w.emit("Abs", w.emit("Sub", x, y))
    apart = w.emit("Where", w.emit("Equal", x, y), w.constant(0, x.dtype), apart)
    return w.emit("Add", w.emit("Max", x, y), w.emit("Softplus", w.emit("Neg", apart)))


# Activations of two numbers


def _number(w: Writer, x: Ref) -> float | None:
    """The one number that a constant of rank 0 holds."""
    array = w.known(x)
    return None if array is None or array.shape else float(array)


@writer("prelu")
def write_prelu(w: Writer, x: Ref, y: Ref) -> Any:
    """x, times y where it is negative."""
    slope = _number(w, y)
    if slope is not None:
        return w.emit("LeakyRelu", x, alpha=slope)
    return w.emit("Add", w.emit("Relu", x), w.emit("Mul", y, w.emit("Min", x, 0)))


@writer("elu")
def write_elu(w: Writer, x: Ref, y: Ref) -> Any:
    """x, and y (exp(x) - 1) where it is negative."""
    alpha = _number(w, y)
    if alpha is not None:
        return w.emit("Elu", x, alpha=alpha)
    low = w.emit("Sub", w.emit("Exp", w.emit("Min", x, 0)), 1)
    return w.emit("Add", w.emit("Relu", x), w.emit("Mul", y, low))


@writer("binary_cross_entropy")
def write_binary_cross_entropy(w: Writer, x: Ref, y: Ref) -> Any:
    """The cross entropy of a probability with a target; logarithms are cut at -100."""
    positive = w.emit("Max", w.emit("Log", x), -100)
    negative = w.emit("Max", w.emit("Log", w.emit("Sub", 1, x)), -100)
    missed = w.emit("Mul", w.emit("Sub", 1, y), negative)
    return w.emit("Neg", w.emit("Add", missed, w.emit("Mul", y, positive)))
