"""Gradients of slices of large tensors, which are put together in one array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.ir.types import TensorType
from weft.tensor.large import LARGE
from weft.tensor.pieces import Pieces

SHAPE = (64, 1200)
assert SHAPE[0] * SHAPE[1] >= LARGE

steps = st.integers(1, 3) | st.just(-2)
starts, lengths = st.integers(0, 63), st.integers(1, 64)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(starts, lengths, steps), min_size=1, max_size=4), st.booleans())
def test_gradients_of_slices_are_those_of_numpy(cuts: list[tuple[int, int, int]], through: bool) -> None:
    x = weft.ones(SHAPE, requires_grad=True)
    y = x * 3.0 if through else x  # pieces go to a node, or to a leaf
    expected = np.zeros(SHAPE)
    total: Any = 0.0
    for i, (start, length, step) in enumerate(cuts):
        key = slice(start, start + length, step) if step > 0 else slice(start, None, step)
        total = total + (y[key] * (i + 1.0)).sum() + (y[:, key] * 2.0).sum()
        expected[key] += i + 1.0
        expected[:, key] += 2.0
    total.backward()
    np.testing.assert_array_equal(x.grad.numpy(), expected * (3.0 if through else 1.0))


def test_pieces_and_a_gradient_of_the_whole_add_up() -> None:
    x = weft.ones(SHAPE, requires_grad=True)
    y = weft.exp(x)
    (y[:10].sum() + (y * 2.0).sum() + y[5:20].sum()).backward()
    weights = 2.0 + (np.arange(64) < 10) + ((np.arange(64) >= 5) & (np.arange(64) < 20))
    np.testing.assert_allclose(x.grad.numpy(), np.e * weights[:, None] * np.ones(SHAPE), rtol=1e-6)


def test_hooks_anomalies_and_second_derivatives_see_whole_gradients() -> None:
    x = weft.ones(SHAPE, requires_grad=True)
    y = x * x
    seen: list[Any] = []
    y.register_hook(lambda g: seen.append(g.numpy().sum()))
    part: Any = y[3]
    part.grad_fn.register_hook(lambda inputs, outputs: None)
    with weft.detect_anomaly():
        part.sum().backward()
    assert seen == [1200.0]
    (g,) = weft.autograd.grad((x[:2] ** 3).sum(), [x], create_graph=True)
    (second,) = weft.autograd.grad(g.sum(), [x])
    assert second.numpy().sum() == 2 * 1200 * 6


def test_targets_get_whole_gradients() -> None:
    x = weft.ones(SHAPE, requires_grad=True)
    y = x + 1.0
    got = weft.autograd.grad(y[1].sum() + y[2].sum(), [y])[0].numpy()
    assert got.sum(axis=1).tolist() == [0.0, 1200.0, 1200.0] + [0.0] * 61


@pytest.mark.parametrize(
    ("cuts", "fills"),
    [([(0, 2), (2, 4)], True), ([(2, 4), (0, 2)], True), ([(0, 3), (2, 4)], False), ([(0, 2)], False)],
)
def test_pieces_that_fill_all_need_no_zeros(cuts: list[tuple[int, int]], fills: bool) -> None:
    kind = TensorType((4, 2), np.dtype("f4"))
    parts = [((slice(a, b, 1), slice(0, 2, 1)), np.ones((b - a, 2), "f4")) for a, b in cuts]
    pieces = Pieces(kind, parts)
    assert pieces._fills_all() is fills
    expected = np.zeros((4, 2))
    for a, b in cuts:
        expected[a:b] += 1
    np.testing.assert_array_equal(pieces.array(), expected)
    np.testing.assert_array_equal(np.ones((4, 2), "f4") + pieces, expected + 1)
