"""weft.special beside SciPy: whole ranges, special values, gradients at seams, and SciPy given tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import weft

EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, np.inf, -np.inf, np.nan])
WIDE = np.concatenate([-np.logspace(-10, 5, 301), np.logspace(-10, 5, 301), np.linspace(-40, 40, 801)])
CHANCES = np.concatenate(
    [np.logspace(-300, -0.001, 301), np.linspace(0.2, 0.8, 301), 1 - np.logspace(-15, -1, 50)]
)

RANGES = {
    "entr": WIDE,
    "erf": WIDE,
    "erfc": WIDE,
    "expit": WIDE,
    "log_expit": WIDE,
    "log_ndtr": WIDE,
    "logit": CHANCES,
    "ndtr": WIDE,
    "ndtri": CHANCES,
    "sinc": np.linspace(-3.1, 3.1, 1001),
}


@pytest.mark.parametrize("name", RANGES)
def test_values_are_scipys_over_the_whole_range(name: str) -> None:
    x = np.concatenate([RANGES[name], EDGES])
    found = getattr(weft.special, name)(weft.asarray(x)).numpy()
    with np.errstate(all="ignore"):
        expected = getattr(special, name)(x)
    if name == "sinc":  # exactly 0 at whole numbers, where SciPy has the sine of a rounded multiple of pi
        expected = np.where((x == np.round(x)) & (x != 0) & np.isfinite(x), 0, expected)
    np.testing.assert_allclose(found, expected, rtol=2e-13, atol=1e-300)


@pytest.mark.parametrize("name", RANGES)
def test_float32_is_as_precise_as_it_can_be(name: str) -> None:
    x = np.concatenate([RANGES[name], EDGES]).astype(np.float32)
    found = getattr(weft.special, name)(weft.asarray(x))
    assert found.dtype == weft.float32
    with np.errstate(all="ignore"):
        expected = getattr(special, name)(x.astype(np.float64)).astype(np.float32)
    near_roots = 2e-7 if name == "sinc" else 1e-37  # the angle is rounded
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=near_roots)


def _shapes_and_places() -> tuple[Any, Any]:
    shapes = np.logspace(-8, 6, 57)
    near = np.outer(np.concatenate([np.logspace(-8, 4, 25), np.linspace(0.6, 1.6, 21)]), shapes)
    far = np.outer(np.logspace(-10, 3, 30), np.ones(57))
    places = np.concatenate([near, far])
    return np.broadcast_to(shapes, places.shape), places


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma_functions_are_scipys(name: str) -> None:
    a, x = _shapes_and_places()
    found = getattr(weft.special, name)(weft.asarray(a), weft.asarray(x)).numpy()
    expected, other = special.gammainc(a, x), special.gammaincc(a, x)
    expected = expected if name == "gammainc" else other
    seen = expected > 1e-290
    if name == "gammaincc":  # below 1 it is what is left of 1
        np.testing.assert_allclose(found[x <= 1], expected[x <= 1], atol=1e-14, rtol=1e-12)
        seen &= x > 1
    np.testing.assert_allclose(found[seen], expected[seen], rtol=1e-11)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma_functions_at_the_ends_are_scipys(name: str) -> None:
    a, x = (v.reshape(-1) for v in np.meshgrid(EDGES, EDGES))
    found = getattr(weft.special, name)(weft.asarray(a), weft.asarray(x)).numpy()
    np.testing.assert_allclose(found, getattr(special, name)(a, x), rtol=1e-12)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_gradients_of_the_incomplete_gamma_function(compiled: bool) -> None:
    a, x = np.array([0.3, 0.3, 2.0, 2.0, 15.0, 15.0, 400.0]), np.array([0.5, 3.0, 0.9, 5.0, 9.0, 20.0, 390.0])
    slopes: Any = weft.grad(lambda a, x: weft.special.gammainc(a, x).sum(), argnums=(0, 1))
    by_a, by_x = (weft.compile(slopes) if compiled else slopes)(weft.asarray(a), weft.asarray(x))
    np.testing.assert_allclose(by_x.numpy(), stats.gamma(a).pdf(x), rtol=1e-10)
    h = 1e-4 * a
    ends = [special.gammainc(a + s * h, x) for s in (-2, -1, 1, 2)]
    difference = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * h)
    np.testing.assert_allclose(by_a.numpy(), difference, rtol=1e-8)


def _beta_shapes_and_places() -> tuple[Any, Any, Any]:
    a, b = (v.reshape(-1) for v in np.meshgrid(np.logspace(-8, 6, 15), np.logspace(-8, 6, 15)))
    mean, deviation = a / (a + b), np.sqrt(a * b / (a + b + 1)) / (a + b)
    anywhere = np.concatenate(
        [np.logspace(-300, -1, 9), np.linspace(0.2, 0.8, 4), 1 - np.logspace(-12, -1, 6)]
    )
    near = np.clip(mean + np.linspace(-6, 6, 7)[:, None] * deviation, 1e-300, 1 - 1e-16)
    x = np.concatenate([np.outer(anywhere, np.ones(a.size)), near, np.outer(np.logspace(-6, -0.1, 6), mean)])
    return np.broadcast_to(a, x.shape), np.broadcast_to(b, x.shape), x


@pytest.mark.parametrize("name", ["betainc", "betaincc"])
def test_incomplete_beta_functions_are_scipys(name: str) -> None:
    a, b, x = _beta_shapes_and_places()
    found = getattr(weft.special, name)(*map(weft.asarray, (a, b, x))).numpy()
    expected = getattr(special, name)(a, b, x)
    off = a if name == "betaincc" else b  # of tiny shapes that hold almost all, the rest is what is left of 1
    seen = (expected > 1e-290) & (off >= 1e-4)
    np.testing.assert_allclose(found[seen], expected[seen], rtol=2e-10)  # SciPy's own error, see below
    np.testing.assert_allclose(found[off < 1e-4], expected[off < 1e-4], atol=4e-15, rtol=1e-12)


def test_incomplete_beta_function_where_scipy_is_coarse() -> None:
    cases = {  # by mpmath, of 50 digits
        (316.2, 31.62, 0.1): 1.7777420340789251e-274,
        (10.0, 1000000.0, 1e-05): 0.54208217098508464,
        (10.0, 1000000.0, 1.3e-05): 0.8341975689572485,
        (0.5, 50.0, 0.001): 0.24763098003462321,
        (250.0, 250.0, 0.4): 3.1568499595955654e-6,
        (10000.0, 10000.0, 0.49): 0.0023370593301101495,
        (0.003, 7.0, 0.2): 0.9996774623621424,
        (80.0, 0.01, 0.6): 5.710711123363472e-22,
        (100000.0, 300000.0, 0.249): 0.071968465988708748,
        (0.25, 2.0, 1e-200): 1.25e-50,
        (40.0, 900.0, 1e-05): 4.2193550486208046e-130,
        (2.0, 3.0, 0.999): 0.999999996003,
    }
    a, b, x = (np.array(v) for v in zip(*cases, strict=True))
    found = weft.special.betainc(*map(weft.asarray, (a, b, x))).numpy()
    np.testing.assert_allclose(found, list(cases.values()), rtol=2e-12)


@pytest.mark.parametrize("name", ["betainc", "betaincc"])
def test_incomplete_beta_functions_at_the_ends_are_scipys(name: str) -> None:
    shapes = [-np.inf, -1.0, -0.0, 0.0, 1e-300, 0.5, 2.0, 1e100, np.inf, np.nan]
    places = [-np.inf, -1e-300, -0.0, 0.0, 5e-324, 1e-310, 0.5, 0.999, 1.0, 1 + 1e-15, np.nan]
    a, b, x = (v.reshape(-1) for v in np.meshgrid(shapes, shapes, places))
    found = getattr(weft.special, name)(*map(weft.asarray, (a, b, x))).numpy()
    expected = getattr(special, name)(a, b, x)
    equal = (a == 1e-300) & (b == 1e-300) & (x > 0) & (x < 1)  # SciPy takes a side
    np.testing.assert_allclose(found, np.where(equal, 0.5, expected), rtol=1e-12, atol=3e-15)


def test_an_incomplete_beta_function_beside_1() -> None:
    x = 1 - np.logspace(-16, -2, 15)
    found = weft.special.betainc(weft.asarray(0.5), weft.asarray(0.5), weft.asarray(x)).numpy()
    np.testing.assert_allclose(1 - found, np.arcsin(np.sqrt(1 - x)) * 2 / np.pi, rtol=1e-12, atol=2e-16)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_gradients_of_the_incomplete_beta_function(compiled: bool) -> None:
    a = np.array([0.3, 0.3, 2.0, 2.0, 15.0, 400.0, 1e-3, 3.0, 1.0])
    b = np.array([0.5, 7.0, 3.0, 0.01, 25.0, 300.0, 1e-3, 1e5, 1.0])
    x = np.array([0.2, 0.5, 0.9, 0.999, 0.4, 0.57, 0.5, 2e-5, 0.5])
    slopes: Any = weft.grad(lambda *v: weft.special.betainc(*v).sum(), argnums=(0, 1, 2))
    found = (weft.compile(slopes) if compiled else slopes)(*map(weft.asarray, (a, b, x)))
    np.testing.assert_allclose(found[2].numpy(), stats.beta(a, b).pdf(x), rtol=1e-11)
    for i, by in enumerate(found[:2]):
        h = 1e-4 * (a, b)[i]
        ends = [special.betainc(a + s * h * (i == 0), b + s * h * (i == 1), x) for s in (-2, -1, 1, 2)]
        difference = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * h)
        np.testing.assert_allclose(by.numpy(), difference, rtol=1e-8)


@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_products_with_logarithms_are_scipys(name: str) -> None:
    x, y = (a.reshape(-1) for a in np.meshgrid(EDGES, EDGES))
    found = getattr(weft.special, name)(weft.asarray(x), weft.asarray(y)).numpy()
    one_ulp = np.finfo(np.float64).eps  # by which logarithms of C libraries differ
    np.testing.assert_allclose(found, getattr(special, name)(x, y), rtol=one_ulp, atol=0)


# where a function is put together of pieces, and at its special points
SLOPES: dict[str, dict[float, float]] = {
    "sinc": {0.0: 0.0, 0.003: -0.0098695, 0.0032: -0.0105273},
    "logit": {0.25: 16 / 3, 0.5: 4.0, 0.75: 16 / 3},
    "log_ndtr": {-1e4: 1e4 + 1e-4, 0.0: (2 / np.pi) ** 0.5, 50.0: 0.0},
    "entr": {0.0: 0.0, 1.0: -1.0},
    "ndtri": {0.5: (2 * np.pi) ** 0.5},
}


@pytest.mark.parametrize("name", SLOPES)
def test_gradients_at_seams(name: str) -> None:
    points, slopes = (np.array(list(part)) for part in (SLOPES[name], SLOPES[name].values()))
    function = getattr(weft.special, name)
    found = weft.grad(lambda x: function(x).sum())(weft.asarray(points))
    np.testing.assert_allclose(found.numpy(), slopes, rtol=1e-4, atol=1e-12)


def test_curvature_of_sinc_at_zero() -> None:
    curvature = weft.grad(weft.grad(weft.special.sinc))(weft.tensor(0.0, dtype=weft.float64))
    assert curvature.item() == pytest.approx(-(np.pi**2) / 3)


def test_logarithm_keeps_its_gradient_where_the_factor_is_zero() -> None:
    x, y = weft.zeros(3, dtype=weft.float64), weft.tensor([2.0, 0.0, -1.0], dtype=weft.float64)
    gradient = weft.grad(lambda x, y: weft.special.xlogy(x, y).sum(), argnums=(0, 1))
    by_x, by_y = gradient(x, y)
    assert by_x.tolist() == pytest.approx([np.log(2.0), 0.0, 0.0])
    assert by_y.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "name",
    ["entr", "erf", "erfc", "exp2", "expit", "gammaln", "log_ndtr", "logit", "ndtr", "ndtri", "psi", "sinc"],
)
def test_scipy_given_a_tensor_calls_wefts_function(name: str) -> None:
    x = weft.tensor([0.2, 0.4, 0.7], dtype=weft.float64, requires_grad=True)
    y = getattr(special, name)(x)
    assert y.requires_grad
    np.testing.assert_allclose(y.detach().numpy(), getattr(special, name)(x.detach().numpy()), rtol=1e-13)


def test_entropy_of_scipy_has_a_gradient() -> None:
    def entropy(p: Any) -> Any:
        return stats.entropy(p)

    p = weft.tensor([0.2, 0.3, 0.5], dtype=weft.float64, requires_grad=True)
    entropy(p).backward()
    q = p.detach().numpy()
    expected = (-np.log(q) - entropy(q)) / q.sum()
    np.testing.assert_allclose(p.grad.numpy(), expected, rtol=1e-12)
