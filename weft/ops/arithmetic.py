"""Arithmetic of two numbers, and what is next to it: powers, remainders, the larger and the smaller."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from weft.base.dtypes import DType, int64, integer_range, kind
from weft.errors import ArgumentError, DtypeError
from weft.ops.complex import sign
from weft.ops.families import elementwise
from weft.ops.op import Array, Op, Operand, Tensor, WeakNumber, no_gradient
from weft.ops.public import Public, published
from weft.ops.samples import booleans, integers, joined, reals
from weft.ops.scalar import ScalarEmitter, Value, copy_sign, integer_of_size, is_nan
from weft.ops.select import cast, in_dtype, in_single, select, weight

# Further arguments of public functions


def _add_times(x1: Operand, x2: Operand, /, *, alpha: float = 1) -> Tensor:
    return add(x1, x2 if alpha == 1 else mul(x2, alpha))


def _subtract_times(x1: Operand, x2: Operand, /, *, alpha: float = 1) -> Tensor:
    return sub(x1, x2 if alpha == 1 else mul(x2, alpha))


def _divide_rounding(x1: Operand, x2: Operand, /, *, rounding_mode: str | None = None) -> Tensor:
    from weft.ops.rounded import divide_rounded  # which builds on this module

    return div(x1, x2) if rounding_mode is None else divide_rounded(x1, x2, rounding_mode)


add = elementwise(
    "add",
    public=Public(
        "x1 + x2, or x1 + alpha * x2; of bools, or.",
        "[1.0, 2.0], [10.0, 20.0] -> [11., 22.]",
        options=_add_times,
    ),
    eval=np.add,
    partials=(1, 1),
    accepts="biufc",  # of bools: or
    samples=joined(reals(2, complex=True), integers(2), booleans(2)),
    scalar=lambda e, x, y: e.or_(x, y) if kind(e.dtype(x)) == "b" else e.add(x, y),
    commutative="bits",
)
sub = elementwise(
    "sub",
    public=Public(
        "x1 - x2, or x1 - alpha * x2.",
        "[1.0, 2.0], [10.0, 20.0] -> [ -9., -18.]",
        names=("subtract", "sub"),
        options=_subtract_times,
    ),
    eval=np.subtract,
    partials=(1, -1),
    samples=joined(reals(2, complex=True), integers(2)),
    scalar=lambda e, x, y: e.sub(x, y),
)
mul = elementwise(
    "mul",
    public=Public(
        "x1 * x2; of bools, and.", "[1.0, 2.0], [10.0, 20.0] -> [10., 40.]", names=("multiply", "mul")
    ),
    eval=np.multiply,
    partials=(lambda y: y, lambda x: x),
    accepts="biufc",  # of bools: and
    samples=joined(reals(2, complex=True), integers(2), booleans(2)),
    scalar=lambda e, x, y: e.and_(x, y) if kind(e.dtype(x)) == "b" else e.mul(x, y),
    commutative="bits",
)
div = elementwise(
    "div",
    public=Public(
        'x1 / x2; integers are divided as floats. With rounding_mode="trunc" or "floor" they stay integers.',
        "[1, 2], [4, 4] -> [0.2500, 0.5000]",
        names=("divide", "div", "true_divide"),
        options=_divide_rounding,
    ),
    eval=np.divide,
    partials=(lambda y: 1 / y, lambda y, out: -out / y),
    accepts="fc",
    singular=True,
    samples=reals(2, 0.5, 2.0, complex=True),
    scalar=lambda e, x, y: e.div(x, y),
)
neg = elementwise(
    "neg",
    public=Public("-x.", "[1.0, -2.0] -> [-1.,  2.]", names=("negative", "neg")),
    eval=np.negative,
    partials=(-1,),
    samples=joined(reals(1, complex=True), integers(1)),
    scalar=lambda e, x: e.neg(x),
)
positive = elementwise(
    "positive",
    public=Public("x itself.", "[1.0, -2.0] -> [ 1., -2.]"),
    eval=np.positive,
    partials=(1,),
    samples=joined(reals(1, complex=True), integers(1)),
    scalar=lambda e, x: x,
)
square = elementwise(
    "square",
    public=Public("x * x.", "[3.0, -4.0] -> [ 9., 16.]"),
    eval=np.square,
    partials=(lambda x: 2 * x,),
    samples=joined(reals(1, complex=True), integers(1)),
    scalar=lambda e, x: e.mul(x, x),
)
reciprocal = elementwise(
    "reciprocal",
    public=Public("1 / x.", "[2.0, 4.0] -> [0.5000, 0.2500]"),
    eval=np.reciprocal,
    partials=(lambda out: -out * out,),
    accepts="fc",
    singular=True,
    samples=reals(1, 0.5, 2.0, complex=True),
    scalar=lambda e, x: e.div(1, x),
)

# Powers


def _power(x: Array, y: Array) -> Array:
    if kind(y.dtype) != "i":
        out = np.power(x, y)
        if y.size == 1 and kind(y.dtype) == "f" and (y == 0.5).all():
            # For one exponent of 1/2 NumPy takes the square root, which differs at -0 and -inf.
            out = np.where(x == -np.inf, np.asarray(np.inf, out.dtype), out + 0)
        return out
    # An integer to a negative power is 1 / x**-y rounded towards zero, as the scalar code says.
    unit = np.where(x == 1, 1, np.where(x == -1, 1 - 2 * (y & 1), 0)).astype(x.dtype)
    return np.where(y < 0, unit, np.power(x, np.maximum(y, 0)))


def _power_code(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    if kind(e.dtype(y)) != "i":
        return e.pow(x, y)
    odd = e.sub(1, e.mul(2, e.and_(y, 1)))
    unit = e.select(e.eq(x, 1), 1, e.select(e.eq(x, -1), odd, 0))
    return e.select(e.lt(y, 0), unit, e.pow(x, e.max(y, 0)))


def _power_by_base(x: Tensor, y: Tensor) -> Tensor:
    """y x**(y-1), and 0 for y = 0, where x**-1 may be infinite."""
    less = in_single(y) - 1  # a half has no number for it where y is large
    return select(y == 0, np.zeros((), y.dtype), y * in_dtype(pow(in_single(x), less), y.dtype))


def _power_by_exponent(x: Tensor, out: Tensor) -> Tensor:
    """x**y log(x), and 0 for x = 0, where the logarithm is infinite."""
    from weft.ops.exponential import log

    zero = x == 0
    return select(zero, np.zeros((), x.dtype), out * log(select(zero, np.ones((), x.dtype), x)))


pow: Op = elementwise(
    "pow",
    public=Public(
        "x1 to the power of x2; an integer to a negative one is rounded towards 0.",
        "[2.0, 3.0], [3.0, 2.0] -> [8., 9.]",
        names=("pow", "power"),
    ),
    eval=_power,
    partials=(_power_by_base, _power_by_exponent),
    singular=True,
    samples=joined(reals(2, 0.5, 2.0, complex=True), integers(2, -3, 5)),
    scalar=_power_code,
)

# Quotients and remainders


def _floor_divide_code(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    rest = e.rem(x, y)
    if kind(e.dtype(x)) == "u":
        return e.div(x, y)
    below = e.and_(e.not_(e.eq(rest, 0)), e.xor(e.lt(rest, 0), e.lt(y, 0)))
    if kind(e.dtype(x)) == "i":
        return e.sub(e.div(x, y), e.cast(below, e.dtype(x)))
    # The exact remainder makes the quotient a whole number but for its last bits: round, never floor.
    exact = e.div(e.sub(x, rest), y)
    quotient = copy_sign(e, e.round(e.sub(exact, e.cast(below, e.dtype(x)))), e.div(x, y))
    finite = e.and_(e.eq(e.sub(x, x), 0), e.eq(e.sub(y, y), 0))
    return e.select(e.and_(finite, e.not_(e.eq(y, 0))), quotient, e.div(x, y))


def _floor_divide(x: Array, y: Array) -> Array:
    """The floor of x / y; of the rounded quotient where x or y is not finite, as the standard has it."""
    out = np.floor_divide(x, y)
    if kind(out.dtype) != "f":
        return out
    finite = np.isfinite(x) & np.isfinite(y)
    return out if finite.all() else np.where(finite, out, np.divide(x, y))


def _remainder_code(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    rest = e.rem(x, y)
    if kind(e.dtype(x)) == "u":
        return rest
    below = e.and_(e.not_(e.eq(rest, 0)), e.xor(e.lt(rest, 0), e.lt(y, 0)))
    out = e.select(below, e.add(rest, y), rest)
    return out if kind(e.dtype(x)) == "i" else e.select(e.eq(rest, 0), copy_sign(e, rest, y), out)


floor_divide: Op = elementwise(
    "floor_divide",
    public=Public(
        "x1 / x2 rounded down; an integer divided by 0 is 0.", "[7.0, -7.0], [2.0, 2.0] -> [ 3., -4.]"
    ),
    eval=_floor_divide,
    partials=(0, 0),
    accepts="iuf",
    samples=joined(reals(2, 0.5, 2.0), integers(2)),
    scalar=_floor_divide_code,
)
remainder = elementwise(
    "remainder",
    public=Public(
        "What is left of x1 / x2 rounded down; it has the sign of x2.", "[7.0, -7.0], [4.0, 4.0] -> [3., 1.]"
    ),
    eval=np.remainder,
    partials=(1, lambda x, y: -floor_divide(x, y)),
    accepts="iuf",
    samples=joined(reals(2, 0.5, 2.0), integers(2)),
    scalar=_remainder_code,
)
fmod = elementwise(
    "fmod",
    public=Public(
        "What is left of x1 / x2 rounded towards 0; it has the sign of x1.",
        "[7.0, -7.0], [4.0, 4.0] -> [ 3., -3.]",
    ),
    eval=np.fmod,
    partials=(1, lambda x, y, out: (out - x) / y),
    accepts="iuf",
    samples=joined(reals(2, 0.5, 2.0), integers(2)),
    scalar=lambda e, x, y: e.rem(x, y),
)

# Order: the gradient at a tie goes half to each side


def _share(larger: Tensor, smaller: Tensor) -> tuple[Tensor, Tensor]:
    """Whether the first is as large, and its part of the gradient: 1/2 at a tie."""
    return larger >= smaller, 1 - weight(larger == smaller, larger) * 0.5


def _share_of_less(smaller: Tensor, larger: Tensor) -> tuple[Tensor, Tensor]:
    return smaller <= larger, 1 - weight(smaller == larger, smaller) * 0.5


maximum = elementwise(
    "maximum",
    public=Public(
        "The larger one; NaN if either is NaN. A tie shares the gradient evenly.",
        "[1.0, 5.0], [3.0, 3.0] -> [3., 5.]",
    ),
    eval=np.maximum,
    partials=(lambda x, y: _share(x, y), lambda x, y: _share(y, x)),
    gated=True,
    accepts="biuf",
    samples=joined(reals(2), integers(2), booleans(2)),
    scalar=lambda e, x, y: e.or_(x, y) if kind(e.dtype(x)) == "b" else e.max(x, y),
    commutative="value",
)
minimum = elementwise(
    "minimum",
    public=Public(
        "The smaller one; NaN if either is NaN. A tie shares the gradient evenly.",
        "[1.0, 5.0], [3.0, 3.0] -> [1., 3.]",
    ),
    eval=np.minimum,
    partials=(lambda x, y: _share_of_less(x, y), lambda x, y: _share_of_less(y, x)),
    gated=True,
    accepts="biuf",
    samples=joined(reals(2), integers(2), booleans(2)),
    scalar=lambda e, x, y: e.and_(x, y) if kind(e.dtype(x)) == "b" else e.min(x, y),
    commutative="value",
)
clip_between = elementwise(
    "clip",
    eval=lambda x, y, z: np.minimum(np.maximum(x, y), z),
    partials=(
        lambda x, y, z: ((x >= y) & (x <= z), None),
        lambda x, y, z: ((x < y) & (y < z), None),
        lambda x, y, z: ((x > z) | (y >= z), None),
    ),
    gated=True,
    accepts="iuf",
    samples=joined(reals(3), integers(3)),
    scalar=lambda e, x, y, z: e.min(e.max(x, y), z),
)

# Lengths, signs, neighbours


def _ratio(x: Tensor, length: Tensor) -> Tensor:
    """x / length, and 0 at the origin."""
    return x / select(length == 0, np.ones((), length.dtype), length)


def _hypot_code(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    a, b = e.abs(x), e.abs(y)
    large, small = e.max(a, b), e.min(a, b)
    ratio = e.div(small, e.select(e.eq(large, 0), 1, large))
    length = e.mul(large, e.sqrt(e.add(e.mul(ratio, ratio), 1)))
    infinite = e.or_(e.eq(a, np.inf), e.eq(b, np.inf))
    return e.select(infinite, np.inf, length)


hypot = elementwise(
    "hypot",
    public=Public(
        "The length of the vector (x1, x2), without overflow on the way.",
        "[3.0, 5.0], [4.0, 12.0] -> [ 5., 13.]",
    ),
    eval=np.hypot,
    partials=(lambda x, out: _ratio(x, out), lambda y, out: _ratio(y, out)),
    accepts="f",
    samples=reals(2),
    scalar=_hypot_code,
)
copysign = elementwise(
    "copysign",
    public=Public("The size of x1 with the sign of x2.", "[1.0, 2.0], [-3.0, 3.0] -> [-1.,  2.]"),
    eval=np.copysign,
    partials=(lambda x, out: sign(x) * sign(out), 0),
    accepts="f",
    samples=reals(2),
    scalar=copy_sign,
)


def _nextafter_code(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    dtype = e.dtype(x)
    bits = integer_of_size(dtype)
    one = e.constant(1, bits)
    outward = e.xor(e.lt(y, x), e.lt(0, x))
    stepped = e.bitcast(e.add(e.bitcast(x, bits), e.select(outward, one, -1)), dtype)
    stepped = e.select(e.eq(x, 0), copy_sign(e, e.bitcast(one, dtype), y), stepped)
    return e.select(e.eq(x, y), y, e.select(is_nan(e, x), x, e.select(is_nan(e, y), y, stepped)))


nextafter = elementwise(
    "nextafter",
    public=Public("The number next to x1 in the direction of x2.", "[0.0], [1.0] -> [1.4013e-45]"),
    eval=np.nextafter,
    partials=no_gradient("steps through the representable numbers"),
    accepts="f",
    samples=reals(2),
    scalar=_nextafter_code,
)


# Functions of these


@published("(weft.tensor([-2.0, 0.5, 3.0]), min=-1.0, max=1.0) -> tensor([-1.0000,  0.5000,  1.0000])")
def clip(x: Tensor, /, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Each element moved to the nearest end of the range from ``min`` to ``max``; either may be left out.

    The result has the dtype of x. The gradient goes to x inside the range and at its ends, else to the end.
    """
    if min is None and max is None:
        return x
    low, high = _range_of(x.dtype)
    low = low if min is None else _bound(x, min)
    return clip_between(x, low, high if max is None else _bound(x, max))


