"""What the backward pass computes again instead of keeping it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import weft
import weft.backends
from tests.passes.helpers import assert_becomes, assert_stays
from weft.passes import recompute
from weft.passes.lowering.recompute import is_backward, recompute_more


def test_backward_has_copies_of_cheap_values_of_the_forward_pass() -> None:
    assert_becomes(
        recompute,
        """
        graph f(%x: f32[8]) {
          %0: f32[8] = mul(%x, f32(2.0)) @ f.py:1
          %1: f32[8] = tanh(%0) @ f.py:1
          %2: f32[] = sum(%1, axes=(0,)) @ f.py:1
          %3: f32[8] = mul(%1, %1) @ f.py:1 backward
          return %2, %3
        }""",
        """
        graph f(%x: f32[8]) {
          %0: f32[8] = mul(%x, f32(2.0))
          %1: f32[8] = tanh(%0)
          %2: f32[] = sum(%1, axes=(0,))
          %3: f32[8] = mul(%x, f32(2.0))
          %4: f32[8] = tanh(%3)
          %5: f32[8] = mul(%4, %4)
          return %2, %5
        }""",
    )


def test_what_a_product_of_the_backward_pass_reads_is_kept() -> None:
    assert_stays(
        recompute,
        """
        graph f(%x: f32[8,8]) {
          %0: f32[8,8] = tanh(%x) @ f.py:1
          %1: f32[8,8] = matmul(%0, %0) @ f.py:1 backward
          %2: f32[8,8] = mul(%0, %1) @ f.py:1 backward
          return %2
        }""",
    )


def test_what_is_made_by_a_product_is_kept() -> None:
    assert_stays(
        recompute,
        """
        graph f(%x: f32[8,8]) {
          %0: f32[8,8] = matmul(%x, %x) @ f.py:1
          %1: f32[8,8] = mul(%0, %0) @ f.py:1 backward
          return %1
        }""",
    )


def test_graph_without_a_gradient_stays() -> None:
    graph = weft.make_graph(lambda x: weft.tanh(x) * x)(weft.ones(8))
    assert recompute(graph) is graph


def _network(rows: int) -> tuple[Any, list[Any]]:
    """The gradient of a layer whose activation a product reads, and its arguments."""

    def loss(weights: Any, x: Any) -> Any:
        up, down = weights
        y = weft.gelu((x @ up).astype(weft.float32), approximate="tanh").astype(weft.bfloat16) @ down
        return (y.astype(weft.float32) ** 2).sum()

    rng = np.random.default_rng(0)
    shapes = (64, 512), (512, 64), (rows, 64)
    tensors = [
        weft.tensor(0.1 * rng.standard_normal(s).astype(np.float32)).astype("bfloat16") for s in shapes
    ]
    graph = weft.make_graph(lambda up, down, x: weft.grad(loss)((up, down), x))(*tensors).optimize()
    return weft.passes.lower(graph, ["decompose"]), [t._data for t in tensors]


def test_what_products_read_again_is_written_once_more_where_it_is_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, arrays = _network(16)
    small = recompute_more(graph)
    module = sys.modules["weft.passes.lowering.recompute"]  # the name is that of the pass
    monkeypatch.setattr(module, "LARGE", 1)
    monkeypatch.setattr(module, "SMALL", 1)
    large = recompute_more(graph)

    def crossing(graph: Any) -> set[tuple[int, ...]]:
        """Shapes of what the forward pass computes element by element and products of the backward read."""
        early = {v for n in graph.nodes if n.op.scalar is not None and not is_backward(n) for v in n.outputs}
        later = {v for n in graph.nodes if n.op.scalar is None and is_backward(n) for v in n.inputs}
        return {v.type.shape for v in early & later}

    assert (16, 512) in crossing(small)
    assert (16, 512) not in crossing(large)
    results = [weft.backends.backend_named("interpret")(g)(arrays) for g in (graph, large)]
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
