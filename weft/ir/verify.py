"""Whether a graph is well formed; the error names the node and the user's line.

What must hold: each value is made once, before it is used; types are those that the ops tell; regions use
nothing from around them; sizes that only a run tells are told before they are used; only state is updated,
by a value of its type; constants are what their types say; names of inputs are unique, but for those of
regions, which nobody calls by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from weft.base.records import NamedTuple
from weft.base.sizes import Size, size_names
from weft.errors import GraphError
from weft.ir.graph import Graph, Node, Value
from weft.ir.labels import ConstantNames, Labels
from weft.ir.literals import IDENTIFIER, format_literal
from weft.ir.order import kahn_order, sizes_defined, sizes_of, sizes_used
from weft.ir.types import TensorType

ROLES = ("arg", "param", "weight", "state")


class Problem(NamedTuple):
    """What is wrong, and with which node; None where it is the graph as a whole."""

    node: Node | None
    message: str


def verify(graph: Graph) -> Graph:
    """Raise a GraphError if a graph is not well formed; gives the graph back.

    >>> import weft
    >>> graph = weft.make_graph(lambda x: x + 1.0)(weft.ones(2))
    >>> graph.verify() is graph
    True
    >>> graph.replace(nodes=()).verify()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.GraphError: verify: every output must be made in the graph, got %?: f32[2]
    ...
    """
    for problem in problems(graph):
        raise as_error(graph, problem)
    return graph


def as_error(graph: Graph, problem: Problem) -> GraphError:
    """The error that tells what is wrong with a graph."""
    node, message = problem
    if node is None:
        return GraphError("verify", message)
    place = None if node.location is None else node.location.place
    return GraphError("verify", f"{_named(graph, node)}: {message}", location=place)


def problems(graph: Graph) -> Iterator[Problem]:
    """Everything that is wrong with a graph, regions included; some of it may follow from the first."""
    for name in _repeated(v.name for v in graph.inputs if v.name):
        yield Problem(None, f"names of inputs must be unique, got {name!r} twice")
    yield from _problems(graph)
    told = {name for node in graph.walk() for name in sizes_defined(node)}
    if told:
        yield from _untold(graph, told - sizes_of(graph.inputs))


def _untold(graph: Graph, open_names: set[str]) -> Iterator[Problem]:
    """Nodes that need to know a size which only a run tells, and that none before them has told."""
    open_names = set(open_names)
    for node in graph.nodes:
        for region in node.regions:
            yield from _untold(region, open_names)
        for name in sorted(sizes_used(node) & open_names):
            yield Problem(node, f"a size must be told before it is used, got {name}")
        open_names -= sizes_defined(node) | sizes_of(node.outputs)


def _problems(graph: Graph) -> Iterator[Problem]:
    yield from _inputs(graph)
    yield from _constants(graph)
    yield from _order(graph)
    for node in graph.nodes:
        yield from _node(node)
    yield from _results(graph)


def _named(graph: Graph, node: Node) -> str:
    """A node as its line in text begins, or its op where it stands in a region."""
    if node not in graph.nodes:
        return f"{node.op.name} in a region"
    labels = Labels(graph, ConstantNames())
    made = labels.listed(node.outputs)
    call = f"{node.op.name}({labels.listed(node.inputs)})"
    return f"node {graph.nodes.index(node)}, {f'{made} = ' if made else ''}{call}"


# The graph as a whole


def _inputs(graph: Graph) -> Iterator[Problem]:
    if len(graph.roles) != len(graph.inputs):
        yield Problem(
            None, f"every input must have a role, got {len(graph.inputs)} and {len(graph.roles)} roles"
        )
    for role in graph.roles:
        if role not in ROLES:
            yield Problem(None, f"roles must be one of {', '.join(ROLES)}, got {role!r}")
    for value in _repeated(graph.inputs):
        yield Problem(None, f"inputs must be distinct, got {value!r} twice")
    for value in graph.inputs:
        yield from (Problem(None, f"input {value!r}: {m}") for m in _shape_problems(value.type))
        if value in graph.constants:
            yield Problem(None, f"a value must be an input or a constant, got {value!r} as both")


def _repeated(items: Iterable[Any]) -> Iterator[Any]:
    seen = set()
    for item in items:
        if item in seen:
            yield item
        seen.add(item)


def _shape_problems(type: TensorType) -> Iterator[str]:
    for size in type.shape:
        if not isinstance(size, Size) and size < 0:
            yield f"sizes must be 0 or more, got {type}"
    for name in size_names(type.shape):
        if not IDENTIFIER.fullmatch(name):
            yield f"the name of a size must be an identifier, got {name!r}"


def _constants(graph: Graph) -> Iterator[Problem]:
    for value, array in graph.constants.items():
        if not isinstance(array, np.ndarray):
            yield Problem(None, f"constants must be arrays, got {type(array).__name__} for {value!r}")
        elif value.type != TensorType(array.shape, array.dtype):
            got = f"{array.dtype.name}{list(array.shape)}"
            yield Problem(None, f"a constant must be of its type, got {got} for {value!r}")


def _order(graph: Graph) -> Iterator[Problem]:
    """Every value is made once, and before its uses."""
    known = {*graph.inputs, *graph.constants}
    later = {v for node in graph.nodes for v in node.outputs}
    for node in graph.nodes:
        for i, value in enumerate(node.inputs):
            if value not in known:
                yield Problem(node, _unknown(graph, i, value, value in later))
        for value in node.outputs:
            if value in known:
                yield Problem(node, f"a value must be made once, got {value!r} again")
            known.add(value)


def _unknown(graph: Graph, i: int, value: Value, made: bool) -> str:
    if not made:
        return f"operand {i} must be made in the graph, got {value!r} from outside"
    try:
        kahn_order(graph.nodes)
    except GraphError as error:
        return error.message
    return f"operand {i} must be made before it is used, got {value!r} of a later node"


def _results(graph: Graph) -> Iterator[Problem]:
    known = {*graph.inputs, *graph.constants, *[v for node in graph.nodes for v in node.outputs]}
    for value in graph.outputs:
        if value not in known:
            yield Problem(None, f"every output must be made in the graph, got {value!r}")
    roles = dict(zip(graph.inputs, graph.roles, strict=False))
    for old, new in graph.updates:
        if roles.get(old) != "state":
            got = f"{old!r}, which is {roles[old]}" if old in roles else f"{old!r}, which is no input"
            yield Problem(None, f"only inputs that are state can be updated, got {got}")
        if new not in known:
            yield Problem(None, f"every update must be made in the graph, got {new!r}")
        if old.type != new.type:
            yield Problem(None, f"an update must be of the type of {old!r}, got {new.type}")
    for old in _repeated(old for old, _ in graph.updates):
        yield Problem(None, f"an input can be updated once, got {old!r} twice")


# A node


def _node(node: Node) -> Iterator[Problem]:
    for region in node.regions:
        yield from ((p if p.node is not None else Problem(node, p.message)) for p in _problems(region))
    for value in node.attrs.values():
        yield from _attribute(node, value)
    for value in node.outputs:
        yield from (Problem(node, m) for m in _shape_problems(value.type))
    message = type_problem(node)
    if message is not None:
        yield Problem(node, message)


def _attribute(node: Node, x: object) -> Iterator[Problem]:
    if type(x) is Graph or (type(x) is tuple and x and all(type(g) is Graph for g in x)):
        return
    try:
        format_literal(x)
    except GraphError as error:
        yield Problem(node, error.message)


def type_problem(node: Node) -> str | None:
    """What is wrong with the types of a node's outputs, if anything."""
    missing = [name for name in node.op.attrs if name not in node.attrs and not _has_default(node.op, name)]
    if missing:
        return f"attributes must be complete, got none for {', '.join(missing)}"
    try:
        inferred = node.op.type_rule(*[v.type for v in node.inputs], **node.attrs)
    except RecursionError:
        raise
    except Exception as error:  # of any kind: attributes of a graph made by hand may be anything
        return _first_line(error)
    listed = (inferred,) if node.op.outputs == 1 else tuple(inferred)
    if not all(isinstance(t, TensorType) and isinstance(t.dtype, np.dtype) for t in listed):
        return "attributes must be of the kinds that the op takes, got some that give no type"
    declared = tuple([v.type for v in node.outputs])
    if len(listed) == len(declared) and all(
        _agree(a, b, node) for a, b in zip(listed, declared, strict=True)
    ):
        return None
    return f"types must be {_listed(listed)}, got {_listed(declared)}"