@published("(weft.tensor([-2.0, 3.0]), 0.0) -> tensor([0., 3.])")
def clamp_min(x: Tensor, min: Operand, /) -> Tensor:
    """Each element, or ``min`` where it is below that."""
    return clip(x, min=min)


@published("(weft.tensor([-2.0, 3.0]), 0.0) -> tensor([-2.,  0.])")
def clamp_max(x: Tensor, max: Operand, /) -> Tensor:
    """Each element, or ``max`` where it is above that."""
    return clip(x, max=max)


def _range_of(dtype: DType) -> tuple[Any, Any]:
    if kind(dtype) in "iu":
        limits = np.iinfo(dtype)
        return np.asarray(limits.min, dtype), np.asarray(limits.max, dtype)
    return np.asarray(-np.inf, dtype), np.asarray(np.inf, dtype)


def _within(bound: Tensor, dtype: DType) -> Tensor:
    """Integers moved to the nearest that another integer dtype has."""
    if kind(bound.dtype) not in "iu" or kind(dtype) not in "iu":
        return bound
    (low, high), (least, most) = integer_range(dtype), integer_range(bound.dtype)
    if least >= low and most <= high:
        return bound
    ends = builtins.max(low, least), builtins.min(high, most)
    return clip_between(bound, *[np.asarray(end, bound.dtype) for end in ends])


