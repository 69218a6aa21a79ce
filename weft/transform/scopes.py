"""Scopes: which nodes of a capture one call of a composite made, and how they become one ``call`` node.

The tape sees the ops of a composite one by one. When the graph is frozen, the nodes of a call are folded into one
node that is printed as the call; what the gradient needs of its inside are further outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.base.public import parameters
from weft.base.sizes import Size
from weft.ir.graph import Array, Graph, Node, Value
from weft.ir.order import needed_nodes
from weft.ops.call import Operand, call
from weft.ops.op import Composite, TensorLike, set_scope_layer
from weft.tensor.mode import thread

_LITERALS = (bool, int, float, complex, str, type(None), np.dtype, Size)


class Scope(NamedTuple):
    """One call: the range of nodes it made, its name, its arguments and operands, and what it returned."""

    start: int
    stop: int
    name: str
    arguments: tuple[Any, ...]
    operands: tuple[Value, ...]
    results: tuple[Value, ...]


def run_composite(entry: Composite, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a composite; if this thread captures, remember which nodes it made."""
    capture = thread.capture
    if capture is None:
        return entry.function(*args, **kwargs)
    return run_scope(capture, entry.name, entry.function, args, kwargs)


def run_scope(
    capture: Any, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a function in a capture as a scope with a name."""
    start = len(capture.nodes)
    level = capture.level
    known = _encode(function, args, kwargs)
    before = [t._data for t in known[1]] if known is not None else []
    out = function(*args, **kwargs)
    listed = out if isinstance(out, tuple | list) else (out,)
    if known is None or len(capture.nodes) - start < 2 or thread.capture is not capture:
        return out
    datas = [*before, *[getattr(t, "_data", None) for t in listed]]
    if any(getattr(d, "level", -1) != level and type(d) is not np.ndarray for d in datas):
        return out  # a transform inside the capture has a hand in it
    operands = tuple(capture.value_of(t) for t in known[1])
    results = tuple(capture.value_of(t) for t in listed)
    capture.scopes.append(Scope(start, len(capture.nodes), name, known[0], operands, results))
    return out


def _encode(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], list[Any]] | None:
    """The arguments of a call as (name, literal or Operand), and the tensors; None if one is no literal."""
    plain = getattr(function, "__wrapped__", function)
    names, _, rest = parameters(plain)
    tensors: list[Any] = []

    def literal(x: Any) -> Any:
        if isinstance(x, TensorLike):
            tensors.append(x)
            return Operand(len(tensors) - 1)
        if isinstance(x, tuple | list):
            return tuple(literal(i) for i in x)
        if isinstance(x, _LITERALS):
            return x
        raise TypeError

    try:
        given = [(names[i] if i < len(names) else "", literal(a)) for i, a in enumerate(args)]
        return (*given, *[(k, literal(v)) for k, v in kwargs.items()]), tensors
    except TypeError:
        return None


def fold_scopes(
    nodes: Sequence[Node],
    scopes: Sequence[Scope],
    constants: Mapping[Value, Array],
    results: Sequence[Value],
    *,
    prune: bool,
) -> list[Node]:
    """Nodes with those of each scope as one call; without those that results do not need, if asked."""
    kept = set(needed_nodes(nodes, results)) if prune else set(nodes)
    out: list[Node] = []
    at = 0
    users = _last_users(nodes, kept, results)
    for scope in _outermost(scopes, 0, len(nodes)):
        out += [n for n in nodes[at : scope.start] if n in kept]
        out += _fold(nodes, scope, scopes, constants, kept, users)
        at = scope.stop
    return out + [n for n in nodes[at:] if n in kept]


def _last_users(nodes: Sequence[Node], kept: set[Node], results: Sequence[Value]) -> dict[Value, int]:
    """For each value the position of its last user; past the end for results."""
    users = {v: i for i, n in enumerate(nodes) if n in kept for v in n.inputs}
    return users | dict.fromkeys(results, len(nodes))


def _outermost(scopes: Sequence[Scope], start: int, stop: int) -> list[Scope]:
    inside = sorted((s for s in scopes if start <= s.start and s.stop <= stop), key=lambda s: (s.start, -s.stop))
    out: list[Scope] = []
    for scope in inside:
        if not out or scope.start >= out[-1].stop:
            out.append(scope)
    return out


def _fold(
    nodes: Sequence[Node],
    scope: Scope,
    scopes: Sequence[Scope],
    constants: Mapping[Value, Array],
    kept: set[Node],
    users: dict[Value, int],
) -> list[Node]:
    """The call node of a scope, or its nodes where a call would say no more."""
    own = [n for n in nodes[scope.start : scope.stop] if n in kept]
    inner = [s for s in scopes if s is not scope and scope.start <= s.start and s.stop <= scope.stop]
    made = {v: None for n in own for v in n.outputs}
    outs = [v for v in dict.fromkeys(scope.results) if v in made and v in users]
    outs += [v for v in made if users.get(v, -1) >= scope.stop and v not in outs]
    if len(own) < 2 or not outs or not all(n.is_pure for n in own):
        return _fold_inner(nodes, scope, inner, constants, kept, users)
    used = dict.fromkeys(v for n in own for v in n.inputs if v not in made and v not in constants)
    inputs = list(dict.fromkeys([*[v for v in scope.operands if v not in made], *used]))
    body_nodes = _fold_inner(nodes, scope, inner, constants, kept, users | dict.fromkeys(outs, scope.stop))
    body = copy_graph(scope.name, inputs, body_nodes, outs, constants)
    arguments = _renumber(scope.arguments, [inputs.index(v) for v in scope.operands])
    attrs = {"function": scope.name, "arguments": arguments, "body": body}
    return [Node(call, inputs, attrs, outs, own[0].location)]


def _renumber(x: Any, numbers: Sequence[int]) -> Any:
    if isinstance(x, Operand):
        return Operand(numbers[x.index])
    return tuple(_renumber(i, numbers) for i in x) if isinstance(x, tuple) else x


def _fold_inner(
    nodes: Sequence[Node],
    scope: Scope,
    inner: Sequence[Scope],
    constants: Mapping[Value, Array],
    kept: set[Node],
    users: dict[Value, int],
) -> list[Node]:
    out: list[Node] = []
    at = scope.start
    for s in _outermost(inner, scope.start, scope.stop):
        out += [n for n in nodes[at : s.start] if n in kept]
        out += _fold(nodes, s, inner, constants, kept, users)
        at = s.stop
    return out + [n for n in nodes[at : scope.stop] if n in kept]


def copy_graph(
    name: str,
    inputs: Sequence[Value],
    nodes: Sequence[Node],
    outputs: Sequence[Value],
    constants: Mapping[Value, Array],
) -> Graph:
    """A graph of nodes with values of its own."""
    fresh: dict[Value, Value] = {}

    def value(v: Value) -> Value:
        if v not in fresh:
            fresh[v] = Value(v.type, v.name)
        return fresh[v]

    copies = [
        Node(n.op, [value(v) for v in n.inputs], n.attrs, [value(v) for v in n.outputs], n.location) for n in nodes
    ]
    used = {v for n in nodes for v in n.inputs}.union(outputs) - set(inputs)
    return Graph(
        name,
        [value(v) for v in inputs],
        copies,
        [value(v) for v in outputs],
        constants={value(v): a for v, a in constants.items() if v in used},
    )


set_scope_layer(run_composite)
