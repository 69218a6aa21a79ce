"""Finding attention in a graph: who makes and uses what around a softmax of scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft.base.records import NamedTuple
from weft.base.shapes import size_of
from weft.ir.graph import Array, Graph, Node, Value
from weft.ir.rewrite import uniform
from weft.ir.surgery import clone
from weft.ops.arithmetic import add
from weft.ops.compare import less_equal
from weft.ops.contract import matrix_multiply as matmul
from weft.ops.select import select
from weft.ops.size import iota
from weft.ops.view.primitives import permute, reshape
from weft.passes.base import is_elementwise

DEEP = 4  # ops in a row between scores and softmax


def swap_last(axes: tuple[int, ...]) -> tuple[int, ...]:
    """Axes with the last two exchanged."""
    return (*axes[:-2], axes[-1], axes[-2])


class Chain(NamedTuple):
    """Elementwise ops from one value to another.

    Attributes:
        region: takes what the chain begins with, and the others.
        others: what else it uses.
    """

    region: Graph
    others: tuple[Value, ...] = ()


class Use(NamedTuple):
    """A matrix product that a value x is part of: ``x @ other``, or ``xᵀ @ other`` if it sums over rows.

    Attributes:
        node: the product.
        other: the other side, and whether it stands there transposed.
        sums_rows: whether x is transposed.
        turned: whether the product's result is the transposed one.
        views: nodes that transpose x for it.
    """

    node: Node
    other: tuple[Value, bool]
    sums_rows: bool
    turned: bool
    views: tuple[Node, ...]


class Uses:
    """Who makes and uses the values of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = {v: node for node in graph.nodes for v in node.outputs}
        self.place = {node: i for i, node in enumerate(graph.nodes)}
        self.results = set(graph.results)
        self.users: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for v in dict.fromkeys(node.inputs):
                self.users.setdefault(v, []).append(node)

    def of(self, value: Value) -> list[Node]:
        """The nodes that use a value."""
        return self.users.get(value, [])

    def only(self, value: Value) -> Node | None:
        """The one node that uses a value; None where there are others, or it is a result."""
        users = self.of(value)
        return users[0] if len(users) == 1 and value not in self.results else None

    def maker(self, value: Value, op: Any) -> Node | None:
        """The node that makes a value, if it applies an op."""
        node = self.makers.get(value)
        return node if node is not None and node.op is op else None

    def made_at(self, value: Value) -> int:
        """The place of the node that makes a value; -1 for one that is given."""
        return self.place[self.makers[value]] if value in self.makers else -1

    def is_same(self, x: Value, y: Value, *, turned: bool) -> bool:
        """Whether two values have the same elements by way of permutations (the second one transposed)."""
        (x, axes), (y, others) = self._permuted(x), self._permuted(y)
        return x is y and axes == (swap_last(others) if turned else others)

    def _permuted(self, value: Value) -> tuple[Value, tuple[int, ...]]:
        axes = tuple(range(len(value.type.shape)))
        while (node := self.maker(value, permute)) is not None:
            inner = node.attrs["axes"]
            axes = tuple(inner[a] for a in axes)
            value = node.inputs[0]
        return value, axes

    def products(self, x: Value) -> Iterator[Use | None]:
        """The products that a value is part of, itself or transposed; None for each other use of it."""
        for user in self.of(x):
            if user.op is matmul and user.inputs[0] is not user.inputs[1]:
                yield _use(user, x, (), transposed=False)
            elif user.op is permute and user.attrs["axes"] == swap_last(tuple(range(len(x.type.shape)))):
                (turned,) = user.outputs
                product = self.only(turned)
                if product is None or product.op is not matmul or product.inputs[0] is product.inputs[1]:
                    yield None
                else:
                    yield _use(product, turned, (user,), transposed=True)
            else:
                yield None

    # Elementwise ops on scores

    def path(self, value: Value, shape: Any, depth: int = DEEP) -> list[Node]:
        """The nodes from a matrix product to a value, of one shape and with no other uses; else none."""
        node = self.makers.get(value)
        if node is None or value.type.shape != shape or self.only(value) is None:
            return []
        if node.op is matmul:
            return [node]
        if not is_elementwise(node) or not depth:
            return []
        for v in node.inputs:
            if found := self.path(v, shape, depth - 1):
                return [*found, node]
        return []

    def elementwise_after(self, start: Value) -> list[Node]:
        """The elementwise ops that follow on a value, where all of them lead to the last; else none."""
        reached, found = {start}, list[Node]()
        for node in self.graph.nodes[self.made_at(start) + 1 :]:
            if is_elementwise(node) and not reached.isdisjoint(node.inputs):
                reached.update(node.outputs)
                found.append(node)
        inner = reached.difference(found[-1].outputs) if found else set()
        is_closed = all(v not in self.results and set(self.of(v)).issubset(found) for v in inner)
        return found if is_closed else []

    def chain(self, name: str, start: Value, path: Sequence[Node]) -> Chain:
        """Nodes one after the other as a chain; what else they use is computed in it where it is as large."""
        nodes: dict[Node, None] = {}
        others: dict[Value, None] = {}
        constants: dict[Value, Array] = {}
        on_path = {start, *[v for node in path for v in node.outputs]}

        def take(v: Value, depth: int) -> None:
            array, node = self.graph.constants.get(v), self.makers.get(v)
            if v in on_path or (node is not None and node in nodes):
                return
            if array is not None and uniform(array) is not None:
                constants[v] = array
            elif node is not None and depth and is_elementwise(node) and self._is_large(v, start):
                for x in node.inputs:
                    take(x, depth - 1)
                nodes[node] = None
            else:
                others[v] = None

        for node in path:
            for v in node.inputs:
                take(v, DEEP)
            nodes[node] = None
        result = path[-1].outputs[0] if path else start
        region = Graph(name, [start, *others], list(nodes), [result], constants=constants)
        return Chain(clone(region), tuple(others))

    def _is_large(self, value: Value, scores: Value) -> bool:
        return value.type.shape[-2:] == scores.type.shape[-2:]

    def is_causal(self, node: Node, x: Value) -> bool:
        """Whether a node does nothing to x but hide the keys that come after a query."""
        if node.op is add:
            (other,) = [v for v in node.inputs if v is not x] or [x]
            return self._is_triangle(other, 0.0, -np.inf)
        if node.op is select and node.inputs[1] is x:
            condition, _, hidden = node.inputs
            return self._is_triangle(condition, True, False) and self._is_number(hidden, -np.inf)
        return False

    def hides_gradient(self, node: Node, x: Value) -> bool:
        """Whether a node makes x zero where keys come after a query."""
        if node.op is not select or node.inputs[1] is not x:
            return False
        return self._is_triangle(node.inputs[0], True, False) and self._is_number(node.inputs[2], 0.0)

    def _is_number(self, value: Value, number: float) -> bool:
        array = self.graph.constants.get(value)
        found = None if array is None else uniform(array)
        return found is not None and bool(found == number)

    def _is_triangle(self, value: Value, below: Any, above: Any) -> bool:
        """Whether a matrix has one number at keys up to a query, and another behind it."""
        array, node = self.graph.constants.get(value), self.makers.get(value)
        if node is not None and node.op is select:
            condition, first, other = node.inputs
            is_bias = self._is_number(first, below) and self._is_number(other, above)
            return is_bias and self._is_triangle(condition, True, False)
        if node is not None and node.op is less_equal and below is True:
            return self._counts(node.inputs[0], -1) and self._counts(node.inputs[1], -2)
        if array is None or array.ndim < 2 or size_of(array.shape[:-2]) != 1:
            return False
        matrix = array.reshape(array.shape[-2:])
        if matrix[0, 0] != below or matrix[0, -1] != above:
            return False
        return all(
            bool((row[: i + 1] == below).all() and (row[i + 1 :] == above).all())
            for i, row in enumerate(matrix)
        )

    def _counts(self, value: Value, axis: int) -> bool:
        """Whether a value is the number of its element along an axis."""
        shape = value.type.shape
        while (node := self.maker(value, reshape)) is not None:
            (value,) = node.inputs
        node = self.maker(value, iota)
        return (
            node is not None and len(shape) >= -axis and shape[axis] == size_of(shape) == node.attrs["size"]
        )


def _use(product: Node, x: Value, views: tuple[Node, ...], *, transposed: bool) -> Use:
    left, right = product.inputs
    if left is x:
        return Use(product, (right, False), transposed, False, views)
    return Use(product, (left, True), not transposed, True, views)
