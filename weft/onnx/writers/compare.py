"""Writers of comparison, logic, bits, and the choice between elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import bool_, int64, kind, uint64
from weft.onnx.writers.registry import Write, emitted, enter_writers, writer
from weft.onnx.writers.writer import Ref, Writer, is_float


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


def _of_floats(operator: str) -> Write:
    """A test that no integer passes."""
    return lambda w, x: w.emit(operator, x) if is_float(x) else w.emit("Not", w.emit("Equal", x, x))


def is_finite(w: Writer, x: Ref) -> Any:
    """Whether a float is neither infinite nor NaN."""
    return w.emit("Less", w.emit("Abs", x), np.inf)


enter_writers(
    {
        "isnan": _of_floats("IsNaN"),
        "isinf": _of_floats("IsInf"),
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
