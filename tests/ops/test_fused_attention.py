"""Attention as single ops: what they give, their text, and what they refuse."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import weft
from weft.backends.llvm import build
from weft.errors import GraphError, ShapeError
from weft.ir.graph import Graph
from weft.ir.interpret import interpret

TEXT = """
graph f(%q: f64[2,5,3], %k: f64[2,3,4], %v: f64[2,4,6], %bias: f64[5,4]) {
  %0: f64[2,5,6], %1: f64[2,5,1] = attention(%q, %k, %v, %bias) {
    scores(%0: f64[2,5,4], %bias: f64[5,4]) {
      %1: f64[2,5,4] = mul(%0, f64(0.5))
      %2: f64[2,5,4] = add(%1, %bias)
      return %2
    }
  }
  return %0, %1
}
"""


def parse(text: str) -> Graph:
    return weft.parse_graph(dedent(text).strip() + "\n")


def arrays(graph: Graph) -> list[Any]:
    return [np.random.default_rng(i).standard_normal(v.type.shape) for i, v in enumerate(graph.inputs)]


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize("causal", [False, True])
def test_it_is_softmax_of_scores_times_values(causal: bool) -> None:
    text = TEXT.replace("%bias) {\n    scores", "%bias, causal=True) {\n    scores") if causal else TEXT
    graph = parse(text)
    q, k, v, bias = arrays(graph)
    scores = q @ k * 0.5 + bias
    if causal:
        scores = np.where(np.tri(5, 4) > 0, scores, -np.inf)
    out, sums = interpret(graph, [q, k, v, bias])
    np.testing.assert_allclose(out, softmax(scores) @ v, rtol=1e-12)
    np.testing.assert_allclose(sums, np.log(np.exp(scores).sum(-1, keepdims=True)), rtol=1e-12)


def test_text_is_read_back() -> None:
    graph = parse(TEXT)
    assert graph.to_text().strip() == TEXT.strip()
    assert graph.difference(parse(graph.to_text())) is None


def test_kernels_give_the_same() -> None:
    graph = parse(TEXT.replace("f64", "f32"))
    given = [a.astype("f4") for a in arrays(graph)]
    for a, b in zip(build(graph)(given), interpret(graph, given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (("%k: f64[2,3,4]", "%k: f64[2,2,4]"), ShapeError, r"must be \(..., n, features\)"),
        (("%v: f64[2,4,6]", "%v: f64[2,3,6]"), ShapeError, r"must be \(..., n, features\)"),
        (("attention(%q, %k, %v, %bias)", "attention(%q, %k, %v)"), GraphError, "scores must take"),
    ],
)
def test_what_does_not_fit_is_refused(change: tuple[str, str], error: type[Exception], message: str) -> None:
    with pytest.raises((error, GraphError), match=message):
        parse(TEXT.replace(*change))
