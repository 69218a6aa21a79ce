"""Programs that look for NaN: each node is a kernel of its own, and what it gives is looked through.

Where a result is wrong, Python is called back with what went in and what came out, and raises the error that
the reference backend raises. Nothing is fused, so it is slow; it finds the first node, in loops and branches.
Infinities are wrong, if they are looked for, where all that went in is finite: that is looked at as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.dtypes import bool_, kind
from weft.base.records import dataclass
from weft.base.shapes import size_of
from weft.base.sizes import named_size, size_names
from weft.ir.graph import Node, Value
from weft.ir.types import TensorType
from weft.loop.ir import Block, Const, If, Leave
from weft.ops.nan import ALL, asks_for_infinity, non_finite_error
from weft.ops.scalar import ScalarEmitter, is_nan
from weft.schedule.arrays import Array
from weft.schedule.region import Scope
from weft.schedule.use_def import UseDef, is_view
from weft.schedule.writer import Kernel, unflattened

Test = Callable[[ScalarEmitter[Any], Any], Any]


def lower_with_checks(scope: Scope, lower_node: Callable[[Scope, Node], None]) -> None:
    """Lower the nodes of a scope one by one, each followed by a look at what it gives."""
    for node in UseDef(scope.graph).nodes:
        with scope.writer.lowering([node]):
            if not is_view(node):
                lower_node(scope, node)
            for value in node.outputs:
                if kind(value.type.dtype) in "fc":
                    _check(scope, node, value)


def _check(scope: Scope, node: Node, value: Value) -> None:
    """Raise an error if a value has a NaN, or an infinity where one is looked for."""
    found = _has(scope, value, is_nan)
    if scope.writer.check_nan == ALL and not asks_for_infinity(node.attrs):
        found = scope.writer.main.or_(found, _overflows(scope, node, value))
    wrong = Block()
    with scope.writer.inside(wrong, loop=False):
        given = [scope.dense(v) for v in (value, *node.inputs)]
        scope.writer.host(_report(node, value, scope.writer.check_nan), given, [])
        scope.writer.main.add_statement(Leave())
    scope.writer.main.add_statement(If(found, wrong, Block()))


def _overflows(scope: Scope, node: Node, value: Value) -> Any:
    """Whether a value has elements that are not finite though all that it was made of is."""
    b = scope.writer.main
    given = b.constant(False, bool_)
    for v in dict.fromkeys(node.inputs):
        if kind(v.type.dtype) in "fc":
            given = b.or_(given, _has(scope, v, _is_not_finite))
    return b.and_(_has(scope, value, _is_not_finite), b.not_(given))


def _is_not_finite(e: ScalarEmitter[Any], x: Any) -> Any:
    return is_nan(e, e.sub(x, x))  # infinity less infinity is NaN


def _has(scope: Scope, value: Value, test: Test) -> Any:
    """Whether a test holds for an element of a value, as a scalar of the main function."""
    place, b = scope.place(value), scope.writer.main
    if not isinstance(place, Array):
        return test(b, b.constant(place.value, value.type.dtype) if isinstance(place, Const) else place)
    flag = scope.writer.temporary((), bool_, "found")
    with scope.writer.kernel(test.__name__.strip("_"), [place], [flag]) as k:
        _find(k, test)
    return b.load(flag.buffer, 0)


def _find(k: Kernel, test: Test) -> None:
    b, (x,), (flag,) = k.builder, k.reads, k.writes
    found = b.local(False, bool_)
    lead, last = x.shape[:-1], x.shape[-1:]
    with b.loop(size_of(lead)) as r, b.vector(size_of(last)) as c:
        index = [*unflattened(b, r, lead), *([c] if last else [])]
        b.accumulate(found, "or_", test(b, b.load(x.buffer, x.at(*index))))
    b.store(flag.buffer, 0, b.get(found))


# The call back


@dataclass(frozen=True)
class _Looks:
    """What stands for an op in the call back: it raises the error that names the true one."""

    name: str
    check: Any
    outputs: int = 0
    into: None = None

    def eval(self, result: Any, *given: Any) -> tuple[()]:
        """Raise the error for a result that is wrong, and the arrays that it was made of."""
        raise non_finite_error(self.name, result, given, {}, self.check) or AssertionError(self.name)


@dataclass(frozen=True)
class NanReport:
    """An entry of the table of host calls: the report of a node that gave a NaN."""

    node: Node
    op: _Looks
    inputs: tuple[TensorType, ...]
    sizes: tuple[Any, ...]
    outputs: tuple[TensorType, ...] = ()
    library: bool = False

    @property
    def attrs(self) -> dict[str, Any]:
        """None."""
        return {}


def _report(node: Node, value: Value, check: Any) -> NanReport:
    types = tuple(v.type for v in (value, *node.inputs))
    names = sorted(size_names(s for t in types for s in t.shape))
    return NanReport(node, _Looks(node.op.name, check), types, tuple(map(named_size, names)))
