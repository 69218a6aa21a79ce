"""Writers of functions of one number and of comparison, logic, bits, and the choice between elements."""

from __future__ import annotations

from math import log, sqrt
from typing import Any

import numpy as np

from weft.base.dtypes import bool_, int64, kind, uint64
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


enter_writers(
    {
        "trunc": lambda w, x: (
            w.emit("Where", w.emit("Less", x, 0), w.emit("Ceil", x), w.emit("Floor", x)) if is_float(x) else x
        ),
        "sign": lambda w, x: (  # NaN stays
            w.emit("Where", w.emit("IsNaN", x), x, w.emit("Sign", x)) if is_float(x) else w.emit("Sign", x)
        ),
        "floor": _of_floats("Floor"),
        "ceil": _of_floats("Ceil"),
        "round": _of_floats("Round"),
        "log2": _logarithm(2),
        "log10": _logarithm(10),
        "positive stop_gradient": lambda w, x: x,
        "when_chosen": lambda w, x, truth: x,
        "in_place_of": lambda w, x, y: w.emit("Where", w.constant(True, bool_), x, y),
        "gamma_path": lambda w, x, y: w.emit("Where", w.constant(True, bool_), x, y),
        "neg": lambda w, x: w.emit("Sub", 0, x) if kind(x.dtype) == "u" else w.emit("Neg", x),
        "root": lambda w, x: w.emit("Sqrt", x),
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


# Comparison, logic, bits


@writer("signbit")
def write_signbit(w: Writer, x: Ref) -> Any:
    """Whether x is negative, or the zero with a sign."""
    below = w.emit("Less", w.emit("Reciprocal", x), 0)
    return w.emit("Or", w.emit("Less", x, 0), w.emit("And", w.emit("Equal", x, 0), below))


@writer("bitwise_invert")
def write_invert(w: Writer, x: Ref) -> Any:
    """Each bit flipped."""
    if x.dtype == bool_:
        return w.emit("Not", x)
    if w.opset >= 18:
        return w.emit("BitwiseNot", x)
    return w.emit("Sub", np.iinfo(x.dtype).max if kind(x.dtype) == "u" else -1, x)


# Comparison and logic


def _logic(operator: str) -> Write:
    return lambda w, x, y: w.emit(operator, w.truth(x), w.truth(y))


def _bits(operator: str) -> Write:
    return lambda w, x, y: w.emit(operator if x.dtype == bool_ else f"Bitwise{operator}", x, y)


def _test(operator: str) -> Write:
    """A test that no integer passes."""
    return lambda w, x: w.emit(operator, x) if is_float(x) else w.emit("Not", w.emit("Equal", x, x))


def is_finite(w: Writer, x: Ref) -> Any:
    """Whether a float is neither infinite nor NaN."""
    return w.emit("Less", w.emit("Abs", x), np.inf)


enter_writers(
    {
        "isnan": _test("IsNaN"),
        "isinf": _test("IsInf"),
        "isfinite": lambda w, x: is_finite(w, x) if is_float(x) else w.emit("Equal", x, x),
        "logical_not": lambda w, x: w.emit("Not", w.truth(x)),
        "equal": emitted("Equal"),
        "not_equal": lambda w, x, y: w.emit("Not", w.emit("Equal", x, y)),
        "less": emitted("Less"),
        "less_equal": emitted("LessOrEqual"),
        "greater": emitted("Greater"),
        "greater_equal": emitted("GreaterOrEqual"),
        **{f"logical_{name}": _logic(name.capitalize()) for name in ("and", "or", "xor")},
        **{f"bitwise_{name}": _bits(name.capitalize()) for name in ("and", "or", "xor")},
        "where": emitted("Where"),
    }
)

# Bits


@writer("left_shift")
def write_left_shift(w: Writer, x: Ref, y: Ref) -> Any:
    """x shifted left; 0 for distances outside the bits."""
    near, distance = _distance(w, x, y)
    moved = w.emit("BitShift", _unsigned(w, x), distance, direction="LEFT")
    return w.emit("Where", near, _signed(w, moved, x), w.constant(0, x.dtype))


@writer("right_shift")
def write_right_shift(w: Writer, x: Ref, y: Ref) -> Any:
    """x shifted right, keeping the sign; the sign alone for distances outside the bits."""
    near, distance = _distance(w, x, y)
    if kind(x.dtype) == "u":
        moved = _signed(w, w.emit("BitShift", _unsigned(w, x), distance, direction="RIGHT"), x)
        return w.emit("Where", near, moved, w.constant(0, x.dtype))
    negative = w.emit("Less", x, 0)
    size = w.emit("Where", negative, w.emit("Sub", -1, x), x)  # the bits of a negative one flipped
    moved = _signed(w, w.emit("BitShift", _unsigned(w, size), distance, direction="RIGHT"), x)
    moved = w.emit("Where", negative, w.emit("Sub", -1, moved), moved)
    sign = w.emit("Where", negative, w.constant(-1, x.dtype), w.constant(0, x.dtype))
    return w.emit("Where", near, moved, sign)


def _distance(w: Writer, x: Ref, y: Ref) -> tuple[Ref, Ref]:
    """Whether a shift is inside the bits of x, and by how much."""
    wide = w.cast(y, int64)
    last = x.dtype.itemsize * 8 - 1
    near = w.emit("And", w.emit("GreaterOrEqual", wide, 0), w.emit("LessOrEqual", wide, last))
    return near, w.cast(w.emit("Where", near, wide, w.constant(0, int64)), uint64)


def _unsigned(w: Writer, x: Ref) -> Ref:
    return w.cast(w.cast(x, int64), uint64) if x.dtype != uint64 else x


def _signed(w: Writer, moved: Ref, like: Ref) -> Ref:
    return w.cast(w.cast(moved, int64), like.dtype) if like.dtype != uint64 else moved
