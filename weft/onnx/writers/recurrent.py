"""Loops of recurrent layers, which ONNX has operators for: LSTM, GRU and RNN.

A loop is one of them if what its body computes is, written as a term in which ``X`` is the part of the input,
``R`` that of the state, ``h`` and ``c`` the state, and ``[k]`` a gate. In onnxruntime the operator takes a
fifteenth of the time of the loop (measured on one series of 60 steps, 32 units).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import float32
from weft.ir.graph import Graph, Node, Value
from weft.onnx.writers.registry import stand_in, writer
from weft.onnx.writers.view import flipped
from weft.onnx.writers.writer import Ref, Writer

NAME = "onnx::recurrent"
_OP = stand_in(NAME, "kind", "backward", "biased", "states", outputs=0)


# Terms: operands of sums and products in one order


def _applied(op: str, *terms: str) -> str:
    ordered = sorted(terms) if op in ("add", "mul") else terms
    return f"{op}({','.join(ordered)})"


def _terms() -> dict[tuple[str, ...], str]:
    """By what a body gives as its next states, the kind of the layer."""

    def plus(*terms: str) -> str:
        return _applied("add", *terms)

    def times(*terms: str) -> str:
        return _applied("mul", *terms)

    both = plus("X", "R")
    cell = plus(times(f"sigmoid({both}[1])", "c"), times(f"sigmoid({both}[0])", f"tanh({both}[2])"))
    reset, update = (f"sigmoid({plus(f'X[{k}]', f'R[{k}]')})" for k in (0, 1))
    new = f"tanh({plus('X[2]', times(reset, 'R[2]'))})"
    return {
        (times(f"sigmoid({both}[3])", f"tanh({cell})"), cell): "LSTM",
        (plus(new, times(update, f"sub(h,{new})")),): "GRU",
        (f"tanh({both})",): "RNN",
        (f"relu({both})",): "RNN Relu",
    }


_KINDS = _terms()
GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,), "RNN Relu": (0,)}  # in ONNX's order


class _Body:
    """Reads the body of a loop as terms.

    Attributes:
        parts: the values around the loop that it met: "X", "R weight" and "R bias".
        backward: whether it goes from the last row to the first.
    """

    def __init__(self, node: Node) -> None:
        self.graph: Graph = node.attrs["body"]
        self.outer = dict(zip(self.graph.inputs, node.inputs, strict=True))
        self.made = {out: n for n in self.graph.nodes for out in n.outputs}
        carries = node.attrs["carries"]
        self.states: dict[Value, str] = dict(zip(self.graph.inputs[:carries], ("h", "c"), strict=False))
        self.index = self.graph.inputs[carries]
        self.last = node.attrs["length"] - 1
        self.parts: dict[str, Value] = {}
        self.backward = False

    def term(self, value: Value) -> str:
        """What a value is; "?" for anything that no recurrent layer has."""
        if value in self.states:
            return self.states[value]
        node = self.made.get(value)
        if node is None:
            return "?"
        if node.op.name == "gather":
            return self._row(node)
        if node.op.name == "call":
            return self._product(node)
        if node.op.name == "slice":
            return self._gate(node)
        return _applied(node.op.name, *[self.term(v) for v in node.inputs])

    def _row(self, node: Node) -> str:
        """A row of the input's part, the one whose turn it is."""
        source, *index = node.inputs
        if source not in self.outer or len(index) != 1 or source.type.ndim != 3:
            return "?"
        if index[0] is not self.index:
            turned = self.made.get(index[0])
            if turned is None or turned.op.name != "sub" or turned.inputs[1] is not self.index:
                return "?"
            if not self._is_last(turned.inputs[0]):
                return "?"
            self.backward = True
        self.parts["X"] = self.outer[source]
        return "X"

    def _is_last(self, value: Value) -> bool:
        array = self.graph.constants.get(value)
        if array is not None:
            return array.shape == () and bool(array == self.last)
        node = self.made.get(value)
        return node is not None and node.op.name == "size" and str(node.attrs["value"]) == str(self.last)

    def _product(self, node: Node) -> str:
        """The state times a weight, plus a bias."""
        state, *rest = node.inputs
        fits = node.attrs["function"] == "linear" and self.states.get(state) == "h"
        if not fits or any(v not in self.outer for v in rest):
            return "?"
        self.parts |= dict(zip(("R weight", "R bias"), [self.outer[v] for v in rest], strict=False))
        return "R"

    def _gate(self, node: Node) -> str:
        """Columns of the gates, which are as many as the state has."""
        (source,), (start, stop) = node.inputs, (node.attrs[k][-1] for k in ("starts", "stops"))
        width = stop - start
        whole = node.outputs[0].type.shape[:-1] == source.type.shape[:-1]
        if (
            not whole
            or not isinstance(start, int)
            or width == 0
            or start % width
            or node.attrs["steps"][-1] != 1
        ):
            return "?"
        return f"{self.term(source)}[{start // width}]"


