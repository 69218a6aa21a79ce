"""Carries that a loop collects: each iteration writes the next one where it will be collected.

The gradient of a loop keeps what each iteration began with. Those arrays are one row after another, with a
row more than the loop has iterations: an iteration reads a row and writes the next, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.ir.graph import Node, Value
from weft.loop.index import Index
from weft.schedule.arrays import Array
from weft.schedule.region import Scope

SMALL = 64  # elements of an array that is rather copied than read from memory in each iteration


class History(NamedTuple):
    """An array that a loop carries, before each iteration and after the last.

    Attributes:
        rows: all of them, in order, or from the last to the first where the loop goes backward.
        length: the number of iterations.
        reverse: whether the loop goes backward.
    """

    rows: Array
    length: Any
    reverse: bool

    @property
    def first(self) -> Array:
        """What the loop begins with."""
        return self.rows.row(self.length if self.reverse else 0)

    @property
    def last(self) -> Array:
        """What the loop ends with."""
        return self.rows.row(0 if self.reverse else self.length)

    @property
    def stack(self) -> Array:
        """What each iteration begins with, at the place of its row."""
        rows = self.rows
        offset = rows.row(1).offset if self.reverse else rows.offset
        return Array(rows.buffer, (self.length, *rows.shape[1:]), rows.strides, offset)

    def before(self, row: Index) -> Array:
        """What the iteration of a row begins with."""
        return self.stack.row(row)

    def after(self, row: Index) -> Array:
        """What the iteration of a row ends with."""
        return self.rows.row(row if self.reverse else row + 1)


def find_histories(scope: Scope, node: Node, inits: Sequence[Value]) -> dict[int, History]:
    """By the number of a stack that a scan gives, the history of the carry that is collected in it."""
    attrs = node.attrs
    body, length, count = attrs["body"], attrs["length"], attrs["carries"]
    if attrs["counted"]:
        return {}
    carried = dict(zip(body.inputs[:count], inits, strict=True))
    found: dict[int, History] = {}
    for k, value in enumerate(body.outputs[count:]):
        stack = node.outputs[count + k]
        is_free = stack not in scope.wanted and stack not in scope.layouts
        if is_free and value in carried and not _is_small(value):
            del carried[value]  # once is enough
            rows = scope.writer.temporary((length + 1, *value.type.shape), value.type.dtype)
            held = scope.writer.origins.buffers
            held[rows.buffer] = held[rows.buffer]._replace(value=stack)
            found[k] = History(rows, length, attrs["reverse"])
            scope.places[stack] = found[k].stack
    return found


def _is_small(value: Value) -> bool:
    size = size_of(value.type.shape)
    return not isinstance(size, Size) and size < SMALL
