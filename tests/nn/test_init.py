"""Where parameters start: means, spreads, bounds and structure of what ``nn.init`` and the layers draw."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, exp, pi, sqrt
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn

SHAPE = (120, 60, 3)
FAN_IN, FAN_OUT = 180, 360


def drawn(fill: Callable[[Any], Any], shape: tuple[int, ...] = SHAPE) -> np.ndarray[Any, Any]:
    weft.manual_seed(7)
    tensor = weft.empty(shape)
    assert fill(tensor) is tensor
    return np.asarray(tensor.numpy(), np.float64)


def check_uniform(values: Any, low: float, high: float) -> None:
    """Within bounds that are almost reached, with the mean and spread of a uniform distribution."""
    width = high - low
    assert low <= values.min() < low + 0.02 * width
    assert high >= values.max() > high - 0.02 * width
    assert values.mean() == pytest.approx((low + high) / 2, abs=0.01 * width)
    assert values.std() == pytest.approx(width / sqrt(12), rel=0.02)


def check_normal(values: Any, mean: float, std: float) -> None:
    """The mean, the spread and the tails of a normal distribution."""
    assert values.mean() == pytest.approx(mean, abs=0.03 * std)
    assert values.std() == pytest.approx(std, rel=0.02)
    beyond = np.mean(np.abs(values - mean) > 2 * std)
    assert beyond == pytest.approx(1 - erf(sqrt(2.0)), abs=0.01)
    assert np.abs(values - mean).max() > 3 * std


def test_uniform() -> None:
    check_uniform(drawn(nn.init.uniform_), 0.0, 1.0)
    check_uniform(drawn(lambda t: nn.init.uniform_(t, -3.0, 1.0)), -3.0, 1.0)


def test_normal() -> None:
    check_normal(drawn(lambda t: nn.init.normal_(t, 2.0, 0.5)), 2.0, 0.5)


def test_truncated_normal() -> None:
    values = drawn(nn.init.trunc_normal_)
    density = exp(-2.0) / sqrt(2 * pi)
    variance = 1 - 2 * 2 * density / erf(2 / sqrt(2.0))
    assert np.abs(values).max() <= 2.0
    assert np.abs(values).max() > 1.99
    assert values.mean() == pytest.approx(0.0, abs=0.02)
    assert values.std() == pytest.approx(sqrt(variance), rel=0.02)
    shifted = drawn(lambda t: nn.init.trunc_normal_(t, 1.0, 0.02, 0.99, 1.05))
    assert 0.99 <= shifted.min() < shifted.max() <= 1.05


@pytest.mark.parametrize("gain", [1.0, 2.5])
def test_xavier_keeps_both_fans(gain: float) -> None:
    std = gain * sqrt(2 / (FAN_IN + FAN_OUT))
    check_normal(drawn(lambda t: nn.init.xavier_normal_(t, gain)), 0.0, std)
    bound = sqrt(3.0) * std
    check_uniform(drawn(lambda t: nn.init.xavier_uniform_(t, gain)), -bound, bound)


@pytest.mark.parametrize(
    ("settings", "gain", "fan"),
    [
        ({}, sqrt(2.0), FAN_IN),
        ({"a": sqrt(5.0)}, sqrt(1 / 3), FAN_IN),
        ({"mode": "fan_out", "nonlinearity": "relu"}, sqrt(2.0), FAN_OUT),
        ({"nonlinearity": "tanh"}, 5 / 3, FAN_IN),
    ],
)
def test_kaiming_keeps_one_fan(settings: dict[str, Any], gain: float, fan: int) -> None:
    std = gain / sqrt(fan)
    check_normal(drawn(lambda t: nn.init.kaiming_normal_(t, **settings)), 0.0, std)
    bound = sqrt(3.0) * std
    check_uniform(drawn(lambda t: nn.init.kaiming_uniform_(t, **settings)), -bound, bound)


@pytest.mark.parametrize("shape", [(5, 5), (3, 8), (8, 3), (4, 2, 3)])
def test_orthogonal_rows_or_columns_are_orthonormal(shape: tuple[int, ...]) -> None:
    matrix = drawn(lambda t: nn.init.orthogonal_(t, gain=2.0), shape).reshape(shape[0], -1) / 2.0
    product = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, np.eye(len(product)), atol=1e-5)


def test_orthogonal_matrices_differ_and_have_both_signs() -> None:
    weft.manual_seed(0)
    corners = [nn.init.orthogonal_(weft.empty((4, 4)))[0, 0].item() for _ in range(40)]
    assert min(corners) < -0.2
    assert max(corners) > 0.2


def test_sparse_columns_have_as_many_zeros_as_asked_for() -> None:
    values = drawn(lambda t: nn.init.sparse_(t, 0.3, std=0.5), (401, 50))
    assert ((values == 0).sum(axis=0) == 121).all()
    assert len(np.unique((values == 0).argmax(axis=0))) > 3
    check_normal(values[values != 0], 0.0, 0.5)


def test_constants_and_units() -> None:
    assert (drawn(lambda t: nn.init.constant_(t, 3.5)) == 3.5).all()
    assert (drawn(nn.init.ones_) == 1).all()
    assert (drawn(nn.init.zeros_) == 0).all()
    np.testing.assert_array_equal(drawn(nn.init.eye_, (3, 5)), np.eye(3, 5))


@pytest.mark.parametrize("groups", [1, 2])
def test_dirac_passes_channels_on(groups: int) -> None:
    convolution = nn.Conv2d(4, 4, 3, padding=1, groups=groups, bias=False)
    nn.init.dirac_(convolution.weight, groups)
    x = weft.randn(2, 4, 5, 6)
    np.testing.assert_allclose(convolution(x).detach().numpy(), x.numpy(), atol=1e-6)
    with pytest.raises(weft.errors.DomainError, match="groups must divide 4 channels, got 3"):
        nn.init.dirac_(convolution.weight, 3)


def test_generator_makes_draws_repeatable() -> None:
    fills = [
        nn.init.uniform_,
        nn.init.normal_,
        nn.init.trunc_normal_,
        nn.init.xavier_normal_,
        nn.init.kaiming_uniform_,
        nn.init.orthogonal_,
        lambda t, generator: nn.init.sparse_(t, 0.5, generator=generator),
    ]
    for fill in fills:
        a, b = (fill(weft.empty((4, 4)), generator=weft.Generator().manual_seed(3)) for _ in range(2))
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_filling_a_parameter_keeps_it_and_its_dtype() -> None:
    w = nn.Parameter(weft.empty((3, 3), dtype=weft.float64))
    for fill in (nn.init.orthogonal_, nn.init.xavier_normal_, nn.init.eye_, nn.init.trunc_normal_):
        assert fill(w) is w
        assert w.dtype == weft.float64
        assert w.requires_grad
        assert w.is_leaf


@pytest.mark.parametrize(
    ("name", "param", "gain"),
    [
        ("linear", None, 1.0),
        ("conv2d", None, 1.0),
        ("conv_transpose3d", None, 1.0),
        ("sigmoid", None, 1.0),
        ("tanh", None, 5 / 3),
        ("relu", None, sqrt(2.0)),
        ("selu", None, 0.75),
        ("leaky_relu", None, sqrt(2 / 1.0001)),
        ("leaky_relu", 0.2, sqrt(2 / 1.04)),
    ],
)
def test_gains(name: str, param: float | None, gain: float) -> None:
    assert nn.init.calculate_gain(name, param) == pytest.approx(gain)


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (lambda: nn.init.calculate_gain("sine"), "must be one of linear, sigmoid"),
        (lambda: nn.init.xavier_uniform_(weft.empty(3)), "at least two axes, got shape (3,)"),
        (
            lambda: nn.init.kaiming_normal_(weft.empty((3, 3)), mode="fan"),
            "mode must be 'fan_in' or 'fan_out'",
        ),
        (lambda: nn.init.orthogonal_(weft.empty(3)), "at least two axes"),
        (lambda: nn.init.eye_(weft.empty((2, 2, 2))), "must have two axes, got shape (2, 2, 2)"),
        (lambda: nn.init.sparse_(weft.empty(2), 0.5), "must have two axes"),
        (lambda: nn.init.dirac_(weft.empty((2, 2))), "must have 3, 4 or 5 axes"),
    ],
)
def test_wrong_arguments_are_named(fill: Any, message: str) -> None:
    with pytest.raises(weft.errors.WeftError) as error:
        fill()
    assert message in str(error.value)


# Layers

UNIFORM: dict[str, tuple[Callable[[], Any], str, float]] = {
    "linear weight": (lambda: nn.Linear(400, 300), "weight", 1 / 20),
    "linear bias": (lambda: nn.Linear(25, 5000), "bias", 1 / 5),
    "bilinear": (lambda: nn.Bilinear(100, 20, 20), "weight", 1 / 10),
    "conv1d": (lambda: nn.Conv1d(20, 300, 5), "weight", 1 / 10),
    "conv2d": (lambda: nn.Conv2d(16, 100, 5), "weight", 1 / 20),
    "conv2d groups": (lambda: nn.Conv2d(16, 100, 5, groups=4), "weight", 1 / 10),
    "conv2d bias": (lambda: nn.Conv2d(16, 9000, 1, groups=4), "bias", 1 / 2),
    "conv3d": (lambda: nn.Conv3d(4, 300, 5), "weight", 1 / sqrt(500)),
    "transposed": (lambda: nn.ConvTranspose2d(50, 36, 5), "weight", 1 / 30),
    "rnn": (lambda: nn.RNN(7, 400), "weight_hh_l0", 1 / 20),
    "gru": (lambda: nn.GRU(50, 100, 2), "weight_ih_l1", 1 / 10),
    "lstm": (lambda: nn.LSTM(50, 100, proj_size=50), "weight_hr_l0", 1 / 10),
    "cell": (lambda: nn.LSTMCell(50, 100), "weight_ih", 1 / 10),
    "attention": (lambda: nn.MultiheadAttention(150, 2), "in_proj_weight", sqrt(6 / 600)),
    "attention of keys": (lambda: nn.MultiheadAttention(150, 2, kdim=50), "k_proj_weight", sqrt(6 / 200)),
    "attention output": (lambda: nn.MultiheadAttention(100, 2), "out_proj.weight", 1 / 10),
    "transformer": (
        lambda: nn.Transformer(16, 2, 1, 1, 1008),
        "encoder.layers.0.linear1.weight",
        sqrt(6 / 1024),
    ),
}


@pytest.mark.parametrize("name", UNIFORM)
def test_layer_starts_uniform_within_pytorchs_bound(name: str) -> None:
    make, path, bound = UNIFORM[name]
    weft.manual_seed(3)
    check_uniform(make().get_parameter(path).detach().numpy(), -bound, bound)


def test_embeddings_start_normal() -> None:
    weft.manual_seed(3)
    check_normal(nn.Embedding(200, 80).weight.detach().numpy(), 0.0, 1.0)
    check_normal(nn.EmbeddingBag(200, 80).weight.detach().numpy(), 0.0, 1.0)
    layers = [nn.MultiheadAttention(400, 2, add_bias_kv=True, bias=False, kdim=1, vdim=1) for _ in range(12)]
    added = np.concatenate([layer.bias_k.detach().numpy().ravel() for layer in layers])
    check_normal(added, 0.0, sqrt(2 / (400 + 400)))


def test_norms_and_biases_start_as_ones_and_zeros() -> None:
    for layer in (nn.LayerNorm(3), nn.GroupNorm(1, 3), nn.BatchNorm2d(3), nn.InstanceNorm1d(3, affine=True)):
        assert (layer.weight == 1).all()
        assert (layer.bias == 0).all()
    attention = nn.MultiheadAttention(4, 2)
    assert (attention.in_proj_bias == 0).all()
    assert (attention.out_proj.bias == 0).all()
    assert (nn.PReLU(3).weight == 0.25).all()


@pytest.mark.parametrize(
    "make", [lambda: nn.Linear(3, 3), lambda: nn.Conv1d(2, 2, 2), lambda: nn.GRU(2, 3), lambda: nn.PReLU(2)]
)
def test_reset_parameters_starts_again(make: Callable[[], Any]) -> None:
    layer = make()
    before = layer.state_dict()
    with weft.no_grad():
        for p in layer.parameters():
            p += 100.0
    layer.reset_parameters()
    for name, value in layer.state_dict().items():
        assert abs(value).max().item() < 2.0
        assert value.shape == before[name].shape
