"""Activations far from zero, at their kinks, in half precision, and their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

import weft
from weft.ops.activation import normal_cdf

SMOOTH = (
    "elu", "selu", "celu", "gelu", "silu", "mish", "softplus", "logsigmoid", "softsign", "sigmoid", "tanh",
    "tanhshrink",
)  # fmt: skip


@pytest.mark.parametrize("dtype", [weft.float32, weft.float64])
@pytest.mark.parametrize("name", SMOOTH)
def test_large_arguments_give_finite_values_and_gradients(name: str, dtype: Any) -> None:
    x = weft.tensor([-1e30, -1e4, -100.0, 100.0, 1e4, 1e30], dtype=dtype, requires_grad=True)
    out = getattr(weft, name)(x)
    out.sum().backward()
    assert np.isfinite(out.detach().numpy()).all()
    assert np.isfinite(x.grad.numpy()).all()


@pytest.mark.parametrize(
    ("name", "slope"),
    [
        ("relu", 0.0),
        ("relu6", 0.0),
        ("leaky_relu", 0.01),
        ("elu", 1.0),
        ("celu", 1.0),
        ("hardtanh", 1.0),
        ("gelu", 0.5),
    ],
)
def test_slope_at_zero(name: str, slope: float) -> None:
    x = weft.tensor([0.0, -0.0], requires_grad=True)
    getattr(weft, name)(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [slope, slope], rtol=1e-6)


def test_nan_goes_through_relu() -> None:
    assert np.isnan(weft.relu(weft.tensor([np.nan])).numpy()).all()


def test_normal_distribution_keeps_its_precision_in_the_tail() -> None:
    x = np.linspace(-12, 8, 200_001).astype(np.float32)
    out = normal_cdf(weft.tensor(x)).numpy()
    expected = scipy.special.ndtr(x.astype(np.float64))
    error = np.abs(out.astype(np.float64) - expected) / expected
    assert error[x > -6].max() < 2e-6
    assert error.max() < 1e-5  # that of exp(-x**2 / 2) in float32


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "gelu", "silu", "softplus", "relu", "leaky_relu"])
def test_half_precision_is_rounded_once(name: str, dtype: Any) -> None:
    x = weft.tensor(np.linspace(-4, 4, 33), dtype=dtype)
    out, wide = getattr(weft, name)(x), getattr(weft, name)(x.astype(weft.float64))
    assert out.dtype == dtype
    step = 2.0**-10 if dtype == weft.float16 else 2.0**-7
    np.testing.assert_allclose(out.astype(weft.float64).numpy(), wide.numpy(), rtol=2 * step, atol=1e-4)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_shift_of_scores_changes_nothing(name: str) -> None:
    x = weft.randn(4, 5, dtype=weft.float64)
    out, moved = getattr(weft, name)(x), getattr(weft, name)(x + 1e4)
    np.testing.assert_allclose(moved.numpy(), out.numpy(), rtol=1e-9, atol=1e-11)


def test_softmax_sums_to_one_over_its_axis() -> None:
    out = weft.softmax(weft.randn(3, 4, 5) * 50, axis=1)
    np.testing.assert_allclose(out.sum(axis=1).numpy(), np.ones((3, 5)), rtol=1e-6)


def test_integers_become_floats() -> None:
    assert weft.softmax(weft.tensor([1, 2])).dtype == weft.float32
    assert weft.leaky_relu(weft.tensor([-1, 2])).dtype == weft.float32
    assert weft.relu(weft.tensor([-1, 2])).dtype == weft.int64


ERRORS = [
    (lambda: weft.gelu(weft.ones(2), approximate="erf"), "approximate must be 'none' or 'tanh'"),
    (lambda: weft.softmax(weft.ones(2), axis=1), "axis must be in -1..0"),
    (lambda: weft.softmax(weft.ones(2), along=0), "unknown keyword 'along'"),
    (lambda: weft.softmax(weft.ones(2, dtype=weft.complex64)), "dtype must be floating"),
    (lambda: weft.hardtanh(weft.ones(2), 1.0, -1.0), "min_val must not be above max_val"),
    (lambda: weft.prelu(weft.ones((2, 3)), weft.ones(2)), "as many channels as the weight, 2"),
    (lambda: weft.prelu(weft.ones((2, 3)), weft.ones((1, 3))), "at most one axis"),
    (lambda: weft.glu(weft.ones(3)), "must be even"),
    (lambda: weft.softplus(weft.ones(3), beta=0), "beta must not be 0"),
    (lambda: weft.leaky_relu(weft.ones(3), "steep"), "negative_slope must be a number"),
    (lambda: weft.softshrink(weft.ones(3), -1.0), "lambd must not be negative"),
    (lambda: weft.relu([1.0]), "takes tensors, got list"),
]


@pytest.mark.parametrize(("call", "text"), ERRORS, ids=[text for _, text in ERRORS])
def test_bad_arguments_are_named(call: Any, text: str) -> None:
    with pytest.raises(weft.errors.WeftError, match=text):
        call()
