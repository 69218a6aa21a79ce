"""What is known of the signs of scalars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft.loop.builder import Builder
from weft.loop.known import sign_of

CASES: dict[str, tuple[int, Callable[[Builder, Any, Any], Any]]] = {
    "anything": (0, lambda b, x, y: x),
    "size": (1, lambda b, x, y: b.abs(x)),
    "opposite of a size": (-1, lambda b, x, y: b.neg(b.abs(x))),
    "exponential": (1, lambda b, x, y: b.exp(x)),
    "square": (1, lambda b, x, y: b.mul(x, x)),
    "opposite of a square": (-1, lambda b, x, y: b.neg(b.mul(x, x))),
    "number times its opposite": (-1, lambda b, x, y: b.mul(b.neg(x), x)),
    "opposites multiplied": (1, lambda b, x, y: b.mul(b.neg(x), b.neg(x))),
    "scaled square": (-1, lambda b, x, y: b.mul(b.mul(x, x), -0.5)),
    "product": (0, lambda b, x, y: b.mul(x, y)),
    "product of sizes": (1, lambda b, x, y: b.mul(b.abs(x), b.exp(y))),
    "product with NaN": (0, lambda b, x, y: b.mul(b.abs(x), float("nan"))),
    "difference": (0, lambda b, x, y: b.sub(b.abs(x), y)),
}


@pytest.mark.parametrize("name", CASES)
def test_sign_of_a_scalar(name: str) -> None:
    expected, code = CASES[name]
    b = Builder()
    buffer = b.buffer("x", np.dtype("f4"), 2)
    assert sign_of(code(b, b.load(buffer, 0), b.load(buffer, 1))) == expected


def test_integers_that_wrap_around_have_no_sign() -> None:
    b = Builder()
    x = b.load(b.buffer("x", np.dtype("i4"), 1), 0)
    assert sign_of(b.mul(x, x)) == sign_of(b.abs(x)) == 0
