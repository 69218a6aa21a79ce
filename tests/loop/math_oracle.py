"""Mathematical functions of decimal numbers, to as many digits as the context has."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import cache
from typing import Any

import numpy as np

_DIGITS = 50
_FAR_DIGITS = 400  # a float64 has up to 309 digits before its point


@cache
def pi(digits: int) -> Decimal:
    """By Machin's formula."""
    with localcontext() as context:
        context.prec = digits + 10
        return 4 * (4 * _inverse_tangent(5) - _inverse_tangent(239))


def _inverse_tangent(n: int) -> Decimal:
    """atan(1 / n)."""
    term, out, k = 1 / Decimal(n), Decimal(0), 1
    while out + term / k != out:
        out += term / k if k % 4 == 1 else -term / k
        term /= n * n
        k += 2
    return out


def sin(x: Decimal) -> Decimal:
    with localcontext() as context:
        context.prec = _FAR_DIGITS
        turn = 2 * pi(_FAR_DIGITS)
        x -= turn * (x / turn).to_integral_value()
    out, term, k = Decimal(0), x, 1
    while abs(term) > Decimal(10) ** -(3 * _DIGITS):
        out += term
        term *= -x * x / ((k + 1) * (k + 2))
        k += 2
    return out


def cos(x: Decimal) -> Decimal:
    with localcontext() as context:
        context.prec = _FAR_DIGITS + 400
        return sin(x + pi(_FAR_DIGITS) / 2)


def tanh(x: Decimal) -> Decimal:
    with localcontext() as context:
        context.prec = 2 * _DIGITS + 320  # exp(2 x) - 1 cancels
        power = (2 * x).exp()
        return (power - 1) / (power + 1)


def atan2(y: Decimal, x: Decimal) -> Decimal:
    """By Newton's method on the angle, from what the platform says."""
    import math

    angle = Decimal(math.atan2(float(y), float(x)))
    for _ in range(3):
        s, c = sin(angle), cos(angle)
        angle += (y * c - x * s) / (x * c + y * s)
    return angle


def power(x: Decimal, y: Decimal) -> Decimal:
    return (y * x.ln()).exp()


FUNCTIONS: dict[str, Callable[..., Decimal]] = {
    "exp": Decimal.exp, "log": Decimal.ln, "sin": sin, "cos": cos, "tanh": tanh, "atan2": atan2, "pow": power,
}  # fmt: skip


def errors(name: str, actual: Any, *inputs: Any) -> list[float]:
    """Errors of float64 results in units of the last place."""
    found = []
    with localcontext() as context:
        context.prec = _DIGITS
        for got, *args in zip(actual.tolist(), *[x.tolist() for x in inputs], strict=True):
            exact = FUNCTIONS[name](*map(Decimal, args))
            unit = Decimal(float(np.spacing(abs(float(exact)))))
            found.append(float(abs(Decimal(got) - exact) / unit))
    return found
