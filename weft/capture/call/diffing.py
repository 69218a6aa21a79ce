"""``graph.diff`` and ``fn.diff``: where two graphs, or two backends, first compute something else.

The reference kernels give every value at once. A compiled backend gives what a graph returns, so graphs that
return the value asked for are cut out and compiled: by halving, as few of them as will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import bfloat16, float16, float32, kind
from weft.base.hooks import hooks
from weft.capture.call.replaying import input_tensors
from weft.capture.call.stepping import inputs_of
from weft.capture.program.cutting import cut_out
from weft.errors import ArgumentError, GraphError
from weft.ir.graph import Array, Graph, Node, Value, has_sizes
from weft.ir.interpret import interpret
from weft.ir.naming import Names
from weft.passes.inline import inline
from weft.testing.compare import describe_difference
from weft.transform.captured import not_capturing

Build = Callable[[Graph], Callable[[Sequence[Any]], Sequence[Any]]]
_INTERPRET = "interpret"
_RELATIVE = {float16: 1e-2, bfloat16: 5e-2, float32: 1e-4}  # to the largest number of an array
_DOUBLE = 1e-9
_MOST_RUNS = 200  # of regions that are compared one by one


class Difference:
    """The first node whose values differ, with the values of both sides.

    Attributes:
        node: of the left graph; None where an input of the graph is a result, and differs.
        name: of the value.
        left, right: its arrays.
        text: what is printed.
    """

    def __init__(self, node: Node | None, name: str, left: Array, right: Array, text: str) -> None:
        self.node = node
        self.name = name
        self.left = left
        self.right = right
        self.text = text

    @property
    def line(self) -> int | None:
        """The line of the user's program that the node comes from."""
        return None if self.node is None or self.node.location is None else self.node.location.line

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<difference in {self.name}>"


def diff(
    graph: Graph,
    other: Any,
    feeds: Mapping[Any, Any] | None = None,
    *,
    backend: Any = _INTERPRET,
    rtol: float | None = None,
    atol: float | None = None,
) -> Difference | None:
    """The first node whose values differ from those of another graph, or on another backend; None if none do.

    Nodes of two graphs are one and the same if they are of one op and come from one line of the program.
    Where results agree, nothing between is looked at. In a loop it is the first iteration that differs.

    Args:
        graph: whose nodes are named.
        other: a graph with as many results, or a backend to run this one on.
        feeds: as ``Session.run`` takes them; for another graph those with the same names.
        backend: that runs this graph, and the other one; the reference by default.
        rtol: the difference that is allowed, relative to the largest number of a value; by default it
            follows from the dtype, 1e-4 for float32.
        atol: the difference that is allowed as such.

    >>> import weft
    >>> graph = weft.make_graph(lambda x: weft.exp(x) * 2.0)(weft.ones(2))
    >>> graph.diff("llvm", {"x": [0.0, 1.0]}) is None
    True
    >>> wrong = graph.rewrite(lambda x: weft.exp(x), lambda x: weft.expm1(x))
    >>> print(graph.diff(wrong, {"x": [0.0, 1.0]}))  # doctest: +ELLIPSIS
    %1 = mul(%0, f32(2.0))...
      differs in 2 of 2 elements
      ...
    """
    part, arrays = inputs_of(graph, feeds)
    left = Side(part, arrays, backend)
    if isinstance(other, Graph):
        theirs = {getattr(key, "name", key): item for key, item in (feeds or {}).items()}
        right = Side(*inputs_of(other, theirs if feeds and other is not graph else feeds), backend)
    else:
        right = Side(part, arrays, other)
    return compare(left, right, rtol, atol)


def diff_calls(function: Any, other: Any, args: Any, kwargs: Any, rtol: Any, atol: Any) -> Difference | None:
    """The first node of a compiled function whose values differ in a call; see ``GraphFunction.diff``."""
    left = _side_of_call(function, args, kwargs)
    if hasattr(other, "_version_for"):
        return compare(left, _side_of_call(other, args, kwargs), rtol, atol)
    if not isinstance(other, str) and not callable(other):
        raise ArgumentError("diff", f"must be given a compiled function or a backend, got {other!r}")
    return compare(left, Side(left.graph, left.arrays, other), rtol, atol)


