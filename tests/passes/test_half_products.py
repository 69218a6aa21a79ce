"""Graphs of float32 with their products in half precision: compiled, loaded, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.base.dtypes import bfloat16, float16
from weft.capture.call.accuracy import accuracy_of
from weft.errors import ArgumentError
from weft.passes.half_products import half_products

HALVES = {"bf16": bfloat16, "f16": float16}


class Net(nn.Module):
    """Two layers with attention in between."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 8)

    def forward(self, x: Any) -> Any:
        h = weft.relu(self.first(x))
        q = h[None]
        return self.last(weft.scaled_dot_product_attention(q, q, q)[0])


def net_and_input() -> tuple[Any, Any]:
    weft.manual_seed(3)
    return Net(), weft.randn(40, 16)


@pytest.mark.parametrize("precision", list(HALVES))
@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_compiled_products_are_those_of_autocast(precision: str, backend: str) -> None:
    x, w = weft.randn(20, 30), weft.randn(30, 40)
    with weft.autocast(HALVES[precision]):
        expected = (x @ w).astype(weft.float32)
    found = weft.compile(lambda x, w: x @ w, precision=precision, backend=backend)(x, w)
    assert found.dtype == weft.float32
    eps = float(weft.finfo(HALVES[precision]).eps)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=eps, atol=1e-6)


@pytest.mark.parametrize("precision", list(HALVES))
def test_results_are_near_and_keep_their_dtype(precision: str) -> None:
    net, x = net_and_input()
    expected, found = net(x), weft.compile(net, precision=precision)(x)
    assert found.dtype == weft.float32
    difference = float(abs(found - expected).max() / abs(expected).max())
    assert 0 < difference < 20 * float(weft.finfo(HALVES[precision]).eps)


def test_all_backends_mean_the_same() -> None:
    net, x = net_and_input()
    outs = [weft.compile(net, precision="bf16", backend=b)(x).detach().numpy() for b in ("interpret", "llvm")]
    np.testing.assert_allclose(outs[0], outs[1], atol=2.0**-7 * np.abs(outs[0]).max())


def test_other_dtypes_are_left_alone() -> None:
    for x in (weft.ones(3, 3, dtype=weft.float64), weft.ones(3, 3, dtype=weft.int32)):
        graph = weft.make_graph(lambda x: x @ x)(x)
        assert half_products(graph) is graph
    graph = weft.make_graph(lambda x: weft.exp(x) + weft.softmax(x))(weft.ones(3, 3))
    assert half_products(graph) is graph


def test_products_one_after_another_are_cast_once() -> None:
    graph = weft.make_graph(lambda x, y: (x @ y).mT @ y)(weft.ones(3, 3), weft.ones(3, 3))
    names = [node.op.name for node in half_products(graph).optimize().nodes]
    assert names.count("cast") == 3  # of both inputs, and of the result


def test_products_in_loops_are_halves_too() -> None:
    def f(w: Any) -> Any:
        return weft.fori_loop(0, 3, lambda _, x: x @ w, weft.eye(4))

    w = weft.tensor(np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32))
    (body,) = [
        g for node in half_products(weft.make_graph(f)(w)).nodes for g in node.attrs.values()
        if hasattr(g, "nodes") and any(n.op.name == "matmul" for n in g.nodes)
    ]  # fmt: skip
    (product,) = [n for n in body.nodes if n.op.name == "matmul"]
    assert product.outputs[0].type.dtype == bfloat16
    np.testing.assert_allclose(weft.compile(f, precision="bf16")(w).numpy(), f(w).numpy(), rtol=0.1, atol=0.1)


def test_gradients_flow_through_what_is_compiled_so() -> None:
    net, x = net_and_input()
    weft.compile(net, precision="bf16")(x).sum().backward()
    found = net.first.weight.grad.numpy().copy()
    net.zero_grad()
    net(x).sum().backward()
    expected = net.first.weight.grad.numpy()
    assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()


def test_loaded_graphs_hold_weights_of_products_in_half(tmp_path: Path) -> None:
    net, x = net_and_input()
    weft.jit.trace(net, x).save(tmp_path / "net.weft")
    loaded = weft.load_graph(tmp_path / "net.weft", precision="bf16")
    assert {name: w.dtype for name, w in loaded.weights.items()} == {
        "first.weight": bfloat16, "first.bias": bfloat16, "last.weight": bfloat16, "last.bias": bfloat16,
    }  # fmt: skip
    np.testing.assert_array_equal(loaded(x).numpy(), weft.compile(net, precision="bf16")(x).detach().numpy())
    plain = weft.load_graph(tmp_path / "net.weft")
    np.testing.assert_allclose(plain(x).numpy(), net(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    loaded.save(tmp_path / "half.weft")
    np.testing.assert_array_equal(weft.load_graph(tmp_path / "half.weft")(x).numpy(), loaded(x).numpy())


def test_weights_that_others_read_keep_their_dtype(tmp_path: Path) -> None:
    w = weft.tensor(np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32))
    weft.jit.trace(lambda x: x @ w + w, weft.ones(4, 4)).save(tmp_path / "f.weft")
    loaded = weft.load_graph(tmp_path / "f.weft", precision="f16")
    assert [t.dtype for t in loaded.weights.values()] == [weft.float32]
    expected = np.ones((4, 4)) @ w.numpy() + w.numpy()
    np.testing.assert_allclose(loaded(weft.ones(4, 4)).numpy(), expected, atol=0.02)


def test_explain_tells_the_loss_of_accuracy(capsys: pytest.CaptureFixture[str]) -> None:
    net, x = net_and_input()
    plain, half = weft.compile(net), weft.compile(net, precision="bf16")
    expected = net(x)
    *_, small = plain.explain(x, accuracy=True)
    *_, large = half.explain(x, accuracy=True)
    assert "largest relative loss of accuracy on these inputs" in capsys.readouterr().out
    assert small.losses[0] < 1e-5
    difference = float(abs(half(x) - expected).max() / abs(expected).max())
    np.testing.assert_allclose(large.losses, [difference], rtol=1e-3)
    with pytest.raises(ArgumentError, match="its arguments must be given"):
        half.explain(accuracy=True)


def test_losses_of_special_values() -> None:
    expected = np.array([1.0, np.inf, np.nan], np.float32)
    assert accuracy_of([expected.copy()], [expected]).losses == (0.0,)
    assert accuracy_of([np.array([1.0, 2.0, np.nan])], [expected]).losses == (np.inf,)
    assert accuracy_of([np.array([1.0, -np.inf, np.nan])], [expected]).losses == (np.inf,)
    assert accuracy_of([np.zeros(2)], [np.zeros(2)]).losses == (0.0,)
    assert accuracy_of([np.ones(2)], [np.zeros(2)]).losses == (np.inf,)
    assert accuracy_of([np.arange(2)], [np.arange(2)]).losses == ()


@pytest.mark.parametrize("bad", ["f8", "float64", 16, weft.int8])
def test_other_precisions_are_refused(bad: Any) -> None:
    with pytest.raises(ArgumentError, match='precision must be "bf16" or "f16"'):
        weft.compile(lambda x: x, precision=bad)
