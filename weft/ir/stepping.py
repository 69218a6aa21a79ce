"""Running a graph node by node: the machine behind ``graph.step``, on arrays.

A run is a stack of frames: the graph, and the regions (branches, bodies of loops) that it stands in. It stops
before each node. ``weft.capture.call.stepping`` is what users hold.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from weft.errors import GraphError, WeftError
from weft.ir.graph import Array, Graph, Node, Value
from weft.ir.interpret import Run, placed
from weft.ir.naming import Names, explain_error
from weft.ir.order import kahn_order, needed_nodes

_Stops = Generator[None, None, list[Array]]


class Frame:
    """One graph that is being run: the whole, or a region.

    Attributes:
        graph: that runs.
        run: its values.
        part: the region in words, such as ``body of scan``; "" of the whole.
        iteration: of the loop that it is in, from 0 on; -1 outside of loops.
        node: the one that runs next; None at the end.
    """

    __slots__ = ("graph", "iteration", "node", "part", "run")

    def __init__(self, graph: Graph, part: str = "", iteration: int = -1) -> None:
        self.graph = graph
        self.run = Run(graph, {})
        self.part = part
        self.iteration = iteration
        self.node: Node | None = None


class Walk:
    """A run of a graph that stops before each node.

    Attributes:
        graph: that runs.
        names: of its values, and of those of its regions.
        frames: what is being run, the whole graph first.
        results: the arrays of the results; None until the end.

    >>> import numpy as np, weft
    >>> from weft.ir.stepping import Walk
    >>> graph = weft.make_graph(lambda x: weft.exp(x * 2.0))(weft.ones(2))
    >>> walk = Walk(graph, [np.zeros(2, np.float32)])
    >>> while walk.node is not None:
    ...     print(walk.node.op.name)
    ...     walk.advance()
    mul
    exp
    >>> walk.results
    [array([1., 1.], dtype=float32)]
    """

    def __init__(self, graph: Graph, arrays: Sequence[Array]) -> None:
        self.graph = graph
        self.names = Names(graph)
        self.frames: list[Frame] = []
        self.results: list[Array] | None = None
        self._enters = True
        self._stops = self._run(Frame(graph), arrays)
        self.advance()

    @property
    def node(self) -> Node | None:
        """The node that runs next; None at the end."""
        return self.frames[-1].node if self.frames else None

    def advance(self, *, enters: bool = True) -> None:
        """Run up to the next node, which of one with regions is their first; or run that one as a whole."""
        self._enters = enters
        try:
            next(self._stops)
        except StopIteration as stop:
            if self.results is None:
                self.results = stop.value
        except WeftError as error:
            explain_error(error, self.graph)
            raise

    def _run(self, frame: Frame, arrays: Sequence[Array]) -> _Stops:
        graph, run = frame.graph, frame.run
        self.frames.append(frame)
        run.bind_inputs(arrays)
        for node in kahn_order(needed_nodes(graph.nodes, graph.results)):
            frame.node = node
            yield
            if self._enters and hasattr(node.op.eval, "steps"):
                run.take(node, (yield from self._regions(node, run)))
            else:
                run.step(node)
        frame.node = None
        if len(self.frames) > 1:  # the whole graph stays, to be looked at
            self.frames.pop()
        return [run.values[v] for v in graph.results]

    def _regions(self, node: Node, run: Run) -> Generator[None, None, tuple[Any, ...]]:
        """Run the regions of a node as its kernel asks for them."""
        asking = node.op.eval.steps(*[run.values[v] for v in node.inputs], **run.attrs_of(node))
        try:
            ask = next(asking)
            while True:
                inner = Frame(ask.region, f"{ask.part} of {node.op.name}", ask.iteration)
                outs = yield from self._run(inner, ask.arrays)
                ask = asking.send(outs[: len(ask.region.outputs)])
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        except WeftError as error:
            raise placed(error, node) from error.__cause__

    # Values

    def find(self, key: object) -> tuple[Frame, Value]:
        """What a name, number, node or value stands for, in the innermost frame that has computed it."""
        found = [(frame, self._value_in(frame, key)) for frame in reversed(self.frames)]
        known = [(frame, value) for frame, value in found if value is not None]
        for frame, value in known:
            if value in frame.run.values:
                return frame, value
        if known:
            return known[0]  # which has no array yet
        message = f"must be in the graph {self.graph.name} or a region that runs, got {key!r}"
        raise GraphError("value", message)

    def _value_in(self, frame: Frame, key: object) -> Value | None:
        graph = frame.graph
        known = [*graph.inputs, *graph.constants, *[v for n in graph.nodes for v in n.outputs]]
        if isinstance(key, Node):
            return key.outputs[0] if key.outputs and key.outputs[0] in known else None
        if isinstance(key, Value):
            return key if key in known else None
        if isinstance(key, int):
            key = f"%{key}"
        called = [v for v in known if self.names.given(v) == key]
        if called:
            return next((v for v in reversed(called) if v in frame.run.values), called[0])
        try:
            found: Value = graph.value(key)
        except GraphError:
            return None
        return found

    def array(self, key: object) -> Array:
        """The array of a value; an error if it has none yet."""
        frame, value = self.find(key)
        if value not in frame.run.values:
            maker = self.names.maker(value)
            line = "" if maker is None else f", which is {self.names.line(maker)}"
            raise GraphError("value", f"must have been computed, got {self.names.name(value)}{line}")
        return frame.run.values[value]

    def put(self, key: object, array: Array) -> None:
        """Give a value another array, which whatever runs from now on reads."""
        frame, value = self.find(key)
        if value not in frame.run.values:
            self.array(key)  # raises
        frame.run.bind(value, array, self.names.name(value))
