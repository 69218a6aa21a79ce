"""The workloads of the benchmark in weft, at small sizes: right results, and losses that fall."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from bench.case import Arrays, Run
from bench.serve import all_numbers
from bench.workloads import mlp

SMALL: dict[str, dict[str, int]] = {
    "cnn": {"BATCH": 2},
    "gpt": {"LAYERS": 2, "WIDTH": 16, "HEADS": 2, "LENGTH": 8, "BATCH": 2, "VOCABULARY": 11},
    "lstm": {"HIDDEN": 3, "INPUTS": 2, "TIMES": 4, "BATCH": 2},
    "elementwise": {"COUNT": 50},
    "softmax": {},
    "layer_norm": {"ROWS": 3, "WIDTH": 5},
    "newton": {"COUNT": 7},
    "gmm": {"POINTS": 4, "DIMENSIONS": 3, "COMPONENTS": 2},
    "bundle": {"OBSERVATIONS": 3, "CAMERAS": 2, "POINTS": 3},
    "kmeans": {"POINTS": 24, "DIMENSIONS": 2, "CENTRES": 3, "ITERATIONS": 3},
    "heat": {"SIZE": 6, "STEPS": 4},
    "floyd": {"NODES": 5},
    "ode": {"END": 2},
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function from the name of a workload to its module, small, and its data."""

    def shrink(name: str) -> tuple[Any, Arrays]:
        module = import_module(f"bench.workloads.{name}")
        for constant, value in SMALL[name].items():
            monkeypatch.setattr(module, constant, value)
        return module, module.arrays(np.random.default_rng(0))

    return shrink


def numbers(run: Run) -> np.ndarray:
    """What a step gives; twice, because the second call takes another way through the compiler."""
    first, second = all_numbers(run.step()), all_numbers(run.step())
    np.testing.assert_array_equal(first, second)
    return first


def slope(f: Any, arrays: list[np.ndarray], place: int, step: float = 1e-5) -> np.ndarray:
    """The gradient of a function by one array, by differences in double precision."""
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    out = np.zeros_like(wide[place])
    for i in np.ndindex(out.shape):
        ends = []
        for sign in (1, -1):
            moved = [a.copy() for a in wide]
            moved[place][i] += sign * step
            ends.append(f(*moved))
        out[i] = (ends[0] - ends[1]) / (2 * step)
    return out


# Training


def losses(run: Run, steps: int = 20) -> np.ndarray:
    return np.concatenate([all_numbers(run.step()) for _ in range(steps)])


@pytest.mark.parametrize("sizes", [(4, 8, 8, 1), (6, 8, 8, 3)])
def test_loss_of_a_network_falls(sizes: tuple[int, ...]) -> None:
    arrays = mlp.arrays(np.random.default_rng(0), sizes, batch=5)
    found = losses(mlp.in_weft(arrays, sizes))
    assert (np.diff(found) < 0).all()


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", ["cnn", "gpt"])
def test_loss_of_a_model_falls(name: str, small: Any) -> None:
    module, arrays = small(name)
    found = losses(module.in_weft(arrays), 5)
    assert (np.diff(found) < 0).all()


