"""The deployed networks as ONNX models, written with the operators that ONNX Runtime runs fastest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.case import Arrays
from bench.workloads import gpt, lstm
from bench.workloads.training import weights_of

MICROSOFT = "com.microsoft"  # the domain of what ONNX Runtime has beside the standard


class _Nodes:
    """Gathers nodes and weights; each node is named after its one output."""

    def __init__(self, weights: Arrays) -> None:
        self.weights = dict(weights)
        self.nodes: list[Any] = []

    def add(self, op: str, *inputs: str, out: str = "", domain: str = "", **attributes: Any) -> str:
        """The name of what a node gives."""
        from onnx import helper

        name = out or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], domain=domain, **attributes))
        return name

    def weight(self, name: str, array: Any) -> str:
        """The name of an array, which is a weight from now on."""
        self.weights[name] = np.asarray(array)
        return name

    def linear(self, x: str, name: str, out: str = "") -> str:
        """A linear layer on the last axis, whose weight is stored the way a product reads it."""
        turned = np.ascontiguousarray(self.weights.pop(f"{name}.weight").T)
        product = self.add(
            "MatMul", x, self.weight(f"{name}.turned", turned), out="" if self._has_bias(name) else out
        )
        return self.add("Add", product, f"{name}.bias", out=out) if self._has_bias(name) else product

    def _has_bias(self, name: str) -> bool:
        return f"{name}.bias" in self.weights

    def model(self, x: tuple[str, Sequence[Any]], y: Sequence[Any]) -> bytes:
        """The model, from x to y."""
        from onnx import TensorProto, helper, numpy_helper

        kind = {"float": TensorProto.FLOAT, "int": TensorProto.INT64}[x[0]]
        graph = helper.make_graph(
            self.nodes,
            "deployed",
            [helper.make_tensor_value_info("x", kind, x[1])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
        return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def cnn_model(arrays: Arrays) -> bytes:
    """Two convolutions, a pool, two linear layers."""
    n = _Nodes(weights_of(arrays))
    x = "x"
    for i in (0, 2):
        x = n.add("Relu", n.add("Conv", x, f"{i}.weight", f"{i}.bias"))
    x = n.add("Flatten", n.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
    x = n.add("Relu", n.add("Gemm", x, "6.weight", "6.bias", transB=1))
    n.add("Gemm", x, "8.weight", "8.bias", transB=1, out="y")
    return n.model(("float", ["batch", 1, 28, 28]), ["batch", 10])


def gpt_model(arrays: Arrays) -> bytes:
    """The language model, with ONNX Runtime's own operator for attention."""
    n = _Nodes(weights_of(arrays))
    x = n.add("Add", n.add("Gather", "tokens.weight", "x"), "places.weight")
    thirds = n.weight("thirds", np.full(3, gpt.WIDTH, np.int64))
    for i in range(gpt.LAYERS):
        x = _block(n, x, f"blocks.{i}", thirds)
    n.linear(_norm(n, x, "norm"), "head", out="y")
    return n.model(("int", ["batch", gpt.LENGTH]), ["batch", gpt.LENGTH, gpt.VOCABULARY])


def _norm(n: _Nodes, x: str, name: str) -> str:
    return n.add("LayerNormalization", x, f"{name}.weight", f"{name}.bias", axis=-1, epsilon=1e-5)


def _block(n: _Nodes, x: str, name: str, thirds: str) -> str:
    from onnx import helper

    parts = [f"{name}.q", f"{name}.k", f"{name}.v"]
    qkv = n.linear(_norm(n, x, f"{name}.norm1"), f"{name}.qkv")
    n.nodes.append(helper.make_node("Split", [qkv, thirds], parts, axis=-1))
    heads = {"num_heads": gpt.HEADS, "unidirectional": 1}
    mixed = n.add("MultiHeadAttention", *parts, domain=MICROSOFT, **heads)
    x = n.add("Add", x, n.linear(mixed, f"{name}.out"))
    up = n.linear(_norm(n, x, f"{name}.norm2"), f"{name}.up")
    return n.add("Add", x, n.linear(n.add("Gelu", up), f"{name}.down"))


def lstm_model(arrays: Arrays) -> bytes:
    """The operator LSTM, whose gates come in another order (input, output, forget, cell)."""
    from onnx import helper

    def turned(w: Any) -> Any:
        i, f, g, o = np.split(w, 4, axis=-1)
        return np.ascontiguousarray(np.concatenate([i, o, f, g], -1).T)[None]

    bias = np.concatenate([turned(arrays["b"]), np.zeros((1, 4 * lstm.HIDDEN), np.float32)], axis=1)
    n = _Nodes({"W": turned(arrays["wx"]), "R": turned(arrays["wh"]), "B": bias})
    n.nodes.append(helper.make_node("LSTM", ["x", "W", "R", "B"], ["", "h"], hidden_size=lstm.HIDDEN))
    n.add("Squeeze", "h", n.weight("axes", np.zeros(1, np.int64)), out="y")
    return n.model(("float", [lstm.TIMES, "batch", lstm.INPUTS]), ["batch", lstm.HIDDEN])
