"""Writers of comparison, logic, bits, and the choice between elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import bool_, int64, kind, uint64
from weft.onnx.writers.registry import Write, writer
from weft.onnx.writers.writer import Ref, Writer, is_float

# Truth of one number


@writer("logical_not")
def write_logical_not(w: Writer, x: Ref) -> Any:
    """Whether x is 0."""
    return w.emit("Not", w.truth(x))


@writer("isnan")
def write_isnan(w: Writer, x: Ref) -> Any:
    """Whether x is no number; integers always are."""
    return w.emit("IsNaN", x) if is_float(x) else never(w, x)


@writer("isinf")
def write_isinf(w: Writer, x: Ref) -> Any:
    """Whether x is infinite; integers never are."""
    return w.emit("IsInf", x) if is_float(x) else never(w, x)


@writer("isfinite")
def write_isfinite(w: Writer, x: Ref) -> Any:
    """Whether x is neither infinite nor NaN."""
    return w.emit("Less", w.emit("Abs", x), np.inf) if is_float(x) else w.emit("Equal", x, x)


def never(w: Writer, x: Ref) -> Any:
    """False for each element of x."""
    return w.emit("Not", w.emit("Equal", x, x))


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


def _comparison(operator: str) -> Write:
    def write(w: Writer, x: Ref, y: Ref) -> Any:
        return w.emit(operator, x, y)

    return write


for _name, _operator in {
    "equal": "Equal",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
}.items():
    writer(_name)(_comparison(_operator))


@writer("not_equal")
def write_not_equal(w: Writer, x: Ref, y: Ref) -> Any:
    """x != y."""
    return w.emit("Not", w.emit("Equal", x, y))


def _logic(operator: str) -> Write:
    def write(w: Writer, x: Ref, y: Ref) -> Any:
        return w.emit(operator, w.truth(x), w.truth(y))

    return write


def _bits(operator: str) -> Write:
    def write(w: Writer, x: Ref, y: Ref) -> Any:
        return w.emit(operator if x.dtype == bool_ else f"Bitwise{operator}", x, y)

    return write


for _name, _operator in {"and": "And", "or": "Or", "xor": "Xor"}.items():
    writer(f"logical_{_name}")(_logic(_operator))
    writer(f"bitwise_{_name}")(_bits(_operator))


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


@writer("where")
def write_where(w: Writer, condition: Ref, x: Ref, y: Ref) -> Any:
    """x where the condition holds, else y."""
    return w.emit("Where", condition, x, y)