def _has_default(op: Any, name: str) -> bool:
    return name in (getattr(op.eval, "__kwdefaults__", None) or {})


def _first_line(error: Exception) -> str:
    text = getattr(error, "message", None) or str(error) or type(error).__name__
    return str(text).splitlines()[0]


def _listed(types: Iterable[TensorType]) -> str:
    return ", ".join(map(str, types)) or "none"


def _agree(inferred: TensorType, declared: TensorType, node: Node) -> bool:
    """Whether a type is as inferred; a size that only a run tells may have any name."""
    if inferred == declared:
        return True
    if inferred.dtype != declared.dtype or inferred.ndim != declared.ndim:
        return False
    known = size_names(s for v in node.inputs for s in v.type.shape) | _attribute_names(node.attrs.values())
    pairs = zip(inferred.shape, declared.shape, strict=True)
    return all(a == b or not size_names([a]) <= known for a, b in pairs)


def _attribute_names(values: Iterable[Any]) -> set[str]:
    out: set[str] = set()
    for x in values:
        if isinstance(x, Size):
            out |= x.names()
        elif type(x) is tuple:
            out |= _attribute_names(x)
        elif type(x) is Graph:
            out |= size_names(s for v in (*x.inputs, *x.outputs) for s in v.type.shape)
    return out