def _bound(x: Tensor, bound: Any) -> Operand:
    """An end of the range in the dtype of x."""
    if isinstance(bound, WeakNumber) and not (isinstance(bound.example, float) and kind(x.dtype) in "iu"):
        bound = bound.in_dtype(int64 if kind(x.dtype) in "iu" else x.dtype)
    if not hasattr(bound, "dtype") and not isinstance(bound, int | float | WeakNumber):
        raise ArgumentError("clip", f"bounds must be numbers or tensors, got {type(bound).__name__}")
    if hasattr(bound, "dtype"):
        if kind(bound.dtype) != kind(x.dtype) and kind(bound.dtype) in "fc":
            raise DtypeError("clip", f"bounds must be of the kind of {x.dtype.name}, got {bound.dtype.name}")
        return bound if bound.dtype == x.dtype else cast(_within(bound, x.dtype), dtype=x.dtype)
    if isinstance(bound, float | WeakNumber) and kind(x.dtype) in "iu":
        raise DtypeError("clip", f"bounds must be integers for {x.dtype.name}, got {bound}")
    if kind(x.dtype) in "iu":
        limits = np.iinfo(x.dtype)
        bound = builtins.min(builtins.max(bound, limits.min), limits.max)
    return np.asarray(bound, x.dtype)
