"""The reference backend: the interpreter of ``weft.ir``, with everything that calls share prepared once.

The order of the nodes, where each value is kept and when it is last used are found when the graph is built.
A graph with sizes that only a call tells is left to the interpreter itself until its shapes come again. With
``check_nan`` every node, in regions too, raises an error where a result of it is wrong (``weft.ops.nan``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from weft.backends.backend import Array, Arrays, Backend, Executable, Option
from weft.base.concrete import any_on_device, on_host
from weft.base.hooks import hooks
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.errors import WeftError
from weft.ir.graph import Graph, Node, Value, has_sizes, substitute_sizes
from weft.ir.interpret import interpret, placed, solve_sizes
from weft.ir.naming import explain_error
from weft.ir.order import kahn_order, needed_nodes
from weft.ir.rewrite import map_regions
from weft.ops.nan import non_finite_error
from weft.ops.op import Op


def checked(graph: Graph, check: Option = True) -> Graph:
    """A graph that raises an error at the first node that gives a NaN; or an infinity, if asked for "all".

    >>> import numpy as np, weft
    >>> from weft.backends.interpret import checked
    >>> from weft.ir.interpret import interpret
    >>> graph = checked(weft.make_graph(lambda x: weft.log(x))(weft.ones(2)))
    >>> interpret(graph, [np.array([1, -1], np.float32)])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.NonFiniteError: log: results must not be NaN, got 1 in f32[2], from f32[2] in -1..1
    ...
    """
    return graph.replace(nodes=[_checked_node(node, check) for node in graph.nodes])


def _checked_node(node: Node, check: Option) -> Node:
    node = map_regions(node, lambda region: checked(region, check))
    return Node(_checked_op(node.op, check), node.inputs, node.attrs, node.outputs, node.location)


@cache
def _checked_op(op: Op, check: Option) -> Op:
    evaluate, out = op.eval, copy.copy(op)

    def run(*arrays: Any, **attrs: Any) -> Any:
        result = evaluate(*arrays, **attrs)
        for array in (result,) if op.outputs == 1 else result:
            error = non_finite_error(op.name, np.asarray(array), arrays, attrs, check)
            if error is not None:
                raise error
        return result

    out.eval = run
    return out


ndarray = np.ndarray
_MOST_KNOWN = 256


class _Step(NamedTuple):
    """One node: its kernel, the places of its inputs and outputs, and the places that are free after it."""

    node: Node
    kernel: Callable[..., Any]
    attrs: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    single: bool
    freed: tuple[int, ...]


class Interpreted(Executable):
    """A graph that is interpreted: a function from the arrays of its inputs to those of its results.

    Attributes:
        graph: what it runs.
    """

    __slots__ = ("_constants", "_empty", "_results", "_steps", "graph")

    def __init__(self, graph: Graph) -> None:
        places: dict[Value, int] = {v: i for i, v in enumerate((*graph.inputs, *graph.constants))}
        nodes = kahn_order(needed_nodes(graph.nodes, graph.results))
        for node in nodes:
            for v in node.outputs:
                places[v] = len(places)
        self.graph = graph
        self._steps = _steps(nodes, places, keep={*graph.inputs, *graph.constants, *graph.results})
        self._constants = list(graph.constants.values())
        self._empty = [None] * (len(places) - len(graph.inputs) - len(self._constants))
        self._results = [places[v] for v in graph.results]

    def __call__(self, arrays: Arrays) -> list[Array]:
        """Run on arrays."""
        if any_on_device(arrays):
            return _by_host(self, arrays)
        values: list[Any] = [*arrays, *self._constants, *self._empty]
        try:
            with np.errstate(all="ignore"):
                for step in self._steps:
                    _run_step(step, values)
        except WeftError as error:
            explain_error(error, self.graph)
            raise
        return [values[i] for i in self._results]

    def explain(self, arrays: Arrays | None = None) -> str:
        """The nodes, each of which is run by itself."""
        return f"interpreted, node by node:\n{self.graph}"


def _by_host(run: Interpreted, arrays: Arrays) -> list[Array]:
    """The results on the device of the arrays, which are copied: NumPy computes on the host."""
    device: Any = next(x for x in arrays if any_on_device([x])).device
    return [hooks.copy_to(np.asarray(out), device) for out in run([on_host(x) for x in arrays])]


class InterpretedAnew(Interpreted):
    """A graph with sizes that only a call tells: prepared for shapes that come a second time."""

    __slots__ = ("_known",)

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._known: dict[tuple[tuple[int, ...], ...], Interpreted | None] = {}

    def __call__(self, arrays: Arrays) -> list[Array]:
        """Run on arrays."""
        if any_on_device(arrays):
            return _by_host(self, arrays)
        shapes = tuple([array.shape for array in arrays])
        known = self._known.get(shapes)
        if known is not None:
            return known(arrays)
        results = interpret(self.graph, arrays)  # which checks that the sizes fit
        if shapes in self._known:
            fixed = substitute_sizes(self.graph, solve_sizes(self.graph, arrays))
            self._known[shapes] = None if _has_open_sizes(fixed) else Interpreted(fixed)
        elif len(self._known) < _MOST_KNOWN:
            self._known[shapes] = None
        return results


class Interpreter(Backend):
    """The reference: runs one node after the other by NumPy."""

    name = "interpret"
    options = frozenset({"debug", "check_nan"})

    def build(self, graph: Graph, **options: Option) -> Interpreted:
        """A function from the arrays of the inputs of a graph to those of its outputs, then of its updates.

        Args:
            graph: to run.
            options: ``check_nan`` to raise an error where a node gives a NaN, "all" for infinities made of
                finite numbers too; ``debug`` to check every index, as NumPy does anyhow.

        >>> import numpy as np, weft
        >>> from weft.backends.interpret import build
        >>> build(weft.make_graph(lambda x: x * 2.0)(weft.ones(2)))([np.ones(2, np.float32)])
        [array([2., 2.], dtype=float32)]
        """
        if check := options.get("check_nan", False):
            graph = checked(graph, check)
        return InterpretedAnew(graph) if _has_open_sizes(graph) else Interpreted(graph)


BACKEND = Interpreter()
build = BACKEND.build


def _has_open_sizes(graph: Graph) -> bool:
    nodes = list(graph.walk())
    values = (*graph.inputs, *[v for node in nodes for v in node.outputs])
    named = any(isinstance(size, Size) for v in values for size in v.type.shape)
    return named or any(has_sizes(node.attrs) for node in nodes)


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
        raise placed(error, node) from error.__cause__
    if single:
        values[outputs[0]] = result if type(result) is ndarray else np.asarray(result)
    else:
        for i, out in zip(outputs, result, strict=True):
            values[i] = out if type(out) is ndarray else np.asarray(out)
    for i in freed:
        values[i] = None
