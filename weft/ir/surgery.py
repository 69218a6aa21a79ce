"""Changing graphs by hand: each function gives a new graph, and leaves the old one as it is.

Values are named as text shows them, ``"%3"`` or ``"x"``, or given themselves; a graph and what is cut out of
it share their values. A name without a sign is one that somebody gave: "3" may be the name of an input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.errors import ArgumentError, GraphError
from weft.ir.graph import Graph, Node, Value
from weft.ir.labels import LABEL, ConstantNames, Labels
from weft.ir.literals import format_name
from weft.ir.order import kahn_order
from weft.ir.rewrite import giving, reading

Named = Value | str


def value(graph: Graph, name: Named) -> Value:
    """The value that somebody named so, ``"x"``, or that text shows so, ``"%x"`` or ``"%3"``.

    >>> import weft
    >>> graph = weft.make_graph(lambda x: weft.tanh(x) * 2.0)(weft.ones(3))
    >>> graph.value("%0").type == graph.value("x").type
    True
    """
    labels = _labels(graph)
    if isinstance(name, Value):
        if name not in labels.values():
            message = f"must be a value of the graph {graph.name}, got {name!r} of another one"
            raise GraphError("value", message)
        return name
    if not isinstance(name, str):
        raise ArgumentError("value", f"must be a value or a name, got {type(name).__name__}")
    key = name if name.startswith(("%", "$")) else _label_of(name, labels)
    if key not in labels:
        from difflib import get_close_matches  # nobody but who mistypes a name needs it

        close = get_close_matches(key, list(labels), 1)
        hint = f"did you mean {close[0]}?" if close else None
        raise GraphError("value", f"must be in the graph {graph.name}, got {name}", hint=hint)
    return labels[key]


def _label_of(name: str, labels: Mapping[str, Value]) -> str:
    """The label of a value that has a name; a number alone is no label here: it may be somebody's name."""
    given = f"%{format_name(name, LABEL)}"
    return given if given in labels or name.isdecimal() else f"%{name}"


def _labels(graph: Graph) -> dict[str, Value]:
    labels = Labels(graph, ConstantNames())
    made = [v for node in graph.nodes for v in node.outputs]
    return {labels[v]: v for v in (*graph.constants, *graph.inputs, *made)}


def _values(graph: Graph, names: Named | Iterable[Named]) -> list[Value]:
    listed = [names] if isinstance(names, Value | str) else list(names)
    return [value(graph, name) for name in listed]


def clone(graph: Graph, name: str | None = None) -> Graph:
    """A copy with values and nodes of its own, regions included.

    >>> import weft
    >>> graph = weft.make_graph(lambda x: x + 1.0)(weft.ones(2))
    >>> copy = graph.clone()
    >>> copy.same(graph), copy.inputs[0] is graph.inputs[0]
    (True, False)
    """
    made = [v for node in graph.nodes for v in node.outputs]
    fresh = {v: Value(v.type, v.name) for v in (*graph.inputs, *graph.constants, *made)}
    return Graph(
        graph.name if name is None else name,
        [fresh[v] for v in graph.inputs],
        [_renamed(node, fresh, regions=True) for node in graph.nodes],
        [fresh[v] for v in graph.outputs],
        constants={fresh[v]: a for v, a in graph.constants.items()},
        roles=graph.roles,
        updates=[(fresh[old], fresh[new]) for old, new in graph.updates],
    )


def _renamed(node: Node, new: Mapping[Value, Value], *, regions: bool = False) -> Node:
    """A node on other values."""
    attrs = {k: _cloned(a) for k, a in node.attrs.items()} if regions else node.attrs
    inputs, outputs = ([new.get(v, v) for v in vs] for vs in (node.inputs, node.outputs))
    return Node(node.op, inputs, attrs, outputs, node.location)


def _cloned(x: object) -> Any:
    if type(x) is Graph:
        return clone(x)
    return tuple([clone(g) for g in x]) if type(x) is tuple and x and type(x[0]) is Graph else x


