"""Products of int32 whose sides are bytes: exactly the same numbers, as products of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.passes import narrow_products

I32 = weft.int32
rng = np.random.default_rng(0)


def unsigned(*shape: int) -> Any:
    return weft.tensor(rng.integers(0, 256, shape).astype(np.uint8))


def signed(*shape: int) -> Any:
    return weft.tensor(rng.integers(-128, 128, shape).astype(np.int8))


def check(function: Any, *inputs: Any, narrow: bool = True) -> Graph:
    """Both graphs give the same; the second has a product of bytes, or is the first one."""
    graph = weft.make_graph(function)(*inputs).optimize()
    after = narrow_products(graph)
    names = [node.op.name for node in after.nodes]
    assert ("matmul_bytes" in names) is narrow
    arrays = [x.numpy() for x in inputs]
    np.testing.assert_array_equal(interpret(graph, arrays)[0], interpret(after, arrays)[0])
    np.testing.assert_array_equal(weft.compile(function)(*inputs).numpy(), interpret(graph, arrays)[0])
    return after


@pytest.mark.parametrize("left", [signed, unsigned])
@pytest.mark.parametrize("right", [signed, unsigned])
def test_sides_may_be_signed_or_not(left: Any, right: Any) -> None:
    check(lambda x, y: x.astype(I32) @ y.astype(I32), left(9, 65), right(65, 17))


def test_zero_points_are_numbers_or_one_for_each_row_and_column() -> None:
    x, y = unsigned(2, 33, 65), unsigned(65, 17)
    check(lambda x, y: (x.astype(I32) - 7) @ (y.astype(I32) - 130), x, y)
    check(
        lambda x, y, a, b: (x.astype(I32) - a.astype(I32)) @ (y.astype(I32) - b.astype(I32)),
        x, y, unsigned(33, 1), unsigned(17),
    )  # fmt: skip
    check(lambda x, y, a: (x.astype(I32) - a.astype(I32)) @ y.astype(I32), x, y, unsigned(1)[0])


def test_what_varies_along_the_sum_is_left_alone() -> None:
    check(
        lambda x, y, a: (x.astype(I32) - a.astype(I32)) @ y.astype(I32),
        unsigned(33, 65), unsigned(65, 17), unsigned(65), narrow=False,
    )  # fmt: skip


def test_constants_are_bytes_if_they_fit() -> None:
    w = rng.integers(0, 256, (65, 17)).astype(np.uint8)
    after = check(lambda x: (x.astype(I32) - 3) @ (weft.asarray(w).astype(I32) - 128), unsigned(33, 65))
    assert all(a.dtype == np.int8 or a.size <= 17 or a.ndim == 0 for a in after.constants.values())
    wide = np.full((65, 17), 300, np.int32)
    check(lambda x: x.astype(I32) @ weft.asarray(wide), unsigned(33, 65), narrow=False)


def test_views_between_are_of_bytes() -> None:
    check(lambda x, w: x.astype(I32) @ w.astype(I32).T, signed(33, 65), unsigned(17, 65))
    check(lambda x, w: x.astype(I32).reshape(33, 65) @ w.astype(I32), signed(3, 11, 65), signed(65, 17))


@pytest.mark.parametrize("taps", [(3, 3), (1, 1), (5, 2)])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", [0, 1])
def test_convolutions_are_products_of_windows(taps: tuple[int, int], stride: int, padding: int) -> None:
    w = rng.integers(-128, 128, (8, 5, *taps)).astype(np.int8)
    zero = 12

    def f(x: Any) -> Any:
        return weft.conv2d(x.astype(I32) - zero, weft.asarray(w).astype(I32), None, stride, padding)

    check(f, unsigned(2, 5, 12, 11))
    given = weft.tensor(w)
    check(
        lambda x, w: weft.conv2d(x.astype(I32), w.astype(I32), None, stride, padding),
        signed(2, 5, 12, 11),
        given,
    )


def test_convolutions_by_groups_are_left_alone() -> None:
    check(
        lambda x, w: weft.conv2d(x.astype(I32), w.astype(I32), None, 1, 1, 1, 8),
        unsigned(1, 8, 9, 9), signed(8, 1, 3, 3), narrow=False,
    )  # fmt: skip


def test_small_products_are_left_alone() -> None:
    check(lambda x, y: x.astype(I32) @ y.astype(I32), signed(3, 4), signed(4, 2), narrow=False)


def test_other_integers_are_left_alone() -> None:
    x = weft.tensor(rng.integers(-100, 100, (33, 65)).astype(np.int16))
    check(lambda x, y: x.astype(I32) @ y.astype(I32), x, signed(65, 17), narrow=False)
    check(
        lambda x, y: x.astype(weft.int64) @ y.astype(weft.int64), signed(33, 65), signed(65, 17), narrow=False
    )
