"""The bodies of calls of composites, made again: text leaves them out, as tracing the composite gives them.

A composite is traced on inputs of the types of the operands. The values of its flat trace are numbered; a
call says by numbers which of them are its outputs, where these are not just what the composite returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.records import NamedTuple
from weft.base.shapes import size_of
from weft.ir.compare import same, same_array, same_literal
from weft.ir.graph import Array, Graph, Node, Value, map_operands
from weft.ir.location import Location
from weft.ir.types import TensorType
from weft.ops.call import call
from weft.ops.op import COMPOSITES
from weft.ops.table import argument_names
from weft.transform.building import capturing
from weft.transform.captured import not_capturing
from weft.transform.scopes import Scope, copy_graph, fold_scopes

# Tracing may make constants as large as its operands and the numbers in its arguments; text may say anything.
_ELEMENTS, _NUMBERS = 2**26, 2**22


class Trace(NamedTuple):
    """The flat trace of a composite, with the scopes of the composites it calls."""

    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    scopes: tuple[Scope, ...]
    constants: dict[Value, Array]
    results: tuple[Value, ...]

    @property
    def made(self) -> list[Value]:
        """The values that its nodes make; their place in the list is their number."""
        return [v for node in self.nodes for v in node.outputs]


def composite_body(
    function: str,
    arguments: tuple[Any, ...],
    types: Sequence[TensorType],
    numbers: Sequence[int] | None,
    keep: Sequence[int],
    location: Location | None,
) -> Graph | None:
    """The body of a call, which gives the results of the composite, or values by numbers, and those to keep.

    None where tracing the composite gives no body: it uses more than its arguments, or they do not fit it.
    """
    trace = _trace(function, arguments, types)
    if trace is None:
        return None
    made = trace.made
    if not all(0 <= n < len(made) for n in (*(numbers or ()), *keep)):
        return None
    outs = _defaults(trace) if numbers is None else [made[n] for n in numbers]
    return _body(function, trace, [*outs, *[made[n] for n in keep]], location)


def call_outputs(node: Node) -> tuple[tuple[int, ...] | None, tuple[int, ...]] | None:
    """Which values of the trace of a composite a call gives: ``numbers`` and ``keep`` of ``composite_body``.

    None where the body is not what tracing the composite gives.
    """
    function, arguments, body = (node.attrs[k] for k in ("function", "arguments", "body"))
    if function not in COMPOSITES:
        return None
    trace = _trace(function, arguments, [v.type for v in node.inputs])
    if trace is None:
        return None
    outs = _matched(trace, body)
    if outs is None or not same(_body(function, trace, outs, node.location), body):
        return None
    number = {v: i for i, v in enumerate(trace.made)}
    defaults = _defaults(trace)
    if outs[: len(defaults)] == defaults:
        return None, tuple([number[v] for v in outs[len(defaults) :]])
    return tuple([number[v] for v in outs]), ()


def _trace(function: str, arguments: tuple[Any, ...], types: Sequence[TensorType]) -> Trace | None:
    """Trace a composite; None where the arguments do not fit it, or it uses more than them."""
    if _is_large(arguments, _NUMBERS) or _is_large(tuple([size_of(t.shape) for t in types]), _ELEMENTS):
        return None
    try:
        with not_capturing(), capturing(function, region=True) as capture:
            capture.closed = True
            given = [capture.input(t) for t in types]
            args, kwargs = _bound(function, arguments, given)
            out = COMPOSITES[function].function(*args, **kwargs)
            listed = out if isinstance(out, tuple | list) else (out,)
            results = tuple([capture.value_of(t) for t in listed])
            del args, kwargs, given, out, listed
            capture.check_hooks()
            changed = bool(capture.take_changes())
    except Exception:
        return None
    if capture.settle() or changed:
        return None
    return Trace(
        tuple(capture.inputs), tuple(capture.nodes), tuple(capture.scopes), capture.constants, results
    )


def _is_large(x: object, limit: int) -> bool:
    if isinstance(x, tuple):
        return any(_is_large(i, limit) for i in x)
    return isinstance(x, int) and abs(x) > limit


def _bound(
    function: str, arguments: tuple[Any, ...], given: Sequence[Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call, with tensors for operands."""
    names, _ = argument_names(function)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for i, (name, x) in enumerate(arguments):
        if not kwargs and (not name or (i < len(names) and name == names[i])):
            args.append(map_operands(x, given.__getitem__))
        else:
            kwargs[name] = map_operands(x, given.__getitem__)
    return args, kwargs


def _defaults(trace: Trace) -> list[Value]:
    made = set(trace.made)
    return [v for v in dict.fromkeys(trace.results) if v in made]


def _body(function: str, trace: Trace, outs: Sequence[Value], location: Location | None) -> Graph:
    nodes = fold_scopes(trace.nodes, trace.scopes, trace.constants, outs, prune=True)
    body = copy_graph(function, trace.inputs, nodes, outs, trace.constants, names=False)
    return _placed(body, location)


def _placed(graph: Graph, location: Location | None) -> Graph:
    """A graph whose nodes, those of calls in it too, have one location."""
    nodes = []
    for n in graph.nodes:
        attrs = {k: _placed(a, location) if type(a) is Graph else a for k, a in n.attrs.items()}
        nodes.append(Node(n.op, n.inputs, attrs, n.outputs, location))
    return graph.replace(nodes=nodes)


# Which values of a trace the outputs of a body are


def _matched(trace: Trace, body: Graph) -> list[Value] | None:
    """The values of a trace that a body gives; None if it is something else."""
    if len(body.inputs) != len(trace.inputs):
        return None
    found = _Match(trace).outputs(body, trace.inputs)
    made = set(trace.made)
    return found if found is not None and all(isinstance(v, Value) and v in made for v in found) else None


class _Match:
    """Finds the nodes of a body among those of a trace: in the same order, with some left out."""

    def __init__(self, trace: Trace) -> None:
        self.candidates = iter(trace.nodes)
        self.constants = trace.constants
        self.twin: dict[Value, Any] = {}  # by value of the body that of the trace, or the array of a constant

    def outputs(self, graph: Graph, inputs: Sequence[Any]) -> list[Any] | None:
        """What the outputs of a body are in the trace, or None."""
        if len(graph.inputs) != len(inputs):
            return None
        self.twin |= graph.constants
        self.twin |= dict(zip(graph.inputs, inputs, strict=True))
        for node in graph.nodes:
            given = [self.twin.get(v) for v in node.inputs]
            outs = self.outputs(node.attrs["body"], given) if node.op is call else self.advance(node, given)
            if outs is None or len(outs) != len(node.outputs):
                return None
            self.twin |= dict(zip(node.outputs, outs, strict=True))
        return [self.twin.get(v) for v in graph.outputs]

    def advance(self, node: Node, given: Sequence[Any]) -> Sequence[Value] | None:
        for found in self.candidates:
            same = found.op is node.op and len(found.inputs) == len(given)
            if same and all(map(self.equal, given, found.inputs)) and _same_attrs(node, found):
                return found.outputs
        return None

    def equal(self, x: Any, value: Value) -> bool:
        if x is None or isinstance(x, Value):
            return x is value
        return value in self.constants and same_array(x, self.constants[value])


def _same_attrs(a: Node, b: Node) -> bool:
    return a.attrs.keys() == b.attrs.keys() and all(same_literal(x, b.attrs[k]) for k, x in a.attrs.items())
