"""Points: how one element of an op's result is computed from elements of its inputs.

Most ops have such a rule: elementwise ops by their scalar code, views by where an element comes from. A value
with a rule need not lie in memory: whoever reads it computes it at the index it wants. The rules of the ops
that move elements, or look them up, are in ``views``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from weft.base.records import dataclass
from weft.base.sizes import Size
from weft.ir.graph import Node
from weft.ir.graph import Value as GraphValue
from weft.ir.rewrite import uniform
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Const, Value
from weft.schedule.arrays import Array, Progression, reshape_index, source_index

Indices = tuple[Index, ...]
PointwiseRule = Callable[["Reader", Node, Indices, Value | None], Value]

POINTWISE: dict[str, PointwiseRule] = {}
_SUITS: dict[str, Callable[[Node], bool]] = {}
_MODULES = (
    "weft.schedule.pointwise.views",
    "weft.schedule.pointwise.random",
    "weft.schedule.pointwise.windows",
)
ZERO = Index.of(0)


def pointwise(
    *names: str, where: Callable[[Node], bool] | None = None
) -> Callable[[PointwiseRule], PointwiseRule]:
    """Enter the point rule of ops: ``rule(reader, node, index, mask) -> scalar``, for nodes that it suits.

    The index has a term for each axis of the (first) output. Where a mask is given and false, the result is
    not used, and nothing may be read from memory: the rule passes the mask on to what it reads.
    """

    def enter(rule: PointwiseRule) -> PointwiseRule:
        for name in names:
            POINTWISE[name] = rule
            if where is not None:
                _SUITS[name] = where
        return rule

    return enter


def has_pointwise_rule(node: Node) -> bool:
    """Whether an element of a node's result can be computed by itself."""
    _load_rules()
    if node.op.name not in POINTWISE:
        return node.op.scalar is not None or node.op.view is not None
    suits = _SUITS.get(node.op.name)
    return suits is None or suits(node)


@cache
def _load_rules() -> None:
    for module in _MODULES:
        import_module(module)


@dataclass(eq=False, slots=True)
class Reader:
    """Reads elements of graph values inside a kernel: from memory, or by computing them.

    Attributes:
        builder: of the kernel.
        sources: by value, the array it lies in, or the scalar it is.
        nodes: by value, the node to compute it by where it is in no array.
        number: of the failure of a node, of a kind; None where none can be told.
    """

    builder: Builder
    sources: Mapping[GraphValue, Any]
    nodes: Mapping[GraphValue, Node]
    number: Callable[[Node, Any], int] | None = None

    def read(self, value: GraphValue, index: Indices, mask: Value | None = None) -> Value:
        """The element of a value at an index; computed once for each index in a block."""
        if isinstance(mask, Const):
            if not mask.value:
                return Const(np.zeros((), value.type.dtype)[()], value.type.dtype)
            mask = None
        key = ("read", id(value), tuple([i.key for i in index]), None if mask is None else id(mask))
        found = self.builder.recall(key)
        if found is None:
            found = self._find(value, index, mask)
            self.builder.remember(key, found)
        return found

    def _find(self, value: GraphValue, index: Indices, mask: Value | None) -> Value:
        source = self.sources.get(value)
        if source is None:
            node = self.nodes[value]
            if node.op.scalar is not None:
                return self.elementwise(node, index, mask)
            if node.op.view is not None:
                return self.view(node, index, mask)
            return POINTWISE[node.op.name](self, node, index, mask)
        if isinstance(source, Array):
            return self.builder.load(source.buffer, source.at(*index), mask)
        if isinstance(source, Progression):
            return source.element(self.builder, index[0])  # type: ignore[no-any-return]
        return source  # type: ignore[no-any-return]

    def view(self, node: Node, index: Indices, mask: Value | None) -> Value:
        """By where the element comes from."""
        (x,), shape = node.inputs, node.inputs[0].type.shape
        if node.op.view == "flat":
            return self.read(x, reshape_index(self.builder, index, node.outputs[0].type.shape, shape), mask)
        places = source_index(node, index)
        return self.read(x, broadcast_index(tuple(places), shape), mask)

    def elementwise(self, node: Node, index: Indices, mask: Value | None) -> Value:
        """By the op's scalar code, on the elements of the inputs, which broadcast."""
        args = [self.read(v, broadcast_index(index, v.type.shape), mask) for v in node.inputs]
        out = node.op.scalar(self.builder, *args, **node.attrs)
        dtype = node.outputs[0].type.dtype
        return out if hasattr(out, "dtype") else self.builder.constant(out, dtype)

    def fail(self, node: Node, condition: Value, kind: Any, *values: Any) -> None:
        """Note a failure of a node where a condition holds; values are int64."""
        assert self.number is not None, f"{node.op.name} can fail, and nobody says how it is told"
        self.builder.fail(condition, self.number(node, kind), *values)


def broadcast_index(index: Indices, shape: tuple[Any, ...]) -> Indices:
    """The index into an input that broadcasts to a result, where the result has this index."""
    own = index[len(index) - len(shape) :]
    return tuple(ZERO if not isinstance(s, Size) and s == 1 else i for i, s in zip(own, shape, strict=True))


def as_constant(array: Any) -> Const | None:
    """A constant of the graph as a number in code, if one number fills it."""
    number = uniform(array)
    return None if number is None else Const(number, array.dtype)
