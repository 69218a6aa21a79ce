"""Layers that draw: what they drop, what they keep on average, and that evaluation draws nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn


@pytest.mark.parametrize(("layer", "rank"), [(nn.Dropout1d, 1), (nn.Dropout2d, 2), (nn.Dropout3d, 3)])
def test_channels_are_dropped_whole(layer: Callable[..., Any], rank: int) -> None:
    weft.manual_seed(0)
    out = layer(0.25)(weft.ones((40, 50, *(3,) * rank))).numpy().reshape(40, 50, -1)
    assert (out == out[..., :1]).all()
    kept = out[..., 0]
    np.testing.assert_allclose(np.unique(kept), [0.0, 4 / 3], rtol=1e-6)
    assert (kept == 0).mean() == pytest.approx(0.25, abs=0.04)


@pytest.mark.parametrize("layer", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_keeps_mean_and_variance(layer: Callable[..., Any]) -> None:
    weft.manual_seed(0)
    out = layer(0.3)(weft.randn(100, 200, 5)).numpy()
    assert out.mean() == pytest.approx(0.0, abs=0.03)
    assert out.std() == pytest.approx(1.0, abs=0.03)


def test_feature_alpha_dropout_saturates_whole_channels() -> None:
    weft.manual_seed(0)
    out = nn.FeatureAlphaDropout(0.5)(weft.randn(10, 20, 6)).numpy()
    dropped = out.std(axis=2) == 0
    assert dropped.mean() == pytest.approx(0.5, abs=0.15)
    assert len(np.unique(out[dropped].round(4))) == 1


def test_random_slopes_lie_between_their_bounds() -> None:
    weft.manual_seed(0)
    x = weft.concat([-weft.ones(5000), weft.ones(5)]).requires_grad_()
    out = nn.RReLU(0.1, 0.3)(x)
    slopes = -out[:5000].detach().numpy()
    assert 0.1 <= slopes.min() < 0.105
    assert 0.295 < slopes.max() <= 0.3
    assert slopes.mean() == pytest.approx(0.2, abs=0.005)
    assert (out[5000:] == 1).all()
    out.sum().backward()
    np.testing.assert_allclose(x.grad.numpy()[:5000], slopes, rtol=1e-6)


RANDOM: dict[str, Callable[[], Any]] = {
    "dropout": lambda: nn.Dropout(0.5),
    "dropout2d": lambda: nn.Dropout2d(0.5),
    "alpha": lambda: nn.AlphaDropout(0.5),
    "rrelu": nn.RReLU,
}


@pytest.mark.parametrize("name", RANDOM)
def test_seed_repeats_draws_and_evaluation_draws_nothing(name: str) -> None:
    layer, x = RANDOM[name](), -weft.ones((2, 8, 3, 3))
    runs = []
    for seed in (1, 1, 2):
        weft.manual_seed(seed)
        runs.append(layer(x).numpy())
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    layer.eval()
    state = weft.get_rng_state()
    np.testing.assert_array_equal(layer(x).numpy(), layer(x).numpy())
    assert weft.get_rng_state().tolist() == state.tolist()


@pytest.mark.parametrize("name", RANDOM)
def test_compiled_layer_draws_what_the_eager_one_does(name: str) -> None:
    layer, x = RANDOM[name](), -weft.ones((2, 8, 3, 3))
    compiled = weft.compile(lambda x: layer(x), backend="interpret")
    weft.manual_seed(5)
    eager = [layer(x).numpy() for _ in range(2)]
    weft.manual_seed(5)
    for expected in eager:
        np.testing.assert_allclose(compiled(x).numpy(), expected, rtol=1e-6)
