"""Fusion: which nodes become one kernel.

A group works row by row on arrays of one shape, its *frame*: the leading axes are rows, the others columns.
In it are elementwise ops, reductions of rows (their results are known before the next sweep over the row),
ops on what rows were reduced to, and reductions over all rows, which give one partial result for each block
of rows. So softmax is one group, and so is the gradient of layer normalisation with those of its weights.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from itertools import pairwise
from typing import Any

from weft.base.lazy import cached_property
from weft.base.records import dataclass
from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.ir.graph import Node, Value
from weft.ops.size import iota
from weft.ops.view.primitives import broadcast_to
from weft.passes.base import is_elementwise
from weft.passes.lowering.recompute import is_backward
from weft.schedule.clusters import Clusters
from weft.schedule.pointwise.rules import has_pointwise_rule
from weft.schedule.use_def import UseDef, is_view

MOST_NODES = 100  # of a group
SHORT_ROW = 8  # columns from which on work for each row may be scalar code
ENDING_ROW = 256  # elements of a row that one number is little beside
LONG_ROW = 32768  # elements from which on one row alone is reduced in blocks


@dataclass(frozen=True)
class Frame:
    """The shape that a group works on.

    Attributes:
        shape: of what is computed for each row and column.
        split: how many of its axes are rows; None while nothing has asked for rows.
    """

    shape: tuple[Any, ...]
    split: int | None = None

    @cached_property
    def rows(self) -> Any:
        """The number of rows."""
        return size_of(self.shape[: self.split or 0])

    @cached_property
    def columns(self) -> Any:
        """The number of columns."""
        return size_of(self.shape[self.split or 0 :])

    @cached_property
    def _kinds(self) -> dict[tuple[Any, ...], str]:
        return {}

    def kind(self, shape: tuple[Any, ...]) -> str:
        """What an array of a shape has elements for: "full" (each column), "row" (each row), else ""."""
        found = self._kinds.get(shape)
        if found is None:
            found = self._kinds[shape] = self._find_kind(shape)
        return found

    def _find_kind(self, shape: tuple[Any, ...]) -> str:
        if self.split is None:
            return "full" if size_of(shape) == size_of(self.shape) else ""
        if split_of(shape, self) is not None:
            return "full"
        return "row" if size_of(shape) == self.rows else ""


def splits_of(shape: tuple[Any, ...], frame: Frame) -> list[int]:
    """How many leading axes of a shape may be the rows of a frame; several where axes have size 1."""
    found, rows = [], 1
    for i in range(len(shape) + 1):
        if rows == frame.rows and size_of(shape[i:]) == frame.columns:
            found.append(i)
        if i < len(shape):
            rows = rows * shape[i]
    return found


def split_of(shape: tuple[Any, ...], frame: Frame) -> int | None:
    """How many leading axes of a shape are the rows of a frame; None if none are."""
    return next(iter(splits_of(shape, frame)), None)


@dataclass(eq=False)
class Group:
    """Nodes that become one kernel.

    Attributes:
        members: numbers of nodes, in order.
        frame: what it works on.
        anchor: the product among the members whose elements the others go on with, if there is one.
        alike: whether it has a kernel in common with groups that differ in the length of their arrays alone.
        ends: whether the forward pass ends with it, as far as that is known.
    """

    members: list[int]
    frame: Frame
    anchor: int | None = None
    alike: bool = False
    ends: bool | None = None


def is_reduction(node: Node) -> bool:
    """Whether a node folds the elements along some axes into one."""
    return bool(node.op.fold_over == "axes")


def fusible(node: Node) -> bool:
    """Whether a node can be in a group."""
    if is_view(node) or len(node.outputs) != 1 or node.op is iota:
        return False
    if is_reduction(node):
        return len(node.inputs[0].type.shape) > 0
    return has_pointwise_rule(node) and node.outputs[0].type.shape != ()


def reduction(node: Node, frame: Frame) -> str:
    """What a reduction is in a frame: of "row", of "column", of "all", or none ("")."""
    shape, axes = node.inputs[0].type.shape, node.attrs["axes"]
    for split in splits_of(shape, frame) if axes else ():
        if len(axes) == len(shape) and (split > 0 or _is_long(size_of(shape))):
            return "all"
        if axes == tuple(range(split, len(shape))):
            return "row"
        if axes == tuple(range(split)):
            return "column"
    return ""


def _is_long(size: Any) -> bool:
    return isinstance(size, Size) or size > LONG_ROW


def frame_of(node: Node) -> Frame | None:
    """The frame of a node by itself; None for a reduction that is neither of rows nor of columns."""
    if not is_reduction(node):
        return Frame(node.outputs[0].type.shape)
    shape, axes = node.inputs[0].type.shape, node.attrs["axes"]
    # A kernel goes through its rows and columns in the order of memory. What folds axes in the middle would
    # need another order, and gets a kernel of its own.
    if not axes:
        return None
    if axes == tuple(range(len(shape) - len(axes), len(shape))):
        return Frame(shape, len(shape) - len(axes))
    return Frame(shape, len(axes)) if axes == tuple(range(len(axes))) else None


def joined(a: Frame, b: Frame) -> Frame | None:
    """The frame of two groups in one; None where they do not fit."""
    if a.split is None and b.split is None:
        return a if size_of(a.shape) == size_of(b.shape) else None
    if a.split is None:
        return b if _fits(a, b) else None
    if b.split is None:
        return a if _fits(b, a) else None
    if a.rows == b.rows and a.columns == b.columns:
        return a  # shapes may still differ: (4, 6) and (2, 2, 6) are both four rows of six
    for whole, other in ((a, b), (b, a)):  # what is reduced as a whole can be so row by row, too
        if whole.split == 0 and other.kind(whole.shape) == "full":
            return other
    return None


def _fits(flat: Frame, frame: Frame) -> bool:
    """Whether what works on a shape can be full, or for each row, in a frame; rows must be worth it."""
    kind = frame.kind(flat.shape)
    worth = isinstance(frame.columns, Size) or frame.columns >= SHORT_ROW
    return kind == "full" or (kind == "row" and worth)


class Grouping:
    """Finds groups: each node that can be fused begins as one, and joins those that make its inputs.

    Attributes:
        rows_end: whether the forward pass counts as ended where it goes on with a number for each long row.
        apart: numbers of nodes that are in no group.
    """

    def __init__(self, use_def: UseDef, *, rows_end: bool = False, apart: Collection[int] = ()) -> None:
        self.use_def = use_def
        self.rows_end = rows_end
        self.apart = apart
        self.groups: dict[int, Group] = {}
        self.clusters = Clusters(use_def)

    def run(self, *, fuse: bool = True) -> list[Group]:
        """All groups; unless nodes are to be fused, of one node each."""
        for i, node in enumerate(self.use_def.nodes):
            frame = frame_of(node) if fusible(node) and i not in self.apart else None
            if frame is None:
                continue
            self.groups[i] = Group([i], frame)
            if not fuse:
                continue
            # The nearest producer first: less lies between it and this node that could keep them apart.
            for j in sorted(self.use_def.needs[i], reverse=True):
                if j in self.groups and self._is_one_phase(j, i):
                    self._try(self.groups[j], self.groups[i])
        if fuse:
            self._join_siblings()
        return list({id(g): g for g in self.groups.values()}.values())

    def _is_one_phase(self, j: int, i: int) -> bool:
        """A gradient is computed with the forward pass only at its end; else its results would be kept."""
        if is_backward(self.use_def.nodes[j]) or not is_backward(self.use_def.nodes[i]):
            return True
        group = self.groups[j]
        if group.ends is None:
            group.ends = self._ends_forward(group)
        return group.ends

    def _ends_forward(self, group: Group) -> bool:
        """Whether the forward pass goes on with nothing of a group but single numbers, such as a loss."""
        inside = set(group.members)
        users = {u for m in group.members for u in self.use_def.users[m]} - inside
        later = [
            v for u in users if not is_backward(self.use_def.nodes[u]) for v in self.use_def.nodes[u].inputs
        ]
        made = {v for m in group.members for v in self.use_def.nodes[m].outputs}
        return not any(self.use_def.root(v) in made and not self._is_little(v, group.frame) for v in later)

    def _is_little(self, value: Value, frame: Frame) -> bool:
        """Whether a value is so small that the forward pass has as good as ended: a number, or one a row."""
        size = size_of(value.type.shape)
        if self.rows_end and frame.split and not isinstance(frame.columns, Size):
            return size == 1 or (frame.kind(value.type.shape) == "row" and frame.columns >= ENDING_ROW)
        return not isinstance(size, Size) and size == 1

    def _join_siblings(self) -> None:
        """Groups that read the same large value are one, where they fit."""
        readers: dict[Value, list[int]] = {}
        for i, node in enumerate(self.use_def.nodes):
            if i in self.groups:
                for v in node.inputs:
                    readers.setdefault(self.use_def.root(v), []).append(i)
        for value, found in readers.items():
            if size_of(value.type.shape) == 1:
                continue
            for i, j in pairwise(found):
                frame = self.groups[i].frame
                if frame.kind(value.type.shape) == "full" and self._is_one_phase(i, j):
                    self._try(self.groups[i], self.groups[j])

    def _try(self, a: Group, b: Group) -> None:
        """Make two groups one, if they fit and nothing outside lies between them."""
        if a is b or len(a.members) + len(b.members) > MOST_NODES:
            return
        frame = joined(a.frame, b.frame)
        if frame is None:
            return
        # Only a merge looks at the whole graph, so it comes last; it has an effect where it succeeds.
        if not self._aligned(a, b, frame) or not self.merge(a.members[0], b.members[0]):
            return
        large, small = (a, b) if len(a.members) >= len(b.members) else (b, a)
        for i in small.members:
            self.groups[i] = large
        large.members = sorted([*large.members, *small.members])
        large.frame, large.ends = frame, None

    def _aligned(self, a: Group, b: Group, frame: Frame) -> bool:
        """Whether the members of two groups fit into a frame together."""
        nodes, made = self.use_def.nodes, _Made(self, a, b)
        asked = [*self._affected(a, b, frame), *self._affected(b, a, frame)]
        return all(aligned(self.use_def, nodes[i], frame, made) for i in asked)

    def _affected(self, group: Group, other: Group, frame: Frame) -> Sequence[int]:
        """The members of a group that may not fit any more where it is joined with another one."""
        # In an unchanged frame only those can fail that gained an edge inside: looking at all members each
        # time would take time quadratic in the size of a group.
        if len(group.members) == 1 or frame != group.frame:
            return group.members
        needs, users, groups = self.use_def.needs, self.use_def.users, self.groups
        if len(other.members) < len(group.members):
            ends = [e for i in other.members for edges in (needs[i], users[i]) for e in edges]
            if len(ends) < 2 * len(group.members):
                return sorted({i for i in ends if groups.get(i) is group})
        apart = set(other.members).isdisjoint
        return [i for i in group.members if not (apart(needs[i]) and apart(users[i]))]

    def is_aligned_with(self, members: Sequence[int], frame: Frame, product: Value) -> bool:
        """Whether members read the elements of a product at their own index alone."""
        nodes = [self.use_def.nodes[i] for i in members]
        made = {v for node in nodes for v in node.outputs}
        return all(aligned(self.use_def, node, frame, made) for node in nodes if product not in node.outputs)

    def merge(self, i: int, j: int) -> bool:
        """Put the clusters of two nodes together, if nothing outside lies between them."""
        return self.clusters.merge(self.clusters.of[i], self.clusters.of[j])


class _Made:
    """What the members of two groups make."""

    def __init__(self, grouping: Grouping, a: Group, b: Group) -> None:
        self._producer = grouping.use_def.producer
        self._groups = grouping.groups
        self._a, self._b = a, b

    def __contains__(self, value: object) -> bool:
        group = self._groups.get(self._producer.get(value, -1))  # type: ignore[call-overload]
        return group is self._a or group is self._b


def aligned(use_def: UseDef, node: Node, frame: Frame, made: Container[Value]) -> bool:
    """Whether a node fits into a frame, and reads what is made inside at its own row and column alone."""
    if is_reduction(node):
        how = reduction(node, frame)
        inputs = [_edge(use_def, v, v.type.shape, frame, made) for v in node.inputs]
        if not how or any(e not in ("full", "outside") for e in inputs):
            return False
        # What is folded over rows is known when the last block of rows is done, after this kernel.
        return not (how in ("column", "all") and _is_used_inside(use_def, node, made))
    shape = node.outputs[0].type.shape
    kind = frame.kind(shape)
    if not kind:
        return False
    edges = [_edge(use_def, v, shape, frame, made) for v in node.inputs]
    if not is_elementwise(node):
        # A gather or a pad reads at other places, which another task may not have written yet.
        return all(e == "outside" for e in edges)
    return all(e in ("outside", "row") or e == kind for e in edges)


def _is_used_inside(use_def: UseDef, node: Node, made: Container[Value]) -> bool:
    users = use_def.users[use_def.producer[node.outputs[0]]]
    return any(v in made for u in users for v in use_def.nodes[u].outputs)


def _edge(use_def: UseDef, value: Value, shape: tuple[Any, ...], frame: Frame, made: Container[Value]) -> str:
    """How a node of a shape reads a value: from "outside", or "full" or "row" in place; else ""."""
    root = use_def.root(value)
    if root not in made:
        return "outside"
    kind = frame.kind(root.type.shape)
    broadcast = kind == "row"
    v = value
    while v is not root:  # only views that keep every element at its row and column
        view = use_def.nodes[use_def.producer[v]]
        if view.op is broadcast_to and broadcast:
            if not _repeats_rows(view.inputs[0].type.shape, v.type.shape, frame):
                return ""
        elif view.op.view != "flat":
            return ""
        v = view.inputs[0]
    own = value.type.shape
    if own == shape:
        return "full" if frame.kind(own) == "full" else kind
    if kind == "row" and _repeats_rows(own, shape, frame):
        return "row"
    return ""


def _repeats_rows(small: tuple[Any, ...], large: tuple[Any, ...], frame: Frame) -> bool:
    """Whether broadcasting gives each row its own element, for all columns."""
    if len(small) != len(large):
        return False
    if small == large:
        return True
    return any(
        small[:split] == large[:split] and all(not isinstance(s, Size) and s == 1 for s in small[split:])
        for split in splits_of(large, frame)
    )
