"""How the kernels of control flow run their regions: resolved once, then as often as the loop goes round.

A kernel is a generator that asks for each run of a region and gets what it gave; so it can also be stepped
through, node by node (``weft.ir.stepping``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from weft.base.sizes import Size, bind, size_names
from weft.base.stopping import asked, check_asked
from weft.errors import ShapeError, WeftError
from weft.ir.graph import Array, Graph, Node, Value, has_sizes, substitute_sizes
from weft.ir.interpret import placed, run_nodes, solve
from weft.ir.order import kahn_order, needed_nodes
from weft.ir.types import TensorType

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
            return run_nodes(self._dynamic, arrays)
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
            raise placed(error, node) from error.__cause__
        except Exception:
            _explain(node, [places[i] for i in inputs])
            raise
        return [places[i] for i in self._results]


def _explain(node: Node, arrays: Sequence[Any]) -> None:
    """Raise in the user's terms if the types are at fault for an error of a kernel."""
    types = [TensorType(np.shape(a), np.asarray(a).dtype) for a in arrays]
    try:
        node.op.type_rule(*types, **node.attrs)
    except WeftError as error:
        raise placed(error, node) from None


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


class Ask:
    """What the kernel of an op with regions asks for: a run of one of them.

    A loop asks with one object in all iterations, which costs it least.

    Attributes:
        region: to run.
        program: it made ready.
        part: the name of the region.
        arrays: what goes in.
        iteration: which one of a loop it is in, from 0 on; -1 outside of loops.
    """

    __slots__ = ("arrays", "iteration", "part", "program", "region")

    def __init__(self, region: Graph, program: Program, part: str, arrays: Sequence[Array] = ()) -> None:
        self.region = region
        self.program = program
        self.part = part
        self.arrays = arrays
        self.iteration = -1


Steps = Callable[..., Generator[Ask, list[Array], tuple[Array, ...]]]


def driven(op: str, steps: Steps) -> Callable[..., tuple[Array, ...]]:
    """The kernel of an op that runs all that a generator asks for, unless somebody wants the run to end.

    It has the generator as its attribute ``steps``.
    """

    def run(*xs: Array, **attrs: object) -> tuple[Array, ...]:
        asking = steps(*xs, **attrs)
        try:
            ask = next(asking)
            while True:
                ask = asking.send(ask.program(ask.arrays))
                if asked:
                    check_asked(op)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    run.steps = steps  # type: ignore[attr-defined]
    return run


def stack_collected(op: str, columns: Sequence[list[Array]], values: Sequence[Value]) -> list[Array]:
    """What each iteration gave, along a new first axis; of no iteration, an empty array."""
    return [_stacked(op, column, value) for column, value in zip(columns, values, strict=True)]


def _stacked(op: str, column: list[Array], value: Value) -> Array:
    if not column:
        # what no iteration told is 0
        shape = bind(value.type.shape, dict.fromkeys(size_names(value.type.shape), 0))
        return np.empty((0, *shape), value.type.dtype)
    for array in column:
        if array.shape != column[0].shape:
            first, got = next(p for p in zip(column[0].shape, array.shape, strict=True) if p[0] != p[1])
            raise ragged_error(op, first, got)
    return np.stack(column)


def ragged_error(op: str, first: int, got: int) -> ShapeError:
    """Iterations of a loop whose rows differ in length, where all are stacked."""
    hint = "pad rows to one length, or compute what is needed of a row inside of the loop"
    return ShapeError(op, f"iterations must give rows of one length, got {first} and {got}", hint=hint)
