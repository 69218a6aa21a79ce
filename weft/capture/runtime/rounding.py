"""``round(x, digits)`` of numbers that only a run tells: to the nearest decimal, as Python has it.

``x * 100`` may round to a half where the product is none, so that ``round(1.115, 2)`` would be 1.12. What a
product loses by rounding is a float, too (by Dekker's splitting): it tells on which side of a half one is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.capture.runtime.number import KINDS, Number
from weft.ops import arithmetic, compare, rounding, select
from weft.ops.complex import absolute
from weft.tensor.dispatch import captured_constant

_SPLIT = 2.0**27 + 1.0
_WHOLE = 2.0**52  # floats from here on are whole numbers
_MOST = 2.0**53
_DIGITS = 22  # powers of ten up to this one are floats


def rounded(number: Number, digits: int) -> Any:
    """A number of Python to so many digits behind the point, or before it."""
    if number.kind is not float:
        return _of_int(number, digits)
    if abs(digits) > _DIGITS:
        return number if digits > 0 else Number(float, arithmetic.mul(number.tensor, _constant(0.0)))
    return Number(float, _of_float(number.tensor, digits))


def _of_int(number: Number, digits: int) -> Any:
    if digits >= 0:
        return +number
    step = 10**-digits
    rest = number % step
    low = number - rest
    is_odd = (low // step) % 2 == 1
    return low + step * ((rest * 2 > step) | ((rest * 2 == step) & is_odd))


def _of_float(x: Any, digits: int) -> Any:
    scale = _constant(10.0 ** abs(digits))
    if digits >= 0:
        scaled, lost = _product(x, scale)
    else:
        scaled = arithmetic.div(x, scale)
        back, rest = _product(scaled, scale)
        lost = arithmetic.sub(arithmetic.sub(x, back), rest)
    low = rounding.floor(scaled)
    is_half = compare.equal(scaled, arithmetic.add(low, 0.5))
    above = select.cast(compare.greater(lost, 0), dtype=KINDS[float])
    decided = compare.logical_and(is_half, compare.not_equal(lost, 0))
    near = select.select(decided, arithmetic.add(low, above), rounding.round(scaled))
    is_whole = compare.greater_equal(absolute(scaled), _WHOLE)
    near = select.select(is_whole, arithmetic.add(scaled, rounding.round(lost)), near)
    out = arithmetic.div(near, scale) if digits >= 0 else arithmetic.mul(near, scale)
    return select.select(compare.less(absolute(scaled), _MOST), out, x)


def _product(x: Any, y: Any) -> tuple[Any, Any]:
    """A product as a float, and what that is less than the product."""
    (a, b), (c, d) = _halves(x), _halves(y)
    out = _once(arithmetic.mul(x, y))
    lost = arithmetic.sub(arithmetic.mul(a, c), out)
    for one, other in ((a, d), (b, c), (b, d)):
        lost = arithmetic.add(lost, arithmetic.mul(one, other))
    return out, lost


def _once(product: Any) -> Any:
    """A product that is rounded before it goes into a sum, wherever that is computed."""
    return arithmetic.maximum(product, _constant(-np.inf))


def _halves(x: Any) -> tuple[Any, Any]:
    """Two floats of half of the bits each, whose sum is x."""
    far = _once(arithmetic.mul(x, _SPLIT))
    high = arithmetic.sub(far, arithmetic.sub(far, x))
    return high, arithmetic.sub(x, high)


def _constant(x: float) -> Any:
    return captured_constant(np.asarray(x))
