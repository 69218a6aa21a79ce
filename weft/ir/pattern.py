"""Patterns: small graphs that are found in larger ones, and the comparison of values of two graphs by
structure.

The inputs of a pattern stand for any values. A *loose* match looks at ops alone, whatever the types,
attributes and numbers; it tells which types the values have, so that the pattern can be made for these, and
then matched exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft.ir.compare import same_array, same_literal
from weft.ir.graph import Array, Graph, Node, Value
from weft.ir.rewrite import Draft, is_uniform

Bound = dict[Value, Value]
Pairs = Sequence[tuple[Value, Value]]


class AnyAttribute:
    """Stands for whatever an attribute is, where a pattern is written; ``weft.passes.any_attr`` is one."""

    __slots__ = ("name",)

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"any_attr {self.name}".strip()


class Pattern:
    """A graph to look for: its inputs match any values, its outputs are what a match replaces."""

    def __init__(self, graph: Graph, *, loose: bool) -> None:
        self.graph = graph
        self.loose = loose
        self.made = {out: node for node in graph.nodes for out in node.outputs}
        self._needs = {
            root: self._inputs_needed(self.made[root]) for root in graph.outputs if root in self.made
        }

    def _inputs_needed(self, node: Node) -> tuple[bool, tuple[Any, ...]]:
        """Whether a node needs a constant among its inputs, and which ops must make others."""
        constant = any(v in self.graph.constants for v in node.inputs)
        return constant, tuple({self.made[v].op for v in node.inputs if v in self.made})

    def may_end_at(self, draft: Draft, root: Value, node: Node) -> bool:
        """Whether a node can be the one of a result, by a quick look at what made its inputs."""
        constant, ops = self._needs[root]
        if constant and draft.constants.keys().isdisjoint(node.inputs):
            return False
        made = draft.made
        return all(any(v in made and made[v].op is op for v in node.inputs) for op in ops)

    def matches(self, draft: Draft, pairs: Pairs, bound: Bound) -> Iterator[Bound]:
        """The ways in which values of the pattern can be values of a graph, given what is bound already."""
        yield from self._solve(draft, pairs, dict(bound))

    def whole_matches(self, draft: Draft, root: Value, value: Value) -> Iterator[Bound]:
        """The ways in which the pattern can be found, with one of its results at a value."""
        yield from self._extend(draft, self.matches(draft, [(root, value)], {}))

    def _extend(self, draft: Draft, partial: Iterator[Bound]) -> Iterator[Bound]:
        """Matches of some results as matches of all."""
        for bound in partial:
            missing = next((v for v in self.graph.outputs if v not in bound), None)
            if missing is None:
                yield bound
                continue
            for value in self._candidates(draft, missing, bound):
                yield from self._extend(draft, self.matches(draft, [(missing, value)], bound))

    def _candidates(self, draft: Draft, result: Value, bound: Bound) -> Iterator[Value]:
        """Values that may be a further result: of the same op, on an input that is known if there is one."""
        node = self.made[result]
        known = next((v for v in node.inputs if v in bound and v not in self.graph.constants), None)
        found = draft.nodes if known is None else draft.users(bound[known])
        for other in found:
            if other.op is node.op and other not in draft.dead:
                yield from other.outputs

    def _solve(self, draft: Draft, pairs: Pairs, bound: Bound) -> Iterator[Bound]:
        pending = list(pairs)
        while pending:
            wanted, value = pending.pop()
            if wanted in bound:
                if not _same_leaf(draft, bound[wanted], value):
                    return
                continue
            node = self.made.get(wanted)
            if node is None:
                if wanted in self.graph.constants and not self._is_constant(draft, wanted, value):
                    return
                bound[wanted] = value
                continue
            orders = self._inputs_of(draft, node, wanted, value, bound)
            if not orders:
                return
            for inputs in orders[1:]:
                yield from self._solve(draft, [*pending, *inputs], dict(bound))
            pending += orders[0]
        yield bound

    def _is_constant(self, draft: Draft, wanted: Value, value: Value) -> bool:
        array = draft.array(value)
        if array is None:
            return False
        return self.loose or same_constant(self.graph.constants[wanted], array)

    def _inputs_of(self, draft: Draft, node: Node, wanted: Value, value: Value, bound: Bound) -> list[Pairs]:
        """Bind the outputs of a node; the ways to pair its inputs, none if it is another node."""
        found = draft.made.get(value)
        if found is None or found.op is not node.op or len(found.inputs) != len(node.inputs):
            return []
        if not found.is_pure or (not draft.again and value in draft.fresh):
            return []
        if not (self.loose or same_attrs(node.attrs, found.attrs)):
            return []
        if "function" not in node.attrs:
            bound.update(zip(node.outputs, found.outputs, strict=True))
        elif self.loose or _same_output(node, wanted, found, value):
            bound[wanted] = value  # a call gives those of its values that are used, in any order
        if bound.get(wanted) is not value:
            return []
        straight = list(zip(node.inputs, found.inputs, strict=True))
        if not node.op.commutative:
            return [straight]
        return [straight, list(zip(node.inputs, found.inputs[::-1], strict=True))]

    def nodes_of(self, draft: Draft, bound: Bound) -> dict[Node, None]:
        """The nodes of a match."""
        return dict.fromkeys(draft.made[bound[v]] for v in self.made if v in bound)


def _same_output(node: Node, wanted: Value, found: Node, value: Value) -> bool:
    """Whether a call computes a value as another call does."""
    a, b = node.attrs["body"], found.attrs["body"]
    return same_value(a, a.outputs[node.outputs.index(wanted)], b, b.outputs[found.outputs.index(value)])


def _same_leaf(draft: Draft, a: Value, b: Value) -> bool:
    if a is b:
        return True
    left, right = draft.array(a), draft.array(b)
    return left is not None and right is not None and same_array(left, right)


def same_constant(wanted: Array, array: Array) -> bool:
    """Whether an array has the bits of a wanted one; a single number stands for an array full of it."""
    if wanted.ndim == 0:
        return is_uniform(array, wanted)
    return same_array(wanted, array)


def same_attrs(a: Any, b: Any) -> bool:
    """Whether attributes are equal; wildcards in the first equal anything, the body of a call is its name."""
    skipped = "body" if "function" in a else None
    return a.keys() == b.keys() and all(k == skipped or _same_attr(x, b[k]) for k, x in a.items())


def _same_attr(a: object, b: object) -> bool:
    if type(a) is AnyAttribute:
        return True
    if type(a) is tuple:
        return type(b) is tuple and len(a) == len(b) and all(map(_same_attr, a, b))
    if type(a) is Graph:
        return type(b) is Graph and same_graph(a, b)
    return same_literal(a, b)


def same_graph(a: Graph, b: Graph) -> bool:
    """Whether two graphs compute their outputs in the same way.

    >>> import weft
    >>> f = weft.make_graph(lambda x: x * 2.0)
    >>> same_graph(f(weft.ones(3)), f(weft.ones(3)))
    True
    """
    if len(a.inputs) != len(b.inputs) or len(a.results) != len(b.results):
        return False
    return all(same_value(a, x, b, y) for x, y in zip(a.results, b.results, strict=True))


def same_value(a: Graph, x: Value, b: Graph, y: Value) -> bool:
    """Whether a value of one graph is computed as one of another, from the inputs with the same numbers."""
    made = [{out: node for node in g.nodes for out in node.outputs} for g in (a, b)]
    numbers = [{v: i for i, v in enumerate(g.inputs)} for g in (a, b)]
    seen: dict[Value, Value] = {}
    pending = [(x, y)]
    while pending:
        x, y = pending.pop()
        if seen.get(x) is y:
            continue
        seen[x] = y
        left, right = made[0].get(x), made[1].get(y)
        if left is None or right is None:
            if left is not right or not _same_source(a, x, b, y, numbers):
                return False
            continue
        if left.op is not right.op or not same_attrs(left.attrs, right.attrs) or x.type != y.type:
            return False
        if left.outputs.index(x) != right.outputs.index(y) or len(left.inputs) != len(right.inputs):
            return False
        pending += zip(left.inputs, right.inputs, strict=True)
    return True


def _same_source(a: Graph, x: Value, b: Graph, y: Value, numbers: Sequence[dict[Value, int]]) -> bool:
    left, right = a.constants.get(x), b.constants.get(y)
    if left is None or right is None:
        return left is right and numbers[0].get(x) == numbers[1].get(y)
    return same_array(left, right)
