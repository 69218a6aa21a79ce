"""Collectives for devices: data is moved by a library, and weft's own kernels add it up in weft's order.

An ordered sum is every rank's array moved to all, or for many ranks and large arrays a slice to each, and
then one tree over the rows: the same tree that the host has, so the same bits. What depends on the place of
this rank alone, such as its part of a replicated value, is a slice. A program so made is that of one rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from weft.base.dtypes import (
    FLOATS,
    bfloat16,
    float16,
    float32,
    int8,
    int32,
    int64,
    kind,
    uint8,
    uint32,
    uint64,
)
from weft.base.ranks import SMALL, axis_size, mesh_axes, place_on, tree_fold
from weft.base.sizes import is_known
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, Rule, Rules, sweep
from weft.ops import collective as ops
from weft.ops.arithmetic import add, maximum, minimum
from weft.ops.library_collective import (
    library_broadcast,
    library_commit,
    library_exchange,
    library_gather,
    library_permute,
    library_sum,
    library_sum_parts,
)
from weft.ops.op import Op
from weft.ops.select import cast
from weft.ops.started import HALVES
from weft.ops.view.primitives import broadcast_to, join, permute, reshape
from weft.ops.view.slices import slice_axes
from weft.passes.base import graph_pass
from weft.passes.dce import dce

Pair = tuple[str, str]  # a mesh and an axis of it, or several, as text
SUMMED = (*FLOATS, int8, int32, int64, uint8, uint32, uint64)  # what the library adds
_FOLDS: dict[Op, Op] = {ops.all_reduce: add, ops.all_reduce_max: maximum, ops.all_reduce_min: minimum}
_FEW = 16  # rows that are folded by one kernel
_OF_A_MESH = (ops.commit, ops.shards_here)
MOVING = (
    *_FOLDS, ops.all_gather, ops.reduce_scatter, ops.all_to_all, ops.permute_ranks, ops.broadcast,
    ops.gather_shards, *[half for halves in HALVES.values() for half in halves],
)  # fmt: skip
LOCAL = (ops.copy_to_ranks, ops.axis_index, ops.take_shard, ops.take_shards)  # without a message


def collective_pairs(graph: Graph) -> dict[Pair, bool]:
    """Along which axes of which meshes a graph goes, in its order, and whether data is moved along them.

    The axis "" is all of a mesh.
    """
    found: dict[Pair, bool] = {}
    for node in graph.walk():
        if node.op in MOVING or node.op in LOCAL:
            pair = node.attrs["mesh"], node.attrs["axis"]
            found[pair] = found.get(pair, False) or node.op in MOVING
        elif node.op in _OF_A_MESH:
            found[node.attrs["mesh"], ""] = False
    return found


def all_axes(mesh: str) -> str:
    """The axis that goes over all ranks of a mesh."""
    return ",".join(name for name, _ in mesh_axes(mesh))


@graph_pass(once=True)
def collectives_by_library(
    graph: Graph, *, pairs: Sequence[Pair] = (), commits: bool = True, alone: bool = False
) -> Graph:
    """Have a library of devices move what ranks exchange along axes.

    Args:
        graph: any.
        pairs: of meshes and axes for which the library is there.
        commits: whether ranks still meet before state is overwritten.
        alone: whether ranks without others use the library, too.

    >>> import weft
    >>> from weft.passes.lowering.collectives_by_library import collectives_by_library
    >>> text = '''
    ... graph f(%x: f32[3]) {
    ...   %0: f32[3] = all_reduce(%x, axis="data", mesh="data=2")
    ...   return %0
    ... }'''
    >>> print(collectives_by_library(weft.parse_graph(text), pairs=[("data=2", "data")]))
    graph f(%x: f32[3]) {
      %0: f32[2,3] = library_gather(%x, axis="data", mesh="data=2")
      %1: f32[1,3] = slice(%0, starts=(0, 0), stops=(1, 3))
      %2: f32[3] = reshape(%1, shape=(3,))
      %3: f32[1,3] = slice(%0, starts=(1, 0), stops=(2, 3))
      %4: f32[3] = reshape(%3, shape=(3,))
      %5: f32[3] = add(%2, %4)
      return %5
    }
    """
    if not pairs:
        return graph
    found = sweep(graph, _Rules(frozenset(pairs), commits=commits, alone=alone).by_op(), again=False)
    return graph if found is graph else dce(found)


class _Rules:
    """Rewrites the collectives along some axes.

    Attributes:
        pairs: the axes.
        commits: whether ``commit`` stays.
        alone: whether ranks without others use the library, too.
    """

    def __init__(self, pairs: frozenset[Pair], *, commits: bool, alone: bool) -> None:
        self.pairs, self.commits, self.alone = pairs, commits, alone

    def by_op(self) -> Rules:
        """The rules."""
        simple: dict[Op, Rule] = {
            **dict.fromkeys(_FOLDS, self._reduced),
            ops.copy_to_ranks: lambda draft, node: node.inputs,
            ops.all_gather: self._gathered,
            ops.reduce_scatter: self._scattered,
            ops.all_to_all: self._crossed,
            ops.permute_ranks: self._permuted,
            ops.broadcast: self._broadcast,
            ops.axis_index: self._index,
            ops.take_shard: self._part,
            ops.take_shards: self._parts,
            ops.gather_shards: self._joined,
            ops.commit: self._commit,
            ops.shards_here: lambda draft, node: [draft.constant(np.array(node.attrs["count"], int64))],
        }
        for op, (start, wait) in HALVES.items():
            simple[start] = simple[op]
            simple[wait] = lambda draft, node: [node.inputs[0]]  # what was started is there in its turn
        return {op: [self._where_found(rule)] for op, rule in simple.items()}

    def _where_found(self, rule: Rule) -> Rule:
        def checked(draft: Draft, node: Node) -> Sequence[Value] | None:
            pair = node.attrs["mesh"], node.attrs.get("axis", "")
            # both halves of a collective are rewritten, or none is
            folds = node.op in _FOLDS or "reduce" in node.op.name
            if pair not in self.pairs or (folds and kind(node.inputs[0].type.dtype) in "bc"):
                return None
            return rule(draft, node)

        return checked

    # Sums and extremes

    def _reduced(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        (x,) = node.inputs
        along, count = _along(node), _count(node)
        if (count == 1 and not self.alone) or (is_known(x.type.shape) and 0 in x.type.shape):
            return [x]
        fold = _FOLDS.get(node.op, add)
        if fold is add and not node.attrs.get("ordered", True) and x.type.dtype in SUMMED:
            return draft.emit(library_sum, [x], **along)
        shape = x.type.shape
        if count <= 2 or not is_known(shape) or prod(shape) * x.type.dtype.itemsize <= SMALL:
            return [_fold(draft, draft.emit(library_gather, [x], **along)[0], fold)]
        # every rank folds one slice of all, which moves no more than a ring does
        size, width = prod(shape), -(-prod(shape) // count)
        (flat,) = draft.emit(reshape, [x], shape=(size,))
        if size < width * count:
            zeros = draft.constant(np.zeros(width * count - size, x.type.dtype))
            (flat,) = draft.emit(join, [flat, zeros], axis=0)
        (rows,) = draft.emit(reshape, [flat], shape=(count, width))
        mine = _fold(draft, draft.emit(library_exchange, [rows], **along)[0], fold)
        (all_of_it,) = draft.emit(library_gather, [mine], **along)
        (flat,) = draft.emit(reshape, [all_of_it], shape=(width * count,))
        return draft.emit(reshape, [_taken(draft, flat, 0, 0, size)], shape=shape)

    def _scattered(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        (x,) = node.inputs
        along, count = _along(node), _count(node)
        if count == 1 and not self.alone:
            return [x]
        rows = _split(draft, x, node.attrs["dim"], count)
        if not node.attrs.get("ordered", True) and x.type.dtype in SUMMED:
            return draft.emit(library_sum_parts, [rows], **along)
        return [_fold(draft, draft.emit(library_exchange, [rows], **along)[0], add)]

    # What is moved

    def _gathered(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        return [self._gather(draft, node, node.inputs[0])]

    def _gather(self, draft: Draft, node: Node, x: Value) -> Value:
        if _count(node) == 1 and not self.alone:
            return x
        return _join(draft, draft.emit(library_gather, [x], **_along(node))[0], node.attrs["dim"])

    def _crossed(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        (x,) = node.inputs
        if _count(node) == 1 and not self.alone:
            return [x]
        rows = _split(draft, x, node.attrs["split"], _count(node))
        (found,) = draft.emit(library_exchange, [rows], **_along(node))
        return [_join(draft, found, node.attrs["join"])]

    def _permuted(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        (x,) = node.inputs
        if _count(node) == 1 and not self.alone:
            if node.attrs["to"] == (0,):
                return [x]
            nothing = draft.constant(np.zeros((), x.type.dtype))  # comes from nobody
            return draft.emit(broadcast_to, [nothing], shape=x.type.shape)
        return draft.emit(library_permute, node.inputs, to=node.attrs["to"], **_along(node))

    def _broadcast(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        if _count(node) == 1 and not self.alone:
            return node.inputs
        return draft.emit(library_broadcast, node.inputs, root=node.attrs["root"], **_along(node))

    # What this rank knows by itself

    def _index(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        return [draft.constant(np.array(_place(node), int64))]

    def _part(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        (x,) = node.inputs
        dim, count = node.attrs["dim"], _count(node)
        width = x.type.shape[dim] // count
        return [_taken(draft, x, dim, _place(node) * width, (_place(node) + 1) * width)]

    def _parts(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        (mine,) = self._part(draft, node) or ()
        return [_split(draft, mine, node.attrs["dim"], node.attrs["count"])]

    def _joined(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        return [self._gather(draft, node, _join(draft, node.inputs[0], node.attrs["dim"]))]

    def _commit(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        mesh = node.attrs["mesh"]
        alone = all(size == 1 for _, size in mesh_axes(mesh)) and not self.alone
        if not self.commits or alone:
            return []
        return draft.emit(library_commit, [], axis=all_axes(mesh), mesh=mesh)


def _along(node: Node) -> dict[str, Any]:
    return {"axis": node.attrs["axis"], "mesh": node.attrs["mesh"]}


def _count(node: Node) -> int:
    return axis_size(node.op.name, node.attrs["mesh"], node.attrs["axis"])


def _place(node: Node) -> int:
    return place_on(node.op.name, node.attrs["mesh"], node.attrs["axis"])


def _taken(draft: Draft, x: Value, dim: int, start: Any, stop: Any, step: int = 1) -> Value:
    """The elements from start to stop along a dimension."""
    starts, stops, steps = [0] * x.type.ndim, list(x.type.shape), [1] * x.type.ndim
    starts[dim], stops[dim], steps[dim] = start, stop, step
    return draft.emit(slice_axes, [x], starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))[0]


def _rows(draft: Draft, rows: Value) -> Iterator[Value]:
    for i in range(rows.type.shape[0]):
        yield draft.emit(reshape, [_taken(draft, rows, 0, i, i + 1)], shape=rows.type.shape[1:])[0]


def _fold(draft: Draft, rows: Value, fold: Op) -> Value:
    """Rows folded by the tree over ranks: see ``tree_fold``."""
    while (count := rows.type.shape[0]) > _FEW:
        even = count & ~1
        pairs = [_taken(draft, rows, 0, i, even, 2) for i in (0, 1)]
        folded = _folded(draft, fold, *pairs)
        if count > even:  # one without a neighbour goes up
            (folded,) = draft.emit(join, [folded, _taken(draft, rows, 0, even, count)], axis=0)
        rows = folded
    found: Value = tree_fold(list(_rows(draft, rows)), lambda a, b: _folded(draft, fold, a, b))
    return found


def _folded(draft: Draft, fold: Op, a: Value, b: Value) -> Value:
    """Two rows folded; sums of half precision are rounded one by one, which kernels do not by themselves."""
    half = a.type.dtype
    if fold is not add or half not in (float16, bfloat16):
        return draft.emit(fold, [a, b])[0]
    wide = [draft.emit(cast, [x], dtype=float32)[0] for x in (a, b)]
    return draft.emit(cast, draft.emit(add, wide), dtype=half)[0]


def _split(draft: Draft, x: Value, dim: int, count: int) -> Value:
    """Equal parts along a dimension, along a new first axis."""
    shape = x.type.shape
    (cut,) = draft.emit(reshape, [x], shape=(*shape[:dim], count, shape[dim] // count, *shape[dim + 1 :]))
    if dim == 0:
        return cut
    axes = (dim, *[i for i in range(cut.type.ndim) if i != dim])
    return draft.emit(permute, [cut], axes=axes)[0]


def _join(draft: Draft, rows: Value, dim: int) -> Value:
    """Rows joined along a dimension of each."""
    count, *shape = rows.type.shape
    if dim:
        order = list(range(1, rows.type.ndim))
        order.insert(dim, 0)
        (rows,) = draft.emit(permute, [rows], axes=tuple(order))
    return draft.emit(reshape, [rows], shape=(*shape[:dim], count * shape[dim], *shape[dim + 1 :]))[0]
