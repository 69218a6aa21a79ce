"""Buckets: collectives that do not wait for each other become one, so that few messages are sent.

A sum is by elements, so joining arrays changes no bit of it. What is scattered is joined part by part: a row
for each rank. Inputs are gathered earlier than they are needed, the first with the next ones; all else later.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from weft.base.ranks import axis_size
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import giving, reading
from weft.ir.types import TensorType
from weft.ops.collective import all_gather, all_reduce, reduce_scatter
from weft.ops.view.primitives import join, permute, reshape
from weft.ops.view.slices import slice_axes
from weft.passes.base import graph_pass

BUCKET = 4 << 20  # bytes of a bucket at most
_LEAST = 1 << 16  # and at least: below, a message takes as long whatever is in it
_BUCKETS = 4  # of a program at least, so that the first travel while the last are computed
_ALONE = 1 << 19  # bytes of a sum from which a message costs less than copies into and out of a bucket
_JOINED = (all_reduce, reduce_scatter, all_gather)


@graph_pass(once=True)
def bucket(graph: Graph, size: int | None = None) -> Graph:
    """Join collectives over the same ranks, in the order in which they are ready, up to a size in bytes.

    Without one that is 4 MB, or a quarter of all that is summed (scattered, gathered) if that is less.

    >>> import weft
    >>> from weft import parallel as par
    >>> text = '''
    ... graph f(%x: f32[2], %y: f32[3]) {
    ...   %0: f32[2] = all_reduce(%x, axis="data", mesh="data=2")
    ...   %1: f32[3] = all_reduce(%y, axis="data", mesh="data=2")
    ...   return %0, %1
    ... }'''
    >>> [node.op.name for node in par.bucket(weft.parse_graph(text)).nodes]
    ['reshape', 'reshape', 'concat', 'all_reduce', 'slice', 'slice', 'reshape', 'reshape']
    """
    return _Buckets(graph, size).run()


def _usual_size(graph: Graph, op: Any) -> int:
    total = sum(_bytes(_whole(n)) for n in graph.nodes if n.op is op and _is_joined(n))
    return max(_LEAST, min(BUCKET, total // _BUCKETS))


def _whole(node: Node) -> TensorType:
    """What a collective moves to or from each rank."""
    return node.outputs[0].type if node.op is all_gather else node.inputs[0].type


class _Buckets:
    def __init__(self, graph: Graph, size: int | None) -> None:
        self.graph = graph
        self.sizes = {op: _usual_size(graph, op) if size is None else size for op in _JOINED}
        self.nodes: list[Node] = []
        self.now: dict[Value, Value] = {}
        self.open: dict[Any, list[Node]] = {}  # by what can be joined, collectives that nobody asked for yet
        self.early: set[Node] = set()
        self.joined = False
        self.made = {v: node for node in graph.nodes for v in node.outputs}

    def run(self) -> Graph:
        """The graph with joined collectives; the same object if none are."""
        for i, node in enumerate(self.graph.nodes):
            if node in self.early:
                continue
            self._close_for(node)
            if _is_joined(node):
                self._add(node)
                self._add_inputs(node, i)
                continue
            self.nodes.append(reading(node, self.now))
        for key in list(self.open):
            self._close(key)
        return giving(self.graph, self.now, nodes=self.nodes) if self.joined else self.graph

    def _add(self, node: Node) -> None:
        key = _key(node)
        waiting = self.open.setdefault(key, [])
        waiting.append(reading(node, self.now))
        if sum(_bytes(_whole(n)) for n in waiting) >= self.sizes[node.op]:
            self._close(key)

    def _add_inputs(self, node: Node, at: int) -> None:
        """With an input that is gathered, gather those that come next."""
        inputs, key = set(self.graph.inputs), _key(node)
        if node.op is not all_gather or node.inputs[0] not in inputs:
            return
        for other in self.graph.nodes[at + 1 :]:
            if key not in self.open:
                return
            alike = other.op is all_gather and other not in self.early and _key(other) == key
            if alike and _is_joined(other) and inputs.issuperset(other.inputs):
                self._add(other)
                self.early.add(other)

    def _close_for(self, node: Node) -> None:
        """Let collectives run that a node needs, or that it must not be moved across."""
        for key, waiting in list(self.open.items()):
            used = any(v in node.inputs for n in waiting for v in n.outputs)
            if used or (not node.is_pure and node.op not in _JOINED):
                self._close(key)

    def _close(self, key: Any) -> None:
        waiting = self.open.pop(key)
        if len(waiting) == 1:
            self.nodes += waiting
            return
        self.joined = True
        write = {all_reduce: self._sum, reduce_scatter: self._scatter, all_gather: self._gather}
        write[waiting[0].op](waiting)

    def _sum(self, waiting: list[Node]) -> None:
        last = waiting[-1]
        summed = [self._unturned(n.inputs[0]) for n in waiting]
        flat = [
            self._emit(reshape, [x], n, shape=(prod(x.type.shape),))
            for n, (x, _) in zip(waiting, summed, strict=True)
        ]
        total = self._emit(all_reduce, [self._emit(join, flat, last, axis=0)], last, **last.attrs)
        for node, piece, (x, turn) in zip(waiting, self._pieces(total, flat, waiting), summed, strict=True):
            (out,) = node.outputs
            found = self._emit(reshape, [piece], node, shape=x.type.shape)
            self.now[out] = found if turn is None else self._emit(permute, [found], turn, **turn.attrs)

    def _scatter(self, waiting: list[Node]) -> None:
        """Sums of which each rank gets a part: a row for each rank."""
        last = waiting[-1]
        count = axis_size("bucket", last.attrs["mesh"], last.attrs["axis"])
        flat = []
        for node in waiting:
            (x,), dim = node.inputs, node.attrs["dim"]
            shape = x.type.shape
            split = (*shape[:dim], count, shape[dim] // count, *shape[dim + 1 :])
            parts = self._emit(reshape, [x], node, shape=split)
            if dim:
                order = (dim, *[d for d in range(len(split)) if d != dim])
                parts = self._emit(permute, [parts], node, axes=order)
            flat.append(self._emit(reshape, [parts], node, shape=(count, prod(shape) // count)))
        joined = self._emit(join, flat, last, axis=1)
        total = self._emit(reduce_scatter, [joined], last, **{**last.attrs, "dim": 0})
        for node, piece in zip(waiting, self._pieces(total, flat, waiting), strict=True):
            (out,) = node.outputs
            self.now[out] = self._emit(reshape, [piece], node, shape=out.type.shape)

    def _gather(self, waiting: list[Node]) -> None:
        """Parts of which each rank gives a row."""
        last = waiting[-1]
        count = axis_size("bucket", last.attrs["mesh"], last.attrs["axis"])
        flat = [self._emit(reshape, n.inputs, n, shape=(1, prod(n.inputs[0].type.shape))) for n in waiting]
        joined = self._emit(join, flat, last, axis=1)
        total = self._emit(all_gather, [joined], last, **{**last.attrs, "dim": 0})
        for node, piece in zip(waiting, self._pieces(total, flat, waiting), strict=True):
            (x,), (out,), dim = node.inputs, node.outputs, node.attrs["dim"]
            parts = self._emit(reshape, [piece], node, shape=(count, *x.type.shape))
            if dim:
                order = (*range(1, dim + 1), 0, *range(dim + 1, x.type.ndim + 1))
                parts = self._emit(permute, [parts], node, axes=order)
            self.now[out] = self._emit(reshape, [parts], node, shape=out.type.shape)

    def _pieces(self, total: Value, flat: list[Value], waiting: list[Node]) -> list[Value]:
        """What each has of a joined result, along its last axis."""
        rows, start, found = total.type.shape[:-1], 0, []
        for part, node in zip(flat, waiting, strict=True):
            stop = start + part.type.shape[-1]
            ends = {
                "starts": (*[0] * len(rows), start),
                "stops": (*rows, stop),
                "steps": (1,) * (len(rows) + 1),
            }
            found.append(self._emit(slice_axes, [total], node, **ends))
            start = stop
        return found

    def _unturned(self, x: Value) -> tuple[Value, Node | None]:
        """What to sum in the place of a value that has its axes in another order alone, and the node of that.

        So nothing is copied into that order; who uses the sum reads it so.
        """
        node = self.made.get(x)
        if node is None or node.op is not permute:
            return x, None
        return self.now.get(node.inputs[0], node.inputs[0]), node

    def _emit(self, op: Any, inputs: Sequence[Value], like: Node, **attrs: Any) -> Value:
        out = Value(op.type_rule(*[v.type for v in inputs], **attrs))
        self.nodes.append(Node(op, inputs, attrs, [out], like.location))
        return out


def _key(node: Node) -> Any:
    """What two collectives must share to be joined."""
    told = tuple(sorted((k, v) for k, v in node.attrs.items() if k != "dim"))
    return node.op, node.inputs[0].type.dtype, told


def _is_joined(node: Node) -> bool:
    """Whether a collective goes into a bucket: its size is known, and it is no large sum."""
    if node.op not in _JOINED or not _is_known(_whole(node)):
        return False
    return node.op is all_gather or _bytes(_whole(node)) < _ALONE


def _is_known(t: TensorType) -> bool:
    return all(isinstance(s, int) for s in t.shape)


def _bytes(t: TensorType) -> int:
    return prod(t.shape) * t.dtype.itemsize
