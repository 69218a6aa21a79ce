"""The Graph: a frozen program of ops on typed values.

A ``Value`` is made once, by a node or as an input or a constant; it is equal to itself alone. A ``Node``
applies an op. Its attributes are literals, or graphs: the *regions* of control flow. A region is closed:
what it uses from around it is an input of the node and of the region. Nodes stand in an order in which
they can run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NoReturn

import numpy as np

from weft.base.hooks import GRAPH_METHODS, graph_method, hooks
from weft.base.records import NamedTuple
from weft.base.sizes import Size, bind
from weft.base.tracebacks import edge, hide_weft
from weft.ir.location import Location
from weft.ir.types import TensorType

Array = np.ndarray[Any, Any]
Attrs = Mapping[str, Any]


class _Frozen:
    """Slots that are set once, in ``__init__``."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} is frozen, its {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} is frozen, its {name} cannot be deleted")


class Value(_Frozen):
    """One value of a graph: its type, and a name where the user gave one.

    Attributes:
        type: shape and dtype.
        name: as printed; "" for a value that is merely numbered.
    """

    __slots__ = ("__weakref__", "name", "type")

    type: TensorType
    name: str

    def __init__(self, type: TensorType, name: str = "") -> None:
        _set(self, "type", type)
        _set(self, "name", name)

    def __repr__(self) -> str:
        return f"%{self.name or '?'}: {self.type}"


class Operand(NamedTuple):
    """Stands for the input of a call with a number, where the arguments of the call name it."""

    index: int  # type: ignore[assignment]  # not the method of a tuple


def operands_of(arguments: object) -> Iterator[int]:
    """The numbers of the operands that stand in arguments, in order."""
    if isinstance(arguments, Operand):
        yield arguments.index
    elif isinstance(arguments, tuple):
        for item in arguments:
            yield from operands_of(item)


def map_operands(arguments: object, function: Callable[[int], Any]) -> Any:
    """Arguments with something for each operand that stands in them, by its number."""
    if isinstance(arguments, Operand):
        return function(arguments.index)
    return tuple([map_operands(x, function) for x in arguments]) if type(arguments) is tuple else arguments


class Node(_Frozen):
    """One application of an op.

    Attributes:
        op: of the op table.
        inputs: values that exist before it.
        attrs: literals and regions by name; nobody changes it.
        outputs: the values it makes.
        location: where in the user's program it comes from, or None.
    """

    __slots__ = ("__weakref__", "attrs", "inputs", "location", "op", "outputs")

    op: Any
    inputs: tuple[Value, ...]
    attrs: Attrs
    outputs: tuple[Value, ...]
    location: Location | None

    def __init__(
        self,
        op: object,
        inputs: Sequence[Value],
        attrs: Attrs,
        outputs: Sequence[Value],
        location: Location | None = None,
    ) -> None:
        _set(self, "op", op)
        _set(self, "inputs", tuple(inputs))
        _set(self, "attrs", attrs)
        _set(self, "outputs", tuple(outputs))
        _set(self, "location", location)

    @property
    def regions(self) -> tuple[Graph, ...]:
        """The graphs among the attributes, in order."""
        out: list[Graph] = []
        for value in self.attrs.values():
            if type(value) is Graph:
                out.append(value)
            elif type(value) is tuple and value and type(value[0]) is Graph:
                out += value
        return tuple(out)

    @property
    def is_pure(self) -> bool:
        """Whether it does nothing but give its outputs, in its regions too."""
        return not self.op.effect and all(n.is_pure for region in self.regions for n in region.nodes)

    def __repr__(self) -> str:
        return f"<node {self.op.name} {' '.join(str(o.type) for o in self.outputs)}>"


