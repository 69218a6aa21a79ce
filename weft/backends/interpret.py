"""The reference backend: the interpreter of ``weft.ir``, with everything that calls share prepared once.

The order of the nodes, where each value is kept and when it is last used are found when the graph is built.
A graph with sizes that only a call tells is left to the interpreter itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base.sizes import Size
from weft.errors import WeftError
from weft.ir.graph import Graph, Node, Value, has_sizes
from weft.ir.interpret import interpret
from weft.ir.order import kahn_order, needed_nodes

ndarray = np.ndarray


class _Step(NamedTuple):
    """One node: its kernel, the places of its inputs and outputs, and the places that are free after it."""

    node: Node
    kernel: Callable[..., Any]
    attrs: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    single: bool
    freed: tuple[int, ...]


def build(graph: Graph) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function from the arrays of the inputs of a graph to those of its outputs, then of its updates."""
    if _has_open_sizes(graph):
        return lambda arrays: interpret(graph, arrays)
    places: dict[Value, int] = {v: i for i, v in enumerate((*graph.inputs, *graph.constants))}
    nodes = kahn_order(needed_nodes(graph.nodes, graph.results))
    for node in nodes:
        for v in node.outputs:
            places[v] = len(places)
    steps = _steps(nodes, places, keep={*graph.inputs, *graph.constants, *graph.results})
    constants = list(graph.constants.values())
    empty = [None] * (len(places) - len(graph.inputs) - len(constants))
    results = [places[v] for v in graph.results]

    def run(arrays: Sequence[Any]) -> Sequence[Any]:
        values = [*arrays, *constants, *empty]
        with np.errstate(all="ignore"):
            for step in steps:
                _run_step(step, values)
        return [values[i] for i in results]

    return run


def _has_open_sizes(graph: Graph) -> bool:
    nodes = list(graph.walk())
    values = (*graph.inputs, *[v for node in nodes for v in node.outputs])
    return any(isinstance(size, Size) for v in values for size in v.type.shape) or any(
        has_sizes(node.attrs) for node in nodes
    )


def _steps(nodes: Sequence[Node], places: dict[Value, int], keep: set[Value]) -> list[_Step]:
    last = {v: i for i, node in enumerate(nodes) for v in (*node.outputs, *node.inputs)}
    ending: list[list[int]] = [[] for _ in nodes]
    for v, i in last.items():
        if v not in keep:
            ending[i].append(places[v])
    return [
        _Step(
            node,
            node.op.eval,
            dict(node.attrs),
            tuple(places[v] for v in node.inputs),
            tuple(places[v] for v in node.outputs),
            node.op.outputs == 1,
            tuple(freed),
        )
        for node, freed in zip(nodes, ending, strict=True)
    ]


def _run_step(step: _Step, values: list[Any]) -> None:
    node, kernel, attrs, inputs, outputs, single, freed = step
    try:
        result = kernel(*[values[i] for i in inputs], **attrs)
    except WeftError as error:
        if node.location is not None and not getattr(error, "in_graph", False):
            error.location = node.location.place
            error.in_graph = True  # type: ignore[attr-defined]
        raise
    if single:
        values[outputs[0]] = result if type(result) is ndarray else np.asarray(result)
    else:
        for i, out in zip(outputs, result, strict=True):
            values[i] = out if type(out) is ndarray else np.asarray(out)
    for i in freed:
        values[i] = None
