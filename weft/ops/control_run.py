"""How the kernels of control flow run their regions: resolved once, then as often as the loop goes round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from weft.base.sizes import Size, bind
from weft.errors import WeftError
from weft.ir.graph import Array, Graph, Node, Value, has_sizes, substitute_sizes
from weft.ir.interpret import interpret, solve
from weft.ir.order import kahn_order, needed_nodes

ndarray = np.ndarray


class Program:
    """A region made ready to run many times on arrays: nodes in order, values in numbered places.

    Attributes:
        outputs: the values of the results.
    """

    __slots__ = ("_dynamic", "_inputs", "_places", "_results", "_start", "_steps", "outputs")

    def __init__(self, graph: Graph) -> None:
        self.outputs = graph.outputs
        nodes = kahn_order(needed_nodes(graph.nodes, graph.outputs))
        # Inner loops of unknown length have sizes that differ each time.
        self._dynamic = graph if any(map(_names_size, nodes)) else None
        self._places: dict[Value, int] = {}
        for value in (*graph.inputs, *graph.constants):
            self._place(value)
        self._inputs = len(graph.inputs)
        self._steps = [self._step(node) for node in nodes]
        self._results = [self._places[v] for v in graph.outputs]
        self._start: list[Any] = [None] * len(self._places)
        for value, array in graph.constants.items():
            self._start[self._places[value]] = array

    @property
    def is_static(self) -> bool:
        """Whether all sizes are known; it then holds no reference to its graph."""
        return self._dynamic is None

    def _place(self, value: Value) -> int:
        return self._places.setdefault(value, len(self._places))

    def _step(self, node: Node) -> tuple[Any, ...]:
        op = node.op
        inputs = [self._place(v) for v in node.inputs]
        outputs = [self._place(v) for v in node.outputs]
        return op.eval, inputs, node.attrs, outputs[0] if op.outputs == 1 else outputs, op.outputs == 1, node

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """The arrays of the outputs."""
        if self._dynamic is not None:
            return interpret(self._dynamic, arrays)
        places = self._start.copy()
        places[: self._inputs] = arrays
        node: Any = None
        try:
            for evaluate, inputs, attrs, outputs, single, node in self._steps:  # noqa: B007 - node names the line
                result = evaluate(*[places[i] for i in inputs], **attrs)
                if single:
                    places[outputs] = result if type(result) is ndarray else np.asarray(result)
                else:
                    for i, r in zip(outputs, result, strict=True):
                        places[i] = r if type(r) is ndarray else np.asarray(r)
        except WeftError as error:
            if node.location is not None and not getattr(error, "in_graph", False):
                error.location = node.location.place
                error.in_graph = True  # type: ignore[attr-defined]
            raise
        return [places[i] for i in self._results]


def _names_size(node: Node) -> bool:
    return has_sizes(node.attrs) or any(isinstance(s, Size) for v in node.outputs for s in v.type.shape)


_programs: WeakKeyDictionary[Graph, Program] = WeakKeyDictionary()


def prepare(graph: Graph, arrays: Sequence[Array]) -> Program:
    """A region ready to run on arrays like these: named sizes that they tell are known."""
    if (known_program := _programs.get(graph)) is not None:
        return known_program
    sizes: dict[str, int] = {}
    for value, array in zip(graph.inputs, arrays, strict=True):
        for size, actual in zip(value.type.shape, array.shape, strict=True):
            if isinstance(known := bind(size, sizes), Size):
                solve(known, actual, sizes)
    program = Program(substitute_sizes(graph, sizes) if sizes else graph)
    if not sizes and program.is_static:
        _programs[graph] = program
    return program


def stack_collected(columns: Sequence[list[Array]], values: Sequence[Value]) -> list[Array]:
    """What each iteration gave, along a new first axis; of no iteration, an empty array."""
    return [
        np.stack(column) if column else np.empty((0, *value.type.shape), value.type.dtype)
        for column, value in zip(columns, values, strict=True)
    ]
