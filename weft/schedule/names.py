"""Which named sizes the statements of a block need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

from weft.base.sizes import Size
from weft.loop.index import Index
from weft.loop.ir import Block, Buffer, Function


def names_in_block(block: Block, buffers: Iterable[Buffer] = ()) -> set[str]:
    """The names of sizes in extents, strides and offsets of all statements, and in the sizes of buffers."""
    collector = _Collector()
    for buffer in buffers:
        collector.visit(buffer.size)
    for statement in block.statements:
        collector.visit(statement)
    return collector.found


class _Collector:
    """Collects names; what was visited is not visited again, for scalars are shared."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._seen: set[int] = set()

    def visit(self, x: Any) -> None:
        if isinstance(x, Size):
            self.found |= x.names()
        elif isinstance(x, Index):
            self._visit_index(x)
        elif isinstance(x, Function):
            self.found.update(x.sizes)
        elif isinstance(x, Block):
            for statement in x.statements:
                self.visit(statement)
        elif isinstance(x, tuple):
            for item in x:
                self.visit(item)
        elif is_dataclass(x) and not isinstance(x, type) and id(x) not in self._seen:
            self._seen.add(id(x))
            for field in fields(x):
                self.visit(getattr(x, field.name))

    def _visit_index(self, index: Index) -> None:
        self.visit(index.offset)
        for variable, stride in index.terms.items():
            self.visit(stride)
            self.visit(variable.stop)
            if variable.value is not None:
                self.visit(variable.value)
