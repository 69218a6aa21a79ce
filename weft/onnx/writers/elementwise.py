"""Writers of functions of one number: those that ONNX has, and those made of them."""

from __future__ import annotations

from math import log, pi, sqrt
from typing import Any

from weft.base.dtypes import bool_, kind
from weft.onnx.writers.registry import Write, emitted, enter_writers, writer
from weft.onnx.writers.writer import Ref, Writer, is_float

_SAME = (
    "abs reciprocal exp log sqrt sigmoid erf sin cos tan sinh cosh tanh asinh acosh atanh asin acos atan"
    " softplus"
)
enter_writers({name: emitted(name.capitalize()) for name in _SAME.split()})


def _of_floats(operator: str) -> Write:
    """An operator that leaves integers as they are."""
    return lambda w, x: w.emit(operator, x) if is_float(x) else x


def _logarithm(base: float) -> Write:
    return lambda w, x: w.emit("Mul", w.emit("Log", x), 1 / log(base))


@writer("trunc")
def write_trunc(w: Writer, x: Ref) -> Any:
    """Rounded towards zero."""
    if not is_float(x):
        return x
    return w.emit("Where", w.emit("Less", x, 0), w.emit("Ceil", x), w.emit("Floor", x))


@writer("sign")
def write_sign(w: Writer, x: Ref) -> Any:
    """-1, 0 or 1; NaN stays."""
    out = w.emit("Sign", x)
    return w.emit("Where", w.emit("IsNaN", x), x, out) if is_float(x) else out


@writer("expm1")
def write_expm1(w: Writer, x: Ref) -> Any:
    """exp(x) - 1; near 0 by Kahan's quotient, which loses no digits."""
    power = w.emit("Exp", x)
    less = w.emit("Sub", power, 1)
    is_one = w.emit("Equal", power, 1)
    safe = w.emit("Where", is_one, 2, power)
    near = w.emit("Where", is_one, x, w.emit("Div", w.emit("Mul", less, x), w.emit("Log", safe)))
    return w.emit("Where", w.emit("Less", w.emit("Abs", x), 1), near, less)


@writer("log1p")
def write_log1p(w: Writer, x: Ref) -> Any:
    """log(1 + x); near 0 by Kahan's quotient, which loses no digits."""
    more = w.emit("Add", x, 1)
    far = w.emit("Log", more)
    is_one = w.emit("Equal", more, 1)
    step = w.emit("Where", is_one, 1, w.emit("Sub", more, 1))
    near = w.emit("Where", is_one, x, w.emit("Div", w.emit("Mul", far, x), step))
    return w.emit("Where", w.emit("Less", w.emit("Abs", x), 0.5), near, far)


@writer("angle")
def write_angle(w: Writer, x: Ref) -> Any:
    """0 for positive numbers, pi for negative ones."""
    side = w.emit("Where", w.emit("Less", x, 0), w.constant(pi, x.dtype), w.constant(0, x.dtype))
    return w.emit("Where", w.emit("IsNaN", x), x, side)


enter_writers(
    {
        "floor": _of_floats("Floor"),
        "ceil": _of_floats("Ceil"),
        "round": _of_floats("Round"),
        "log2": _logarithm(2),
        "log10": _logarithm(10),
        "positive stop_gradient": lambda w, x: x,
        "in_place_of": lambda w, x, y: w.emit("Where", w.constant(True, bool_), x, y),
        "neg": lambda w, x: w.emit("Sub", 0, x) if kind(x.dtype) == "u" else w.emit("Neg", x),
        "square": lambda w, x: w.emit("Mul", x, x),
        "rsqrt": lambda w, x: w.emit("Reciprocal", w.emit("Sqrt", x)),
        "relu": lambda w, x: w.emit("Relu", x) if is_float(x) else w.emit("Max", x, 0),
        "exp2": lambda w, x: w.emit("Pow", w.constant(2, x.dtype), x),
        "erfc": lambda w, x: w.emit("Sub", 1, w.emit("Erf", x)),
        "normal_cdf": lambda w, x: w.emit(
            "Mul", w.emit("Add", w.emit("Erf", w.emit("Mul", x, sqrt(0.5))), 1), 0.5
        ),
        "cast": lambda w, x, *, dtype: w.cast(x, dtype),
    }
)