def _side_of_call(function: Any, args: Any, kwargs: Any) -> Side:
    version, tensors = function._version_for(args, kwargs)
    inputs = input_tensors(version.program, tensors)
    return Side(version.graph, [t.detach()._array("diff") for t in inputs], function._build)


class Side:
    """A graph on arrays, run by one backend.

    Attributes:
        graph: with the bodies of calls in their place.
        arrays: of its inputs.
    """

    def __init__(self, graph: Graph, arrays: Sequence[Array], backend: Any) -> None:
        self.graph: Graph = inline(graph)
        self.arrays = arrays
        self._known: dict[Value, Array] = {}
        self._parts: dict[
            tuple[Value, ...], tuple[Any, tuple[Value, ...]]
        ] = {}  # by results, what gives them
        self._build: Build | None = None
        if backend != _INTERPRET:
            self._build = hooks.builder("diff", backend)

    def inside(self, region: Graph, arrays: Sequence[Array]) -> Side:
        """A region on arrays, run as this side is."""
        side = Side(region, arrays, _INTERPRET)
        side._build, side._parts = self._build, self._parts
        return side

    def values(self, wanted: Sequence[Value]) -> list[Array]:
        """The arrays of values."""
        missing = [v for v in dict.fromkeys(wanted) if v not in self._known]
        if missing:
            with not_capturing():
                self._compute(missing)
        return [self._known[v] for v in wanted]

    def _compute(self, missing: list[Value]) -> None:
        if self._build is None:
            known = {*self.graph.constants, *self.graph.inputs}
            missing = [v for node in self.graph.nodes for v in node.outputs] + [
                v for v in missing if v in known
            ]
            self._known |= zip(missing, interpret(self.graph, self.arrays, missing), strict=True)
            return
        key = tuple(missing)
        if key not in self._parts:
            part, inputs = cut_out(self.graph, missing)
            self._parts[key] = self._build(part), inputs
        function, inputs = self._parts[key]
        given = dict(zip(self.graph.inputs, self.arrays, strict=True))
        found = function([given[v] for v in inputs])
        self._known |= zip(missing, [np.array(a) for a in found], strict=True)


def compare(left: Side, right: Side, rtol: float | None, atol: float | None) -> Difference | None:
    """The first node of the left side whose values differ from those of the right one; None if none do."""
    results = list(zip(left.graph.results, right.graph.results, strict=False))
    counts = [len(side.graph.results) for side in (left, right)]
    if counts[0] != counts[1]:
        raise GraphError("diff", f"graphs must give as many results, got {counts[0]} and {counts[1]}")
    left.values([a for a, _ in results])
    right.values([b for _, b in results])
    search = _Search(left, right, rtol, atol)
    wrong = next((pair for pair in results if search.differs(*pair)), None)
    return None if wrong is None else search.origin(*wrong)


