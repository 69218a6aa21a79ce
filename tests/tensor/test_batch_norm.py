"""Normalisation: running statistics, precision, half precision, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft


def test_training_moves_running_statistics_towards_those_of_the_batch() -> None:
    x = weft.randn(8, 3, 4, dtype=weft.float64)
    mean, var = weft.zeros(3, dtype=weft.float64), weft.ones(3, dtype=weft.float64)
    weft.batch_norm(x, mean, var, training=True, momentum=0.25)
    rows = np.moveaxis(x.numpy(), 1, 0).reshape(3, -1)
    np.testing.assert_allclose(mean.numpy(), 0.25 * rows.mean(axis=1))
    np.testing.assert_allclose(var.numpy(), 0.75 + 0.25 * rows.var(axis=1, ddof=1))


def test_evaluation_uses_running_statistics_and_leaves_them() -> None:
    x, mean, var = weft.randn(4, 3), weft.tensor([1.0, 2.0, 3.0]), weft.tensor([4.0, 5.0, 6.0])
    out = weft.batch_norm(x, mean, var, eps=0.0)
    np.testing.assert_allclose(out.numpy(), (x.numpy() - mean.numpy()) / np.sqrt(var.numpy()), rtol=1e-5)
    assert mean.tolist() == [1.0, 2.0, 3.0]


def test_running_statistics_are_no_part_of_the_graph() -> None:
    x = weft.randn(4, 3).requires_grad_()
    mean, var = weft.zeros(3), weft.ones(3)
    weft.batch_norm(x, mean, var, training=True)
    assert not mean.requires_grad
    assert not var.requires_grad


def test_instance_norm_averages_statistics_over_examples() -> None:
    x = weft.randn(5, 2, 6, dtype=weft.float64)
    mean, var = weft.zeros(2, dtype=weft.float64), weft.ones(2, dtype=weft.float64)
    weft.instance_norm(x, mean, var, momentum=1.0)
    np.testing.assert_allclose(mean.numpy(), x.numpy().mean(axis=(0, 2)))
    np.testing.assert_allclose(var.numpy(), x.numpy().var(axis=2, ddof=1).mean(axis=0))


def test_running_statistics_can_be_mapped_over_but_not_shared_by_a_map() -> None:
    x, mean, var = weft.randn(2, 5, 3), weft.zeros((2, 3)), weft.ones((2, 3))

    def normalized(x: Any, mean: Any, var: Any) -> Any:
        return weft.batch_norm(x, mean, var, training=True), mean

    _, moved = weft.vmap(normalized)(x, mean, var)
    np.testing.assert_allclose(moved.numpy(), 0.1 * x.numpy().mean(axis=1), rtol=1e-5)
    with pytest.raises(weft.errors.ArgumentError, match="must be mapped over"):
        weft.vmap(normalized, in_axes=(0, None, None))(x, mean[0], var[0])


@pytest.mark.parametrize("offset", [1e4, -1e6])
def test_variance_survives_a_large_mean(offset: float) -> None:
    x = (np.random.default_rng(0).normal(size=(2, 512)) + offset).astype(np.float32)
    out = weft.layer_norm(weft.tensor(x), 512).numpy()
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(axis=1, keepdims=True)) / wide.std(axis=1, keepdims=True)
    np.testing.assert_allclose(out, expected, atol=1e-3)


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16])
def test_half_precision_is_normalised_in_single(dtype: Any) -> None:
    x = (weft.randn(4, 4096) * 100).astype(dtype)
    for out in (weft.layer_norm(x, 4096), weft.rms_norm(x, 4096)):
        assert out.dtype == dtype
        np.testing.assert_allclose(out.astype(weft.float64).numpy().std(axis=1), np.ones(4), rtol=1e-2)


def test_half_precision_batch_keeps_single_precision_statistics() -> None:
    mean, var = weft.zeros(3), weft.ones(3)
    weft.batch_norm(weft.ones((4, 3), dtype=weft.float16), mean, var, training=True)
    assert mean.dtype == weft.float32
    np.testing.assert_allclose(mean.numpy(), [0.1] * 3, rtol=1e-6)


def test_constant_input_has_a_finite_gradient() -> None:
    x = weft.ones((2, 4), requires_grad=True)
    weft.layer_norm(x, 4).sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


ERRORS = [
    (lambda: weft.batch_norm(weft.ones(3), None, None, training=True), "must be \\(N, C, \\*S\\)"),
    (lambda: weft.batch_norm(weft.ones((1, 3)), None, None, training=True), "more than one value"),
    (lambda: weft.batch_norm(weft.ones((2, 3)), None, None), "running_mean and running_var must be given"),
    (
        lambda: weft.batch_norm(weft.ones((2, 3)), weft.ones(2), weft.ones(3)),
        "running_mean must have one element",
    ),
    (
        lambda: weft.batch_norm(weft.ones((2, 3)), None, None, weft.ones(4), training=True),
        "weight must have one",
    ),
    (lambda: weft.layer_norm(weft.ones((2, 3)), 2), "the last axes must be \\(2,\\)"),
    (lambda: weft.layer_norm(weft.ones((2, 3)), 3, weft.ones(2)), "weight and bias must have the shape"),
    (lambda: weft.layer_norm(weft.ones((2, 3)), 3, eps=-1.0), "eps must not be negative"),
    (lambda: weft.group_norm(weft.ones((2, 3)), 2), "channels must be a multiple of 2"),
    (lambda: weft.local_response_norm(weft.ones((2, 3)), 2), "must be \\(N, C, \\*S\\)"),
    (lambda: weft.instance_norm(weft.ones((2, 3))), "at least one size"),
]


@pytest.mark.parametrize(("call", "text"), ERRORS, ids=[text for _, text in ERRORS])
def test_bad_arguments_are_named(call: Any, text: str) -> None:
    with pytest.raises(weft.errors.WeftError, match=text):
        call()
