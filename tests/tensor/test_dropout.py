"""Dropout and its relatives, relaxed draws, and embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft


def test_dropout_keeps_the_expected_share_and_scales_it() -> None:
    out = weft.dropout(weft.ones(100_000), 0.3, key=weft.random.key(0)).numpy()
    np.testing.assert_allclose(np.unique(out), [0.0, 1 / 0.7], rtol=1e-6)
    np.testing.assert_allclose((out == 0).mean(), 0.3, atol=0.01)


def test_gradient_is_the_mask() -> None:
    x = weft.randn(1000).requires_grad_()
    out = weft.dropout(x, 0.5)
    out.sum().backward()
    np.testing.assert_allclose(out.detach().numpy(), x.detach().numpy() * x.grad.numpy(), rtol=1e-6)


def test_same_key_drops_the_same_elements() -> None:
    x, key = weft.ones(100), weft.random.key(3)
    assert weft.dropout(x, key=key).tolist() == weft.dropout(x, key=key).tolist()


def test_without_training_dropout_is_the_identity() -> None:
    x = weft.ones(10)
    assert weft.dropout(x, 0.9, training=False) is x


@pytest.mark.parametrize(("function", "shape"), [
    (weft.dropout1d, (4, 50, 6)), (weft.dropout2d, (4, 50, 3, 2)), (weft.dropout3d, (4, 50, 2, 2, 2)),
])  # fmt: skip
def test_feature_dropout_drops_whole_channels(function: Any, shape: tuple[int, ...]) -> None:
    out = function(weft.ones(shape), 0.5).numpy().reshape(4, 50, -1)
    assert (out == out[:, :, :1]).all()
    assert set(np.unique(out)) == {0.0, 2.0}


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    out = weft.alpha_dropout(weft.randn(200_000), 0.3).numpy()
    np.testing.assert_allclose([out.mean(), out.std()], [0.0, 1.0], atol=0.02)


def test_hard_draw_is_one_hot_with_the_gradient_of_the_soft_one() -> None:
    logits = weft.randn(5, 3, 4).requires_grad_()
    out = weft.gumbel_softmax(logits, hard=True, axis=1)
    values = out.detach().numpy()
    np.testing.assert_allclose(values.sum(axis=1), np.ones((5, 4)), rtol=1e-6)
    np.testing.assert_allclose(values.max(axis=1), np.ones((5, 4)), rtol=1e-6)
    (out * weft.randn(5, 3, 4)).sum().backward()
    assert (logits.grad.numpy() != 0).all()


def test_embedding_adds_up_the_gradient_of_repeated_rows_but_padding() -> None:
    table = weft.randn(4, 2).requires_grad_()
    out = weft.embedding(weft.tensor([[1, 1], [3, 0]]), table, padding_idx=3)
    assert out.shape == (2, 2, 2)
    np.testing.assert_array_equal(out.detach().numpy()[1, 0], table.detach().numpy()[3])
    out.sum().backward()
    assert table.grad.tolist() == [[1.0, 1.0], [2.0, 2.0], [0.0, 0.0], [0.0, 0.0]]


def test_embedding_maps_over_tables_and_indices() -> None:
    tables, indices = weft.randn(3, 4, 2), weft.tensor([[0, 1], [2, 3], [3, 3]])
    out = weft.vmap(lambda t, i: weft.embedding(i, t, padding_idx=3))(tables, indices)
    expected = np.stack([t[i] for t, i in zip(tables.numpy(), indices.numpy(), strict=True)])
    np.testing.assert_array_equal(out.numpy(), expected)


ERRORS = [
    (lambda: weft.dropout(weft.ones(3), 1.5), "p must be in 0..1, got 1.5"),
    (lambda: weft.dropout2d(weft.ones((2, 3))), "the tensor must have 3 or 4 axes"),
    (lambda: weft.gumbel_softmax(weft.ones(3), tau=0.0), "tau must be positive"),
    (lambda: weft.embedding(weft.tensor([4]), weft.ones((4, 2))), "indices must be in 0..3, got 4"),
    (lambda: weft.embedding(weft.tensor([-1]), weft.ones((4, 2))), "got -1"),
    (lambda: weft.embedding(weft.tensor([0.5]), weft.ones((4, 2))), "indices must be integers"),
    (lambda: weft.embedding(weft.tensor([0]), weft.ones(4)), "the weight must be"),
    (lambda: weft.embedding(weft.tensor([0]), weft.ones((4, 2)), padding_idx=4), "padding_idx must be a row"),
]


@pytest.mark.parametrize(("call", "text"), ERRORS, ids=[text for _, text in ERRORS])
def test_bad_arguments_are_named(call: Any, text: str) -> None:
    with pytest.raises(weft.errors.WeftError, match=text):
        call()
