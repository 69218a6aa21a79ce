"""Tracing of rewrite rules: the two sides of a rule, on types, as graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from typing import Any

import numpy as np

from weft.base.records import NamedTuple
from weft.errors import ArgumentError, GraphError, WeftError
from weft.ir.compare import same_literal
from weft.ir.graph import Attrs, Graph, Node, Value
from weft.ir.pattern import AnyAttribute, Bound, Pattern
from weft.ir.rewrite import Draft
from weft.ir.types import TensorType
from weft.ops.op import TensorLike
from weft.passes.inline import inline
from weft.transform.building import Capture, capturing
from weft.transform.captured import Captured, not_capturing

_SHAPES = ((4, 4), (4,), (), (4, 4, 4), (4, 4, 4, 4))
_DTYPES = tuple(map(np.dtype, ("float32", "int64", "bool", "complex64")))
_ATTEMPTS = 250


class Sides(NamedTuple):
    """A rule on types: what it looks for, as written and with its calls expanded, and what it puts there."""

    patterns: tuple[Graph, ...]
    replacement: Graph


class Wild(NamedTuple):
    """What wildcards stand for: by name, and in order the nodes that hold those without a name."""

    named: dict[str, Any]
    guide: tuple[Node, ...]


def uniform_types(count: int) -> Iterator[tuple[TensorType, ...]]:
    """Types to try a pattern on: the same for all parameters."""
    for dtype, shape in product(_DTYPES, _SHAPES):
        yield (TensorType(shape, dtype),) * count


def mixed_types(count: int) -> Iterator[tuple[TensorType, ...]]:
    """Types to try a pattern on that takes different ones."""
    each = [TensorType(shape, dtype) for dtype, shape in product(_DTYPES[:3], ((4, 4), (4,)))]
    return islice(product(each, repeat=count), _ATTEMPTS)


def trace_sides(
    name: str,
    sides: Callable[..., tuple[Any, Any]],
    inputs: Sequence[tuple[str, TensorType]],
    attributes: Sequence[str],
    wild: Wild | None,
) -> Sides:
    """Both sides of a rule as graphs of the same inputs; without ``wild`` the pattern alone."""
    with not_capturing(), capturing(name, region=True, make=_Tracing) as capture:
        assert isinstance(capture, _Tracing)
        capture.guide = None if wild is None else list(wild.guide)
        given = [capture.input(t, n) for n, t in inputs]
        known = {n: AnyAttribute(n) if wild is None else wild.named[n] for n in attributes}
        pattern, replacement = sides(*given, **known)
        wanted = [capture.value_of(t) for t in _listed(pattern)]
        if callable(replacement) and not isinstance(replacement, TensorLike):
            replacement = pattern if wild is None else _computed(name, replacement)
        put = _listed(replacement)
        if len(put) != len(wanted):
            message = f"both sides must give as many tensors, got {len(wanted)} and {len(put)}"
            raise ArgumentError(name, message)
        results = [_as_value(capture, t, w) for t, w in zip(put, wanted, strict=True)]
        del pattern, replacement, put, given
    for external, tensor in capture.settle():
        capture.constants[external.value] = tensor._data  # type: ignore[union-attr]
    graph = capture.graph(capture.inputs, wanted)
    if not {out for node in graph.nodes for out in node.outputs}.issuperset(wanted):
        raise ArgumentError(name, "the pattern must apply an op, got a parameter alone")
    expanded = inline(graph)
    forms = (graph,) if expanded is graph else (graph, expanded)
    return Sides(forms, capture.graph(capture.inputs, results))


def _computed(name: str, replacement: Callable[[], Any]) -> Any:
    try:
        return replacement()
    except WeftError as error:
        what = f"the replacement must work on the types that were found, got {error}"
        raise GraphError(name, what, hint="say with where= for which types it holds") from error


class _Tracing(Capture):
    """A capture in which attributes may be wildcards."""

    guide: list[Node] | None = None  # the nodes that were found for those with wildcards, in order

    def emit(self, op: Any, values: Sequence[Value], attrs: Attrs) -> tuple[Captured, ...]:
        """Append a node on values; with wildcards its types are a guess, unless the node was found."""
        if not any(map(has_wildcard, attrs.values())):
            return super().emit(op, values, attrs)
        if self.guide:
            found = self.guide.pop(0)
            attrs = {k: found.attrs[k] if _is_unnamed(a) else a for k, a in attrs.items()}
            return super().emit(op, values, attrs)
        outs = [Value(values[0].type) for _ in range(op.outputs or 1)]
        self.nodes.append(Node(op, values, dict(attrs), outs))
        return tuple([Captured(self, v) for v in outs])

    def location(self) -> None:
        """Nothing: what is put into a graph has the line of what it replaces."""
        return None


def has_wildcard(attr: object) -> bool:
    """Whether a wildcard stands in an attribute."""
    return type(attr) is AnyAttribute or (type(attr) is tuple and any(map(has_wildcard, attr)))


def _is_unnamed(attr: object) -> bool:
    return type(attr) is AnyAttribute and not attr.name


def read_wildcards(draft: Draft, pattern: Pattern, bound: Bound) -> Wild | None:
    """What the wildcards of a pattern stand for in a match; None if one stands for two things."""
    named: dict[str, Any] = {}
    guide: list[Node] = []
    for node in pattern.graph.nodes:
        if not any(map(has_wildcard, node.attrs.values())):
            continue
        found = draft.made[bound[node.outputs[0]]]
        if any(map(_is_unnamed, node.attrs.values())):
            guide.append(found)
        for key, attr in node.attrs.items():
            if key not in found.attrs or not _unify(attr, found.attrs[key], named):
                return None
    return Wild(named, tuple(guide))


def _unify(attr: object, found: object, named: dict[str, Any]) -> bool:
    if type(attr) is AnyAttribute:
        return not attr.name or same_literal(named.setdefault(attr.name, found), found)
    if type(attr) is tuple and type(found) is tuple and has_wildcard(attr):
        return len(attr) == len(found) and all(_unify(a, f, named) for a, f in zip(attr, found, strict=True))
    return True


def _listed(result: object) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _as_value(capture: Capture, result: object, wanted: Value) -> Value:
    """A replacement as a value; numbers take the dtype of what they replace."""
    if isinstance(result, TensorLike):
        return capture.value_of(result)  # type: ignore[arg-type]
    return capture.constant(np.asarray(result, wanted.type.dtype)).value