def test_lstm_gives_its_loss_and_gradients(small: Any) -> None:
    module, arrays = small("lstm")

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    def loss(wx: np.ndarray, wh: np.ndarray, b: np.ndarray, x: np.ndarray) -> float:
        h = c = np.zeros((2, 3))
        for row in x:
            i, f, g, o = np.split(row @ wx + h @ wh + b, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        return float((h * h).mean())

    data = [arrays[n] for n in ("wx", "wh", "b", "x")]
    right = [np.array([loss(*data)]), *[slope(loss, data, i).ravel() for i in range(3)]]
    np.testing.assert_allclose(numbers(module.in_weft(arrays)), np.concatenate(right), rtol=1e-3, atol=1e-6)


# Kernels


def test_elementwise_gives_its_value_and_gradient(small: Any) -> None:
    module, arrays = small("elementwise")

    def f(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
        return float(np.mean(np.tanh(x * a + b) * np.exp(-x * x) + np.log1p(np.abs(x))))

    data = [arrays[n] for n in ("x", "a", "b")]
    found = numbers(module.in_weft(arrays, gradient=True))
    np.testing.assert_allclose(found[0], f(*data), rtol=1e-5)
    np.testing.assert_allclose(found[1:], slope(f, data, 0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(numbers(module.in_weft(arrays, gradient=False)), f(*data), rtol=1e-5)


def test_softmax_gives_its_rows_and_gradient(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module, _ = small("softmax")
    monkeypatch.setattr(module, "SHAPE", (3, 4))
    arrays = module.arrays(np.random.default_rng(0))

    def softmax(x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def loss(x: np.ndarray, w: np.ndarray) -> float:
        return float((softmax(x) * w).sum())

    data = [arrays["x"], arrays["w"]]
    forward = numbers(module.in_weft(arrays, gradient=False))
    np.testing.assert_allclose(forward, softmax(arrays["x"]).ravel(), rtol=1e-5)
    found = numbers(module.in_weft(arrays, gradient=True))
    np.testing.assert_allclose(found[1:], slope(loss, data, 0).ravel(), rtol=1e-3, atol=1e-5)


def test_layer_norm_gives_its_rows_and_gradients(small: Any) -> None:
    module, arrays = small("layer_norm")

    def norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift

    def loss(x: np.ndarray, scale: np.ndarray, shift: np.ndarray, w: np.ndarray) -> float:
        return float((norm(x, scale, shift) * w).sum())

    data = [arrays[n] for n in ("x", "scale", "shift", "w")]
    forward = numbers(module.in_weft(arrays, gradient=False))
    np.testing.assert_allclose(forward, norm(*data[:3]).ravel(), rtol=1e-4, atol=1e-5)
    right = np.concatenate([slope(loss, data, i).ravel() for i in range(3)])
    np.testing.assert_allclose(
        numbers(module.in_weft(arrays, gradient=True))[1:], right, rtol=1e-3, atol=1e-4
    )


def test_newton_gives_roots_and_their_gradient(small: Any) -> None:
    module, arrays = small("newton")
    root = np.sqrt(arrays["a"])
    np.testing.assert_allclose(numbers(module.in_weft(arrays, gradient=False)), root, rtol=1e-4)
    np.testing.assert_allclose(numbers(module.in_weft(arrays, gradient=True)), 0.5 / root, rtol=1e-4)


def test_inference_gives_the_network_of_numpy() -> None:
    from bench.workloads import inference

    arrays = mlp.arrays(np.random.default_rng(0), mlp.TINY, batch=1)
    x = arrays["x"]
    for i in (0, 2, 4):
        x = x @ arrays[f"{i}.weight"].T + arrays[f"{i}.bias"]
        x = np.maximum(x, 0) if i < 4 else x
    np.testing.assert_allclose(numbers(inference.in_weft(arrays)), x.ravel(), rtol=1e-4)


# Loops


def logsumexp(x: np.ndarray) -> float:
    return float(np.log(np.exp(x).sum()))


def test_gmm_gives_the_gradient_of_the_likelihood(small: Any) -> None:
    module, arrays = small("gmm")

    def likelihood(
        alphas: np.ndarray, means: np.ndarray, logs: np.ndarray, lower: np.ndarray, x: np.ndarray
    ) -> float:
        total = -len(x) * logsumexp(alphas)
        for point in x:
            y = [
                np.exp(r) * (point - m) + np.tril(f, -1) @ (point - m)
                for r, m, f in zip(logs, means, lower, strict=True)
            ]
            total += logsumexp(alphas + logs.sum(1) - 0.5 * (np.array(y) ** 2).sum(1))
        return total

    data = [arrays[n] for n in (*module.PARAMETERS, "x")]
    right = np.concatenate([slope(likelihood, data, i).ravel() for i in range(4)])
    np.testing.assert_allclose(numbers(module.in_weft(arrays)), right, rtol=1e-3, atol=1e-4)


def test_bundle_gives_the_jacobian(small: Any) -> None:
    module, arrays = small("bundle")
    right = np.zeros((3, 2, 15))
    for i in range(3):
        camera, point = arrays["cameras"][arrays["camera"][i]], arrays["points"][arrays["point"][i]]
        q, seen = np.concatenate([camera, point, arrays["weights"][i : i + 1]]), arrays["seen"][i]
        for k in range(2):
            right[i, k] = slope(lambda q, seen, k=k: float(module.residuals(q, seen, np)[k]), [q, seen], 0)
    np.testing.assert_allclose(numbers(module.in_weft(arrays)), right.ravel(), rtol=1e-3, atol=1e-4)


def test_kmeans_moves_centres_to_the_means_of_their_points(small: Any) -> None:
    module, arrays = small("kmeans")
    centres, points = arrays["centres"], arrays["points"]
    for _ in range(3):
        nearest = ((points[:, None] - centres) ** 2).sum(-1).argmin(1)
        centres = np.array([points[nearest == c].mean(0) for c in range(3)])
    np.testing.assert_allclose(numbers(module.in_weft(arrays)), centres.ravel(), rtol=1e-4)


def test_heat_spreads(small: Any) -> None:
    module, arrays = small("heat")
    u = arrays["u"].astype(np.float64)
    for _ in range(4):
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        u[1:-1, 1:-1] += 0.2 * (around - 4 * u[1:-1, 1:-1])
    np.testing.assert_allclose(numbers(module.in_weft(arrays)), u.ravel(), rtol=1e-5)


def test_floyd_finds_shortest_paths(small: Any) -> None:
    module, arrays = small("floyd")
    d = arrays["d"].copy()
    for k in range(5):
        d = np.minimum(d, d[:, k, None] + d[k])
    np.testing.assert_allclose(numbers(module.in_weft(arrays)), d.ravel(), rtol=1e-6)
    assert (arrays["d"] != d).any()


def test_ode_ends_where_scipy_does(small: Any) -> None:
    from scipy.integrate import solve_ivp

    module, arrays = small("ode")

    def slope(t: float, s: np.ndarray) -> list[float]:
        return [s[1], 5 * (1 - s[0] * s[0]) * s[1] - s[0]]

    right = solve_ivp(slope, (0, 2), arrays["start"], rtol=1e-8, atol=1e-8).y[:, -1]
    np.testing.assert_allclose(numbers(module.in_weft(arrays)), right, rtol=1e-3)
