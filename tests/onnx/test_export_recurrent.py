"""Recurrent layers become the operators LSTM, GRU and RNN; loops that only look like them do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import weft
from tests.onnx.exports import assert_agrees, export
from weft import nn

f32 = weft.float32
OPEN, FIXED = weft.TensorType(("time", "batch", 3), f32), weft.TensorType((6, "batch", 3), f32)
LAYERS: dict[str, tuple[Any, list[str]]] = {
    "lstm": (lambda: nn.LSTM(3, 4), ["LSTM"]),
    "lstm without bias": (lambda: nn.LSTM(3, 4, bias=False), ["LSTM"]),
    "lstm both ways": (lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True), ["LSTM"] * 4),
    "gru": (lambda: nn.GRU(3, 4), ["GRU"]),
    "gru both ways": (lambda: nn.GRU(3, 4, bidirectional=True), ["GRU", "GRU"]),
    "rnn": (lambda: nn.RNN(3, 4), ["RNN"]),
    "rnn of relu": (lambda: nn.RNN(3, 4, nonlinearity="relu"), ["RNN"]),
    "lstm with a projection": (lambda: nn.LSTM(3, 4, proj_size=2), ["Scan"]),
}
LOOPS = {"LSTM", "GRU", "RNN", "Scan", "Loop"}


def loops(exported: Any) -> list[str]:
    return [name for name in exported.operators if name in LOOPS]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", [*LAYERS])
@pytest.mark.parametrize("type", [OPEN, FIXED], ids=["open", "fixed"])
def test_layer_is_one_operator_for_each_direction(name: str, type: Any, tmp_path: Path) -> None:
    make, operators = LAYERS[name]
    model = make()
    exported = export(model, tmp_path, type, opset=13 if type is FIXED else 20)
    assert loops(exported) == operators
    assert_agrees(exported, model, weft.randn(6, 2, 3))


def test_first_state_may_be_given(tmp_path: Path) -> None:
    model = nn.LSTM(3, 4, batch_first=True)
    state = weft.TensorType((1, "batch", 4), f32)
    exported = export(model, tmp_path, weft.TensorType(("batch", "time", 3), f32), (state, state))
    assert loops(exported) == ["LSTM"]
    assert_agrees(exported, model, weft.randn(2, 5, 3), (weft.randn(1, 2, 4), weft.randn(1, 2, 4)))


def test_last_state_alone(tmp_path: Path) -> None:
    model = nn.GRU(3, 4)
    exported = export(lambda x: model(x)[1], tmp_path, OPEN)
    assert loops(exported) == ["GRU"]
    assert_agrees(exported, lambda x: model(x)[1], weft.randn(5, 2, 3))


def layer(x: Any, h: Any, w: Any, u: Any, *, wrong: str) -> Any:
    """A simple recurrent layer by hand, or something that differs from it in one place."""
    parts = nn.functional.linear(x, w)
    out = []
    for t in range(x.shape[0]):
        row = parts[t // 2] if wrong == "row" else parts[t]
        state = h * 2.0 if wrong == "state" else h
        mixed = row + nn.functional.linear(state, u)
        mixed = mixed * 2.0 if wrong == "scale" else mixed
        h = weft.sigmoid(mixed) if wrong == "function" else weft.tanh(mixed)
        out.append(h * 2.0 if wrong == "output" else h)
    return weft.stack(out), h


@pytest.mark.parametrize("wrong", ["", "row", "state", "scale", "function", "output"])
def test_loop_that_differs_stays_a_loop(wrong: str, tmp_path: Path) -> None:
    def run(x: Any, h: Any, w: Any, u: Any) -> Any:
        return layer(x, h, w, u, wrong=wrong)

    x, *others = weft.randn(5, 2, 3), weft.randn(2, 4), weft.randn(4, 3), weft.randn(4, 4)
    exported = export(run, tmp_path, weft.TensorType(("time", 2, 3), f32), *others)
    assert loops(exported) == (["Scan"] if wrong else ["RNN"])
    assert_agrees(exported, run, x, *others)


def test_gradient_of_a_layer_with_an_open_batch(tmp_path: Path) -> None:
    model = nn.LSTM(3, 4, bidirectional=True)
    slope = weft.grad(lambda x: model(x)[0].square().sum())
    exported = export(slope, tmp_path, FIXED)
    assert_agrees(exported, slope, weft.randn(6, 2, 3))
