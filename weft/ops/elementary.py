"""What the code of elementary functions has in common: formats of floats, polynomials, exact sums.

Elementary functions are written in basic scalar instructions for float32 and float64 (``exponent``,
``logarithm``, ``inverse``, ``gaussian``; ``weft.loop.math`` has more), which compiled code inlines: no
branches, few divisions, and the same bounds whether or not products and sums are fused. Coefficients are
minimax fits of our own (in 40-digit arithmetic, rounded one by one). Errors and numbers of
instructions are measured by ``tests/loop/test_math.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log as _log
from typing import Any, TypeVar

import numpy as np

from weft.base.dtypes import DType, float32, float64, int32, int64
from weft.base.records import NamedTuple
from weft.ops.scalar import Operand, ScalarEmitter, Value

LN2 = _log(2.0)


class Format(NamedTuple):
    """What the code of one dtype needs to know.

    Attributes:
        bits: the integer dtype as wide.
        mantissa: number of stored bits of the significand.
        bias: what is added to a stored exponent.
        magic: adding it rounds to an integer, which is then found in the lowest bits of the sum.
        ln2: log(2) in two parts; products of the first with exponents are exact.
        lowest, highest: exp is 0 below and infinite above.
        lift: results of exp are at least 2**-(bias - 1 + lift), so that many binary orders are subnormal.
        expm1: q, where exp(r) = 1 + r + r^2 q(r) for |r| <= log(2) / 2.
        log: p, where log(1 + f) = f + f^2 p(f) for sqrt(1/2) <= 1 + f <= sqrt(2).
    """

    dtype: DType
    bits: DType
    mantissa: int
    bias: int
    magic: float
    ln2: tuple[float, float]
    lowest: float
    highest: float
    lift: int
    expm1: tuple[float, ...]
    log: tuple[float, ...]


SINGLE = Format(
    float32, int32, 23, 127, 1.5 * 2.0**23, (0.693145751953125, 1.428606765330187e-06), -104.0, 89.0, 24,
    # error 2^-26.1 of expm1, 2^-28.2 of exp
    (
        0.4999999701976776, 0.16666537523269653, 0.041667740792036057, 0.008367318660020828,
        0.00138378597330302,
    ),
    # error 2^-25.0; the last is positive, so that the polynomial is infinite where f is
    (
        -0.49999991059303284, 0.3333394527435303, -0.25001776218414307, 0.19962240755558014,
        -0.1657031923532486, 0.1491634100675583, -0.14307647943496704, 0.08738730847835541,
    ),
)  # fmt: skip
DOUBLE = Format(
    float64, int64, 52, 1023, 1.5 * 2.0**52, (0.693147180559663, 2.8235290563031577e-13), -746.0, 710.0, 60,
    # error 2^-61.6
    (
        0.5, 0.16666666666666677, 0.041666666666666685, 0.008333333333321815, 0.0013888888888895037,
        0.00019841269885278093, 2.4801587273890652e-05, 2.7557245221787175e-06, 2.755733565476051e-07,
        2.510866284423366e-08, 2.089154895568184e-09,
    ),
    # error 2^-56.5
    (
        -0.5, 0.3333333333333314, -0.24999999999987965, 0.20000000000066942, -0.16666666669828065,
        0.1428571428005431, -0.12499999691251658, 0.1111111114964331, -0.10000015215667633,
        0.09090923865968313, -0.08332913263847158, 0.07691530937626448, -0.07149444342410027,
        0.06684578593990204, -0.06196628339468017, 0.05668424397156335, -0.05678083153358893,
        0.06503501626943088, -0.059808776335013115, 0.02614383470659679,
    ),
)  # fmt: skip


def format_of(e: ScalarEmitter[Value], x: Value) -> Format:
    """The format of a float32 or float64 value."""
    return DOUBLE if e.dtype(x) == float64 else SINGLE


AnyCode = TypeVar("AnyCode", bound=Callable[..., Any])  # scalar code of any number of operands


def widened(code: AnyCode) -> AnyCode:
    """Code of float32 and float64 for 16-bit floats too, which it computes in float32."""

    def wide(e: ScalarEmitter[Value], *operands: Value) -> Value:
        dtype = e.dtype(operands[0])
        if dtype.itemsize > 2:
            out: Value = code(e, *operands)
            return out
        return e.cast(code(e, *[e.cast(x, float32) for x in operands]), dtype)

    return wide  # type: ignore[return-value]  # it takes as many operands as the code does


def estrin(e: ScalarEmitter[Value], x: Value, coefficients: Sequence[float]) -> Value:
    """The value at x of a polynomial, the constant first, by Estrin's scheme: a tree, not a chain."""
    terms: list[Operand[Value]] = [*coefficients]
    while len(terms) > 1:
        pairs = [e.add(e.mul(b, x), a) for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = [*pairs, *terms[len(pairs) * 2 :]]
        x = e.mul(x, x) if len(terms) > 1 else x
    return terms[0]  # type: ignore[return-value]  # of two coefficients or more it is computed


def at_most(e: ScalarEmitter[Value], x: Value, bound: float) -> Value:
    """The smaller one of x and a number; NaN stays. One instruction where ``min`` takes several."""
    return e.select(e.lt(bound, x), bound, x)


def at_least(e: ScalarEmitter[Value], x: Value, bound: float) -> Value:
    """The larger one of x and a number; NaN stays."""
    return e.select(e.lt(x, bound), bound, x)


def unless_tiny(e: ScalarEmitter[Value], x: Value) -> Value:
    """x, or 0 where x >= 0 is so small that 1 + x is 1: there x^2 would not count, but underflow slowly."""
    return e.select(e.lt(x, 2.0 ** -(format_of(e, x).mantissa + 2)), 0, x)


def either(e: ScalarEmitter[Value], condition: Value, x: float, y: float, dtype: DType) -> Value:
    """One of two numbers."""
    return e.select(condition, e.constant(x, dtype), y)


def with_sign_of(e: ScalarEmitter[Value], size: Value, x: Value) -> Value:
    """A number that is not negative with the sign bit of x."""
    f = format_of(e, x)
    sign = e.and_(e.bitcast(x, f.bits), int(np.iinfo(f.bits).min))
    return e.bitcast(e.or_(e.bitcast(size, f.bits), sign), f.dtype)


def power_of_two(e: ScalarEmitter[Value], f: Format, n: Value, bias: Operand[Value]) -> Value:
    """2**(n + bias - f.bias) for an integer n, of which only the lowest bits need be right."""
    return e.bitcast(e.add(e.shl(n, f.mantissa), bias), f.dtype)


def as_float(e: ScalarEmitter[Value], f: Format, k: Value) -> Value:
    """A small integer as a float; not every machine converts 64-bit integers in one instruction."""
    if f is SINGLE:
        return e.cast(k, f.dtype)
    magic = int(np.asarray(f.magic, f.dtype).view(f.bits))
    return e.sub(e.bitcast(e.add(k, magic), f.dtype), f.magic)


# Sums of two numbers, where the second is what rounding takes from the first. A product among the operands
# must be exact, for it may be fused into the sum.


def two_sum(e: ScalarEmitter[Value], x: Value, y: Value) -> tuple[Value, Value]:
    """x + y rounded, and the rest (D. Knuth)."""
    out = e.add(x, y)
    part = e.sub(out, x)
    return out, e.add(e.sub(x, e.sub(out, part)), e.sub(y, part))


def fast_two_sum(e: ScalarEmitter[Value], x: Value, y: Value) -> tuple[Value, Value]:
    """The same for |x| >= |y| (T. Dekker)."""
    out = e.add(x, y)
    return out, e.sub(y, e.sub(out, x))


def upper_half(e: ScalarEmitter[Value], x: Value) -> Value:
    """The leading bits of x, so few that a product of two such numbers is exact."""
    f = format_of(e, x)
    mask = -(1 << (f.mantissa + 2) // 2)
    return e.bitcast(e.and_(e.bitcast(x, f.bits), mask), f.dtype)


def known_sign(e: ScalarEmitter[Value], x: Value) -> int:
    """1 where x is surely not negative, -1 where it is surely not positive, else 0; NaN may be in any case.

    An emitter may have a method ``sign`` that tells it; where there is none, nothing is known.
    """
    sign = getattr(e, "sign", None)
    found: int = 0 if sign is None else sign(x)
    return found


def rarely(
    e: ScalarEmitter[Value],
    condition: Value,
    code: Callable[[ScalarEmitter[Value], Value], Value],
    x: Value,
    usual: Value,
) -> Value:
    """``code(e, x)`` where the condition holds, which is seldom; else the usual value.

    An emitter may have a method of this name (without the first argument): it can run the code for single
    lanes, and branch around it where no lane needs it. Where there is none, the code runs always.
    """
    branch: Callable[..., Value] | None = getattr(e, "rarely", None)
    if branch is not None:
        return branch(condition, code, x, usual)
    return e.select(condition, code(e, x), usual)
