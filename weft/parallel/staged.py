"""What runs the program of a rank of a pipeline: node by node, with a compiled program for each call.

Nodes between calls move data or add up what calls made; each array is let go after its last use. What a rank
receives after a call may come while that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.backends.backend import Array, Arrays, Executable
from weft.base.ranks import Group, Pending, group_of
from weft.base.records import NamedTuple
from weft.errors import WeftError
from weft.ir.graph import Graph, Node, Value
from weft.ir.interpret import placed
from weft.ops.call import call
from weft.ops.pipeline import receive, received
from weft.parallel.stage import PIPE

Run = Callable[[list[Any]], Sequence[Array]]


class _Step(NamedTuple):
    """A node with its operands and results by number, what is let go after it, what comes meanwhile."""

    run: Run
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    gone: tuple[int, ...]
    coming: tuple[_Message, ...]


class _Message:
    """What is received under a number, which may have begun before somebody asks for it."""

    __slots__ = ("_attrs", "_begun")

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self._attrs = attrs
        self._begun: tuple[Array, Pending] | None = None

    def begin(self) -> tuple[Array, Pending]:
        """Let it come from now on."""
        if self._begun is None:
            out, meeting = received(**self._attrs)
            group = group_of("receive", self._attrs["mesh"], self._attrs["axis"])
            pending = group.expect(meeting, self._attrs["number"], out, self._attrs["source"])
            self._begun = out, pending
        return self._begun

    def forget(self) -> None:
        """Begin anew at the next run."""
        self._begun = None

    def __call__(self, arrays: list[Any]) -> Sequence[Array]:
        """Wait for it."""
        out, pending = self.begin()
        self._begun = None
        pending.finish()
        return (out,)


class Staged(Executable):
    """The program of a rank of a pipeline.

    Attributes:
        graph: what it runs.
        bodies: by name, what the backend made of the graphs that it calls.
        text: of the table, with what is kept.
        planned: what a planner must know of it.
    """

    __slots__ = ("_mesh", "_messages", "_steps", "_values", "bodies", "donated", "graph", "planned", "text")

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
        for message in self._messages:
            message.forget()  # of a run that failed
        for run, ins, outs, gone, coming in self._steps:
            for message in coming:
                message.begin()
            made = run([held[i] for i in ins])
            for i, array in zip(outs, made, strict=True):
                held[i] = array
            for i in gone:
                held[i] = None
        if group is not None:
            group.sent()
        return [held[self._values[v]] for v in self.graph.results]

    def explain(self, arrays: Arrays | None = None) -> str:
        """The table, and what the backend says of each program that is called."""
        parts = [f"{name}:\n{body.explain()}" for name, body in self.bodies.items()]
        return "\n\n".join([self.text, *parts])

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
        runs = [self._step(node) for node in self.graph.nodes]
        self._messages = [run for run in runs if isinstance(run, _Message)]
        coming = self._coming(runs)
        steps = []
        for at, node in enumerate(self.graph.nodes):
            used = dict.fromkeys((*node.inputs, *node.outputs))
            gone = tuple([self._values[v] for v in used if last[v] == at and v not in kept])
            ins, outs = (tuple([self._values[v] for v in vs]) for vs in (node.inputs, node.outputs))
            steps.append(_Step(runs[at], ins, outs, gone, coming.get(at, ())))
        return steps

    def _coming(self, runs: Sequence[Run]) -> dict[int, tuple[_Message, ...]]:
        """By number of a call, the messages between it and the next one."""
        found: dict[int, tuple[_Message, ...]] = {}
        at = None
        for i, (node, run) in enumerate(zip(self.graph.nodes, runs, strict=True)):
            at = i if node.op is call else at
            if isinstance(run, _Message) and at is not None:
                found[at] = (*found.get(at, ()), run)
        return found

    def _step(self, node: Node) -> Run:
        if node.op is call:
            body: Run = self.bodies[node.attrs["function"]]
            return body
        if node.op is receive:
            return _Message(node.attrs)
        evaluate, attrs, one = node.op.eval, node.attrs, node.op.outputs == 1

        def run(arrays: list[Any]) -> Sequence[Array]:
            try:
                with np.errstate(all="ignore"):
                    found = evaluate(*arrays, **attrs)
            except WeftError as error:
                raise placed(error, node) from None
            return (np.asarray(found),) if one else found

        return run


def _values(graph: Graph) -> list[Value]:
    made = [v for node in graph.nodes for v in node.outputs]
    return list(dict.fromkeys((*graph.inputs, *graph.constants, *made)))
