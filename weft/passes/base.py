"""What a pass is: a pure function from a graph to a graph, named by the function.

A pass gives the same object where it changes nothing, so that others need not run again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, overload

from weft.base.public import parameters
from weft.errors import ArgumentError
from weft.ir.graph import Graph, Node
from weft.ir.rewrite import map_regions

Function = Callable[..., Graph]


class Pass:
    """A named function from a graph to a graph; call it, or give it to ``graph.optimize(passes=[...])``.

    Attributes:
        name: of the function.
        function: what it does to a graph.
        options: keyword arguments that it takes, with values that were set by ``using``.
        once: whether it runs once, after what stands before it in a list has settled.
    """

    __slots__ = ("__dict__", "_given", "function", "name", "once", "options")

    def __init__(
        self, function: Function, name: str = "", given: dict[str, Any] | None = None, *, once: bool = False
    ) -> None:
        self.function = function
        self.once = once
        self.name = self.__name__ = name or function.__name__
        self.options = _options(function)
        self._given = given or {}
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self.__module__ = function.__module__

    def __call__(self, graph: Graph, **options: object) -> Graph:
        """The graph after the pass; the same object if nothing changed."""
        if not isinstance(graph, Graph):
            raise ArgumentError(self.name, f"takes a graph, got {type(graph).__name__}")
        for name in options:
            if name not in self.options:
                raise ArgumentError(self.name, f"unknown keyword {name!r}")
        return self.function(graph, **{**self._given, **options})

    def using(self, **options: object) -> Pass:
        """The pass with values for some of its options.

        >>> import weft
        >>> weft.passes.unroll.using(limit=100)
        <pass unroll limit=100>
        """
        return Pass(self.function, self.name, {**self._given, **options}, once=self.once)

    def __repr__(self) -> str:
        given = "".join(f" {k}={v}" for k, v in self._given.items())
        return f"<pass {self.name}{given}>"


def _options(function: Function) -> tuple[str, ...]:
    plain = getattr(function, "__wrapped__", function)
    if not hasattr(plain, "__code__"):
        return ()
    positional, keywords, _ = parameters(plain)
    return (*positional[1:], *keywords)


@overload
def graph_pass(function: Function) -> Pass: ...
@overload
def graph_pass(*, regions: bool = False, once: bool = False) -> Callable[[Function], Pass]: ...
def graph_pass(function: Function | None = None, *, regions: bool = False, once: bool = False) -> Any:
    """Make a pass of a function from a graph to a graph.

    Args:
        function: takes a graph, and options by keyword.
        regions: whether it goes over each region first, from the innermost out; else it sees the whole graph
            alone.
        once: whether it runs once in ``graph.optimize``, and not again until nothing changes.

    >>> import weft
    >>> @weft.passes.graph_pass
    ... def reverse_outputs(graph):
    ...     return graph.replace(outputs=graph.outputs[::-1])
    >>> reverse_outputs
    <pass reverse_outputs>
    """
    if function is None:
        return lambda f: Pass(_in_regions(f) if regions else f, once=once)
    return Pass(function)


def _in_regions(function: Function) -> Function:
    @wraps(function)
    def run(graph: Graph, **options: object) -> Graph:
        return function(each_region(graph, lambda region: run(region, **options)), **options)

    return run


def each_region(graph: Graph, function: Callable[[Graph], Graph]) -> Graph:
    """A graph with a function applied to the regions of its nodes; the same object if none changed."""
    nodes: list[Node] | None = None
    for i, node in enumerate(graph.nodes):
        new = map_regions(node, function) if node.attrs else node
        if new is not node:
            if nodes is None:
                nodes = list(graph.nodes)
            nodes[i] = new
    return graph if nodes is None else graph.replace(nodes=nodes)


def is_elementwise(node: Node) -> bool:
    """Whether each element depends on the elements of the inputs at the same index alone."""
    return node.op.scalar is not None
