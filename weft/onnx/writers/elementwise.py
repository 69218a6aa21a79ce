"""Writers of functions of one number: those that ONNX has, and those made of them."""

from __future__ import annotations

from math import log, pi, sqrt
from typing import Any

from weft.base.dtypes import DType, kind
from weft.onnx.writers.registry import Write, writer
from weft.onnx.writers.writer import Ref, Writer, is_float


def _named(operator: str) -> Write:
    def write(w: Writer, x: Ref) -> Any:
        return w.emit(operator, x)

    return write


_SAME = {
    "abs": "Abs",
    "reciprocal": "Reciprocal",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "sigmoid": "Sigmoid",
    "erf": "Erf",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "tanh": "Tanh",
    "asinh": "Asinh",
    "acosh": "Acosh",
    "atanh": "Atanh",
    "asin": "Asin",
    "acos": "Acos",
    "atan": "Atan",
    "softplus": "Softplus",
}
for _name, _operator in _SAME.items():
    writer(_name)(_named(_operator))


def _rounding(operator: str) -> Write:
    def write(w: Writer, x: Ref) -> Any:
        return w.emit(operator, x) if is_float(x) else x

    return write


for _name, _operator in {"floor": "Floor", "ceil": "Ceil", "round": "Round"}.items():
    writer(_name)(_rounding(_operator))


@writer("positive", "stop_gradient")
def write_itself(w: Writer, x: Ref) -> Ref:
    """What is x again, without a node."""
    return x


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


@writer("neg")
def write_neg(w: Writer, x: Ref) -> Any:
    """-x; of unsigned numbers around the end."""
    return w.emit("Sub", 0, x) if kind(x.dtype) == "u" else w.emit("Neg", x)


@writer("square")
def write_square(w: Writer, x: Ref) -> Any:
    """x times x."""
    return w.emit("Mul", x, x)


@writer("rsqrt")
def write_rsqrt(w: Writer, x: Ref) -> Any:
    """One over the root."""
    return w.emit("Reciprocal", w.emit("Sqrt", x))


@writer("relu")
def write_relu(w: Writer, x: Ref) -> Any:
    """The larger one of x and 0."""
    return w.emit("Relu", x) if is_float(x) else w.emit("Max", x, 0)


@writer("exp2")
def write_exp2(w: Writer, x: Ref) -> Any:
    """2 to the power of x."""
    return w.emit("Pow", w.constant(2, x.dtype), x)


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


def _logarithm(base: float) -> Write:
    def write(w: Writer, x: Ref) -> Any:
        return w.emit("Mul", w.emit("Log", x), 1 / log(base))

    return write


writer("log2")(_logarithm(2))
writer("log10")(_logarithm(10))


@writer("erfc")
def write_erfc(w: Writer, x: Ref) -> Any:
    """1 - erf(x)."""
    return w.emit("Sub", 1, w.emit("Erf", x))


@writer("normal_cdf")
def write_normal_cdf(w: Writer, x: Ref) -> Any:
    """The distribution function of the normal distribution."""
    return w.emit("Mul", w.emit("Add", w.emit("Erf", w.emit("Mul", x, sqrt(0.5))), 1), 0.5)


@writer("angle")
def write_angle(w: Writer, x: Ref) -> Any:
    """0 for positive numbers, pi for negative ones."""
    side = w.emit("Where", w.emit("Less", x, 0), w.constant(pi, x.dtype), w.constant(0, x.dtype))
    return w.emit("Where", w.emit("IsNaN", x), x, side)


@writer("cast")
def write_cast(w: Writer, x: Ref, *, dtype: DType) -> Ref:
    """x in another dtype."""
    return w.cast(x, dtype)
