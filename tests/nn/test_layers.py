"""Layers against PyTorch: results, gradients, running statistics and names of the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.nn.expected import part
from weft import nn

LAYERS: dict[str, Callable[[], Any]] = {
    "linear": lambda: nn.Linear(4, 3, dtype=weft.float64),
    "embedding": lambda: nn.Embedding(7, 3, padding_idx=2, dtype=weft.float64),
    "layer_norm": lambda: nn.LayerNorm(4, dtype=weft.float64),
    "rms_norm": lambda: nn.RMSNorm(4, eps=1e-5, dtype=weft.float64),
    "batch_norm1d": lambda: nn.BatchNorm1d(3, dtype=weft.float64),
    "batch_norm2d": lambda: nn.BatchNorm2d(3, dtype=weft.float64),
    "conv2d": lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2, dtype=weft.float64),
    "attention": lambda: nn.MultiheadAttention(8, 2, dtype=weft.float64),
    "attention_first": lambda: nn.MultiheadAttention(8, 4, batch_first=True, dtype=weft.float64),
    "encoder_layer": lambda: nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, batch_first=True, dtype=weft.float64
    ),
    "encoder_norm_first": lambda: nn.TransformerEncoderLayer(
        8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True, dtype=weft.float64
    ),
    "rnn_cell": lambda: nn.RNNCell(3, 4, dtype=weft.float64),
    "gru_cell": lambda: nn.GRUCell(3, 4, dtype=weft.float64),
    "lstm_cell": lambda: nn.LSTMCell(3, 4, dtype=weft.float64),
    "rnn": lambda: nn.RNN(3, 4, num_layers=2, nonlinearity="relu", dtype=weft.float64),
    "gru": lambda: nn.GRU(3, 4, num_layers=2, bidirectional=True, batch_first=True, dtype=weft.float64),
    "lstm": lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True, dtype=weft.float64),
}


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=1e-10, atol=1e-12)


def weighted_sum(outs: list[Any]) -> Any:
    """A loss that tells all elements of all outputs apart."""
    return sum((o * weft.cos(weft.arange(o.size, dtype=weft.float64)).reshape(o.shape)).sum() for o in outs)


@pytest.mark.parametrize("name", LAYERS)
def test_layer_computes_what_pytorch_does(name: str) -> None:
    layer = LAYERS[name]()
    state = part(f"{name}/state/")
    assert list(layer.state_dict()) == list(state)
    layer.load_state_dict(state)
    inputs = [weft.tensor(x) for x in part(f"{name}/in/").values()]
    for x in inputs:
        if x.dtype == weft.float64:
            x.requires_grad_()
    outs = weft.tree_leaves(layer(*inputs))
    for out, expected in zip(outs, part(f"{name}/out/").values(), strict=True):
        close(out, expected)
    weighted_sum(outs).backward()
    for i, expected in part(f"{name}/in_grad/").items():
        close(inputs[int(i)].grad, expected)
    parameters = dict(layer.named_parameters())
    for key, expected in part(f"{name}/grad/").items():
        close(parameters[key].grad, expected)
    for key, expected in part(f"{name}/after/").items():
        close(layer.state_dict()[key], expected)


@pytest.mark.parametrize("name", LAYERS)
def test_layer_has_pytorchs_names_and_shapes_of_state(name: str) -> None:
    found = {k: v.shape for k, v in LAYERS[name]().state_dict().items()}
    assert found == {k: v.shape for k, v in part(f"{name}/state/").items()}


def test_row_of_padding_starts_as_zeros() -> None:
    assert (nn.Embedding(200, 50, padding_idx=3).weight[3] == 0).all()


def test_batch_norm_uses_running_statistics_in_eval() -> None:
    layer = nn.BatchNorm1d(2)
    x = weft.randn(8, 2) * 3.0 + 1.0
    for _ in range(200):
        layer(x)
    out = layer.eval()(x)
    np.testing.assert_allclose(out.detach().numpy().mean(0), 0.0, atol=1e-3)
    assert int(layer.num_batches_tracked) == 200


def test_batch_norm_without_momentum_averages_over_batches() -> None:
    layer = nn.BatchNorm1d(1, momentum=None)
    for value in (1.0, 2.0, 6.0):
        layer(weft.tensor([[value - 1], [value + 1]]))
    np.testing.assert_allclose(layer.running_mean.numpy(), [3.0], rtol=1e-6)


def test_causal_attention_does_not_look_ahead() -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    x = weft.randn(1, 6, 8)
    changed = weft.concat([x[:, :4], weft.randn(1, 2, 8)], axis=1)
    for need_weights in (True, False):
        a, _ = layer(x, x, x, is_causal=True, need_weights=need_weights)
        b, _ = layer(changed, changed, changed, is_causal=True, need_weights=need_weights)
        np.testing.assert_allclose(a[:, :4].detach().numpy(), b[:, :4].detach().numpy(), atol=1e-6)
        assert not np.allclose(a[:, 4:].detach().numpy(), b[:, 4:].detach().numpy())


def test_attention_masks_hide_keys() -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    x = weft.randn(2, 3, 8)
    padding = weft.tensor([[False, False, True], [False, False, False]])
    _, weights = layer(x, x, x, key_padding_mask=padding)
    assert (weights[0, :, 2] == 0).all()
    future = weft.ones((3, 3), dtype=weft.bool).triu(1)
    for mask in (future, weft.where(future, -weft.inf, 0.0)):
        _, weights = layer(x, x, x, attn_mask=mask, key_padding_mask=padding)
        assert (weights[1, 0, 1:] == 0).all()
        assert (weights[0, :, 2] == 0).all()
        without, _ = layer(x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False)
        assert without.shape == (2, 3, 8)


def test_attention_without_a_batch_is_attention_of_a_batch_of_one() -> None:
    layer = nn.MultiheadAttention(8, 2)
    x = weft.randn(5, 8)
    out, weights = layer(x, x, x)
    batched, batched_weights = layer(x.unsqueeze(1), x.unsqueeze(1), x.unsqueeze(1))
    np.testing.assert_allclose(out.detach().numpy(), batched.squeeze(1).detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(
        weights.detach().numpy(), batched_weights.squeeze(0).detach().numpy(), atol=1e-6
    )


def test_recurrent_state_carries_a_sequence_on() -> None:
    layer = nn.LSTM(3, 4, dtype=weft.float64)
    x = weft.randn(6, 2, 3, dtype=weft.float64)
    whole, (h, c) = layer(x)
    first, state = layer(x[:4])
    second, (h2, c2) = layer(x[4:], state)
    close(weft.concat([first, second]), whole.detach().numpy())
    close(h2, h.detach().numpy())
    close(c2, c.detach().numpy())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.MultiheadAttention(8, 3), "embed_dim must be divisible by num_heads, got 8 and 3"),
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "channels must be divisible by groups, got 3 and 4 in 2"),
        (lambda: nn.Dropout(1.5), "p must be in 0..1, got 1.5"),
        (lambda: nn.RNN(2, 3, nonlinearity="sin"), "nonlinearity must be 'tanh' or 'relu', got 'sin'"),
        (lambda: nn.BatchNorm2d(3)(weft.ones((2, 3))), "x must have 4 axes, got shape (2, 3)"),
        (lambda: nn.GRUCell(3, 3)(weft.ones((2, 3, 3))), "x must have 1 or 2 axes"),
    ],
)
def test_wrong_settings_are_named(make: Any, message: str) -> None:
    with pytest.raises(weft.errors.WeftError) as error:
        make()
    assert message in str(error.value)


def test_losses_are_those_of_the_functions() -> None:
    x, y = weft.randn(4, 3), weft.tensor([0, 2, 1, 1])
    weight = weft.tensor([1.0, 2.0, 3.0])
    loss = nn.CrossEntropyLoss(weight=weight, label_smoothing=0.1)
    expected = weft.cross_entropy(x, y, weight=weight, label_smoothing=0.1)
    assert loss(x, y).item() == expected.item()
    assert nn.MSELoss(reduction="sum")(x, x + 2.0).item() == pytest.approx(48.0, rel=1e-5)


def test_dropout_keeps_the_mean_and_stops_in_eval() -> None:
    layer = nn.Dropout(0.25)
    out = layer(weft.ones(20000))
    assert set(np.unique(out.numpy()).round(4)) == {0.0, np.float32(1.3333)}
    assert out.mean().item() == pytest.approx(1.0, abs=0.03)
    assert (layer.eval()(weft.ones(10)) == 1).all()
