"""What the rules of control flow share: which parts of a region have a derivative, and closed regions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from weft.base.dtypes import kind
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.ops import control
from weft.ops.call import call
from weft.ops.op import NoGradient
from weft.transform.tracing import trace_graph

Values = Sequence[Any]  # arrays or tensors; None where there is none


def is_smooth(value: Value) -> bool:
    """Whether a value can have a derivative."""
    return kind(value.type.dtype) in "fc"


def reached_outputs(graph: Graph, inputs: Collection[int]) -> set[int]:
    """The outputs of a graph that may have a derivative by some of its inputs."""
    reached = {graph.inputs[i] for i in inputs}
    for node in graph.nodes:
        if not reached.isdisjoint(node.inputs):
            places = _reached_of(node, {i for i, v in enumerate(node.inputs) if v in reached})
            reached.update(v for i, v in enumerate(node.outputs) if is_smooth(v) and i in places)
    return {k for k, v in enumerate(graph.outputs) if v in reached}


def _reached_of(node: Node, inputs: Collection[int]) -> Collection[int]:
    """The outputs of a node that may have a derivative by some of its inputs."""
    if node.op in (control.cond, control.switch):
        return reached_of_branches(node.attrs["branches"], {i - 1 for i in inputs if i})
    if node.op in (control.scan, control.while_loop):
        first = int(node.attrs.get("counted", False))
        return reached_of_loop(node.attrs["body"], node.attrs["carries"], {i - first for i in inputs})
    stops = isinstance(node.op.vjp, NoGradient) and node.op is not call
    return () if stops else range(len(node.outputs))


def reached_of_branches(branches: Sequence[Graph], inputs: Collection[int]) -> set[int]:
    """The outputs of branches that may, in one of them, have a derivative by some of their inputs."""
    return set().union(*[reached_outputs(branch, inputs) for branch in branches])


def reached_of_loop(body: Graph, carries: int, inputs: Collection[int]) -> set[int]:
    """The outputs of a loop that may have a derivative by some inputs; a carry that comes in so keeps it."""
    active = active_inputs(body, carries, inputs)
    return reached_outputs(body, active) | {i for i in active if i < carries}


def active_inputs(body: Graph, carries: int, inputs: Iterable[int]) -> set[int]:
    """Some inputs of the body of a loop, and the carries that come to depend on them."""
    active = set(inputs)
    while True:
        carried = {k for k in reached_outputs(body, active) if k < carries}
        if carried <= active:
            return active
        active |= carried


def trace_closed(function: Callable[..., Sequence[Any]], types: Sequence[TensorType], name: str) -> Graph:
    """The graph of a function that uses nothing from around it."""
    graph, imports = trace_graph(function, types, name, closed=True)
    assert not imports, "a rule makes closed regions"
    return graph


def types_of(values: Iterable[Value]) -> list[TensorType]:
    """The types of values."""
    return [v.type for v in values]


def split_groups(items: Sequence[Any], groups: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Items in groups as long as these."""
    rest = iter(items)
    return [[next(rest) for _ in group] for group in groups]
