"""Values that a gradient computes again instead of keeping them.

A value of the forward pass that the backward pass uses has to lie in memory in between. If it is computed
element by element from values that are kept anyway, the backward pass computes it again, in the kernel that
uses it: that takes less time than writing and reading it, and no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value
from weft.ops.contract import matrix_multiply as matmul
from weft.ops.view.slices import slice_axes
from weft.passes.base import graph_pass, is_elementwise
from weft.passes.dce import dce

DEEP = 4  # ops in a row that are computed again
DEEPER = 12  # where instructions cost little
NARROW = 0.6  # of the bytes of a value: what it is computed from, if that is kept instead
SMALL = 1 << 18  # bytes of what is rather kept than computed again in a kernel of its own
LARGE = 1 << 24  # bytes of what is rather written twice than kept
FEW = 0.1  # of the bytes of a value: what else is kept, beside what lies in memory anyway


def is_backward(node: Node) -> bool:
    """Whether a node belongs to a gradient."""
    return node.location is not None and node.location.phase == "backward"


@graph_pass(once=True)
def recompute(graph: Graph) -> Graph:
    """Give backward nodes copies of cheap forward nodes of their own.

    >>> import weft
    >>> def f(x):
    ...     return weft.sum(weft.tanh(x * 2.0) * x)
    >>> graph = weft.make_graph(weft.value_and_grad(f))(weft.ones(8)).optimize()
    >>> len(graph.nodes), len(weft.passes.recompute(graph).nodes)
    (9, 11)
    """
    if not any(is_backward(node) for node in graph.nodes):
        return graph
    return _Recomputing(graph).run()


@graph_pass(once=True)
def recompute_more(graph: Graph) -> Graph:
    """The same for machines on which memory is slow beside instructions: longer chains are computed again.

    Where what a chain begins with takes about half the bytes of what it leads to, the former is kept. What
    products of the backward pass read is written once more by a kernel of it, if that reads all it takes.

    >>> import weft
    >>> from weft.passes.lowering.recompute import recompute_more
    >>> def f(x, w):
    ...     return weft.sum(weft.tanh((x @ w).astype(weft.float32) * 2.0))
    >>> x = weft.ones((512, 512), dtype=weft.bfloat16)
    >>> graph = weft.make_graph(weft.grad(f))(x, x).optimize()
    >>> [node.op.name for node in recompute_more(graph).nodes][:4]
    ['matmul', 'cast', 'mul', 'tanh']
    """
    if not any(is_backward(node) for node in graph.nodes):
        return graph
    return _Recomputing(graph, DEEPER, narrow=True).run()


def bytes_of(value: Value) -> int | None:
    """How many bytes a value takes, where that is known."""
    if any(isinstance(s, Size) for s in value.type.shape):
        return None
    return prod(value.type.shape) * value.type.dtype.itemsize


class _Recomputing:
    def __init__(self, graph: Graph, deep: int = DEEP, *, narrow: bool = False) -> None:
        self.graph = graph
        self.deep = deep
        self.made = {v: node for node in graph.nodes for v in node.outputs}
        self.copies: dict[Value, Value] = {}
        self.kept = self._find_kept()
        self.anyway = self._in_memory() if narrow else set()
        used = self._used_later()
        self.kept.update(v for v in used if narrow and self._is_small(v))
        for value in used:
            if not self._cone(value, deep):
                self.kept.update((narrow and self._narrower(value)) or {value})
        self.again = self._made_again() if narrow else set()
        self.kept -= self.again
        self.nodes: list[Node] = []

    def _made_again(self) -> set[Value]:
        """What the backward pass writes once more, for products: made of what its kernels read anyway."""
        backward = [node for node in self.graph.nodes if is_backward(node)]
        users = {v for node in backward if node.op is matmul or node.op.view for v in node.inputs}
        given = {*self.graph.inputs, *self.graph.constants, *self.graph.results}
        for node in backward:
            if node.op is slice_axes:
                given.add(self._seen_by(node))  # parts do not wait for kernels of the whole
            elif not (is_elementwise(node) or node.op is matmul or node.op.view):
                given.update(node.inputs)
        wanted = [v for v in users - given if (bytes_of(v) or 0) >= LARGE and self._is_cheap(v)]
        if not wanted:
            return set()
        read = {v for node in backward if is_elementwise(node) for v in node.inputs}
        read = read.union(*[self._sources(v) for v in read]) - given
        found = set()
        for value in wanted:
            sources: set[Value] = set()
            if self._begin(value, self.deep, sources, value) and value not in sources:
                large = {v for v in sources if not self._is_small(v) and v.type.shape != ()}
                if large and large <= read and large <= self.kept:
                    found.add(value)
        return found

    def _is_cheap(self, value: Value) -> bool:
        """Whether a value is made by the forward pass, element by element."""
        node = self.made.get(value)
        return node is not None and is_elementwise(node) and not is_backward(node)

    def _seen_by(self, view: Node) -> Value:
        """What a view is one of."""
        made: Node | None = view
        while made is not None and made.op.view is not None:
            value = made.inputs[0]
            made = self.made.get(value)
        return value

    def _sources(self, value: Value) -> set[Value]:
        """What the chains to a value begin with, unless one is too long."""
        found: set[Value] = set()
        return found if self._begin(value, self.deep, found) else set()

    def _narrower(self, value: Value) -> set[Value]:
        """What a value is computed from, if it takes about half its bytes or less; else nothing."""
        found: set[Value] = set()
        if not self._begin(value, self.deep, found) or value in found:
            return set()
        whole, read, more = bytes_of(value), 0, 0
        if whole is None:
            return set()
        for v in found:
            size = bytes_of(v) if v.type.shape else 0
            if size is None:
                return set()
            read += size
            more += 0 if v in self.anyway or v in self.kept else size
        is_there = more <= FEW * whole and read <= (1 + FEW) * whole
        return found if is_there or read <= NARROW * whole else set()

    def _is_small(self, value: Value) -> bool:
        """Whether a value takes so little that a kernel of its own would cost more."""
        size = bytes_of(value)
        return value.type.shape != () and size is not None and size <= SMALL

    def _in_memory(self) -> set[Value]:
        """What lies in memory in the forward pass anyway: used before a product, say, and after it."""
        level: dict[Value, int] = {}
        found: set[Value] = set()
        for node in self.graph.nodes:
            if is_backward(node):
                continue
            here = max((level.get(v, 0) for v in node.inputs), default=0)
            found.update(v for v in node.inputs if v in self.made and level.get(v, 0) < here)
            alone = not (is_elementwise(node) or node.op.fold_over == "axes" or node.op.view is not None)
            for v in node.outputs:
                level[v] = here + alone
        return found

    def _begin(self, value: Value, depth: int, found: set[Value], of: Value | None = None) -> bool:
        """Gather what the chains to a value begin with; False where one is too long."""
        node = self.made.get(value)
        ends = (value in self.kept and value is not of) or (
            depth < self.deep and (value in self.anyway or self._is_small(value))
        )
        if node is None or ends or is_backward(node) or not is_elementwise(node):
            if value not in self.graph.constants:
                found.add(value)
            return True
        return depth > 0 and all(self._begin(v, depth - 1, found) for v in node.inputs)

    def _find_kept(self) -> set[Value]:
        """What lies in memory during the backward pass anyway."""
        kept = {*self.graph.inputs, *self.graph.constants, *self.graph.results}
        for node in self.graph.nodes:
            if is_backward(node) and not is_elementwise(node):
                kept.update(v for v in node.inputs)
        return kept

    def _used_later(self) -> list[Value]:
        """What the forward pass makes and the backward pass uses, in order."""
        used = {v for node in self.graph.nodes if is_backward(node) for v in node.inputs}
        return [v for node in self.graph.nodes if not is_backward(node) for v in node.outputs if v in used]

    def run(self) -> Graph:
        for node in self.graph.nodes:
            if not is_backward(node) or not (is_elementwise(node) or not self.again.isdisjoint(node.inputs)):
                self.nodes.append(node)
                continue
            wanted = self.again if not is_elementwise(node) else node.inputs
            inputs = [self._again(v, node) if v in wanted else v for v in node.inputs]
            same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
            if not same:
                node = Node(node.op, inputs, node.attrs, node.outputs, node.location)
            self.nodes.append(node)
        return dce(self.graph.replace(nodes=self.nodes)) if self.copies else self.graph

    def _again(self, value: Value, user: Node) -> Value:
        """A copy of a value for the backward pass, or the value itself."""
        if value in self.copies:
            return self.copies[value]
        cone = self._cone(value, self.deep)
        if not cone:
            return value
        for node in cone:
            inputs = [self.copies.get(v, v) for v in node.inputs]
            out = Value(node.outputs[0].type)
            self.copies[node.outputs[0]] = out
            self.nodes.append(Node(node.op, inputs, node.attrs, [out], user.location))
        return self.copies[value]

    def _cone(self, value: Value, depth: int) -> Sequence[Node]:
        """The forward nodes that compute a value from what is kept, in order; none where that is not so."""
        node = self.made.get(value)
        if node is None or value in self.kept or is_backward(node) or not is_elementwise(node) or not depth:
            return ()
        found: dict[Node, None] = {}
        for v in node.inputs:
            if v in self.kept or v in self.copies or v.type.shape == ():
                continue
            part = self._cone(v, depth - 1)
            if not part:
                return ()
            found.update(dict.fromkeys(part))
        found[node] = None
        return list(found)