def extract(
    graph: Graph, inputs: Named | Iterable[Named], outputs: Named | Iterable[Named], name: str | None = None
) -> Graph:
    """The part of a graph that computes outputs from inputs, which may be any of its values.

    >>> import weft
    >>> graph = weft.make_graph(lambda x: weft.tanh(x) * 2.0 + 1.0, name="f")(weft.ones(3))
    >>> print(graph.extract("%0", "%1").to_text(locations=False), end="")
    graph f(%0: f32[3]) {
      %1: f32[3] = mul(%0, f32(2.0))
      return %1
    }
    """
    given, wanted = _values(graph, inputs), _values(graph, outputs)
    nodes = _needed(graph, given, wanted)
    sources = _sources(nodes, wanted).difference(given)
    missing = [v for v in graph.inputs if v in sources]
    if missing:
        shown = Labels(graph, ConstantNames()).listed(missing)
        message = f"outputs must follow from the inputs, got none for {shown}"
        raise GraphError("extract", message, hint=f"add {shown} to inputs")
    roles = dict(zip(graph.inputs, graph.roles, strict=True))
    part = [roles.get(v, "arg") if roles.get(v) != "state" else "param" for v in given]
    return _part(graph, name or graph.name, given, part, nodes, wanted, ())


def cut(graph: Graph, values: Named | Iterable[Named], name: str | None = None) -> Graph:
    """The graph with some of its values as inputs, after those of its inputs that are still needed.

    >>> import weft
    >>> graph = weft.make_graph(lambda x, y: weft.tanh(x) * y)(weft.ones(3), weft.ones(3))
    >>> [v.name for v in graph.cut("%0").inputs]
    ['y', '']
    """
    given = _values(graph, values)
    nodes = _needed(graph, given, graph.results)
    sources = {*_sources(nodes, graph.results), *[old for old, _ in graph.updates]}.difference(given)
    pairs = zip(graph.inputs, graph.roles, strict=True)
    kept = [(v, role) for v, role in pairs if v in sources]
    inputs = [*[v for v, _ in kept], *given]
    roles = [*[role for _, role in kept], *["arg"] * len(given)]
    for old, _ in graph.updates:
        if old in given:
            raise GraphError("cut", f"a value that is updated must not be cut, got {old!r}")
    return _part(graph, name or graph.name, inputs, roles, nodes, graph.outputs, graph.updates)


def _needed(graph: Graph, given: Sequence[Value], results: Sequence[Value]) -> list[Node]:
    """The nodes between values and results."""
    known = set(given)
    nodes = [n for n in graph.nodes if not known.issuperset(n.outputs)]
    # A node that makes a given value and another one that is needed stays; its given output is then not used.
    wanted = set(results) - known
    kept = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs):
            wanted.update(v for v in node.inputs if v not in known)
            kept.append(node)
    return kept[::-1]


def _sources(nodes: Sequence[Node], results: Sequence[Value]) -> set[Value]:
    """What nodes and results use that no node makes."""
    made = {v for node in nodes for v in node.outputs}
    return {v for vs in (*[n.inputs for n in nodes], results) for v in vs} - made


def _part(
    graph: Graph,
    name: str,
    inputs: Sequence[Value],
    roles: Sequence[str],
    nodes: Sequence[Node],
    outputs: Sequence[Value],
    updates: Sequence[tuple[Value, Value]],
) -> Graph:
    taken = set(inputs)
    replaced = {v: Value(v.type, v.name) for n in nodes for v in n.outputs if v in taken}
    fixed = [
        Node(n.op, n.inputs, n.attrs, [replaced.get(v, v) for v in n.outputs], n.location) for n in nodes
    ]
    used = _sources(fixed, [*outputs, *[new for _, new in updates]])
    constants = {v: a for v, a in graph.constants.items() if v in used and v not in taken}
    return Graph(name, inputs, fixed, outputs, constants=constants, roles=roles, updates=updates)


def replace_values(graph: Graph, new: Mapping[Named, Named]) -> Graph:
    """The graph in which values take the place of others wherever these were used; nodes move if they must.

    >>> import weft
    >>> graph = weft.make_graph(lambda x, y: weft.tanh(x) * y, name="f")(weft.ones(3), weft.ones(3))
    >>> print(graph.replace_values({"%0": "x"}).to_text(locations=False), end="")
    graph f(%x: f32[3], %y: f32[3]) {
      %0: f32[3] = tanh(%x)
      %1: f32[3] = mul(%x, %y)
      return %1
    }
    """
    by = {value(graph, old): value(graph, other) for old, other in new.items()}
    for old, other in by.items():
        if old.type != other.type:
            raise GraphError("replace_values", f"types must agree, got {old!r} and {other!r}")
    return giving(graph, by, nodes=kahn_order([reading(n, by) for n in graph.nodes]))
