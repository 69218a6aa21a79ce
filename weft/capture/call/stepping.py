"""``graph.step(feeds)``: run a graph node by node, look at its values, change them, and go on.

It runs by the reference kernels, and changes nothing: parameters and generators stay as they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from weft.base.concrete import on_host
from weft.base.tracebacks import edge
from weft.capture.call.replaying import input_tensors
from weft.capture.program.cutting import cut_out
from weft.capture.static.feeds import check_feeds, feed_items
from weft.capture.static.session import Session
from weft.errors import ArgumentError, DtypeError, ShapeError
from weft.ir.graph import Array, Graph, Node
from weft.ir.stepping import Frame, Walk
from weft.ops.op import type_of
from weft.tensor.creation import asarray
from weft.tensor.tensor import Tensor, wrap
from weft.transform.captured import not_capturing


def step(graph: Graph, feeds: Mapping[Any, Any] | None = None) -> Stepper:
    """Run a graph node by node: ``graph.step({x: ...})`` stands before its first node.

    Args:
        graph: written by hand, or captured from a function.
        feeds: by placeholder or argument (tensor, value or name) its value, as ``Session.run`` takes them.

    >>> import weft
    >>> graph = weft.make_graph(lambda x: weft.exp(x * 2.0))(weft.ones(2))
    >>> run = graph.step({"x": [0.0, 1.0]})
    >>> run.node.op.name
    'mul'
    >>> run.step()
    >>> run["%0"]
    tensor([0., 2.])
    >>> run["%0"] = weft.zeros(2)
    >>> run.run()
    tensor([1., 1.])
    """
    part, arrays = inputs_of(graph, feeds)
    return Stepper(part, arrays)


def step_call(function: Any, args: Any, kwargs: Any) -> Stepper:
    """Run the graph of a call of a compiled function node by node."""
    version, tensors = function._version_for(args, kwargs)
    return Stepper(
        version.graph, [t._value()._array("step") for t in input_tensors(version.program, tensors)]
    )


def inputs_of(graph: Graph, feeds: Mapping[Any, Any] | None) -> tuple[Graph, list[Array]]:
    """The graph with values that are fed as inputs, and the arrays of its inputs."""
    session = Session(graph, "interpret")
    given = {session._value("feeds", key): item for key, item in feed_items("step", graph, feeds)}
    fed = check_feeds(graph, given)
    overridden = frozenset(given).difference(graph.inputs)
    part, inputs = cut_out(graph, graph.results, overridden, effects=True)
    with not_capturing():
        return part, [on_host(session._input(v, fed)) for v in inputs]


class Stepper:
    """A run that stands before a node, made by ``graph.step`` and by ``step`` of compiled functions.

    >>> import weft
    >>> def halve(x):
    ...     while x.sum() > 1.0:
    ...         x = x / 2.0
    ...     return x
    >>> run = weft.make_graph(halve)(weft.ones(2)).step({"x": [4.0, 4.0]})
    >>> run.run_to(when=lambda run: run.iteration == 2)
    True
    >>> run["x"]
    tensor([1., 1.])
    """

    def __init__(self, graph: Graph, arrays: list[Array]) -> None:
        self._walk = Walk(graph, arrays)

    # Where it stands

    @property
    def node(self) -> Node | None:
        """The node that runs next; None at the end."""
        return self._walk.node

    @property
    def line(self) -> int | None:
        """The line of the user's program that the next node comes from."""
        node = self._walk.node
        return None if node is None or node.location is None else node.location.line

    @property
    def iteration(self) -> int | None:
        """The iteration of the innermost loop around the next node, from 0 on; None outside of loops."""
        counts = self.iterations
        return counts[-1] if counts else None

    @property
    def iterations(self) -> tuple[int, ...]:
        """The iterations of all loops around the next node, the outermost first."""
        return tuple(frame.iteration for frame in self._walk.frames if frame.iteration >= 0)

    @property
    def part(self) -> str:
        """The region that the next node stands in, such as ``body of scan``; "" outside of all."""
        return self._walk.frames[-1].part

    @property
    def ended(self) -> bool:
        """Whether all nodes have run."""
        return self._walk.results is not None

    def __repr__(self) -> str:
        name = self._walk.graph.name
        if self.node is None:
            return f"<run of {name}, at its end>"
        around = [_place(frame) for frame in self._walk.frames[1:]]
        return f"<run of {name}, before {' in '.join([self._walk.names.line(self.node), *reversed(around)])}>"

    # Going on

    @edge
    def step(self, count: int = 1) -> None:
        """Run the next node, or several; of one with regions, a loop or a branch, go to their first node."""
        for _ in range(count):
            self._advance()

    @edge
    def over(self) -> None:
        """Run the next node as a whole, with its regions."""
        self._advance(enters=False)

    @edge
    def out(self) -> None:
        """Run to the end of the region that the next node stands in, of this iteration of a loop."""
        frame = self._walk.frames[-1]
        while frame in self._walk.frames and frame.node is not None:
            self._advance(enters=False)

    @edge
    def run_to(
        self,
        *,
        line: int | str | None = None,
        node: Node | str | None = None,
        when: Callable[[Stepper], Any] | None = None,
    ) -> bool:
        """Run until it stands before a node again that is asked for; gives whether there was one.

        Args:
            line: of the user's program, ``12`` or ``"model.py:12"``.
            node: one of the graph, or the name of an op.
            when: a predicate, called with this object before each node.
        """
        if (line is None) + (node is None) + (when is None) != 2:
            raise ArgumentError("run_to", "takes one of line=, node= and when=")
        test = when or (_at_node(node) if node is not None else _at_line(line))
        self._advance()
        while self.node is not None and not test(self):
            self._advance()
        return self.node is not None

    @edge
    def run(self) -> Any:
        """Run to the end; gives what the graph gives, a tensor or a tuple of them."""
        while self.node is not None:
            self._advance(enters=False)
        found = tuple(wrap(a.copy()) for a in (self._walk.results or ())[: len(self._walk.graph.outputs)])
        return found[0] if len(found) == 1 else found

    def __iter__(self) -> Iterator[Node]:
        """Each node in turn, before it runs."""
        while (node := self.node) is not None:
            yield node
            if self.node is node:
                self._advance()

    def _advance(self, *, enters: bool = True) -> None:
        with not_capturing():
            self._walk.advance(enters=enters)

    # Values

    @edge
    def value(self, key: Any) -> Tensor:
        """The value of a name (``"x"``, ``"h"``, ``"%3"``), a number, a node or a value, as a tensor.

        In a region its own values come first, then those around it.
        """
        out: Tensor = wrap(self._walk.array(key).copy())
        return out

    def values(self) -> dict[str, Tensor]:
        """All values there are so far, in the innermost region and then around it, by name."""
        names = self._walk.names
        found: dict[str, Tensor] = {}
        for frame in reversed(self._walk.frames):
            for value, array in frame.run.values.items():
                if value not in frame.graph.constants:
                    found.setdefault(names.name(value), wrap(array.copy()))
        return found

    @edge
    def set(self, key: Any, value: Any) -> None:
        """Change a value: what runs from now on reads this one.

        What is changed in a region holds in this run of it: a carry that is changed in the test of a loop is
        another one for the test alone, in the body for all that comes.
        """
        _, target = self._walk.find(key)
        tensor = value if isinstance(value, Tensor) else asarray(value, dtype=target.type.dtype)
        if tensor.dtype != target.type.dtype:
            raise DtypeError("set", f"the value must be {target.type}, got {type_of(tensor)}")
        old = self._walk.array(key)
        if tensor.shape != old.shape:
            raise ShapeError("set", f"the value must have the shape {old.shape}, got {tensor.shape}")
        self._walk.put(key, np.array(tensor._value()._array("set")))

    __getitem__ = value
    __setitem__ = set


def _place(frame: Frame) -> str:
    return frame.part if frame.iteration < 0 else f"{frame.part}, iteration {frame.iteration}"


def _at_line(line: Any) -> Callable[[Stepper], bool]:
    file, colon, number = str(line).rpartition(":")
    if not number.isdigit():
        raise ArgumentError("run_to", f"a line must be a number, or a file and a number, got {line!r}")

    def test(run: Stepper) -> bool:
        place = None if run.node is None else run.node.location
        if place is None or place.line != int(number):
            return False
        return not colon or place.file == file or os.path.basename(place.file) == file

    return test


def _at_node(node: Node | str) -> Callable[[Stepper], bool]:
    if isinstance(node, str):
        return lambda run: run.node is not None and run.node.op.name == node
    return lambda run: run.node is node
