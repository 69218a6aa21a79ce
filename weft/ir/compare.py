"""Whether two graphs are the same: node by node, whatever their values are called inside Python.

Numbers compare by their bits, so that -0.0 is not 0.0 and NaN is NaN; constants by content, so that one
constant used twice is the same as two equal ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.sizes import Size
from weft.ir.graph import Array, Graph, Node, Operand, Value


def same(graph: Graph, other: Graph, *, locations: bool = True) -> bool:
    """Whether two graphs have the same nodes, types, names, attributes, constants and, if asked, locations.

    >>> import weft
    >>> f, g = [weft.make_graph(lambda x: x + 1.0)(weft.ones(2)) for _ in range(2)]
    >>> f.same(g, locations=False)
    True
    """
    return difference(graph, other, locations=locations) is None


def difference(graph: Graph, other: Graph, *, locations: bool = True) -> str | None:
    """The first difference between two graphs in words, or None if they are the same."""
    return _Comparison(graph, other, locations).find()


def same_literal(a: Any, b: Any) -> bool:
    """Whether two attributes are equal: of one type and, for numbers, of the same bits."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        kinds = isinstance(a, Operand) == isinstance(b, Operand)  # other named tuples are as good as tuples
        return kinds and len(a) == len(b) and all(map(same_literal, a, b))
    if type(a) is not type(b) and not _are_counts(a, b):
        return isinstance(a, np.dtype) and isinstance(b, np.dtype) and bool(a == b)
    if isinstance(a, float | complex):
        return np.asarray(a).tobytes() == np.asarray(b).tobytes()
    if type(a) is Graph:
        return same(a, b)
    return bool(a == b)


def _are_counts(a: Any, b: Any) -> bool:
    """Whether both are whole numbers or sizes, of which a number of elements is a class of its own."""
    whole = all(isinstance(x, int) and not isinstance(x, bool) for x in (a, b))
    return whole or all(isinstance(x, Size) for x in (a, b))


def same_array(a: Array, b: Array) -> bool:
    """Whether two arrays have the same type and bits."""
    return a is b or (a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


class _Comparison:
    """Two graphs walked side by side."""

    def __init__(self, left: Graph, right: Graph, locations: bool) -> None:
        self.left = left
        self.right = right
        self.locations = locations
        self.twin: dict[Value, Value] = {}

    def find(self) -> str | None:
        left, right = self.left, self.right
        if left is right:
            return None
        if left.name != right.name:
            return f"names {left.name!r} and {right.name!r}"
        if left.roles != right.roles:
            return f"roles {left.roles} and {right.roles}"
        found = self.pair("inputs", left.inputs, right.inputs)
        if found is not None:
            return found
        if len(left.nodes) != len(right.nodes):
            return f"{len(left.nodes)} and {len(right.nodes)} nodes"
        for i, (a, b) in enumerate(zip(left.nodes, right.nodes, strict=True)):
            if (found := self.nodes(a, b)) is not None:
                return f"node {i}, {a.op.name}: {found}"
        return self.results()

    def results(self) -> str | None:
        left, right = self.left, self.right
        if len(left.outputs) != len(right.outputs) or len(left.updates) != len(right.updates):
            return "numbers of outputs or updates"
        if not all(map(self.match, left.results, right.results)):
            return "outputs or updates"
        olds = [old for old, _ in left.updates], [old for old, _ in right.updates]
        return None if all(map(self.match, *olds)) else "updated inputs"

    def nodes(self, a: Node, b: Node) -> str | None:
        if a.op is not b.op:
            return f"ops {a.op.name} and {b.op.name}"
        if len(a.inputs) != len(b.inputs) or not all(map(self.match, a.inputs, b.inputs)):
            return "operands"
        if self.locations and a.location != b.location:
            return f"locations {a.location!r} and {b.location!r}"
        return self.attrs(a, b) or self.pair("outputs", a.outputs, b.outputs)

    def attrs(self, a: Node, b: Node) -> str | None:
        if set(a.attrs) != set(b.attrs):
            return f"attributes {sorted(a.attrs)} and {sorted(b.attrs)}"
        for name, x in a.attrs.items():
            found = self.attr(x, b.attrs[name])
            if found is not None:
                return f"attribute {name}: {found}"
        return None

    def attr(self, x: Any, y: Any) -> str | None:
        if type(x) is Graph and type(y) is Graph:
            return difference(x, y, locations=self.locations)
        if _are_regions(x) and _are_regions(y) and len(x) == len(y):
            found = [difference(g, h, locations=self.locations) for g, h in zip(x, y, strict=True)]
            return next((f for f in found if f is not None), None)
        return None if same_literal(x, y) else f"{x!r} and {y!r}"

    def pair(self, what: str, left: Sequence[Value], right: Sequence[Value]) -> str | None:
        """Take values that are made at the same place for each other."""
        if len(left) != len(right):
            return f"{len(left)} and {len(right)} {what}"
        for a, b in zip(left, right, strict=True):
            if a.type != b.type or a.name != b.name:
                return f"{what} {a!r} and {b!r}"
            self.twin[a] = b
        return None

    def match(self, a: Value, b: Value) -> bool:
        if a in self.twin:
            return self.twin[a] is b
        x, y = self.left.constants.get(a), self.right.constants.get(b)
        return x is not None and y is not None and a.name == b.name and same_array(x, y)


def _are_regions(x: object) -> bool:
    return type(x) is tuple and bool(x) and all(type(g) is Graph for g in x)
