"""Sweeps over the rows of a group, whatever the machine: what each has to do, and what it costs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from weft.base.dtypes import DType
from weft.ir.graph import Node, Value
from weft.loop.index import Index
from weft.schedule.arrays import Array, reshape_index
from weft.schedule.extents import fold_dtype
from weft.schedule.fusion import is_reduction
from weft.schedule.group_code import GroupCode
from weft.schedule.pointwise.rules import Reader
from weft.schedule.writer import Kernel

CHEAP = 3  # instructions that are rather repeated than their result kept


def accumulator(node: Node) -> DType:
    """What a reduction is accumulated in."""
    return fold_dtype(node.op.fold, node.outputs[0].type.dtype)


class GroupSweeps(ABC):
    """The body of a group's kernel, while it is written."""

    def __init__(
        self, group: GroupCode, k: Kernel, sources: dict[Value, Any], targets: dict[Value, Array]
    ) -> None:
        self.use_def, self.frame = group.use_def, group.frame
        self.made, self.kinds, self.levels = group.made, group.kinds, group.levels
        self.b = k.builder
        self.sources = sources
        self.targets = targets
        self.reader: Reader = group.scope.reader(self.b, sources, group.inlined)
        self.totals: dict[Value, Any] = {}
        self.last = max(group.levels.values(), default=0)

    @abstractmethod
    def write(self) -> None:
        """Write the parallel loop and all in it."""

    @abstractmethod
    def _kept(self, value: Value) -> bool:
        """Whether a later sweep needs a value that is too dear to be computed again."""

    def _row_values(self, level: int, index: tuple[Index, ...]) -> None:
        """What is computed once for the row, from what it was reduced to."""
        for v, node in self.made.items():
            if self.kinds[v] != "row" or self.levels[v] != level:
                continue
            at = self._index_of(v.type.shape, index, None)
            if not is_reduction(node):
                self.sources[v] = self.reader.read(v, at)
            if v in self.targets:
                self._store_row(v, at)

    def _store_row(self, value: Value, at: tuple[Index, ...]) -> None:
        """Write what was computed once for the row."""
        target = self.targets[value]
        self.b.store(target.buffer, target.at(*at), self.sources[value])

    def _index_of(self, shape: tuple[Any, ...], row: tuple[Index, ...], columns: Any) -> tuple[Index, ...]:
        """The index into an array of a shape, at a row and a column (None: of what a row is reduced to)."""
        frame = self.frame
        split = frame.split or 0
        own = frame.shape[:split] if columns is None else frame.shape
        at = row if columns is None else (*row, *columns)
        return at if shape == own else reshape_index(self.b, at, own, shape)

    def _work(self, level: int) -> list[Value]:
        """What a sweep must do: values to reduce and values to write; in order."""
        found = []
        for v, node in self.made.items():
            if is_reduction(node):
                source = self.use_def.root(node.inputs[0])
                if self.levels.get(source, 0) == level:
                    found.append(v)
            elif self.kinds[v] == "full" and self.levels[v] == level and (v in self.targets or self._kept(v)):
                found.append(v)
        return found

    def _sweep_of(self, node: Node) -> int:
        """The sweep in which a node reads its inputs."""
        out = node.outputs[0]
        reduces_row = is_reduction(node) and self.kinds[out] == "row"
        return self.levels[out] - (1 if reduces_row else 0)

    def _price(self, value: Value) -> int:
        """About how many instructions it takes to compute a value from memory and from what rows gave."""
        node = self.made.get(value)
        if node is None or self.kinds[value] != "full" or value in self.targets:
            return 0
        own: int = node.op.cost
        return own + sum(self._price(self.use_def.root(x)) for x in node.inputs)

    def _is_needed_later(self, value: Value, level: int) -> bool:
        users = [self.use_def.nodes[u] for u in self.use_def.users[self.use_def.producer[value]]]
        return any(n.outputs and n.outputs[0] in self.made and self._sweep_of(n) > level for n in users)
