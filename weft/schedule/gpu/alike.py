"""Groups that differ in nothing but the length of their arrays: one kernel for all, told how long each is.

An optimizer does the same to every parameter, clipping to every gradient. Where at least two such groups do
not need each other, their kernel is written for a length that a launch tells; ``batches`` then makes one
launch of those that can run at the same time. The length is in whole vectors, so that what does not fill
them is another kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from weft.base.shapes import size_of
from weft.base.sizes import is_known, named_size
from weft.ir.graph import Node, Value
from weft.ir.literals import format_literal
from weft.ir.types import TensorType
from weft.passes.base import is_elementwise
from weft.schedule.arrays import Array
from weft.schedule.extents import ceil_div
from weft.schedule.fusion import Frame, Group, is_reduction
from weft.schedule.gpu.group_kernel import GroupKernel, lanes_of
from weft.schedule.gpu.machine import Gpu
from weft.schedule.gpu.tiling import BUSY, SPREAD, Tiling
from weft.schedule.sweeps import accumulator
from weft.schedule.use_def import UseDef
from weft.schedule.writer import Numbers

VECTORS, TURNS = named_size("own.vectors"), named_size("own.turns")  # no name of a user has a dot


# Which groups are alike


def mark_alike(use_def: UseDef, groups: Mapping[int, Group]) -> None:
    """Note of groups that are alike, and do not all need each other, that one kernel is to serve them."""
    alike: dict[Any, list[Group]] = {}
    for group in {id(g): g for g in groups.values()}.values():
        form = _form_of(use_def, group)
        if form is not None:
            alike.setdefault(form, []).append(group)
    several = [found for found in alike.values() if len(found) > 1]
    for found in _independent(use_def, groups, several):
        for group in found:
            group.alike = True


def _form_of(use_def: UseDef, group: Group) -> Any:
    """What is computed for an element, whatever the shape; None where the shape matters."""
    shape, out = group.frame.shape, []
    if group.anchor is not None or not is_known(shape) or size_of(shape) == 0:
        return None
    numbers: dict[Value, int] = {}
    folded: set[Value] = set()
    for node in (use_def.nodes[i] for i in group.members):
        made, whole = node.outputs[0], _folds_all(node)
        plain = whole or (is_elementwise(node) and made.type.shape == shape)
        shapes = {v.type.shape for v in node.inputs}
        if not plain or node.regions or node.op.fallible or not shapes <= {shape, ()}:
            return None
        if not folded.isdisjoint(node.inputs):
            return None
        folded |= {made} if whole else set()
        attrs = () if whole else tuple((k, format_literal(v)) for k, v in node.attrs.items())
        read = [(numbers.setdefault(v, len(numbers)), v.type.dtype, v.type.shape == ()) for v in node.inputs]
        numbers.setdefault(made, len(numbers))
        out.append((node.op, attrs, tuple(read), made.type.dtype))
    return tuple(out)


def _folds_all(node: Node) -> bool:
    """Whether a node makes one number of a whole array."""
    return is_reduction(node) and node.outputs[0].type.shape == () and node.inputs[0].type.shape != ()


def _independent(use_def: UseDef, groups: Mapping[int, Group], sets: list[list[Group]]) -> list[list[Group]]:
    """The sets of groups in which one does not need another that comes before it."""
    bit = {id(group): 1 << i for i, group in enumerate(g for found in sets for g in found)}
    before: dict[int, int] = {}  # by number of a node, the groups that it needs, as bits
    for i in range(len(use_def.nodes)):
        needed = 0
        for j in use_def.needs[i]:
            needed |= before.get(j, 0)
            if j in groups:
                needed |= bit.get(id(groups[j]), 0)
        before[i] = needed
    out = []
    for found in sets:
        needs = [[before[i] for i in group.members] for group in found]
        apart = any(not any(x & bit[id(found[k])] for x in needs[k + 1]) for k in range(len(found) - 1))
        if apart:
            out.append(found)
    return out


# Their kernel


class AlikeKernel(GroupKernel):
    """Writes the kernel of a group for arrays of any length."""

    def is_possible(self) -> bool:
        """Whether all that it reads and writes lies in a row, element by element."""
        places = [self.scope.place(v) for v in self.external if v.type.shape]
        dense = all(isinstance(x, Array) and x.is_dense for x in places)
        return dense and not self.breaks and self.inlined.keys() == self.made.keys()

    def lower(self, name: str) -> None:
        """Write the kernel, or launch the one that is there already."""
        machine = self.scope.writer.target.machine
        assert isinstance(machine, Gpu)
        arrays = {v: self.scope.array(v) for v in self.memory()}
        outs = {v: self.scope.output(v) for v in self.outputs}
        whole = [v for v in outs if _folds_all(self.made[v])]
        size = size_of(self.frame.shape)
        self.in_place = [v for v in arrays if v.type.shape]
        lanes = self._even_lanes(size, machine)
        tiling, numbers, blocks = self._open_tiling(size // lanes, lanes, machine, partial=bool(whole))
        writer = self.scope.writer
        partials = {v: writer.temporary((blocks, 1), accumulator(self.made[v]), "p") for v in whole}
        targets = {v: partials.get(v, outs[v]) for v in outs}
        assert all(a.is_dense for a in targets.values())
        flat = self._flatten(lanes)
        reads = {flat.get(v, v): _row(a, lanes) if v.type.shape else a for v, a in arrays.items()}
        writes = {
            flat[v]: Array(a.buffer, (tiling.blocks, 1), None, a.offset) if v in partials else _row(a, lanes)
            for v, a in targets.items()
        }
        self.write_kernel(name, reads, writes, tiling, numbers=numbers)
        for v, partial in partials.items():
            self.fold_parts(flat[v], partial, outs[v])

    def _even_lanes(self, size: int, machine: Gpu) -> int:
        """Elements of a vector: as many as can be reached at once, and as divide all."""
        written = [v for v in self.outputs if v.type.shape]
        lanes = lanes_of([*self.in_place, *written], written, machine)
        while size % lanes:
            lanes //= 2
        return lanes

    def _open_tiling(
        self, vectors: int, lanes: int, machine: Gpu, *, partial: bool
    ) -> tuple[Tiling, Numbers, int]:
        """How any number of vectors is shared out; the numbers of this one, and its blocks."""
        # A thread has several loads under way at once: of several arrays, or of several vectors of one.
        own = max(1, SPREAD // max(len(self.in_place), 1))
        reach = machine.threads * own
        tiles = ceil_div(vectors, reach)
        turns = ceil_div(tiles, machine.blocks * BUSY) if partial else 1
        blocks, tiling = ceil_div(tiles, turns), _tiling_of(lanes, machine.threads, own, partial)
        numbers = [(VECTORS, vectors), (TURNS, turns)][: 1 + partial]
        return tiling, tuple((str(size), number) for size, number in numbers), blocks

    def _flatten(self, lanes: int) -> dict[Value, Value]:
        """Take every array for one row of any length; gives the values that stand for the old ones."""
        shape = (_length(lanes),)
        full = [v for v in (*self.external, *self.made) if v.type.shape]
        flat = {v: Value(TensorType(shape, v.type.dtype), v.name) for v in full}
        flat |= {v: Value(v.type, v.name) for v in self.made if not v.type.shape}

        def node_of(node: Node) -> Node:
            attrs = {"axes": (0,)} if is_reduction(node) else node.attrs
            inputs = [flat.get(v, v) for v in node.inputs]
            return Node(node.op, inputs, attrs, [flat[v] for v in node.outputs], node.location)

        self.nodes = [node_of(node) for node in self.nodes]
        self.made = {node.outputs[0]: node for node in self.nodes}
        self.inlined = dict(self.made)
        self.kinds = {v: "full" if v.type.shape else "all" for v in self.made}
        self.levels = dict.fromkeys(self.made, 0)
        self.external = [flat.get(v, v) for v in self.external]
        self.in_place = [flat[v] for v in self.in_place]
        self.outputs = [flat[v] for v in self.outputs]
        self.frame, self.flat = Frame(shape), True
        return flat


def _row(array: Array, lanes: int) -> Array:
    return Array(array.buffer, (_length(lanes),), (1,), array.offset)


@cache
def _length(lanes: int) -> Any:
    """The elements of so many vectors as a launch tells."""
    return VECTORS * lanes


@cache
def _tiling_of(lanes: int, threads: int, own: int, partial: bool) -> Tiling:
    """How vectors are shared out, whatever their number: some for each thread, in turns if need be."""
    chunks = ceil_div(VECTORS, threads * own)
    grid, each = (ceil_div(chunks, TURNS), TURNS) if partial else (chunks, 1)
    return Tiling(lanes, threads, own, 1, chunks, grid, each, False, False, True)