class Graph(_Frozen):
    """A frozen program: inputs, constants, nodes in an order they can run in, outputs.

    Attributes:
        name: of the function it was made from.
        inputs: values that a call binds.
        roles: for each input "arg", "param" (a tensor that the program reads and that is no argument),
            "weight" (likewise, whose array nobody writes to) or "state" (one that the program also changes).
        constants: values with the arrays they stand for.
        nodes: in an order in which they can run.
        outputs: the values that a call gives.
        updates: pairs of an input and the value it has after the call.

    >>> import weft
    >>> with weft.Graph("double") as g:
    ...     y = weft.placeholder("x", (2,)) * 2.0
    >>> g, g.run(y, {"x": [1.0, 2.0]})
    (<graph double: 1 inputs, 1 nodes, 1 outputs>, tensor([2., 4.]))
    """

    __slots__ = ("__weakref__", "constants", "inputs", "name", "nodes", "outputs", "roles", "updates")

    name: str
    inputs: tuple[Value, ...]
    roles: tuple[str, ...]
    constants: Mapping[Value, Array]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    updates: tuple[tuple[Value, Value], ...]

    def __init__(
        self,
        name: str = "graph",
        inputs: Sequence[Value] = (),
        nodes: Sequence[Node] = (),
        outputs: Sequence[Value] = (),
        *,
        constants: Mapping[Value, Array] | None = None,
        roles: Sequence[str] | None = None,
        updates: Sequence[tuple[Value, Value]] = (),
    ) -> None:
        _set(self, "name", name)
        _set(self, "inputs", tuple(inputs))
        _set(self, "roles", tuple(roles) if roles is not None else ("arg",) * len(self.inputs))
        _set(self, "constants", dict(constants or {}))
        _set(self, "nodes", tuple(nodes))
        _set(self, "outputs", tuple(outputs))
        _set(self, "updates", tuple(updates))

    def replace(self, **changes: Any) -> Graph:
        """A graph with other parts: ``graph.replace(nodes=...)``."""
        parts = {
            "name": self.name,
            "inputs": self.inputs,
            "nodes": self.nodes,
            "outputs": self.outputs,
            "constants": self.constants,
            "roles": self.roles,
            "updates": self.updates,
        }
        return Graph(**{**parts, **changes})

    @property
    def results(self) -> tuple[Value, ...]:
        """What a run must compute: the outputs, then the new values of updated inputs."""
        return (*self.outputs, *[new for _, new in self.updates])

    def walk(self) -> Iterator[Node]:
        """All nodes, those of regions included, each after its inputs."""
        for node in self.nodes:
            for region in node.regions:
                yield from region.walk()
            yield node

    def __getattr__(self, name: str) -> Any:
        """Methods that higher layers give, imported at first use."""
        if name in GRAPH_METHODS:
            return _method(name).__get__(self)
        raise AttributeError(f"a graph has no {name!r}")

    def __enter__(self) -> Graph:
        """Begin the block in which this graph is written: what is computed there becomes its nodes."""
        graph: Graph = self.enter_graph()
        return graph

    def __exit__(self, *reason: Any) -> None:
        """End the block: the graph is complete."""
        self.exit_graph(*reason)
        if reason[1] is not None:
            hide_weft(reason[1])

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run on tensors for its arguments, by position or name; its updates are applied."""
        try:
            return self.call_graph(*args, **kwargs)
        except Exception as error:
            hide_weft(error)
            raise

    def __str__(self) -> str:
        from weft.ir.text import format_graph

        return format_graph(self)

    def __repr__(self) -> str:
        counts = f"{len(self.inputs)} inputs, {len(self.nodes)} nodes, {len(self.outputs)} outputs"
        return f"<graph {self.name}: {counts}>"

    def _repr_html_(self) -> str:
        return hooks.graph_html(self)


_set = object.__setattr__


@cache
def _method(name: str) -> Any:
    return edge(graph_method(name))


def substitute_sizes(graph: Graph, sizes: Mapping[str, Any]) -> Graph:
    """The graph with values for named sizes, in every type and attribute, regions included."""
    fresh: dict[Value, Value] = {}

    def value(v: Value) -> Value:
        if v not in fresh:
            shape = bind(v.type.shape, sizes)
            fresh[v] = v if shape == v.type.shape else Value(TensorType(shape, v.type.dtype), v.name)
        return fresh[v]

    nodes = []
    for n in graph.nodes:
        attrs = {k: bind_attr(a, sizes) for k, a in n.attrs.items()}
        inputs, outputs = ([value(v) for v in values] for values in (n.inputs, n.outputs))
        nodes.append(Node(n.op, inputs, attrs, outputs, n.location))
    return graph.replace(
        inputs=[value(v) for v in graph.inputs],
        nodes=nodes,
        outputs=[value(v) for v in graph.outputs],
        constants={value(v): a for v, a in graph.constants.items()},
        updates=[(value(a), value(b)) for a, b in graph.updates],
    )


def bind_attr(x: object, sizes: Mapping[str, Any]) -> Any:
    """An attribute with values for named sizes, in regions too."""
    if type(x) is Graph:
        return substitute_sizes(x, sizes)
    if type(x) is tuple and x and type(x[0]) is Graph:
        return tuple([substitute_sizes(g, sizes) for g in x])
    return bind(x, sizes)


def has_sizes(attrs: Attrs) -> bool:
    """Whether a named size stands in attributes, outside regions."""
    return any(_holds_size(a) for a in attrs.values())


def _holds_size(x: object) -> bool:
    return isinstance(x, Size) or (type(x) is tuple and any(map(_holds_size, x)))
