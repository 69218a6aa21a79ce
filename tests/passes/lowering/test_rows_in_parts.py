"""Products that take much memory, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.backends import backend_named
from weft.ir.graph import Graph
from weft.ir.verify import problems
from weft.nn import functional as F
from weft.passes import lower
from weft.passes.lowering.gpu import GPU_LOWERING
from weft.passes.lowering.rows_in_parts import rows_in_parts

ROWS, WIDTH, CLASSES = 384, 8, 100
BEFORE = GPU_LOWERING[: GPU_LOWERING.index(rows_in_parts)]


def graph_of(function: Callable[..., Any], *arrays: Any) -> Graph:
    """The graph as the pass gets it."""
    graph = weft.make_graph(function)(*[weft.tensor(a) for a in arrays]).optimize()
    return lower(graph, BEFORE, disable=["attention_by_library", "channels_last"])


def in_parts(graph: Graph) -> Graph:
    made = rows_in_parts(graph, large=1 << 15, part=1 << 15)
    assert not list(problems(made))
    return made


def products(graph: Graph) -> list[tuple[int, ...]]:
    return [node.outputs[0].type.shape for node in graph.nodes if node.op.name == "matmul"]


def arrays() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    targets = rng.integers(0, CLASSES, ROWS)
    targets[:5] = -100
    x = rng.standard_normal((3, ROWS // 3, WIDTH)).astype(np.float32)
    return x, rng.standard_normal((CLASSES, WIDTH)).astype(np.float32), targets


def loss(x: Any, w: Any, targets: Any) -> Any:
    return F.cross_entropy(F.linear(x, w).reshape(-1, CLASSES), targets)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_loss_and_gradients_are_those_of_the_whole(dtype: str) -> None:
    def step(x: Any, w: Any, targets: Any) -> Any:
        def of(xw: Any) -> Any:
            with weft.autocast(weft.bfloat16, enabled=dtype == "bfloat16"):
                return loss(*xw, targets)

        return weft.value_and_grad(of)((x, w))

    given = arrays()
    graph = graph_of(step, *given)
    made = in_parts(graph)
    assert set(products(graph)) == {(3, 128, CLASSES), (3, 128, WIDTH), (CLASSES, WIDTH)}
    assert set(products(made)) == {(128, CLASSES), (128, WIDTH), (CLASSES, WIDTH)}
    whole, parts = (backend_named("interpret")(g)(list(given)) for g in (graph, made))
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-6)
    np.testing.assert_array_equal(parts[1], whole[1])  # rows have nothing to do with each other
    rtol = 2e-2 if dtype == "bfloat16" else 1e-4  # of sums over rows
    np.testing.assert_allclose(parts[2], whole[2], rtol=rtol, atol=rtol * np.abs(whole[2]).max())


def test_what_is_done_before_rows_are_taken_stays_whole() -> None:
    graph = graph_of(lambda x, w, t: loss(weft.tanh(x), w, t), *arrays())
    made = in_parts(graph)
    assert [n.outputs[0].type.shape for n in made.nodes if n.op.name == "tanh"] == [(3, 128, WIDTH)]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x @ w.T,  # all of it is wanted
        lambda x, w: weft.softmax(x @ w.T, axis=0),  # along the rows
        lambda x, w: weft.cumsum(x @ w.T, axis=0).sum(axis=1),
        lambda x, w: ((x @ w.T) * (x @ w.T).max()).sum(axis=1),  # each row waits for all of them
        lambda x, w: (x @ w.T)[1:].sum(axis=1),
    ],
)
def test_products_whose_rows_are_not_used_one_by_one_stay(function: Callable[..., Any]) -> None:
    x, w, _ = arrays()
    graph = graph_of(function, x.reshape(ROWS, WIDTH), w)
    assert in_parts(graph) is graph


def test_small_products_stay() -> None:
    graph = graph_of(loss, *arrays())
    assert rows_in_parts(graph) is graph
