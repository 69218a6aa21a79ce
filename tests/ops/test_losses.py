"""Losses at the edges: what is ignored, what is extreme, what weights do, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft


def test_ignored_targets_get_no_gradient_and_do_not_count() -> None:
    x = weft.randn(4, 3, dtype=weft.float64).requires_grad_()
    target = weft.tensor([0, -100, 2, -100])
    loss = weft.cross_entropy(x, target)
    loss.backward()
    kept = weft.cross_entropy(x.detach()[weft.tensor([0, 2])], weft.tensor([0, 2]))
    np.testing.assert_allclose(loss.item(), kept.item())
    assert (x.grad.numpy()[[1, 3]] == 0).all()
    assert (x.grad.numpy()[[0, 2]] != 0).all()


def test_mean_over_nothing_is_nan() -> None:
    assert np.isnan(weft.cross_entropy(weft.ones((2, 3)), weft.tensor([-100, -100])).item())


def test_class_numbers_of_every_integer_dtype() -> None:
    x = weft.randn(3, 4)
    expected = weft.cross_entropy(x, weft.tensor([0, 1, 3])).item()
    for dtype in (weft.uint8, weft.int8, weft.int32, weft.uint64):
        assert weft.cross_entropy(x, weft.tensor([0, 1, 3], dtype=dtype)).item() == expected


def test_one_hot_probabilities_are_class_numbers() -> None:
    x, target = weft.randn(5, 4, dtype=weft.float64), weft.tensor([0, 3, 1, 1, 2])
    shares = weft.one_hot(target, 4).astype(weft.float64)
    for smoothing in (0.0, 0.1):
        hard = weft.cross_entropy(x, target, label_smoothing=smoothing)
        soft = weft.cross_entropy(x, shares, label_smoothing=smoothing)
        np.testing.assert_allclose(hard.item(), soft.item())


def test_cross_entropy_is_nll_of_log_softmax() -> None:
    x, target = weft.randn(2, 3, 4, 5), weft.randint(0, 3, (2, 4, 5))
    both = weft.cross_entropy(x, target), weft.nll_loss(weft.log_softmax(x, axis=1), target)
    np.testing.assert_allclose(both[0].item(), both[1].item(), rtol=1e-6)


def test_huge_logits_give_finite_losses_and_gradients() -> None:
    x = weft.tensor([[1e4, -1e4], [-1e30, 1e30]], requires_grad=True)
    weft.cross_entropy(x, weft.tensor([1, 1])).backward()
    assert np.isfinite(x.grad.numpy()).all()
    y = weft.tensor([1e30, -1e30, 50.0], requires_grad=True)
    loss = weft.binary_cross_entropy_with_logits(y, weft.tensor([1.0, 0.0, 1.0]))
    loss.backward()
    assert loss.item() < 1e-6
    assert np.isfinite(y.grad.numpy()).all()


def test_certain_and_wrong_probabilities_cost_a_hundred() -> None:
    x = weft.tensor([0.0, 1.0], requires_grad=True)
    losses = weft.binary_cross_entropy(x, weft.tensor([1.0, 0.0]), reduction="none")
    losses.sum().backward()
    assert losses.tolist() == [100.0, 100.0]
    assert x.grad.numpy()[0] < 0 < x.grad.numpy()[1]


def test_divergence_of_a_zero_probability_is_zero() -> None:
    x = weft.log(weft.tensor([[0.5, 0.5]])).requires_grad_()
    target = weft.tensor([[1.0, 0.0]], requires_grad=True)
    weft.kl_div(x, target, reduction="sum").backward()
    assert np.isfinite(target.grad.numpy()).all()
    assert x.grad.tolist() == [[-1.0, 0.0]]


def test_equal_vectors_have_a_finite_distance_gradient() -> None:
    x = weft.ones((2, 3), requires_grad=True)
    weft.triplet_margin_loss(x, weft.ones((2, 3)), weft.zeros((2, 3)), margin=5.0).backward()
    assert np.isfinite(x.grad.numpy()).all()
    y = weft.zeros((2, 3), requires_grad=True)
    (weft.cosine_similarity(y, weft.ones((2, 3))).sum() + weft.cdist(y, y.detach()).sum()).backward()
    assert np.isfinite(y.grad.numpy()).all()


def test_target_may_be_one_number() -> None:
    assert weft.mse_loss(weft.tensor([1.0, 3.0]), weft.tensor(2.0)).item() == 1.0


ERRORS = [
    (
        lambda: weft.mse_loss(weft.ones((3, 1)), weft.ones(3)),
        "mse_loss: input and target must have one shape",
    ),
    (
        lambda: weft.l1_loss(weft.ones(3), weft.ones(3), reduction="avg"),
        "reduction must be 'none', 'mean' or 'sum'",
    ),
    (lambda: weft.huber_loss(weft.ones(3), weft.ones(3), delta=0), "delta must be positive"),
    (
        lambda: weft.cross_entropy(weft.ones((2, 3)), weft.tensor([0, 3])),
        "class numbers must be in 0..2 or -100, got 3",
    ),
    (lambda: weft.cross_entropy(weft.ones((2, 3)), weft.tensor([0, -1])), "got -1"),
    (
        lambda: weft.cross_entropy(weft.ones((2, 3)), weft.tensor([0])),
        "cross_entropy: target must be class numbers",
    ),
    (lambda: weft.cross_entropy(weft.ones((2, 3)), weft.ones((2, 4))), "must have one shape"),
    (lambda: weft.cross_entropy(weft.ones((2, 3)), weft.tensor([0, 1]), weft.ones(2)), "each of 3 classes"),
    (
        lambda: weft.cross_entropy(weft.ones((2, 3)), weft.tensor([0, 1]), label_smoothing=2.0),
        "must be in 0..1",
    ),
    (lambda: weft.nll_loss(weft.ones((2, 3)), weft.ones(2)), "nll_loss: target must be class numbers"),
    (lambda: weft.triplet_margin_loss(*[weft.ones((2, 3))] * 3, margin=0), "margin must be positive"),
    (lambda: weft.multi_margin_loss(weft.ones((2, 3)), weft.tensor([0, 1]), p=3), "p must be 1 or 2"),
    (lambda: weft.gaussian_nll_loss(weft.ones((2, 3)), weft.ones((2, 3)), weft.ones(3)), "var must fit"),
    (lambda: weft.cdist(weft.ones((2, 3)), weft.ones((2, 4))), "rows must be equally long"),
]


@pytest.mark.parametrize(("call", "text"), ERRORS, ids=[text for _, text in ERRORS])
def test_bad_arguments_are_named(call: Any, text: str) -> None:
    with pytest.raises(weft.errors.WeftError, match=text):
        call()
