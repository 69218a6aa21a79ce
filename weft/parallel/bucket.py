"""Buckets: sums over ranks that do not wait for each other become one, so that few messages are sent.

A sum is by elements, so joining arrays changes no bit of it.
"""

from __future__ import annotations

from math import prod
from typing import Any

from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import giving, reading
from weft.ir.types import TensorType
from weft.ops.collective import all_reduce
from weft.ops.view.primitives import join, permute, reshape
from weft.ops.view.slices import slice_axes
from weft.passes.base import graph_pass

BUCKET = 4 << 20  # bytes of a bucket at most
_LEAST = 1 << 16  # and at least: below, a message takes as long whatever is in it
_BUCKETS = 4  # of a program at least, so that the first travel while the last are computed


@graph_pass(once=True)
def bucket(graph: Graph, size: int | None = None) -> Graph:
    """Join sums over the same ranks, in the order in which they are ready, up to a size in bytes.

    Without one that is 4 MB, or a quarter of all that is summed if that is less.

    >>> import weft
    >>> from weft import parallel as par
    >>> text = '''
    ... graph f(%x: f32[2], %y: f32[3]) {
    ...   %0: f32[2] = all_reduce(%x, axis="data", mesh="data=2")
    ...   %1: f32[3] = all_reduce(%y, axis="data", mesh="data=2")
    ...   return %0, %1
    ... }'''
    >>> [node.op.name for node in par.bucket(weft.parse_graph(text)).nodes]
    ['reshape', 'reshape', 'concat', 'all_reduce', 'slice', 'reshape', 'slice', 'reshape']
    """
    return _Buckets(graph, _usual_size(graph) if size is None else size).run()


def _usual_size(graph: Graph) -> int:
    sums = [n.inputs[0].type for n in graph.nodes if n.op is all_reduce]
    total = sum(_bytes(t) for t in sums if _is_known(t))
    return max(_LEAST, min(BUCKET, total // _BUCKETS))


class _Buckets:
    def __init__(self, graph: Graph, size: int) -> None:
        self.graph, self.size = graph, size
        self.nodes: list[Node] = []
        self.now: dict[Value, Value] = {}
        self.open: dict[Any, list[Node]] = {}  # by what can be joined, sums that nobody asked for yet
        self.joined = False
        self.made = {v: node for node in graph.nodes for v in node.outputs}

    def run(self) -> Graph:
        """The graph with joined sums; the same object if none are."""
        for node in self.graph.nodes:
            self._close_for(node)
            if node.op is all_reduce and self._add(node):
                continue
            self.nodes.append(reading(node, self.now))
        for key in list(self.open):
            self._close(key)
        return giving(self.graph, self.now, nodes=self.nodes) if self.joined else self.graph

    def _add(self, node: Node) -> bool:
        (x,) = node.inputs
        if not _is_known(x.type):
            return False
        key = (x.type.dtype, tuple(sorted(node.attrs.items())))
        waiting = self.open.setdefault(key, [])
        waiting.append(reading(node, self.now))
        if sum(_bytes(n.inputs[0].type) for n in waiting) >= self.size:
            self._close(key)
        return True

    def _close_for(self, node: Node) -> None:
        """Let sums run that a node needs, or that it must not be moved across."""
        for key, waiting in list(self.open.items()):
            used = any(v in node.inputs for n in waiting for v in n.outputs)
            if used or (not node.is_pure and node.op is not all_reduce):
                self._close(key)

    def _close(self, key: Any) -> None:
        waiting = self.open.pop(key)
        if len(waiting) == 1:
            self.nodes += waiting
            return
        self.joined = True
        last = waiting[-1]
        summed = [self._unturned(n.inputs[0]) for n in waiting]
        flat = [
            self._emit(reshape, [x], n, shape=(prod(x.type.shape),))
            for n, (x, _) in zip(waiting, summed, strict=True)
        ]
        total = self._emit(all_reduce, [self._emit(join, flat, last, axis=0)], last, **last.attrs)
        start = 0
        for node, part, (x, turn) in zip(waiting, flat, summed, strict=True):
            stop = start + part.type.shape[0]
            piece = self._emit(slice_axes, [total], node, starts=(start,), stops=(stop,), steps=(1,))
            (out,) = node.outputs
            found = self._emit(reshape, [piece], node, shape=x.type.shape)
            self.now[out] = found if turn is None else self._emit(permute, [found], turn, **turn.attrs)
            start = stop

    def _unturned(self, x: Value) -> tuple[Value, Node | None]:
        """What to sum in the place of a value that has its axes in another order alone, and the node of that.

        So nothing is copied into that order; who uses the sum reads it so.
        """
        node = self.made.get(x)
        if node is None or node.op is not permute:
            return x, None
        return self.now.get(node.inputs[0], node.inputs[0]), node

    def _emit(self, op: Any, inputs: list[Value], like: Node, **attrs: Any) -> Value:
        out = Value(op.type_rule(*[v.type for v in inputs], **attrs))
        self.nodes.append(Node(op, inputs, attrs, [out], like.location))
        return out


def _is_known(t: TensorType) -> bool:
    return all(isinstance(s, int) for s in t.shape)


def _bytes(t: TensorType) -> int:
    return prod(t.shape) * t.dtype.itemsize