def recurrent_node(graph: Graph, made: Mapping[Value, Node], node: Node) -> Node | None:
    """The node of a recurrent layer that a loop is, or None."""
    attrs = node.attrs
    if node.op.name != "scan" or attrs["mapped"] != 1 or attrs["reverse"] or attrs["counted"]:
        return None
    carries = attrs["carries"]
    if not _counts_up(graph, made, node.inputs[carries], attrs["length"]):
        return None
    body = _Body(node)
    outputs = body.graph.outputs
    kind = _KINDS.get(tuple(body.term(v) for v in outputs[:carries]))
    if kind is None or any(v is not outputs[0] for v in outputs[carries:]):
        return None
    weights = _weights(made, body.parts)
    if weights is None or weights[0].type.dtype != float32:
        return None
    given = {"kind": kind, "backward": body.backward, "biased": len(weights) == 5, "states": carries}
    return Node(_OP, (*weights, *node.inputs[:carries]), given, node.outputs, node.location)


def _weights(made: Mapping[Value, Node], parts: Mapping[str, Value]) -> tuple[Value, ...] | None:
    """The input, its weight, that of the state, and both biases if there are any; None without them."""
    node = made.get(parts.get("X"))  # type: ignore[arg-type]
    if (
        node is None
        or node.op.name != "call"
        or node.attrs["function"] != "linear"
        or "R weight" not in parts
    ):
        return None
    x, weight, *bias = node.inputs
    if len(bias) != ("R bias" in parts):
        return None
    return (x, weight, parts["R weight"], *bias, *([parts["R bias"]] if bias else []))


def _counts_up(graph: Graph, made: Mapping[Value, Node], value: Value, length: Any) -> bool:
    array = graph.constants.get(value)
    if array is not None:
        return isinstance(length, int) and np.array_equal(array, np.arange(length))
    return value in made and made[value].op.name == "iota"


# Writing it


@writer(NAME)
def write_recurrent(
    w: Writer, x: Ref, *more: Ref, kind: str, backward: bool, biased: bool, states: int
) -> list[Ref]:
    """One operator, with gates in its order; its results without the axis of directions."""
    (weight, recurrence), biases, given = more[:2], more[2 : 4 if biased else 2], more[4 if biased else 2 :]
    order = GATES[kind]
    inputs: list[Ref | None] = [x, *[w.unsqueeze(_ordered(w, v, order), 0) for v in (weight, recurrence)]]
    bias = w.emit("Concat", *[_ordered(w, v, order) for v in biases], axis=0) if biased else None
    inputs += [None if bias is None else w.unsqueeze(bias, 0), None, *[w.unsqueeze(v, 0) for v in given]]
    attrs: dict[str, Any] = {"hidden_size": recurrence.shape[1]}
    attrs |= {"direction": "reverse"} if backward else {}
    attrs |= {"linear_before_reset": 1} if kind == "GRU" else {}
    attrs |= {"activations": ["Relu"]} if kind == "RNN Relu" else {}
    steps, *last = w.emit(kind.split()[0], *inputs, outputs=1 + states, **attrs)
    rows = w.emit("Squeeze", steps, w.ints((1,)))
    assert w.node is not None
    results = [w.emit("Squeeze", state, w.ints((0,))) for state in last]
    collected = len(w.node.outputs) - states
    return [*results, *[flipped(w, rows, 0) if backward else rows] * collected]


def _ordered(w: Writer, x: Ref, order: Sequence[int]) -> Ref:
    """The rows of all gates in another order."""
    if len(order) == 1:
        return x
    size = x.shape[0] // len(order)
    gates = w.emit("Split", x, w.ints((size,) * len(order)), outputs=len(order), axis=0)
    out: Ref = w.emit("Concat", *[gates[k] for k in order], axis=0)
    return out
