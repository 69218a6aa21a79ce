"""Products of each iteration of a loop, taken at once for all of them.

A network over time multiplies a few rows by the same weights in every step, ``x[t] @ w``, and its gradient
adds up ``x[t].T @ g[t]``: many small products, and large sums read and written in each step. Where ``x`` is
what the loop goes along, ``x @ w`` is one product before it; where the loop keeps each ``g[t]``, the sum is
one product after it. Only the order of additions is another one. What the loop goes along, or collects
anyhow, is there; the rest it must keep, which takes memory and pays only if that is less than to add to the
total each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from weft.base.dtypes import kind
from weft.base.records import NamedTuple
from weft.ir.graph import Graph, Node, Value
from weft.ir.order import needed_nodes
from weft.ir.rewrite import giving, is_uniform, reading
from weft.ir.types import TensorType
from weft.ops.affine import matmul_add
from weft.ops.arithmetic import add, mul
from weft.ops.contract import matrix_multiply as matmul
from weft.ops.reduce import reduce_sum
from weft.ops.view.primitives import broadcast_to, permute, reshape
from weft.passes.base import graph_pass
from weft.passes.dce import dce, pick
from weft.passes.loops import Loop, remade, with_inputs
from weft.passes.lowering.along import (
    ROOM,
    Around,
    Stacks,
    as_scan,
    follow_rows,
    has_room,
    is_view,
    share_stacks,
)
from weft.transform.partition import bytes_of

FEW = 64  # rows of a product that by itself does not keep the machine busy
STEPS = 4  # iterations from which on it pays
SMALL = 4096  # bytes of a product or a sum that is not worth it: it stays near


@graph_pass(regions=True, once=True)
def take_products(graph: Graph) -> Graph:
    """Take products of loops at once, before or after the loop, where that saves work.

    >>> import weft
    >>> def f(x, y):
    ...     return weft.scan(lambda s, row: (s + row[0].T @ row[1], None), weft.zeros(64, 64), (x, y))[0]
    >>> graph = weft.make_graph(f)(weft.ones(10, 2, 64), weft.ones(10, 2, 64)).optimize()
    >>> [node.op.name for node in weft.passes.take_products(graph).nodes]
    ['reshape', 'permute', 'reshape', 'matmul']
    """
    return _take(graph, Limits(FEW, ROOM, after=False))


@graph_pass(regions=True, once=True)
def take_wide_products(graph: Graph) -> Graph:
    """The same for a machine that only many rows keep busy, and that has more memory."""
    return _take(graph, Limits(64 * FEW, 16 * ROOM, after=True))


class Limits(NamedTuple):
    """What may be taken out of loops.

    Attributes:
        rows: up to how many of them a product has.
        room: how many bytes may be kept for all iterations.
        after: whether products that are only collected are taken after the loop, and sums of what it keeps.
    """

    rows: int
    room: int
    after: bool


def _take(graph: Graph, limits: Limits) -> Graph:
    if all(as_scan(node) is None for node in graph.nodes):
        return graph
    around, same = Around(graph), True
    for node in graph.nodes:
        node = reading(node, around.now)
        loop = as_scan(node)
        if loop is None or _is_short(loop):
            around.add(node)
            continue
        loop = share_stacks(around, _take_before(around, follow_rows(around, loop), limits))
        later = _Later(loop, limits) if limits.after else None
        taken = take_sums(around, loop if later is None else later.loop, folds=limits.after)
        if later is not None:
            later.emit(around)
            loop = later.loop
        same = same and not taken and loop.node is node
    return graph if same else dce(giving(graph, around.now, nodes=around.nodes))


def _is_short(loop: Loop) -> bool:
    length = loop.node.attrs["length"]
    return isinstance(length, int) and length < STEPS


def _take_before(around: Around, loop: Loop, limits: Limits) -> Loop:
    """The loop with products of rows and what stays the same as rows."""
    body, stacks = loop.body, Stacks(around, loop)
    outside = dict(zip(loop.same(body), loop.fixed, strict=True))
    found: list[Node] = []
    rows: list[Value] = []
    for node in body.nodes:
        turned = _is_turned(node, outside, stacks)
        if turned is None or not _saves(loop, node, turned, limits):
            continue
        row, weights, *more = node.inputs[::-1] if turned else node.inputs
        given = [outside[v] for v in (weights, *more)]
        rows.append(_product_of_rows(around, node, stacks.of(row), given, turned))
        found.append(node)
    if not found:
        return loop
    n = len(loop.inits) + len(loop.rows)
    inputs = [*body.inputs[:n], *[v for node in found for v in node.outputs], *body.inputs[n:]]
    nodes = [node for node in body.nodes if node not in found]
    new = with_inputs(body.replace(nodes=nodes), inputs, body.outputs)
    return remade(loop, loop.node.outputs, rows=[*loop.rows, *rows], body=new)


def _is_turned(node: Node, outside: dict[Value, Value], stacks: Stacks) -> bool | None:
    """Whether what stays the same is the left side of a product with rows; None if it is no such product."""
    if node.op not in (matmul, matmul_add) or any(v.type.ndim != 2 for v in node.inputs[:2]):
        return None
    left, right, *more = node.inputs
    if more:
        row = more[0].type.ndim < 2 and more[0] in outside
        return False if row and right in outside and stacks.has(left) else None
    if right in outside and stacks.has(left):
        return False
    return True if left in outside and stacks.has(right) else None


def _saves(loop: Loop, node: Node, turned: bool, limits: Limits) -> bool:
    """Whether to read the weights in each iteration costs more than to keep the products."""
    row, weights = node.inputs[1::-1] if turned else node.inputs[:2]
    (out,) = node.outputs
    size = row.type.shape[1 if turned else 0]
    few = isinstance(size, int) and size < limits.rows
    saves = SMALL <= 2 * bytes_of(out) <= bytes_of(weights)
    return few and saves and has_room(loop, [out], limits.room)


def _product_of_rows(around: Around, node: Node, rows: Value, given: Sequence[Value], turned: bool) -> Value:
    """The products of all rows with weights, along a first axis; a row that is added to each may follow."""
    weights, *more = given
    if turned:
        rows, weights = _swapped(around, node, rows), _swapped(around, node, weights)
    length, m, k = rows.type.shape
    flat = around.emit(node, reshape, rows, shape=(length * m, k))
    product = around.emit(node, node.op, flat, weights, *more)
    out = around.emit(node, reshape, product, shape=(length, m, weights.type.shape[1]))
    return _swapped(around, node, out) if turned else out


def _swapped(around: Around, like: Node, x: Value) -> Value:
    """A value with its last two axes the other way round."""
    lead = x.type.ndim - 2
    return around.emit(like, permute, x, axes=(*range(lead), lead + 1, lead))


# Products that a loop only collects, as one product after it


class _Later:
    """Products of something with what stays the same, of which the loop does nothing but collect them.

    Attributes:
        loop: collects the left sides instead.
    """

    def __init__(self, loop: Loop, limits: Limits) -> None:
        body, n = loop.body, len(loop.inits)
        self.makers = {v: node for node in body.nodes for v in node.outputs}
        uses = Counter([v for node in body.nodes for v in node.inputs])
        uses.update(body.outputs)
        self.fixed = dict(zip(loop.same(body), loop.fixed, strict=True))
        self.length = loop.node.attrs["length"]
        self.products: list[tuple[Value, Node]] = []  # what came out of the loop, and what made it
        stay = []
        for value, stack in zip(loop.collected, loop.stacks, strict=True):
            node = self.makers.get(value)
            takes = node is not None and uses[value] == 1 and self._is_one(loop, node, limits)
            stay.append(not takes)
            if node is not None and takes:
                self.products.append((stack, node))
        kept = dict(zip(pick(loop.collected, stay), pick(loop.stacks, stay), strict=True))
        for _, node in self.products:
            left = node.inputs[0]
            kept.setdefault(left, Value(TensorType((self.length, *left.type.shape), left.type.dtype)))
        self.stacks, self.loop = kept, loop
        if self.products:
            outputs = [*body.outputs[:n], *kept]
            new = with_inputs(
                body.replace(nodes=needed_nodes(body.nodes, outputs), outputs=outputs), body.inputs, outputs
            )
            self.loop = remade(loop, [*loop.outs, *kept.values(), *loop.trips], body=new)

    def _is_one(self, loop: Loop, node: Node, limits: Limits) -> bool:
        if node.op is not matmul or any(v.type.ndim != 2 for v in node.inputs):
            return False
        left, right = node.inputs
        while (maker := self.makers.get(right)) is not None and is_view(maker):
            (right,) = maker.inputs
        rows = left.type.shape[0]
        few = isinstance(rows, int) and rows < limits.rows
        return few and right in self.fixed and has_room(loop, [left], limits.room)

    def emit(self, around: Around) -> None:
        """Put the products after the loop."""
        for stack, node in self.products:
            left, right = self.stacks[node.inputs[0]], self._outside(around, node.inputs[1])
            length, m, k = left.type.shape
            flat = around.emit(node, reshape, around.now.get(left, left), shape=(length * m, k))
            product = around.emit(node, matmul, flat, right)
            around.now[stack] = around.emit(node, reshape, product, shape=(length, m, right.type.shape[1]))

    def _outside(self, around: Around, value: Value) -> Value:
        """What stays the same, or a view of it, outside of the loop."""
        if value in self.fixed:
            return self.fixed[value]
        view = self.makers[value]
        return around.emit(view, view.op, self._outside(around, view.inputs[0]), **view.attrs)


# Sums of products over the iterations, as one product after the loop


class _Product(NamedTuple):
    """A product that an iteration adds to a sum.

    Attributes:
        part: what is added.
        node: that makes it.
        views: that it goes through before it is added, in order.
        sides: whose product it is: (m, k) and (k, n), or what is broadcast from (m, 1) and (n,).
    """

    part: Value
    node: Node
    views: tuple[Node, ...]
    sides: tuple[Value, Value]


class _Fold(NamedTuple):
    """A sum of what the loop keeps anyhow, which an iteration adds to a sum: that of a bias' gradient.

    Attributes:
        part: what is added.
        node: that makes it.
        views: that it goes through before it is added, in order.
    """

    part: Value
    node: Node
    views: tuple[Node, ...]


class _Plan(NamedTuple):
    """What is taken out of a loop.

    Attributes:
        products: by the number of a carry, what is summed at once after the loop.
        left: by the number of such a carry, what is still added in the loop.
        kept: what the loop collects for them.
    """

    products: dict[int, list[_Product | _Fold]]
    left: dict[int, list[Value]]
    kept: list[Value]


def take_sums(around: Around, loop: Loop, *, folds: bool = False) -> bool:
    """Put a loop in place, and after it the products that it need not add up; whether there are any.

    ``folds`` are taken, too: a machine that has to begin a kernel for each of them does so once then.
    """
    plan = _plan(around, loop, folds)
    if not plan.products:
        around.add(loop.node)
        return False
    new = _without(loop, plan)
    around.add(new.node)
    stacks = Stacks(around, loop, collected=True)
    stacks.known |= zip(new.collected, new.stacks, strict=True)
    outs = iter(new.outs)
    for k, out in enumerate(loop.outs):
        total = next(outs) if plan.left.get(k, True) else loop.inits[k]
        for product in plan.products.get(k, ()):
            whole = _at_once(around, stacks, product)
            total = whole if _is_zero(around, total) else around.emit(product.node, add, total, whole)
        if total is not out:
            around.now[out] = total
    return True


def _is_zero(around: Around, value: Value) -> bool:
    node = around.makers.get(value)
    if node is not None and node.op is broadcast_to:
        (value,) = node.inputs
    array = around.graph.constants.get(value)
    return array is not None and is_uniform(array, np.zeros((), array.dtype))


# What to take


def _plan(around: Around, loop: Loop, folds: bool) -> _Plan:
    """The products that pay, in the order of the carries; then sums of what is kept by then."""
    stacks, body = Stacks(around, loop, collected=True), loop.body
    fixed = {*loop.same(body), *body.constants}
    plan, sums = _Plan({}, {}, []), _Sums(loop)
    for k in range(len(loop.inits)):
        parts = sums.parts(k)
        whole = [v for v in parts if v.type == body.inputs[k].type]
        for product in [p for v in whole if (p := sums.product(v)) is not None]:
            bases = dict.fromkeys(stacks.base(v) for v in product.sides)
            more = [v for v in bases if v not in stacks.known and v not in plan.kept]
            cheap = sum(map(bytes_of, more)) <= bytes_of(product.part)
            if cheap and fixed.isdisjoint(bases) and has_room(loop, [*plan.kept, *more]):
                plan.products.setdefault(k, []).append(product)
                plan.kept.extend(more)
    for k in range(len(loop.inits)) if folds else ():
        for fold in [f for v in sums.parts(k) if (f := sums.fold(v)) is not None]:
            base = stacks.base(fold.node.inputs[0])
            if base in stacks.known or base in plan.kept:
                plan.products.setdefault(k, []).append(fold)
    for k, products in plan.products.items():
        gone = {product.part for product in products}
        plan.left[k] = [v for v in sums.parts(k) if v not in gone]
    return plan


class _Sums:
    """What the body of a loop does nothing with but add to it."""

    def __init__(self, loop: Loop) -> None:
        body = self.body = loop.body
        self.makers = {v: node for node in body.nodes for v in node.outputs}
        self.users = {v: node for node in body.nodes for v in node.inputs}
        self.uses = Counter([v for node in body.nodes for v in node.inputs])
        self.uses.update(body.outputs)

    def parts(self, k: int) -> list[Value]:
        """What is added to a carry, if nothing else is done with it."""
        value, parts = self.body.inputs[k], list[Value]()
        while value is not self.body.outputs[k]:
            node = self.users.get(value)
            if node is None or self.uses[value] != 1 or node.op is not add:
                return []
            (part,) = [v for v in node.inputs if v is not value]
            if node.outputs[0].type != value.type:
                return []
            parts.append(part)
            (value,) = node.outputs
        return parts if self.uses[value] == 1 else []

    def product(self, part: Value) -> _Product | None:
        """What is added as a product, if it is a large one that nobody else sees."""
        node, views = self._made(part)
        sides = None if node is None or node.outputs[0].type.ndim != 2 else _sides(node)
        return None if node is None or sides is None else _Product(part, node, views, sides)

    def fold(self, part: Value) -> _Fold | None:
        """What is added as a sum along axes, likewise."""
        node, views = self._made(part)
        if node is None or node.op is not reduce_sum or part.type.dtype != node.inputs[0].type.dtype:
            return None
        return _Fold(part, node, views)

    def _made(self, part: Value) -> tuple[Node | None, tuple[Node, ...]]:
        """What makes something large that is added, if nobody else sees it, and the views in between."""
        value, views = part, list[Node]()
        while (node := self.makers.get(value)) is not None and self.uses[value] == 1 and is_view(node):
            views.insert(0, node)
            (value,) = node.inputs
        if self.uses[value] != 1 or kind(part.type.dtype) not in "fc" or bytes_of(part) < SMALL:
            return None, ()
        return node, tuple(views)


def _sides(node: Node) -> tuple[Value, Value] | None:
    """Two matrices whose product a node gives; or a column and a row that are multiplied elementwise."""
    if node.op is matmul:
        left, right = node.inputs
        return left, right
    if node.op is mul:
        m, n = node.outputs[0].type.shape
        for column, row in (node.inputs, node.inputs[::-1]):
            if column.type.shape == (m, 1) and row.type.shape in ((n,), (1, n)):
                return column, row
    return None


# What is put there


def _without(loop: Loop, plan: _Plan) -> Loop:
    """The loop that does not add products up, and collects what they are made of."""
    body, n = loop.body, len(loop.inits)
    nodes, after, outs = list(body.nodes), list(body.outputs[:n]), list(loop.outs)
    for k, parts in plan.left.items():
        value, outs[k] = body.inputs[k], Value(loop.outs[k].type)
        for part in parts:
            value, before = Value(value.type), value
            nodes.append(Node(add, [before, part], {}, [value], loop.node.location))
        after[k] = value
    stay = [bool(plan.left.get(k, True)) for k in range(n)]
    length = loop.node.attrs["length"]
    stacks = [Value(TensorType((length, *v.type.shape), v.type.dtype)) for v in plan.kept]
    inputs = [*pick(body.inputs[:n], stay), *body.inputs[n:]]
    outputs = [*pick(after, stay), *loop.collected, *plan.kept]
    inner = with_inputs(body.replace(nodes=needed_nodes(nodes, outputs), outputs=outputs), inputs, outputs)
    given = [*pick(outs, stay), *loop.stacks, *stacks]
    return remade(loop, given, inits=pick(loop.inits, stay), body=inner)


def _at_once(around: Around, stacks: Stacks, product: _Product | _Fold) -> Value:
    """The sum of a product, or of a sum, over all iterations, as it is added."""
    value = (
        _fold(around, stacks, product) if isinstance(product, _Fold) else _multiply(around, stacks, product)
    )
    for view in product.views:
        value = around.emit(view, view.op, value, **view.attrs)
    return value


def _fold(around: Around, stacks: Stacks, fold: _Fold) -> Value:
    node = fold.node
    axes = (0, *[a + 1 for a in node.attrs["axes"]])
    total = around.emit(node, reduce_sum, stacks.of(node.inputs[0]), axes=axes, keepdims=False)
    shape = node.outputs[0].type.shape
    return total if total.type.shape == shape else around.emit(node, reshape, total, shape=shape)


def _multiply(around: Around, stacks: Stacks, product: _Product) -> Value:
    node = product.node
    left, right = _turned(around, stacks, product), stacks.of(product.sides[1])
    length, k, m = left.type.shape
    above = around.emit(node, reshape, left, shape=(length * k, m))
    beside = around.emit(node, permute, above, axes=(1, 0))
    below = around.emit(node, reshape, right, shape=(length * k, right.type.shape[-1]))
    return around.emit(node, matmul, beside, below)


def _turned(around: Around, stacks: Stacks, product: _Product) -> Value:
    """The left sides of all iterations, (m, k), as (k, m)."""
    value = product.sides[0]
    maker = stacks.makers.get(value)
    if maker is not None and maker.op is permute and value not in stacks.known:
        return stacks.of(maker.inputs[0])  # which turns rows and columns, as there are two axes
    return around.emit(product.node, permute, stacks.of(value), axes=(0, 2, 1))
