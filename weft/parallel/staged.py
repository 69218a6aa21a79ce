"""What runs the program of a rank of a pipeline: node by node, with a compiled program for each call.

Nodes between calls move data or add up what calls made; each array is let go after its last use. Messages and
sums over the batch that were started go on while calls run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.backends.backend import Array, Arrays, Executable
from weft.base.ranks import Group, group_of
from weft.base.records import NamedTuple
from weft.errors import WeftError
from weft.ir.graph import Graph, Node, Value
from weft.ir.interpret import placed
from weft.ops.call import call
from weft.ops.pipeline import send
from weft.parallel.stage import PIPE

Run = Callable[[list[Any]], Sequence[Array]]


class _Step(NamedTuple):
    """A node with its operands and results by number, and what is let go after it."""

    run: Run
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    gone: tuple[int, ...]


class Staged(Executable):
    """The program of a rank of a pipeline.

    Attributes:
        graph: what it runs.
        bodies: by name, what the backend made of the graphs that it calls.
        text: of the table, with what is kept.
        planned: what a planner must know of it.
    """

    __slots__ = ("_mesh", "_steps", "_values", "bodies", "donated", "graph", "planned", "text")

    def __init__(self, graph: Graph, build: Callable[[Graph], Any], mesh: str, text: str) -> None:
        self.graph, self.donated, self.text, self._mesh = graph, (), text, mesh
        self.planned: Any = None
        self.bodies: dict[str, Any] = {}
        for node in graph.nodes:
            if node.op is call and node.attrs["function"] not in self.bodies:
                self.bodies[node.attrs["function"]] = build(node.attrs["body"])
        self._values = {v: i for i, v in enumerate(_values(graph))}
        self._steps = self._planned()

    def __call__(self, arrays: Arrays) -> Arrays:
        """Run on arrays."""
        held: list[Any] = [None] * len(self._values)
        held[: len(arrays)] = arrays
        for v, array in self.graph.constants.items():
            held[self._values[v]] = array
        group = self._group()
        for run, ins, outs, gone in self._steps:
            made = run([held[i] for i in ins])
            for i, array in zip(outs, made, strict=True):
                held[i] = array
            for i in gone:
                held[i] = None
        if group is not None:
            group.sent()
        return [held[self._values[v]] for v in self.graph.results]

    def explain(self, arrays: Arrays | None = None) -> str:
        """The table, what this rank does in which order, and what the backend says of each program."""
        lines = [line for node in self.graph.nodes if (line := told(node))]
        order = "\n".join(["this rank, in order:", *[f"  {line}" for line in lines]])
        parts = [f"{name}:\n{body.explain()}" for name, body in self.bodies.items()]
        return "\n\n".join([self.text, order, *parts])

    def _group(self) -> Group | None:
        """The ranks along the pipeline, ready to send to each other."""
        group = group_of("stage", self._mesh, PIPE)
        if group.size == 1:
            return None
        group.open()
        return group

    def _planned(self) -> list[_Step]:
        kept = {*self.graph.results, *self.graph.constants, *self.graph.inputs}
        last: dict[Value, int] = {}
        for at, node in enumerate(self.graph.nodes):
            last.update(dict.fromkeys((*node.outputs, *node.inputs), at))
        steps = []
        for at, node in enumerate(self.graph.nodes):
            used = dict.fromkeys((*node.inputs, *node.outputs))
            gone = tuple([self._values[v] for v in used if last[v] == at and v not in kept])
            ins, outs = (tuple([self._values[v] for v in vs]) for vs in (node.inputs, node.outputs))
            steps.append(_Step(self._step(node), ins, outs, gone))
        return steps

    def _step(self, node: Node) -> Run:
        if node.op is call:
            body: Run = self.bodies[node.attrs["function"]]
            return body
        evaluate, attrs, one = node.op.eval, node.attrs, node.op.outputs == 1

        def run(arrays: list[Any]) -> Sequence[Array]:
            try:
                with np.errstate(all="ignore"):
                    found = evaluate(*arrays, **attrs)
            except WeftError as error:
                raise placed(error, node) from None
            return (np.asarray(found),) if one else found

        return run


def told(node: Node) -> str:
    """What a node is in the order of a rank; "" for what moves or adds arrays in between."""
    attrs, name = node.attrs, str(node.op.name)
    if node.op is call:
        return str(attrs["function"])
    if node.op is send:
        return f"send {node.inputs[0].type} to {attrs['to']}"
    if "source" in attrs:
        type_ = node.outputs[0].type
        return f"{name.replace('_', ' ')} {type_} from {attrs['source']}"
    if not node.op.effect or "mesh" not in attrs:
        return ""
    over = f" of {node.inputs[0].type} over {attrs['axis']}" if "axis" in attrs else ""
    return f"{name}{over}"


def _values(graph: Graph) -> list[Value]:
    made = [v for node in graph.nodes for v in node.outputs]
    return list(dict.fromkeys((*graph.inputs, *graph.constants, *made)))
