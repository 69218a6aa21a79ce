"""The builder computes at once what indices and numbers tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.base.dtypes import bfloat16, float32, int64
from weft.loop.builder import Builder
from weft.loop.index import Index, Variable
from weft.loop.ir import Const, Scalar

ROW = Index.of(Variable("i", 10))
COLUMN = Index.of(Variable("j", 4))


def whole(number: int) -> Const:
    return Const(np.int64(number), int64)


@pytest.mark.parametrize(
    ("name", "x", "y", "expected"),
    [
        ("add", ROW, whole(3), "i + 3"),
        ("add", whole(3), ROW, "i + 3"),
        ("sub", whole(9), ROW, "-1*i + 9"),
        ("sub", ROW + COLUMN, COLUMN, "i"),
        ("max", ROW, whole(0), "i"),
        ("max", whole(0), ROW * -1 + 9, "-1*i + 9"),
        ("max", ROW, whole(9), "9"),
        ("min", ROW, whole(0), "0"),
        ("min", ROW, ROW * 0 + 20, "i"),
    ],
)
def test_arithmetic_of_indices_gives_indices(name: str, x: Any, y: Any, expected: str) -> None:
    b = Builder()
    assert repr(getattr(b, name)(x, y)) == expected
    assert not b.block.statements


def test_order_that_is_not_known_is_computed() -> None:
    b = Builder()
    assert isinstance(b.max(ROW, COLUMN), Scalar)
    assert isinstance(b.min(ROW, whole(5)), Scalar)
    assert isinstance(b.lt(ROW, COLUMN), Scalar)


def test_numbers_are_computed_at_once() -> None:
    b: Any = Builder()
    x = Const(np.float32(0.1), float32)
    assert b.neg(x).value == np.float32(-0.1)
    assert b.mul(x, x).value == np.float32(0.1) * np.float32(0.1)
    assert b.lt(whole(2), whole(3)).value
    assert b.sub(whole(2), whole(3)).value == -1
    assert not b.block.statements


def test_numbers_of_half_precision_are_left_to_the_code() -> None:
    b = Builder()
    x = Const(bfloat16.type(0.1), bfloat16)
    assert isinstance(b.mul(x, x), Scalar)


def test_loop_to_a_bounded_index_has_its_bound() -> None:
    b = Builder()
    with b.loop(ROW) as k:
        assert k.bounds() == (0, 8)
    with b.loop(b.term(b.load(b.buffer("n", int64, 1), 0))) as k:
        assert k.bounds() is None


def test_number_as_a_term_is_a_fixed_index() -> None:
    assert Builder().term(whole(7)).is_fixed
