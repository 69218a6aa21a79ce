"""The kernel of a group on a GPU: what it reads, how it is tiled, and what combines its partial results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.records import NamedTuple
from weft.base.shapes import size_of
from weft.base.sizes import Size, is_known
from weft.ir.graph import Node, Value
from weft.loop.index import Index
from weft.passes.base import is_elementwise
from weft.schedule.arrays import Array
from weft.schedule.extents import fold_instruction, is_number
from weft.schedule.fusion import is_reduction
from weft.schedule.gpu.folds import fold_rows
from weft.schedule.gpu.group_body import GroupBody
from weft.schedule.gpu.machine import Gpu
from weft.schedule.gpu.tiling import Partial, Tiling, tile
from weft.schedule.gpu.turned import find_turned, write_turned
from weft.schedule.group_code import GroupCode, key_of
from weft.schedule.sweeps import accumulator
from weft.schedule.writer import Numbers

_SHARED = 1 << 14  # bytes of shared memory, in which the rows of a block join their sums
_HELD = 96  # elements that a thread holds of what is read, at most, before anything is computed
_OTHER = 8 << 10  # bytes of shared memory for all that is not held


def is_plain(node: Node) -> bool:
    """Whether a node reads elements at its own index alone."""
    return is_elementwise(node) or is_reduction(node)


def lanes_of(reached: Sequence[Value], written: Sequence[Value], machine: Gpu) -> int:
    """Elements of a vector: of the widest dtype that is written as many as fit into one access.

    A thread that writes in two accesses leaves parts of sectors between its neighbours'. What is only read
    is cached, so that where nothing is written the narrowest dtype says how many.
    """
    sizes = [max(v.type.dtype.itemsize, 2) for v in written or reached]
    return max(machine.access_bytes // (max(sizes) if written else min(sizes)), 1)


class _Sums(NamedTuple):
    """Reductions over rows by one instruction: their partial results, side by side."""

    partial: Array
    instruction: str
    values: list[Value]


class GroupKernel(GroupCode):
    """Writes the kernel of one group.

    Attributes:
        in_place: what is read from memory, each element by the one that it belongs to and by no other.
    """

    def lower(self, name: str) -> None:
        """Write the kernel, and those that combine partial results."""
        machine = self.scope.writer.target.machine
        assert isinstance(machine, Gpu)
        memory = self.memory()
        reads = [self.scope.array(v) for v in memory]
        arrays = dict(zip(memory, reads, strict=True))
        self.in_place = [v for v in memory if v.type.shape and self._is_in_place(v)]
        turned = find_turned(self, arrays)
        if turned is not None:
            self._lower_turned(name, arrays, *turned)
            return
        tiling = self._tiling(arrays, machine)
        sums = self._column_sums(tiling)
        targets = {v: self._partial_target(v, tiling, sums) for v in self.outputs}
        self.write_kernel(name, arrays, targets, tiling)
        for together in sums.values():
            outs = [self.scope.output(v) for v in together.values]
            fold_rows(self.scope.writer, together.partial, outs, together.instruction)
        for v, target in targets.items():
            if self.kinds[v] == "all" and not is_number(tiling.blocks, 1):
                self.fold_parts(v, target, self.scope.output(v))

    def write_kernel(
        self,
        name: str,
        reads: dict[Value, Array],
        writes: dict[Value, Array],
        tiling: Tiling,
        numbers: Numbers = (),
    ) -> None:
        """Write the kernel, or launch the one that there is of this form."""
        writer, key = self.scope.writer, key_of(self, reads, writes)
        arrays = [*reads.values()], [*writes.values()]
        if writer.launch_again(key, [*arrays[0], *arrays[1]], numbers):
            return
        reuses = self._reuses(reads, writes, tiling)
        with writer.kernel(name, *arrays, key=key, reuses=reuses, inline=False, numbers=numbers) as k:
            sources = dict(zip(reads, k.reads, strict=True))
            sources |= {v: self.scope.place(v) for v in self.external if v not in sources}
            GroupBody(self, k, sources, dict(zip(writes, k.writes, strict=True)), tiling).write()

    def _lower_turned(self, name: str, reads: dict[Value, Array], axis: int, turned: Sequence[Value]) -> None:
        """Write the kernel of a group that reads arrays the other way round."""
        writes = {v: self.scope.output(v) for v in self.outputs}
        writer, key = self.scope.writer, key_of(self, reads, writes)
        arrays = [*reads.values()], [*writes.values()]
        if writer.launch_again(key, [*arrays[0], *arrays[1]]):
            return
        with writer.kernel(name, *arrays, key=key, inline=False) as k:
            sources = {v: self.scope.place(v) for v in self.external}
            sources |= dict(zip(reads, k.reads, strict=True))
            write_turned(self, k, sources, dict(zip(writes, k.writes, strict=True)), axis, turned)

    def fold_parts(self, value: Value, partial: Array, out: Array) -> None:
        """What blocks have found of a whole array as one number."""
        instruction = fold_instruction(self.made[value].op.fold, partial.dtype)
        fold_rows(self.scope.writer, partial, [out], instruction)

    # How it is tiled

    def _tiling(self, arrays: dict[Value, Array], machine: Gpu) -> Tiling:
        kinds = set(self.kinds.values())
        partial: Partial = "column" if "column" in kinds else "all" if "all" in kinds else ""
        rows: Any = 1 if self.flat else self.frame.rows
        axes = self.frame.shape if self.flat else self.frame.shape[self.frame.split or 0 :]
        lanes = self._lanes(arrays, axes, machine)
        once = len(self.sweeps()) < 2
        whole = "row" in kinds
        return tile(rows, size_of(axes), lanes, machine, whole=whole, partial=partial, once=once)

    def _lanes(self, arrays: dict[Value, Array], axes: tuple[Any, ...], machine: Gpu) -> int:
        """Elements that a thread reads and writes at once, see ``lanes_of``."""
        special = [node for v, node in self.made.items() if self.kinds[v] == "full" and not is_plain(node)]
        if not all(map(self._is_of_row, special)) or self.breaks or not axes or not is_known(axes):
            return 1
        full = [v for v in (*self.in_place, *self.outputs) if self.frame.kind(v.type.shape) == "full"]
        wide = [v for v in arrays if self.frame.kind(v.type.shape) == "full"]
        if not full or any(self._reads_across(v, arrays) for v in wide):
            return 1
        lanes = lanes_of(full, [v for v in full if v in self.outputs], machine)
        shapes = [axes, *[v.type.shape for v in (*self.in_place, *self.made) if v.type.shape]]
        lasts = [s[-1] for s in shapes if self.frame.kind(s) == "full" and not isinstance(s[-1], Size)]
        while lanes > 1 and any(last % lanes for last in lasts):
            lanes //= 2
        return max(lanes, 1)

    def _is_of_row(self, node: Node) -> bool:
        """Whether what a node reads is the same for all columns, as what puts a value into one of them."""
        return all(self.frame.kind(v.type.shape) != "full" for v in node.inputs)

    def _reads_across(self, v: Value, arrays: dict[Value, Array]) -> bool:
        """Whether neighbours of an array do not lie side by side."""
        array = arrays[v]
        return bool(array.strides) and array.strides[-1] != 1 and array.shape[-1] != 1

    def _is_in_place(self, v: Value) -> bool:
        """Whether all that read a value from outside read it at their own row and column."""
        if self.frame.kind(v.type.shape) != "full" or v.type.shape == ():
            return False
        readers = [n for n in self.inlined.values() if v in n.inputs]
        return all(
            is_reduction(n) or (is_elementwise(n) and n.outputs[0].type.shape == v.type.shape)
            for n in readers
        )

    # What it writes

    def _column_sums(self, tiling: Tiling) -> dict[Any, _Sums]:
        """Memory for reductions over rows: those of one kind lie side by side, and are combined at once."""
        alike: dict[Any, list[Value]] = {}
        if tiling.ends_columns:
            return {}
        for v in self.outputs:
            if self.kinds[v] == "column":
                dtype = accumulator(self.made[v])
                alike.setdefault((dtype, fold_instruction(self.made[v].op.fold, dtype)), []).append(v)
        joined = 1 if self.joins_slots(tiling) else tiling.slots
        rows, columns = tiling.row_blocks * joined, self.frame.columns
        out = {}
        for (dtype, instruction), values in alike.items():
            partial = self.scope.writer.temporary((rows, columns * len(values)), dtype, "p")
            out[dtype, instruction] = _Sums(partial, instruction, values)
        return out

    def _partial_target(self, value: Value, tiling: Tiling, sums: dict[Any, _Sums]) -> Array:
        """Where a value that is used outside is written: in its place, or partial results in theirs."""
        kind, writer = self.kinds[value], self.scope.writer
        ends = tiling.ends_columns if kind == "column" else is_number(tiling.blocks, 1)
        if kind in ("full", "row") or ends:
            return self.scope.output(value)
        dtype = accumulator(self.made[value])
        if kind == "all":
            return writer.temporary((tiling.blocks, 1), dtype, "p")
        own = next(s for s in sums.values() if value in s.values)
        partial, columns = own.partial, self.frame.columns
        first = Index.of(columns * own.values.index(value))
        return Array(partial.buffer, (partial.shape[0], columns), partial.strides, partial.offset + first)

    def joins_slots(self, tiling: Tiling) -> bool:
        """Whether the rows that are side by side in a block give one row of partial results."""
        if tiling.slots == 1 or tiling.vectors is None:
            return False
        sums = [accumulator(self.made[v]) for v in self.outputs if self.kinds[v] == "column"]
        return 0 < sum(d.itemsize for d in sums) * tiling.threads * tiling.lanes <= _SHARED

    def sweeps(self) -> set[int]:
        """The levels at which all elements of a row are gone through."""
        found = {self.levels[v] for v in self.outputs if self.kinds[v] == "full"}
        for v, node in self.made.items():
            if is_reduction(node):
                found.add(self.levels[v] - (1 if self.kinds[v] == "row" else 0))
        return found

    def held(self, tiling: Tiling) -> list[Value]:
        """What is read into registers before anything is computed, for more than one sweep.

        A row that is too long for them is held in shared memory, if two blocks have room for it.
        """
        if len(self.sweeps()) < 2:
            return []
        if tiling.vectors is not None:
            return self.in_place[: _HELD // (tiling.vectors * tiling.lanes)]
        machine, columns = self.scope.writer.target.machine, self.frame.columns
        assert isinstance(machine, Gpu)
        room, found = machine.shared_bytes // 2 - _OTHER, []
        for v in self.in_place if is_number(columns) else ():
            room -= columns * v.type.dtype.itemsize
            found += [v] if room >= 0 else []
        return found

    def _reuses(
        self, arrays: dict[Value, Array], targets: dict[Value, Array], tiling: Tiling
    ) -> list[tuple[int, int]]:
        """What may be one memory: a thread reads an element for the last time before it writes it."""
        held = self.held(tiling)
        last, found = max(self.sweeps(), default=0), []
        for i, (v, x) in enumerate(arrays.items()):
            if v not in self.in_place or not x.is_dense:
                continue
            for j, (out, y) in enumerate(targets.items()):
                same = self.kinds[out] == "full" and y.is_dense and x.dtype.itemsize == y.dtype.itemsize
                if same and x.size == y.size and (v in held or self.levels[out] == last):
                    found.append((i, j))
        return found
