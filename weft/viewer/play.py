"""What flows through a graph in one run, in order of execution: for the page to play.

Every node, those of loops and branches at each turn too, tells its results as it runs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir.graph import Graph, Node
from weft.ir.interpret import interpret
from weft.viewer.table import Table

MOST_EVENTS = 20_000
SMALL = 64  # elements of a tensor that are shown one by one
SAMPLE = 4096  # elements of a large tensor whose distribution is shown
BARS = 16
_DIGITS = 5

Event = list[Any]


def play_graph(table: Table, graph: Graph, arrays: Sequence[Any]) -> list[Event]:
    """The events of a run: the number of a node's first value, and what each of its results is.

    >>> import numpy as np, weft
    >>> graph = weft.make_graph(lambda x: x * 2.0)(weft.ones(2))
    >>> [(_, [shown])] = play_graph(Table(), graph, [np.array([1, 2], np.float32)])[1:]
    >>> shown["data"]
    [2.0, 4.0]
    """
    events: list[Event] = []
    for value, array in zip(graph.inputs, arrays, strict=True):
        events.append([table.number(value), [summary(np.asarray(array))]])
    interpret(_telling(graph, table, events), [np.asarray(a) for a in arrays])
    return events


def _telling(graph: Graph, table: Table, events: list[Event]) -> Graph:
    """A graph whose nodes tell their results; its values are those of the graph itself."""
    return graph.replace(nodes=[_telling_node(node, table, events) for node in graph.nodes])


def _telling_node(node: Node, table: Table, events: list[Event]) -> Node:
    op, evaluate = copy.copy(node.op), node.op.eval
    is_quiet = bool(op.effect) and not node.outputs  # what only tells people something stays silent
    number = table.number(node.outputs[0] if node.outputs else node)

    def run(*arrays: Any, **attrs: Any) -> Any:
        result = () if is_quiet else evaluate(*arrays, **attrs)
        outs = (result,) if op.outputs == 1 else result
        if len(events) < MOST_EVENTS:
            events.append([number, [summary(np.asarray(a)) for a in outs]])
        return result

    op.eval = run
    attrs = {name: _telling_attr(value, table, events) for name, value in node.attrs.items()}
    return Node(op, node.inputs, attrs if node.regions else node.attrs, node.outputs, node.location)


def _telling_attr(value: Any, table: Table, events: list[Event]) -> Any:
    if type(value) is Graph:
        return _telling(value, table, events)
    if type(value) is tuple and value and type(value[0]) is Graph:
        return tuple(_telling(graph, table, events) for graph in value)
    return value


def summary(array: Any) -> dict[str, Any]:
    """An array in short: a small one as it is, of others their range and mean.

    >>> import numpy as np
    >>> summary(np.array([[1.0, np.nan]]))
    {'shape': [1, 2], 'data': [1.0, 'nan']}
    >>> summary(np.arange(1000.0))["mean"]
    499.5
    """
    found: dict[str, Any] = {"shape": list(array.shape)}
    if array.dtype.kind == "c":
        array = np.abs(array)
    if array.size <= SMALL:
        found["data"] = [_plain(x) for x in array.reshape(-1).tolist()]
        return found
    numbers = array.reshape(-1)
    is_finite = np.isfinite(numbers)
    finite = numbers if is_finite.all() else numbers[is_finite]
    if finite.size:
        mean = finite.mean(dtype=np.float64)
        found |= {"min": _plain(finite.min()), "max": _plain(finite.max()), "mean": _plain(mean)}
        sample = finite[:: max(1, finite.size // SAMPLE)].astype(np.float64)
        found["bars"] = np.histogram(sample, BARS)[0].tolist()
    if finite.size < numbers.size:
        found["strange"] = int(numbers.size - finite.size)
    return found


def _plain(x: Any) -> Any:
    """A number as JSON can hold it, with few digits."""
    if isinstance(x, bool | int):
        return x
    x = float(x)
    if not math.isfinite(x):
        return str(x)
    return float(f"{x:.{_DIGITS}g}")
