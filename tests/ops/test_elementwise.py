"""Elementwise ops where the matrix does not look: derivatives at kinks, poles and ties, complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import DtypeError

nan, inf = float("nan"), float("inf")


def gradients(function: Callable[..., Any], *inputs: Any) -> list[Any]:
    xs = [weft.tensor(x, dtype=weft.float64, requires_grad=True) for x in inputs]
    return [g.tolist() for g in weft.autograd.grad(function(*xs).sum(), xs)]


def second_derivative(function: Callable[..., Any], x: float) -> float:
    value: float = weft.grad(weft.grad(function))(weft.tensor(x, dtype=weft.float64)).item()
    return value


# Ties and kinks


def test_maximum_and_minimum_share_the_gradient_of_a_tie() -> None:
    x, y = [1.0, 2.0, 3.0], [3.0, 2.0, 1.0]
    assert gradients(weft.maximum, x, y) == [[0.0, 0.5, 1.0], [1.0, 0.5, 0.0]]
    assert gradients(weft.minimum, x, y) == [[1.0, 0.5, 0.0], [0.0, 0.5, 1.0]]


def test_maximum_and_minimum_propagate_nan() -> None:
    x, y = weft.tensor([nan, 1.0]), weft.tensor([1.0, nan])
    assert weft.isnan(weft.maximum(x, y)).tolist() == [True, True]
    assert weft.isnan(weft.minimum(x, y)).tolist() == [True, True]
    assert weft.isnan(weft.clip(x, 0.0, 2.0)).tolist() == [True, False]


def test_gradient_of_abs_and_sign_is_zero_at_zero() -> None:
    assert gradients(abs, [-2.0, 0.0, 3.0]) == [[-1.0, 0.0, 1.0]]
    assert gradients(weft.sign, [-2.0, 0.0, 3.0]) == [[0.0, 0.0, 0.0]]
    assert gradients(weft.copysign, [-2.0, 0.0, 3.0], [1.0, 1.0, -1.0])[0] == [-1.0, 0.0, -1.0]


def test_gradient_of_clip_is_one_inside_and_at_the_ends() -> None:
    assert gradients(lambda x: weft.clip(x, -1.0, 1.0), [-2.0, -1.0, 0.0, 1.0, 2.0]) == [[0, 1, 1, 1, 0]]
    x, low, high = gradients(weft.clip, [-2.0, 0.0, 2.0, 0.0], [-1.0] * 4, [1.0, 1.0, 1.0, -3.0])
    assert (x, low, high) == ([0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1])


def test_rounding_has_gradient_zero() -> None:
    for function in (weft.floor, weft.ceil, weft.trunc, weft.round):
        assert gradients(function, [0.5, 1.0]) == [[0.0, 0.0]]


# Powers


def test_gradient_of_a_power_at_zero() -> None:
    assert gradients(lambda x: x**2, [0.0]) == [[0.0]]
    assert gradients(lambda x: x**2.0, [0.0]) == [[0.0]]
    assert gradients(lambda x: x**1.0, [0.0]) == [[1.0]]
    assert gradients(lambda x: x**0.0, [0.0, 2.0]) == [[0.0, 0.0]]
    assert gradients(lambda x: x**0.5, [0.0]) == [[inf]]
    assert gradients(weft.pow, [0.0, 0.0], [0.0, 2.0]) == [[0.0, 0.0], [0.0, 0.0]]
    assert gradients(weft.pow, [-2.0], [3.0])[0] == [12.0]


def test_second_derivative_of_a_power_at_zero() -> None:
    assert second_derivative(lambda x: x**2, 0.0) == 2.0
    assert second_derivative(lambda x: x**2.0, 0.0) == 2.0
    assert second_derivative(lambda x: x**3.0, 0.0) == 0.0
    assert second_derivative(lambda x: x**1.0, 0.0) == 0.0
    assert second_derivative(lambda x: x**0.0, 0.0) == 0.0


# Poles beside a branch that where did not take


@pytest.mark.parametrize(
    "function",
    [
        lambda x: weft.sqrt(x),
        lambda x: weft.log(x),
        lambda x: 1 / x,
        lambda x: weft.rsqrt(x),
        lambda x: x**0.5,
        lambda x: weft.acosh(x + 1),
        lambda x: weft.asin(x + 1),
        lambda x: weft.atanh(x + 1),
        lambda x: weft.erfinv(x + 1),
        lambda x: weft.lgamma(x),
        lambda x: weft.digamma(x),
        lambda x: weft.hypot(x, 0 * x),
        lambda x: weft.atan2(x, x),
    ],
)
def test_branch_not_taken_leaks_no_nan(function: Callable[..., Any]) -> None:
    def safe(x: Any) -> Any:
        return weft.where(x == 0, x * 3, function(x))

    assert gradients(safe, [0.0]) == [[3.0]]
    assert second_derivative(safe, 0.0) == 0.0


def test_gradients_at_the_origin_are_zero() -> None:
    assert gradients(weft.hypot, [0.0], [0.0]) == [[0.0], [0.0]]
    assert gradients(weft.atan2, [0.0], [0.0]) == [[0.0], [-0.0]]


def test_gradient_of_logaddexp_of_equal_infinities_is_shared() -> None:
    assert gradients(weft.logaddexp, [-inf, inf, 1e3], [-inf, inf, 1e3]) == [[0.5, 0.5, 0.5]] * 2
    assert gradients(weft.logaddexp, [-inf], [0.0]) == [[0.0], [1.0]]


def test_gradient_of_sigmoid_far_out_is_zero() -> None:
    assert gradients(weft.sigmoid, [-1e4, 1e4]) == [[0.0, 0.0]]
    assert weft.sigmoid(weft.tensor([-1e4, 1e4])).tolist() == [0.0, 1.0]


# Complex numbers, in the convention of conjugate Wirtinger derivatives


def complex_gradient(function: Callable[..., Any], z: complex) -> complex:
    x = weft.tensor(z, dtype=weft.complex128, requires_grad=True)
    function(x).backward()
    value: complex = x.grad.item()
    return value


def test_gradient_of_a_real_function_points_uphill() -> None:
    z = 3 + 4j
    assert complex_gradient(abs, z) == pytest.approx(z / 5)
    assert complex_gradient(lambda x: x.real, z) == 1
    assert complex_gradient(lambda x: x.imag, z) == 1j
    assert complex_gradient(lambda x: (x * x.conj()).real, z) == pytest.approx(2 * z)
    assert complex_gradient(weft.angle, z) == pytest.approx(1j * z / 25)
    assert complex_gradient(lambda x: weft.sign(x).real, z) == pytest.approx((1 - z / 5 * 0.6) / 5)


def test_gradient_of_a_holomorphic_function_is_the_conjugate_derivative() -> None:
    z = 0.3 - 0.7j
    assert complex_gradient(lambda x: weft.exp(x).real, z) == pytest.approx(np.conj(np.exp(z)))
    assert complex_gradient(lambda x: (x**3).real, z) == pytest.approx(np.conj(3 * z**2))
    assert complex_gradient(lambda x: (1 / x).imag, z) == pytest.approx(1j * np.conj(-1 / z**2))


def test_gradients_at_the_complex_origin_are_zero() -> None:
    for function in (abs, weft.angle, lambda x: weft.sign(x).real):
        assert complex_gradient(function, 0j) == 0


def test_complex_takes_parts_and_gives_their_gradients() -> None:
    re, im = (weft.tensor(v, requires_grad=True) for v in ([1.0, 2.0], 3.0))
    z = weft.complex(re, im)
    assert z.tolist() == [1 + 3j, 2 + 3j]
    (abs(z) ** 2).sum().backward()
    np.testing.assert_allclose(re.grad.numpy(), [2.0, 4.0], rtol=1e-6)
    np.testing.assert_allclose(im.grad.numpy(), 12.0, rtol=1e-6)


def test_parts_of_real_numbers() -> None:
    x = weft.tensor([1.0, -2.0])
    assert weft.real(x) is x
    assert weft.conj(x) is x
    assert weft.imag(x).tolist() == [0.0, 0.0]
    assert weft.angle(x).tolist() == pytest.approx([0.0, np.pi])


# Functions with arguments


def test_clip_takes_either_end_numbers_and_tensors() -> None:
    x = weft.tensor([-2, 0, 5], dtype=weft.int8)
    assert weft.clip(x, min=-1).tolist() == [-1, 0, 5]
    assert weft.clip(x, max=300).tolist() == [-2, 0, 5]
    assert weft.clip(x, weft.tensor([0, 1, 2], dtype=weft.int8), 3).tolist() == [0, 1, 3]
    assert weft.clip(x).tolist() == [-2, 0, 5]
    assert weft.clip(x, 0, 1).dtype == weft.int8
    assert weft.clip(weft.tensor([0.5]), 0, 1).tolist() == [0.5]
    with pytest.raises(DtypeError, match=r"clip: bounds must be integers for int8, got 0.5"):
        weft.clip(x, 0.5)


def test_lerp_isclose_and_nan_to_num() -> None:
    assert weft.lerp(weft.tensor(0.0), weft.tensor(10.0), 0.25).item() == 2.5
    assert weft.isclose(weft.tensor([1, 2]), weft.tensor([1, 3])).tolist() == [True, False]
    assert weft.allclose(weft.tensor([inf, 1.0]), weft.tensor([inf, 1.0 + 1e-7]))
    assert not weft.allclose(weft.tensor([nan]), weft.tensor([nan]))
    assert weft.allclose(weft.tensor([nan]), weft.tensor([nan]), equal_nan=True)
    assert gradients(weft.nan_to_num, [nan, 1.0, inf]) == [[0.0, 1.0, 0.0]]
