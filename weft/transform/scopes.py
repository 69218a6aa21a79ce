"""Scopes: which nodes of a capture one call of a composite made, and how they become one ``call`` node.

The tape sees the ops of a composite one by one. When the graph is frozen, the nodes of a call are folded into
one node that is printed as the call; what the gradient needs of its inside are further outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.public import parameters
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.ir.compare import same_literal
from weft.ir.graph import Array, Graph, Node, Operand, Value, map_operands
from weft.ir.order import needed_nodes
from weft.ops.call import call
from weft.ops.op import Composite, Container, TensorLike
from weft.tensor.large import call_large
from weft.tensor.mode import thread

CHECKPOINT = "weft.checkpoint"  # the name of calls whose inside no gradient keeps
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
        out = call_large(entry, args, kwargs) if entry.whole else None
        return entry.function(*args, **kwargs) if out is None else out
    return run_scope(capture, entry.name, entry.function, args, kwargs)


def run_scope(
    capture: Any, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a function in a capture as a scope with a name."""
    start = len(capture.nodes)
    known = _encode(function, args, kwargs)
    before = [t._data for t in known[1]] if known is not None else []
    out = function(*args, **kwargs)
    if known is not None and thread.capture is capture:
        listed = out if isinstance(out, tuple | list) else (out,)
        add_scope(capture, start, name, known[0], known[1], before, listed)
    return out


def add_scope(
    capture: Any,
    start: int,
    name: str,
    arguments: tuple[Any, ...],
    operands: Sequence[Any],
    before: Sequence[Any],
    results: Sequence[Any],
) -> None:
    """Remember that the nodes from ``start`` on are one call, on tensors that had the data ``before``."""
    if len(capture.nodes) - start < 2:
        return
    datas = [*before, *[getattr(t, "_data", None) for t in results]]
    if any(d is None or getattr(d, "level", 0) > capture.level for d in datas):
        return  # no tensor, or a transform inside the capture has a hand in it
    used = tuple(capture.value_of(t) for t in operands)
    made = tuple(capture.value_of(t) for t in results)
    capture.scopes.append(Scope(start, len(capture.nodes), name, arguments, used, made))


def note_checkpoint(capture: Any, start: int) -> None:
    """Remember that the nodes from ``start`` on are a checkpoint: a gradient computes them again."""
    if len(capture.nodes) > start:
        capture.scopes.append(Scope(start, len(capture.nodes), CHECKPOINT, (), (), ()))


def checkpointed_nodes(nodes: Sequence[Node], scopes: Sequence[Scope], forward: int) -> dict[Node, int]:
    """The nodes of a forward pass that are in a checkpoint, each with where the outermost around it ends.

    The gradient of a loop or branch begins with another run of it, which gives more: that belongs to it.
    """
    found: dict[Node, int] = {}
    for nested in _nested([s for s in scopes if s.name == CHECKPOINT and s.stop <= forward]):
        found.update(dict.fromkeys(nodes[nested.scope.start : nested.scope.stop], nested.scope.stop))
    runs = {(n.op, n.inputs): stop for n, stop in found.items() if n.regions}
    for node in nodes[forward:] if runs else ():
        if node.regions and (node.op, node.inputs) in runs:
            found[node] = runs[node.op, node.inputs]
    return found


def _encode(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], list[Any]] | None:
    """The arguments of a call as (name, literal or Operand), and the tensors; None if one is no literal.

    What a parameter is by default is left out.
    """
    plain = getattr(function, "__wrapped__", function)
    names, _, _ = parameters(plain)
    tensors: list[Any] = []

    def literal(x: object) -> Any:
        if isinstance(x, TensorLike) and not isinstance(x, Container):
            tensors.append(x)
            return Operand(len(tensors) - 1)
        if isinstance(x, tuple | list):
            return tuple(literal(i) for i in x)
        if isinstance(x, _LITERALS):
            return x.item() if isinstance(x, np.generic) else x
        raise TypeError

    try:
        given = [(names[i] if i < len(names) else "", literal(a)) for i, a in enumerate(args)]
        given += [(k, literal(v)) for k, v in kwargs.items()]
    except TypeError:
        return None
    if len(args) > len(names):
        return tuple(given), tensors
    usual = _defaults(plain)
    return tuple([(k, v) for k, v in given if k not in usual or not same_literal(v, usual[k])]), tensors


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """The defaults of the parameters of a function that can be given by name."""
    names, _, _ = parameters(function)
    values = function.__defaults__ or ()
    by_name = dict(zip(names[len(names) - len(values) :], values, strict=True))
    for name in names[: function.__code__.co_posonlyargcount]:
        by_name.pop(name, None)
    return by_name | (function.__kwdefaults__ or {})


