"""Programs that look for NaN: each node is a kernel of its own, and what it gives is looked through.

Where a result has a NaN, Python is called back with what went in and what came out, and raises the error that
the reference backend raises. Nothing is fused, so it is slow; it finds the first node, in loops and branches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.base.dtypes import bool_, kind
from weft.base.shapes import size_of
from weft.base.sizes import named_size, size_names
from weft.ir.graph import Node, Value
from weft.ir.types import TensorType
from weft.loop.ir import Block, Const, If, Leave
from weft.ops.nan import nan_error
from weft.ops.scalar import is_nan
from weft.schedule.arrays import Array
from weft.schedule.region import Scope
from weft.schedule.units import Web, is_view
from weft.schedule.writer import Kernel, unflattened


def lower_with_checks(scope: Scope, lower_node: Callable[[Scope, Node], None]) -> None:
    """Lower the nodes of a scope one by one, each followed by a look at what it gives."""
    for node in Web(scope.graph).nodes:
        with scope.writer.lowering([node]):
            if not is_view(node):
                lower_node(scope, node)
            for value in node.outputs:
                if kind(value.type.dtype) in "fc":
                    _check(scope, node, value)


def _check(scope: Scope, node: Node, value: Value) -> None:
    """Raise an error if a value has a NaN."""
    place = scope.place(value)
    found = _any_nan(scope, place) if isinstance(place, Array) else _is_nan(scope, place)
    wrong = Block()
    with scope.writer.inside(wrong, loop=False):
        given = [scope.dense(v) for v in (value, *node.inputs)]
        scope.writer.host(_report(node, value), given, [])
        scope.writer.main.add_statement(Leave())
    scope.writer.main.add_statement(If(found, wrong, Block()))


def _is_nan(scope: Scope, place: Any) -> Any:
    b = scope.writer.main
    return b.constant(np.isnan(place.value), bool_) if isinstance(place, Const) else is_nan(b, place)


def _any_nan(scope: Scope, array: Array) -> Any:
    """Whether an array has a NaN, as a scalar of the main function."""
    flag = scope.writer.temporary((), bool_, "nan")
    with scope.writer.kernel("find_nan", [array], [flag]) as k:
        _find(k)
    return scope.writer.main.load(flag.buffer, 0)


def _find(k: Kernel) -> None:
    b, (x,), (flag,) = k.builder, k.reads, k.writes
    found = b.local(False, bool_)
    lead, last = x.shape[:-1], x.shape[-1:]
    with b.loop(size_of(lead)) as r, b.vector(size_of(last)) as c:
        index = [*unflattened(b, r, lead), *([c] if last else [])]
        b.accumulate(found, "or_", is_nan(b, b.load(x.buffer, x.at(*index))))
    b.store(flag.buffer, 0, b.get(found))


# The call back


@dataclass(frozen=True)
class _Looks:
    """What stands for an op in the call back: it raises the error that names the true one."""

    name: str
    outputs: int = 0

    def eval(self, result: Any, *given: Any) -> tuple[()]:
        """Raise the error for a result that has a NaN, and the arrays that it was made of."""
        raise nan_error(self.name, result, given)


@dataclass(frozen=True)
class NanReport:
    """An entry of the table of host calls: the report of a node that gave a NaN."""

    node: Node
    op: _Looks
    inputs: tuple[TensorType, ...]
    sizes: tuple[Any, ...]
    outputs: tuple[TensorType, ...] = ()

    @property
    def attrs(self) -> dict[str, Any]:
        """None."""
        return {}


def _report(node: Node, value: Value) -> NanReport:
    types = tuple(v.type for v in (value, *node.inputs))
    names = sorted(size_names(s for t in types for s in t.shape))
    return NanReport(node, _Looks(node.op.name), types, tuple(map(named_size, names)))