class _Search:
    """The search for where a difference begins."""

    def __init__(self, left: Side, right: Side, rtol: float | None, atol: float | None) -> None:
        self.left, self.right = left, right
        self.rtol, self.atol = rtol, atol
        self.names = Names(left.graph)
        self.twins = _matched(left.graph, right.graph)

    def differs(self, ours: Value, theirs: Value) -> str | None:
        """How two values differ."""
        (a,), (b,) = self.left.values([ours]), self.right.values([theirs])
        return describe_difference(a, b, 0.0, self._tolerance(b))

    def _tolerance(self, array: Array) -> float:
        if kind(array.dtype) not in "fc":
            return self.atol or 0.0
        rtol = _RELATIVE.get(array.dtype, _DOUBLE) if self.rtol is None else self.rtol
        finite = np.abs(array[np.isfinite(array)]).astype(np.float64)
        return (self.atol or 0.0) + rtol * float(finite.max(initial=0.0))

    def origin(self, ours: Value, theirs: Value) -> Difference:
        """The first node on the way to a result that differs."""
        steps = [v for v in self._before(ours) if v in self.twins]
        first = ours
        low, high = 0, len(steps)
        while low < high:
            middle = (low + high) // 2
            if self.differs(steps[middle], self.twins[steps[middle]]):
                first, high = steps[middle], middle
            else:
                low = middle + 1
        while earlier := self._wrong_input(first):  # what is wrong need not stay so on all ways
            first = earlier
        twin = self.twins.get(first, theirs)
        return self._inside(first, twin) or self._difference(first, twin)

    def _inside(self, ours: Value, theirs: Value) -> Difference | None:
        """The first node in a loop or branch that differs, where it first does; None if none does."""
        node, twin = self.names.maker(ours), Names(self.right.graph).maker(theirs)
        if node is None or twin is None or not hasattr(node.op.eval, "steps") or has_sizes(node.attrs):
            return None
        given = Side(self.left.graph, self.left.arrays, _INTERPRET).values(node.inputs)
        asking = node.op.eval.steps(*given, **node.attrs)
        try:
            ask = next(asking)
            for _ in range(_MOST_RUNS):
                region = twin.regions[node.regions.index(ask.region)]
                sides = self.left.inside(ask.region, ask.arrays), self.right.inside(region, ask.arrays)
                found = compare(*sides, self.rtol, self.atol)
                if found is not None:
                    found.text = f"{found.text}\n  in {_place(ask)} of {self.names.line(node)}"
                    return found
                ask = asking.send(ask.program(ask.arrays))
        except StopIteration:
            pass
        return None

    def _before(self, value: Value) -> list[Value]:
        """What a value follows from, itself included, in the order in which it is made."""
        wanted, found = {value}, []
        for node in reversed(self.left.graph.nodes):
            if not wanted.isdisjoint(node.outputs):
                found += [v for v in node.outputs if v in wanted]
                wanted.update(node.inputs)
        return found[::-1]

    def _wrong_input(self, value: Value) -> Value | None:
        """A matched value right before another one that differs as well."""
        maker = self.names.maker(value)
        queue = [] if maker is None else list(maker.inputs)
        for v in queue:
            if v in self.twins:
                if self.differs(v, self.twins[v]):
                    return v
            elif (before := self.names.maker(v)) is not None:
                queue += [u for u in before.inputs if u not in queue]
        return None

    def _difference(self, ours: Value, theirs: Value) -> Difference:
        (a,), (b,) = self.left.values([ours]), self.right.values([theirs])
        maker, name = self.names.maker(ours), self.names.name(ours)
        head = name if maker is None else self.names.line(maker)
        return Difference(maker, name, a, b, f"{head}\n  {self.differs(ours, theirs)}")


def _place(ask: Any) -> str:
    return ask.part if ask.iteration < 0 else f"iteration {ask.iteration}, {ask.part}"


def _matched(left: Graph, right: Graph) -> dict[Value, Value]:
    """By value of one graph, the value of another that is the same op of the same line of the program."""
    if left is right or left.same(right):
        return dict(zip(_made(left), _made(right), strict=True))
    theirs = _keyed(right)
    return {v: theirs[key] for key, v in _keyed(left).items() if key in theirs}


def _made(graph: Graph) -> list[Value]:
    return [v for node in graph.nodes for v in node.outputs]


def _keyed(graph: Graph) -> dict[Any, Value]:
    """The values of a graph by op, line, type, and how many of these came before."""
    found: dict[Any, Value] = {}
    for node in graph.nodes:
        place = None if node.location is None else (node.location.place, node.location.phase)
        for k, value in enumerate(node.outputs):
            key, count = (node.op.name, place, k, str(value.type)), 0
            while (*key, count) in found:
                count += 1
            if place is not None:
                found[(*key, count)] = value
    return found
