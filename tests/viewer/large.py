"""Large graphs, written node by node: they look like captures of large programs, which take their time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import weft
from weft.ir.graph import Graph, Node, Value
from weft.ir.location import Location
from weft.ops.op import OPS
from weft.viewer.page import data_of, page_text
from weft.viewer.subject import Subject

ROW = weft.TensorType((4,), weft.float32)
HERE = str(Path(__file__).with_name("programs.py"))
LAYERS = ("norm", "up", "down")


class Writer:
    """Writes nodes one after the other."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.inputs: list[Value] = []
        self.roles: list[str] = []
        self.updates: list[tuple[Value, Value]] = []

    def take(self, name: str, role: str = "param") -> Value:
        self.inputs.append(Value(ROW, name))
        self.roles.append(role)
        return self.inputs[-1]

    def op(self, name: str, *inputs: Value, at: Location | None = None) -> Value:
        made = Value(ROW)
        self.nodes.append(Node(OPS[name], inputs, {}, (made,), at))
        return made

    def graph(self, name: str, *outputs: Value) -> Graph:
        return Graph(name, self.inputs, self.nodes, outputs, roles=self.roles, updates=self.updates)


def training_graph(blocks: int, odd: int = -1) -> Graph:
    """A training step of equal blocks, 134 nodes each: forward, backward, and an optimizer with two states.

    Args:
        blocks: how many there are.
        odd: the number of one that is not like the others.
    """
    w = Writer()
    x = w.take("x", "arg")
    kept: list[tuple[str, Value, list[Value]]] = []
    for i in range(blocks):
        start = x
        for layer in LAYERS:
            module = f"blocks.{i}.{layer}"
            params = [w.take(f"model.{module}.{name}") for name in ("weight", "bias")]
            at = Location(HERE, 20, "forward", module)
            x = w.op("add", w.op("mul", x, params[0], at=at), params[1], at=at)
            x = w.op("sin" if i == odd else "tanh", x, at=at)
            kept.append((module, x, params))
        x = w.op("add", x, start, at=Location(HERE, 21, "forward", f"blocks.{i}"))
    loss = w.op("mul", x, x, at=Location(HERE, 40, "step"))
    gradients = []
    gradient = w.op("add", loss, loss, at=Location(HERE, 41, "step", "", "backward"))
    for module, made, params in reversed(kept):
        at = Location(HERE, 20, "forward", module, "backward")
        for name in ("mul", "sub", "mul", "mul"):
            gradient = w.op(name, gradient, made, at=at)
        gradients += [(module, p, w.op("mul", gradient, made, at=at)) for p in params]
        gradient = w.op("mul", gradient, params[0], at=at)
    for _, parameter, gradient in reversed(gradients):
        _update(w, parameter, gradient)
    return w.graph("step", loss)


def _update(w: Writer, parameter: Value, gradient: Value) -> None:
    at = Location(HERE, 42, "step")
    for state in ("exp_avg", "exp_avg_sq"):
        old = w.take(f"{parameter.name}.{state}", "state")
        new = w.op("add", w.op("mul", old, old, at=at), w.op("mul", gradient, gradient, at=at), at=at)
        w.updates.append((old, new))
        gradient = w.op("div", new, w.op("sqrt", new, at=at), at=at)
    step = w.op("mul", gradient, gradient, at=at)
    w.updates.append((parameter, w.op("sub", parameter, step, at=at)))


def unrolled_graph(turns: int) -> Graph:
    """What a loop of three lines in Python leaves behind, five nodes a turn."""
    w = Writer()
    x, weight = w.take("x", "arg"), w.take("weight")
    h = x
    for _ in range(turns):
        a = w.op("mul", h, weight, at=Location(HERE, 12, "root"))
        a = w.op("add", a, x, at=Location(HERE, 13, "root"))
        a = w.op("mul", w.op("tanh", a, at=Location(HERE, 13, "root")), x, at=Location(HERE, 13, "root"))
        h = w.op("add", h, a, at=Location(HERE, 14, "root"))
    return w.graph("unrolled", h)


def tangled_graph(nodes: int) -> Graph:
    """Nodes without lines and modules that take from any of the last fifty: nothing in it repeats."""
    w, chance = Writer(), random.Random(0)
    values = [w.take("x", "arg")]
    for _ in range(nodes):
        names = ("tanh", "exp", "neg", "add", "mul", "sub")
        name = names[chance.randrange(6)]
        count = 1 if name in ("tanh", "exp", "neg") else 2
        values.append(w.op(name, *(chance.choice(values[-50:]) for _ in range(count))))
    return w.graph("tangled", values[-1])


def data_of_graph(graph: Graph, modules: dict[str, str] | None = None) -> dict[str, Any]:
    """The data of a page about a graph as it was captured, without passes and kernels."""
    return data_of(Subject(graph.name, [("captured", graph)], graph, modules=modules or {}))


def block_names(blocks: int) -> dict[str, str]:
    """The classes of the modules of a training graph."""
    found = {"blocks": "ModuleList"}
    for i in range(blocks):
        found[f"blocks.{i}"] = "Block"
        found |= {f"blocks.{i}.{layer}": "LayerNorm" if layer == "norm" else "Linear" for layer in LAYERS}
    return found


def write_page(graph: Graph, path: Path, modules: dict[str, str] | None = None) -> Path:
    path.write_text(page_text(data_of_graph(graph, modules)), encoding="utf-8")
    return path
