"""Models written as text, and how a graph is compared with onnx's own evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import weft

HEADER = '<ir_version: 10, opset_import: ["": 20]>'
BACKENDS = ("interpret", "llvm")
rng = np.random.default_rng(0)


def parse(text: str, header: str = HEADER) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{header} {text}")


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return rng.normal(size=shape).astype(np.float32)


def expected(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[np.ndarray[Any, Any]]:
    return ReferenceEvaluator(model).run(None, dict(feeds))  # type: ignore[return-value]


def check(model: onnx.ModelProto, graph: weft.Graph, feeds: Mapping[str, Any], rtol: float = 1e-5) -> None:
    """Compare what a graph gives on each backend with onnx's own evaluator."""
    wanted = expected(model, feeds)
    names = {v.name for v in graph.inputs}
    own = {name: array for name, array in feeds.items() if name in names}
    for backend in BACKENDS:
        found = weft.Session(graph, backend=backend).run(list(graph.outputs), own)
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            assert a.shape == np.shape(b)
            assert a.dtype == np.asarray(b).dtype
            np.testing.assert_allclose(a.numpy(), b, rtol=rtol, atol=1e-6)


def ops_of(graph: weft.Graph) -> list[str]:
    return [node.op.name for node in graph.walk()]


MLP = parse("""
mlp (float[batch, 4] x) => (float[batch, 3] y)
<float[4, 5] "fc1.weight" = {0.1, -0.2, 0.3, 0.4, -0.5, 0.6, 0.7, -0.8, 0.9, 1.0,
                           -1.1, 1.2, 1.3, -1.4, 1.5, 0.2, 0.4, -0.6, 0.8, -0.1},
 float[5] "fc1.bias" = {0.1, 0.2, 0.3, 0.4, 0.5},
 float[5, 3] "fc2.weight" = {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3}>
{
  h = Gemm (x, "fc1.weight", "fc1.bias")
  a = Relu (h)
  y = MatMul (a, "fc2.weight")
}
""")

BRANCH = parse("""
f (float[2] x, bool c) => (float[2] y)
<float[2] w = {3, 4}>
{
  h = Exp (x)
  y = If (c) <
    then_branch = yes () => (float[2] a) { a = Mul (h, w) },
    else_branch = no () => (float[2] b) { z = Neg (x)  b = Sub (z, h) }
  >
}
""")
