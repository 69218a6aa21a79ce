"""Random graphs: what onnxruntime makes of the exported model, and what ``weft.onnx.load`` reads of it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import weft
from tests.ir.random_graphs import arrays_of, graphs
from tests.onnx.exports import Exported
from weft.ir.graph import Graph
from weft.ir.interpret import interpret

ROUNDED = {"tanh", "sin", "cos", "sigmoid", "exp", "hypot", "sqrt", "div", "sum", "prod", "matmul"}
STEPS = {"floor", "sign", "less", "equal", "greater", "greater_equal", "not_equal", "cast", "any"}


def as_function(graph: Graph) -> Graph:
    """The graph with arguments alone, which changes nothing."""
    return graph.replace(roles=("arg",) * len(graph.inputs), updates=())


def assert_close(actual: list[Any], expected: list[Any]) -> None:
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert (np.asarray(a).dtype, np.shape(a)) == (e.dtype, e.shape)
        if e.dtype.kind == "f":
            np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(a, e)


def is_steady(graph: Graph) -> bool:
    """Whether what is rounded otherwise stays close: nothing that jumps comes with it."""
    names = {node.op.name for node in graph.walk()}
    return names.isdisjoint(ROUNDED) or names.isdisjoint(STEPS)


@settings(max_examples=30, deadline=None)
@given(graph=graphs())
def test_onnxruntime_gives_what_the_interpreter_does(graph: Graph) -> None:
    graph = as_function(graph)
    assume(is_steady(graph))
    arrays = arrays_of(graph)
    with tempfile.TemporaryDirectory() as folder:
        model = Exported(weft.onnx.export(graph, Path(folder) / "m.onnx"))
        assert_close(model.run(*arrays), interpret(graph, arrays))


@pytest.mark.parametrize("opset", [13, 20, 23])
@settings(max_examples=12, deadline=None)
@given(graph=graphs(), seed=st.integers(0, 100))
def test_exported_graph_is_read_back_to_the_same_function(opset: int, graph: Graph, seed: int) -> None:
    graph = as_function(graph)
    arrays = arrays_of(graph, seed)
    with tempfile.TemporaryDirectory() as folder:
        loaded = weft.onnx.load(weft.onnx.export(graph, Path(folder) / "m.onnx", opset=opset))
    assert [str(v.type) for v in loaded.inputs] == [str(v.type) for v in graph.inputs]
    assume(is_steady(graph) or not {n.op.name for n in graph.walk()} & {"hypot"})
    assert_close(interpret(loaded, arrays), interpret(graph, arrays))


@pytest.mark.parametrize("opset", [13, 20, 23])
def test_models_are_read_back(opset: int, tmp_path: Path) -> None:
    nn = weft.nn
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.GELU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.LayerNorm(64),
        nn.Linear(64, 5),
    ).eval()
    path = weft.onnx.export(
        model, tmp_path / "m.onnx", weft.TensorType(("batch", 1, 8, 8), weft.float32), opset=opset
    )
    loaded = weft.onnx.load(path)
    x = weft.randn(3, 1, 8, 8)
    np.testing.assert_allclose(loaded(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_loops_are_read_back(tmp_path: Path) -> None:
    def f(x: Any, n: Any) -> Any:
        y = weft.fori_loop(0, n, lambda i, y: weft.tanh(y) + i, x)
        if y.sum() > 3.0:
            y = y - 1.0
        _, rows = weft.scan(lambda c, r: (c + r, c * 2.0), weft.tensor(0.0), y)
        return y, rows

    types = weft.TensorType(("n",), weft.float32), weft.TensorType((), weft.int64)
    loaded = weft.onnx.load(weft.onnx.export(f, tmp_path / "m.onnx", *types))
    for count in (0, 3):
        arguments = weft.tensor([0.5, -1.0, 2.0]), weft.tensor(count)
        for a, e in zip(loaded(*arguments), f(*arguments), strict=True):
            np.testing.assert_allclose(a.numpy(), e.numpy(), rtol=1e-6)
