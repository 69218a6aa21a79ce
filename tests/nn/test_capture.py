"""Layers in graphs give what they give eagerly, compiled and ahead of time; loops over time stay loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.nn.expected import part
from tests.nn.test_layers import LAYERS, weighted_sum
from tests.timing import least_seconds
from weft import nn


def results(layer: Any, run: Any, inputs: list[Any]) -> list[Any]:
    """Outputs, gradients and buffers of one call in training."""
    layer.zero_grad()
    outs = weft.tree_leaves(run(*inputs))
    weighted_sum(outs).backward()
    return [*outs, *[p.grad for p in layer.parameters()], *layer.buffers()]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("capture", ["compile", "aot", "trace"])
@pytest.mark.parametrize("name", LAYERS)
def test_layer_in_a_graph_gives_what_it_gives_eagerly(name: str, capture: str) -> None:
    inputs = [weft.tensor(x) for x in part(f"{name}/in/").values()]
    found = []
    for captured in (False, True):
        layer = LAYERS[name]()
        layer.load_state_dict(part(f"{name}/state/"))
        run = layer
        if captured:
            run = {
                "compile": weft.compile,
                "aot": lambda f: weft.aot(f, *inputs, argnums=()),
                "trace": lambda f: weft.jit.trace(f, *inputs),
            }[capture](layer)
        found.append(results(layer, run, inputs))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("make", [lambda: nn.RNN(3, 4), lambda: nn.GRU(3, 4), lambda: nn.LSTM(3, 4)])
def test_recurrent_layer_is_one_loop_of_any_length(make: Any) -> None:
    layer = make()
    sizes = []
    for length in (5, 200):
        graph = weft.make_graph(layer)(weft.TensorType((length, 2, 3), weft.float32))
        sizes.append(len(graph.nodes))
        assert [n.op.name for n in graph.nodes].count("scan") == 1
    assert sizes[0] == sizes[1]


def test_capture_of_a_transformer_step_takes_less_than_a_second() -> None:

    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 12)
    optimizer = weft.optim.AdamW(model.parameters())

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x, is_causal=True).square().mean()
        loss.backward()
        weft.optim.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    graph = weft.make_graph(step)(weft.ones((2, 4, 16)))
    assert least_seconds(lambda: weft.make_graph(step)(weft.ones((2, 4, 16))), 1.0, tries=5) < 1.0
    assert len(graph.updates) > 400


@pytest.mark.parametrize("where", ["a variable", "an attribute"])
def test_parameter_that_captured_code_makes_is_refused_at_its_line(where: str) -> None:
    class Late(nn.Module):
        def forward(self, x: Any) -> Any:
            made = nn.Parameter(x * 2.0)
            if where == "an attribute":
                self.made = made
            return (made * x).sum()

    layer = Late()
    with pytest.raises(weft.errors.CaptureError, match="must not make a Parameter") as caught:
        weft.compile(layer)(weft.ones(3))
    assert "nn.Parameter(x * 2.0)" in str(caught.value)
    assert layer(weft.ones(3)).item() == 6.0  # eager code may
    assert len(list(layer.parameters())) == (where == "an attribute")


@pytest.mark.parametrize("kind", [weft.optim.SGD, weft.optim.Adam])
def test_optimizer_that_captured_code_makes_is_refused_at_its_line(kind: Any) -> None:
    """Its state would begin anew at each call; what the capture made would go on."""
    w = weft.ones(3, requires_grad=True)

    @weft.compile
    def step(x: Any) -> Any:
        optimizer = kind([w], lr=0.1)
        (w * x).sum().backward()
        optimizer.step()

    with pytest.raises(weft.errors.CaptureError, match="must not make an optimizer") as caught:
        step(weft.ones(3))
    assert "optimizer = kind([w], lr=0.1)" in str(caught.value)


def test_layer_that_captured_code_makes_and_drops_is_made_at_each_call() -> None:
    @weft.compile
    def drawn(x: Any) -> Any:
        return nn.Linear(3, 3)(x).sum()

    weft.manual_seed(0)
    x = weft.ones(3)
    found = [drawn(x).item(), drawn(x).item()]
    weft.manual_seed(0)
    expected = [nn.Linear(3, 3)(x).sum().item(), nn.Linear(3, 3)(x).sum().item()]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