def fold_scopes(
    nodes: Sequence[Node],
    scopes: Sequence[Scope],
    constants: Mapping[Value, Array],
    results: Sequence[Value],
    *,
    prune: bool,
    count: int | None = None,
) -> list[Node]:
    """Nodes with those of each scope as one call; without those that results do not need, if asked.

    With ``count`` nodes are kept for their effects only if they are among so many of the first.
    """
    kept = set(nodes)
    if prune:
        acting = [n for n in nodes[:count] if not n.is_pure]
        wanted = [*results, *[v for n in acting for v in n.inputs]]
        kept = {*acting, *needed_nodes(nodes, wanted, effects=False)}
    return _Folding(nodes, constants, kept, results).nodes_between(0, len(nodes), _nested(scopes))


class _Nested(NamedTuple):
    """A scope and those of the calls inside it."""

    scope: Scope
    inner: list[_Nested]


def _nested(scopes: Sequence[Scope]) -> list[_Nested]:
    """Scopes as a tree; of two with the same nodes, the one that ended later is around the other."""
    order = sorted(range(len(scopes)), key=lambda i: (scopes[i].start, -scopes[i].stop, -i))
    top: list[_Nested] = []
    around: list[_Nested] = []
    for i in order:
        found = _Nested(scopes[i], [])
        while around and around[-1].scope.stop <= found.scope.start:
            around.pop()
        (around[-1].inner if around else top).append(found)
        around.append(found)
    return top


class _Folding:
    """One freezing of a graph: which nodes are kept, and who uses their values last."""

    def __init__(
        self,
        nodes: Sequence[Node],
        constants: Mapping[Value, Array],
        kept: set[Node],
        results: Sequence[Value],
    ) -> None:
        self.nodes = nodes
        self.constants = constants
        self.kept = kept
        self.last_use = {v: i for i, n in enumerate(nodes) if n in kept for v in n.inputs}
        self.last_use |= dict.fromkeys(results, len(nodes))
        self.left_out = {v for n in nodes if n not in kept for v in n.outputs}

    def nodes_between(self, start: int, stop: int, scopes: Sequence[_Nested]) -> list[Node]:
        """The nodes of a range, with those of scopes folded."""
        out: list[Node] = []
        for nested in scopes:
            out += [n for n in self.nodes[start : nested.scope.start] if n in self.kept]
            out += self.fold(nested)
            start = nested.scope.stop
        return out + [n for n in self.nodes[start:stop] if n in self.kept]

    def fold(self, nested: _Nested) -> list[Node]:
        """The call node of a scope, or its nodes where a call would say no more."""
        scope = nested.scope
        own = [n for n in self.nodes[scope.start : scope.stop] if n in self.kept]
        made = dict.fromkeys(v for n in own for v in n.outputs)
        outs = self.outputs(scope, made)
        changed = any(v in made for v in scope.operands)  # in place: then the call is more than its operands
        gone = any(v in self.left_out for v in scope.operands)  # all that is kept asks for is its size
        told = (len(own) > 1 and all(n.is_pure for n in own)) or (own and scope.name == CHECKPOINT)
        if not told or not outs or changed or gone:
            return self.nodes_between(scope.start, scope.stop, nested.inner)
        used = [v for n in own for v in n.inputs if v not in made and v not in self.constants]
        inputs = list(dict.fromkeys([*scope.operands, *used]))
        body_nodes = self.nodes_between(scope.start, scope.stop, nested.inner)
        body = copy_graph(scope.name, inputs, body_nodes, outs, self.constants, names=False)
        arguments = map_operands(scope.arguments, lambda i: Operand(inputs.index(scope.operands[i])))
        attrs = {"function": scope.name, "arguments": arguments, "body": body}
        return [Node(call, inputs, attrs, outs, own[0].location)]

    def outputs(self, scope: Scope, made: Mapping[Value, None]) -> list[Value]:
        """What a call gives: its results that are used, and what else later nodes use, as a gradient does."""
        outs = [v for v in dict.fromkeys(scope.results) if v in made and v in self.last_use]
        given = set(outs)
        outs += [v for v in made if self.last_use.get(v, -1) >= scope.stop and v not in given]
        for v in outs:
            self.last_use[v] = max(self.last_use[v], scope.stop)  # the calls inside must give it too
        return outs


def copy_graph(
    name: str,
    inputs: Sequence[Value],
    nodes: Sequence[Node],
    outputs: Sequence[Value],
    constants: Mapping[Value, Array],
    *,
    names: bool = True,
) -> Graph:
    """A graph of nodes with values of its own, which keep their names unless said otherwise."""
    fresh: dict[Value, Value] = {}

    def value(v: Value) -> Value:
        if v not in fresh:
            fresh[v] = Value(v.type, v.name if names else "")
        return fresh[v]

    copies = [
        Node(n.op, [value(v) for v in n.inputs], n.attrs, [value(v) for v in n.outputs], n.location)
        for n in nodes
    ]
    used = dict.fromkeys([*[v for n in nodes for v in n.inputs], *outputs])
    given = set(inputs)
    return Graph(
        name,
        [value(v) for v in inputs],
        copies,
        [value(v) for v in outputs],
        constants={value(v): constants[v] for v in used if v in constants and v not in given},
    )
