"""Numbered rows and classes that ranks hold parts of: each does what is numbered among its own.

So are an embedding and a loss over classes shared out by the vocabulary: of a table that is cut along its
rows, a rank looks up those that it has and gives zeros for the others, which the sum over ranks fills in. A
number that is out of range stays so, and is an error as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.base.dtypes import bool_, int64
from weft.ir.graph import Node, Value
from weft.ir.types import TensorType
from weft.ops import collective as ops
from weft.ops.arithmetic import add, mul, sub
from weft.ops.compare import greater_equal, less, logical_and, not_equal
from weft.ops.factors import Factors
from weft.ops.index import scatter_add_nd
from weft.ops.select import cast, select
from weft.ops.view.primitives import broadcast_to, reshape
from weft.parallel.cuts import ranks_along

if TYPE_CHECKING:
    from weft.parallel.partition import Partition

_ELSEWHERE = -1_000_003  # the number of a class that another rank has; no one writes it


def picked_here(
    partition: Partition, node: Node, factors: Factors, axes: dict[str, str], ins: list[Value], attrs: Any
) -> Callable[[Value], Value] | None:
    """Let a node on parts do what is numbered among its own; changes ``ins`` and ``attrs``.

    Args:
        partition: that writes the node.
        node: of whole tensors.
        factors: of the node.
        axes: that each factor is cut over.
        ins: the parts of its inputs.
        attrs: of the node on parts.

    Returns:
        What makes the result of that of the node; None if it is so already.
    """
    if factors.picks is None or factors.picks[0] not in axes:
        return None
    name, at = factors.picks
    whole, part = _sizes(node, factors, name, axes, partition)
    return _Picks(partition, node, axes[name], whole, part).apply(at, ins, attrs)


def _sizes(
    node: Node, factors: Factors, name: str, axes: dict[str, str], partition: Partition
) -> tuple[int, int]:
    rows = zip((*node.inputs, *node.outputs), (*factors.inputs, *factors.outputs), strict=True)
    whole = next(s for v, row in rows for s, n in zip(v.type.shape, row, strict=True) if n == name)
    return whole, whole // ranks_along(partition.mesh, axes[name])


class _Picks:
    def __init__(self, partition: Partition, node: Node, along: str, whole: int, part: int) -> None:
        self.partition, self.node, self.along, self.whole, self.part = partition, node, along, whole, part

    def apply(self, at: int, ins: list[Value], attrs: Any) -> Callable[[Value], Value] | None:
        given = index = self._emit(cast, [ins[at]], dtype=int64)
        shape = index.type.shape
        if "ignore" not in attrs and attrs.get("from_end", True):
            back = self._emit(add, [index, self._filled(self.whole, shape)])
            index = self._emit(select, [self._emit(less, [index, self._filled(0, shape)]), back, index])
        place = self._emit(ops.axis_index, [], axis=self.along)
        start = self._spread(self._emit(mul, [place, self._number(self.part)]), shape)
        own = self._emit(sub, [index, start])
        there = self._within(own, self.part)
        known = self._within(index, self.whole)
        if "ignore" in attrs:
            ignored = self._filled(attrs["ignore"], shape)
            there = self._emit(logical_and, [there, self._emit(not_equal, [index, ignored])])
            skipped = self._emit(select, [known, self._filled(_ELSEWHERE, shape), index])
            is_ignored = self._emit(not_equal, [index, ignored])
            skipped = self._emit(select, [is_ignored, skipped, self._filled(_ELSEWHERE, shape)])
            ins[at] = self._emit(select, [there, own, skipped])
            attrs["ignore"] = _ELSEWHERE
            if "classes" in attrs:
                attrs["classes"] = self.part
            return None
        outside = self._emit(select, [known, self._filled(0, shape), given])
        ins[at] = self._emit(select, [there, own, outside])
        if self.node.op is scatter_add_nd:
            ins[1] = self._kept(there, ins[1])
            return None
        return lambda out: self._kept(there, out)

    def _within(self, index: Value, size: int) -> Value:
        shape = index.type.shape
        low = self._emit(greater_equal, [index, self._filled(0, shape)])
        return self._emit(logical_and, [low, self._emit(less, [index, self._filled(size, shape)])])

    def _kept(self, there: Value, x: Value) -> Value:
        """Rows that this rank has, and zeros."""
        shape, lead = x.type.shape, there.type.shape
        wide = self._emit(reshape, [there], shape=(*lead, *[1] * (len(shape) - len(lead))))
        mask = self._emit(broadcast_to, [wide], shape=shape)
        assert mask.type.dtype == bool_
        return self._emit(select, [mask, x, self.partition.constant(0, x.type)])

    def _number(self, number: int) -> Value:
        return self.partition.constant(number, TensorType((), int64))

    def _filled(self, number: int, shape: Any) -> Value:
        return self.partition.constant(number, TensorType(shape, int64))

    def _spread(self, x: Value, shape: Any) -> Value:
        return self._emit(broadcast_to, [x], shape=shape) if shape else x

    def _emit(self, op: Any, inputs: list[Value], **attrs: Any) -> Value:
        return self.partition.emit(op, inputs, self.node.location, **attrs)
