"""A product that takes much memory, with all that is done to its rows, some rows at a time.

The logits of a language model are its largest array by far, and nothing looks at more than a row of them: a
loss makes a number of each row, and its gradient a row of the same length, which products then sum up. So
they are made for a part of the rows, used up, and made for the next part in the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from weft.base.dtypes import float32, kind
from weft.base.sizes import is_known
from weft.ir.graph import Graph, Node, Value
from weft.ops.arithmetic import add
from weft.ops.classes import pick_class
from weft.ops.contract import matrix_multiply as matmul
from weft.ops.select import cast
from weft.ops.view.primitives import join, permute, reshape
from weft.ops.view.slices import slice_axes
from weft.passes.base import graph_pass, is_elementwise
from weft.passes.dce import dce
from weft.passes.lowering.recompute import bytes_of

LARGE = 1 << 30  # bytes of a product from which on it is made in parts
PART = 5 << 27  # bytes of a part of it, at most
_ROWS = 128  # of which parts have a multiple, as tiles of products have
_TURNED = (1, 0)
Shape = tuple[int, ...]


@graph_pass(once=True)
def rows_in_parts(graph: Graph, *, large: int = LARGE, part: int = PART) -> Graph:
    """Make products of many bytes in parts, where what uses them goes row by row or sums up rows.

    >>> import weft
    >>> from weft.passes.lowering.rows_in_parts import rows_in_parts
    >>> def loss(x, w):
    ...     return weft.logsumexp(x @ w, axis=1)
    >>> graph = weft.make_graph(loss)(weft.ones(256, 8), weft.ones(8, 1000)).optimize()
    >>> made = rows_in_parts(weft.passes.lower(graph), large=1 << 19, part=1 << 19)
    >>> [str(node.outputs[0].type) for node in made.nodes if node.op.name == "matmul"]
    ['f32[128,1000]', 'f32[128,1000]']
    """
    for node in graph.nodes:
        (out,) = node.outputs if len(node.outputs) == 1 else (None,)
        if node.op is matmul and out is not None and (bytes_of(out) or 0) >= large:
            made = _Rows(graph, node).in_parts(part)
            if made is not None:
                return dce(made)
    return graph


class _Rows:
    """What is done to the rows of a product.

    Attributes:
        rows: how many there are.
        inner: by value that has a part for each of them, the shape of such a part.
        nodes: that work row by row on what the product leads to.
        turned: by value, the one of which it is the transpose.
        sums: products that sum up over all rows.
    """

    def __init__(self, graph: Graph, product: Node) -> None:
        self.graph = graph
        (self.whole,) = product.outputs
        self.rows = prod(self.whole.type.shape[:-1])
        self.bytes = bytes_of(self.whole) or 0
        self.product = product
        self.inner: dict[Value, Shape] = {}
        self.nodes: list[Node] = []
        self.turned: dict[Value, Value] = {}
        self.sums: list[Node] = []
        self.after: set[Value] = set()  # all that depends on the product
        begin = self._lead(self.whole)
        x, w = product.inputs
        if begin != self.whole.type.ndim - 1 or w.type.ndim != 2 or self._lead(x) != begin:
            return
        for node in graph.nodes[graph.nodes.index(product) :]:
            if node is product or not self.after.isdisjoint(node.inputs):
                self.after.update(node.outputs)
                self._take(node)
        self._leave_small()
        self._take_before()

    def _lead(self, value: Value) -> int:
        """How many axes the rows are along: the first ones; 0 where they are none."""
        shape = value.type.shape
        found = (k for k in range(1, len(shape) + 1) if prod(shape[:k]) == self.rows)
        return next(found, 0) if is_known(shape) else 0

    def _take(self, node: Node) -> None:
        """Note a node, if it works row by row."""
        if len(node.outputs) != 1 or not node.is_pure:
            return
        (out,) = node.outputs
        if node is self.product or self._is_row_wise(node):
            self.inner[out] = tuple(out.type.shape[self._lead(out) :])
            self.nodes.append(node)
        elif node.op is permute and node.attrs["axes"] == _TURNED and self._is_large(node.inputs[0]):
            self.turned[out] = node.inputs[0]
        elif node.op is matmul and node.inputs[0] in self.turned and out.type.ndim == 2:
            fits = node.inputs[1] not in self.after and kind(out.type.dtype) == "f"
            self.sums += [node] if fits else []

    def _is_row_wise(self, node: Node) -> bool:
        x, (out,) = node.inputs[0] if node.inputs else None, node.outputs
        k = self._lead(out)
        if x is None or not k:
            return False
        if is_elementwise(node):
            return all(self._fits(v, out, k) for v in node.inputs)
        if x not in self.inner:
            return False
        if node.op is reshape:
            return True
        if node.op.fold and node.op.fold_over == "axes" and "keepdims" in node.attrs:
            return min(node.attrs["axes"], default=0) >= self._lead(x)
        if node.op is pick_class:
            target = node.inputs[1]
            return node.attrs["axis"] == 1 == x.type.ndim - 1 and target.type.shape == (self.rows,)
        if node.op is matmul:
            w = node.inputs[1]
            return w.type.ndim == 2 and w not in self.after and self._lead(x) == x.type.ndim - 1
        return False

    def _fits(self, v: Value, out: Value, k: int) -> bool:
        """Whether an operand has the rows of a result, or nothing to do with them."""
        shape = v.type.shape
        if len(shape) == out.type.ndim and shape[:k] == out.type.shape[:k]:
            return v in self.inner or v not in self.after
        return v not in self.after and len(shape) <= out.type.ndim - k

    def _leave_small(self) -> None:
        """Keep what has to do with large arrays, and what leads to that."""
        wanted = {v for node in self.sums for v in node.inputs[:1]}
        wanted |= {self.turned[v] for v in wanted}
        kept = []
        for node in reversed(self.nodes):
            if any(self._is_large(v) for v in (*node.inputs, *node.outputs)) or node.outputs[0] in wanted:
                wanted.update(node.inputs)
                kept.append(node)
        self.nodes = kept[::-1]
        inside = {v for node in self.nodes for v in node.outputs}
        self.inner = {v: shape for v, shape in self.inner.items() if v in inside}

    def _take_before(self) -> None:
        """Take what makes other large arrays of rows along: positions of classes, say."""
        made = {v: node for node in self.graph.nodes for v in node.outputs}
        waiting = [v for node in self.nodes for v in node.inputs]
        more: set[Node] = set()
        while waiting:
            v = waiting.pop()
            node = made.get(v)
            k = self._lead(v)
            if v in self.inner or node is None or not k or 2 * (bytes_of(v) or 0) < self.bytes:
                continue
            if is_elementwise(node) and all(self._fits(x, v, k) for x in node.inputs):
                self.inner[v] = tuple(v.type.shape[k:])
                more.add(node)
                waiting += node.inputs
        more.update(self.nodes)
        self.nodes = []
        picks: dict[Value, list[Node]] = {}  # they look at what others then write over, so they come first
        for node in (node for node in self.graph.nodes if node in more):
            if node.op is pick_class and node.inputs[1] not in self.inner:
                picks.setdefault(node.inputs[0], []).append(node)
        for node in (node for node in self.graph.nodes if node in more):
            if not any(node in listed for listed in picks.values()):
                self.nodes += [node, *picks.get(node.outputs[0], ())]

    def _is_large(self, value: Value) -> bool:
        return value in self.inner and 2 * (bytes_of(value) or 0) >= self.bytes

    # In parts

    def in_parts(self, part: int) -> Graph | None:
        """The graph with all of that for some rows at a time; None where it cannot be."""
        own = {*self.nodes, *self.sums}
        given = {v for node in own for v in node.inputs if v not in self.inner and v not in self.turned}
        results = {*self.graph.results}
        others = [node for node in self.graph.nodes if node not in own]
        used = {v for node in others if node.outputs[0] not in self.turned for v in node.inputs} | results
        turned = {v for v in self.turned if v in used}
        shown = [v for v in self.inner if v in used]
        if not self.nodes or turned or given & self.after or any(map(self._is_large, shown)):
            return None
        shown += [v for node in self.sums for v in node.outputs]
        parts = _Parts(self)
        made = [parts.made(first, last, shown) for first, last in self._bounds(part)]
        if len(made) < 2:
            return None
        now = {v: parts.together(v, [found[v] for found in made], v in self.inner) for v in shown}
        return self._with(parts.nodes, own, given, now)

    def _bounds(self, part: int) -> list[tuple[int, int]]:
        """From which to before which row parts go."""
        count = -(-self.bytes // part)
        step = -(-self.rows // (count * _ROWS)) * _ROWS
        return [(i, min(i + step, self.rows)) for i in range(0, self.rows, step)]

    def _with(
        self, nodes: Sequence[Node], own: set[Node], given: set[Value], now: dict[Value, Value]
    ) -> Graph:
        """The graph with nodes in the place of its own ones: as soon as what they use is there."""
        before: list[Node] = []
        after: list[Node] = []
        for node in self.graph.nodes:
            if node not in own:
                (before if self.after.isdisjoint(node.outputs) else after).append(node)
        last = max((i for i, node in enumerate(before) if not given.isdisjoint(node.outputs)), default=-1)
        listed = [*before[: last + 1], *nodes, *_in_order([*before[last + 1 :], *after], self.graph)]
        listed = [_with_inputs(node, now) for node in listed]
        updates = [(old, now.get(new, new)) for old, new in self.graph.updates]
        outputs = [now.get(v, v) for v in self.graph.outputs]
        return self.graph.replace(nodes=listed, outputs=outputs, updates=updates)


def _in_order(nodes: Sequence[Node], graph: Graph) -> list[Node]:
    """Nodes as they stand in a graph."""
    place = {node: i for i, node in enumerate(graph.nodes)}
    return sorted(nodes, key=place.__getitem__)


def _with_inputs(node: Node, now: dict[Value, Value]) -> Node:
    if now.keys().isdisjoint(node.inputs):
        return node
    return Node(node.op, [now.get(v, v) for v in node.inputs], node.attrs, node.outputs, node.location)


class _Parts:
    """Writes nodes for some rows at a time.

    Attributes:
        nodes: so far.
    """

    def __init__(self, rows: _Rows) -> None:
        self._all = rows
        self.nodes: list[Node] = []
        self._like: Node = rows.product  # whose line new nodes are of

    def _emit(self, op: object, inputs: Sequence[Value], **attrs: object) -> Value:
        out = Value(op.type_rule(*[v.type for v in inputs], **attrs))  # type: ignore[attr-defined]
        self.nodes.append(Node(op, inputs, attrs, [out], self._like.location))
        return out

    def made(self, first: int, last: int, shown: Sequence[Value]) -> dict[Value, Value]:
        """By value, that of some rows."""
        now: dict[Value, Value] = {}
        own = self._all
        for node in (*own.nodes, *own.sums):
            self._like = node
            (out,) = node.outputs
            if node in own.sums:
                turned = self._emit(permute, [now[own.turned[node.inputs[0]]]], axes=_TURNED)
                now[out] = self._emit(matmul, [turned, self._part(node.inputs[1], first, last)])
                continue
            k = own._lead(out)
            inputs = [now[v] if v in now else self._given(v, node, k, first, last) for v in node.inputs]
            now[out] = self._emit(node.op, inputs, **self._attrs(node, last - first))
        return {v: now[v] for v in shown}

    def _attrs(self, node: Node, count: int) -> dict[str, object]:
        """The attributes of a node for so many rows, which are along one axis."""
        attrs = dict(node.attrs)
        if node.op is reshape:
            attrs["shape"] = (count, *self._all.inner[node.outputs[0]])
        elif node.op.fold and "axes" in attrs:
            moved = 1 - self._all._lead(node.inputs[0])
            attrs["axes"] = tuple(a + moved for a in attrs["axes"])
        return attrs

    def _given(self, v: Value, node: Node, k: int, first: int, last: int) -> Value:
        """What a node is given from outside: its rows, or all of it if it has none."""
        is_whole = is_elementwise(node) and v.type.ndim != node.outputs[0].type.ndim
        weights = node.op is matmul and v is node.inputs[1]
        return v if is_whole or weights else self._part(v, first, last)

    def _part(self, v: Value, first: int, last: int) -> Value:
        inner = tuple(v.type.shape[self._all._lead(v) :])
        if v.type.ndim != 1 + len(inner):
            v = self._emit(reshape, [v], shape=(self._all.rows, *inner))
        starts, stops = (first, *[0] * len(inner)), (last, *inner)
        return self._emit(slice_axes, [v], starts=starts, stops=stops, steps=(1,) * (1 + len(inner)))

    def together(self, v: Value, parts: Sequence[Value], has_rows: bool) -> Value:
        """A value of all rows, of those of some: one after another, or summed up."""
        self._like = next(node for node in (*self._all.nodes, *self._all.sums) if v in node.outputs)
        if has_rows:
            joined = self._emit(join, parts, axis=0)
            return self._emit(reshape, [joined], shape=v.type.shape) if joined.type != v.type else joined
        wide = v.type.dtype.itemsize < 4  # they are rounded once more in the end, as the whole would be
        total = self._emit(cast, [parts[0]], dtype=float32) if wide else parts[0]
        for one in parts[1:]:
            total = self._emit(add, [total, self._emit(cast, [one], dtype=float32) if wide else one])
        return self._emit(cast, [total], dtype=v.type.dtype) if wide else total
