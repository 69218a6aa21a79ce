"""Lax primitives that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.base.dtypes import bool_, kind
from weft.interop.forms.elements import astype, clamped, whole_quotient
from weft.interop.jax.calls import Call, dtype_of, lax
from weft.interop.rules import Rule
from weft.ops.bits import bitcast

_SAME = (
    "abs acos acosh asin asinh atan atanh atan2 ceil complex conj cos cosh digamma eq erf erfc exp exp2 expm1"
    " floor ge gt imag le lgamma log log1p lt mul ne neg nextafter pow real rsqrt sign sin sinh sqrt square"
    " stop_gradient sub tan tanh add"
)
_RENAMED = (
    "add_any add, max maximum, min minimum, erf_inv erfinv, logistic sigmoid, and bitwise_and, or bitwise_or,"
    " xor bitwise_xor, not bitwise_not, is_finite isfinite, shift_left bitwise_left_shift, eq_to eq,"
    " le_to le, lt_to lt, rem fmod"
)


def _renamed(function: Callable[..., Any]) -> Rule:
    """A primitive that is a function of weft; what else it says is about precision."""
    return lambda call, *xs, **parameters: function(*xs)


lax.enter({name: _renamed(getattr(weft, name)) for name in _SAME.split()})
lax.enter({name: _renamed(getattr(weft, own)) for name, own in map(str.split, _RENAMED.split(","))})


_HINTS = "copy copy_p device_put sharding_constraint name optimization_barrier reduce_precision pvary"


@lax(*_HINTS.split())
def same(call: Call, *xs: Any, **parameters: Any) -> Any:
    """The operands as they are: they say something to a compiler or a device."""
    if call.primitive == "reduce_precision" and parameters["mantissa_bits"] < np.finfo(xs[0].dtype).nmant:
        raise call.error("must keep the precision of the dtype, got fewer bits")
    return list(xs) if len(xs) > 1 else xs[0]


@lax("bitcast_convert_type")
def bitcast_convert(call: Call, x: Any, *, new_dtype: Any) -> Any:
    """The bits of x as numbers of another dtype."""
    target = dtype_of(new_dtype)
    if target.itemsize != x.dtype.itemsize:
        raise call.error(f"dtypes must have one size, got {x.dtype.name} and {target.name}")
    return x if x.dtype == target else bitcast(x, dtype=target)


@lax("select_n")
def select_n(call: Call, which: Any, *cases: Any) -> Any:
    """The case whose number is told."""
    if which.dtype == bool_:
        return weft.where(which, cases[1], cases[0])
    out = cases[-1]
    for number in range(len(cases) - 2, -1, -1):
        out = weft.where(which <= number, cases[number], out)
    return out


@lax("integer_pow")
def integer_pow(call: Call, x: Any, *, y: int) -> Any:
    """x to a whole power."""
    if y == 2:
        return weft.square(x)
    if y < 0 and kind(x.dtype) in "fc":
        return weft.reciprocal(integer_pow(call, x, y=-y))
    return x**y if y != 1 else x


@lax("cbrt")
def cbrt(call: Call, x: Any, **parameters: Any) -> Any:
    """The cube root: a power, and a step of Newton's method."""
    size = weft.abs(x)
    safe = weft.where(size > 0, size, weft.ones((), dtype=x.dtype))
    first = weft.pow(safe, 1.0 / 3.0)
    better = first - (first - safe / (first * first)) / 3.0
    return weft.where(weft.logical_and(size > 0, weft.isfinite(size)), weft.copysign(better, x), x)


@lax("round")
def round_(call: Call, x: Any, *, rounding_method: Any) -> Any:
    """To the nearest whole number; halves to the even one, or away from zero."""
    if "EVEN" in str(rounding_method) or rounding_method == 1:
        return weft.round(x)
    whole = weft.trunc(x)
    return weft.where(weft.abs(x - whole) >= 0.5, whole + weft.sign(x), whole)


def _shifted(x: Any, y: Any, letter: str) -> Any:
    """Bits moved to the right, as those of an unsigned ("u") or a signed ("i") number."""
    if kind(x.dtype) == letter:
        return weft.bitwise_right_shift(x, y)
    dtype = np.dtype(f"{letter}{x.dtype.itemsize}")
    shifted = weft.bitwise_right_shift(bitcast(x, dtype=dtype), bitcast(y, dtype=dtype))
    return bitcast(shifted, dtype=x.dtype)


def _unsigned(x: Any) -> Any:
    return x if kind(x.dtype) == "u" else bitcast(x, dtype=np.dtype(f"u{x.dtype.itemsize}"))


@lax("population_count")
def population_count(call: Call, x: Any) -> Any:
    """How many bits are set."""
    bits = 8 * x.dtype.itemsize
    plain = _unsigned(x)
    total = weft.zeros(plain.shape, dtype=plain.dtype)
    for place in range(bits):
        total = total + weft.bitwise_and(weft.bitwise_right_shift(plain, place), 1)
    return astype(total, x.dtype)


@lax("clz")
def leading_zeros(call: Call, x: Any) -> Any:
    """How many bits are zero before the first that is set."""
    rest = _unsigned(x)
    for step in [s for s in (1, 2, 4, 8, 16, 32) if s < 8 * x.dtype.itemsize]:
        rest = weft.bitwise_or(rest, weft.bitwise_right_shift(rest, step))
    return astype(population_count(call, weft.bitwise_not(rest)), x.dtype)


@lax("polygamma")
def polygamma(call: Call, n: Any, x: Any) -> Any:
    """Derivatives of the digamma function, of a known order."""
    if call.known[0] is None or call.known[0].min() != call.known[0].max():
        raise call.error("the order must be one number that is known, got a tensor")
    return weft.polygamma(int(call.known[0].flat[0]), x)


def _bessel(x: Any, order: int, count: int = 64) -> Any:
    """The scaled modified Bessel function: the mean of ``exp(|x| (cos t - 1)) cos(order t)`` over t.

    By the midpoint rule, which converges geometrically for a periodic function; far out by its expansion.
    Abramowitz and Stegun, 9.6.16 and 9.7.1.
    """
    size = weft.abs(x)
    near = weft.minimum(size, 300.0)
    total = weft.zeros(x.shape, dtype=x.dtype)
    for angle in (np.arange(count) + 0.5) * np.pi / count:
        total = total + weft.exp(near * (np.cos(angle) - 1.0)) * float(np.cos(order * angle))
    far = weft.maximum(size, 300.0)
    first, second = ((1 / 8, 9 / 128), (-3 / 8, -15 / 128))[order]
    expansion = (1.0 + first / far + second / (far * far)) * weft.rsqrt(2.0 * np.pi * far)
    return weft.where(size < 300.0, total / float(count), expansion)


lax.enter(
    {
        "convert_element_type": lambda call, x, *, new_dtype, **rest: astype(x, dtype_of(new_dtype)),
        "clamp": lambda call, low, x, high: clamped(x, low, high),
        "div": lambda call, x, y, **rest: x / y if kind(call.type.dtype) in "fc" else whole_quotient(x, y),
        "shift_right_logical": lambda call, x, y: _shifted(x, y, "u"),
        "shift_right_arithmetic": lambda call, x, y: _shifted(x, y, "i"),
        "bessel_i0e": lambda call, x: _bessel(x, 0),
        "bessel_i1e": lambda call, x: weft.sign(x) * _bessel(x, 1),  # an odd function
    }
)
