"""Tangents of control flow: the same loop or branch, with regions that push tangents along with values.

Whatever else flows from operands to results beside values is pushed in the same way: see ``Beside``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from weft.ir.graph import Graph
from weft.ir.types import TensorType
from weft.ops import control
from weft.ops.op import Op, type_of
from weft.tensor.tensor import Tensor, wrap
from weft.transform.control.regions import (
    Values,
    active_inputs,
    reached_outputs,
    trace_closed,
    types_of,
    zeros,
)
from weft.transform.forward import Dual
from weft.transform.levels import Traced, new_level
from weft.transform.tracing import replay


class Beside:
    """What flows beside values: their tangents."""

    def put(self, level: int, primal: Tensor, beside: Tensor) -> Traced:
        """Data that stand for a value at a level, with what flows beside it."""
        return Dual(level, primal, beside)

    def take(self, level: int, tensor: Tensor) -> tuple[Tensor, Tensor | None]:
        """The value that a tensor stands for at a level, and what flows beside it, if something does."""
        data = tensor._data
        ours = isinstance(data, Dual) and data.level == level
        return (data.primal, data.tangent) if ours else (tensor, None)

    def type_of(self, t: TensorType) -> TensorType:
        """The type of what flows beside a value of some type."""
        return t

    def nothing(self, t: TensorType) -> Tensor:
        """What flows beside a value of some type that does not depend on the operands in question."""
        nothing: Tensor = zeros(t)
        return nothing

    def in_rows(self, beside: Tensor, length: object) -> Tensor:
        """What flows beside each of the rows that a scan goes along, from that beside all."""
        return beside

    def of_rows(self, beside: Tensor) -> Tensor:
        """What flows beside a stack, from that beside each of its rows."""
        return beside


TANGENTS = Beside()


def _push(
    graph: Graph, primals: Sequence[Any], given: dict[int, Any], beside: Beside
) -> tuple[list[Any], list[Any]]:
    """The outputs of a graph and what flows beside them, from the inputs and what flows beside some."""
    with new_level() as level:
        inputs = [wrap(beside.put(level, p, given[i])) if i in given else p for i, p in enumerate(primals)]
        pairs = [beside.take(level, o) for o in replay(graph, inputs)]
    pushed = [
        beside.nothing(v.type) if t is None else t for v, (_, t) in zip(graph.outputs, pairs, strict=True)
    ]
    return [v for v, _ in pairs], pushed


class _Pushed:
    """A loop with tangents: each group of its operands is followed by the tangents of those that have one.

    What flows beside values may be something else, which is called tangents here, too.

    Attributes:
        active: the inputs of the body that have tangents.
        moving: the carries among them.
        collected: the further outputs of the body that have tangents.
    """

    def __init__(self, body: Graph, carries: int, rows: int, tangents: Values, beside: Beside) -> None:
        self.body = body
        self.count = carries
        self.rows = rows
        self.beside = beside
        self.active = active_inputs(body, carries, [i for i, t in enumerate(tangents) if t is not None])
        self.moving = [i for i in range(carries) if i in self.active]
        self.collected = sorted(k for k in reached_outputs(body, self.active) if k >= carries)
        bounds = [0, carries, carries + rows, len(body.inputs)]
        self._order: list[
            tuple[int, bool]
        ] = []  # of the new operands: position, and whether it is the tangent
        for start, stop in pairwise(bounds):
            self._order += [(i, False) for i in range(start, stop)]
            self._order += [(i, True) for i in range(start, stop) if i in self.active]

    def operands(self, primals: Values, tangents: Values, length: object = None) -> list[Any]:
        """What the loop with tangents is given."""
        rows = range(self.count, self.count + self.rows)

        def tangent(i: int) -> Any:
            given = self.beside.nothing(type_of(primals[i])) if tangents[i] is None else tangents[i]
            return self.beside.in_rows(given, length) if i in rows else given

        return [tangent(i) if pushed else primals[i] for i, pushed in self._order]

    def types(self) -> list[TensorType]:
        """The types of the inputs of its regions."""
        types = types_of(self.body.inputs)
        return [self.beside.type_of(types[i]) if pushed else types[i] for i, pushed in self._order]

    def split(self, given: Sequence[Any]) -> tuple[list[Any], dict[int, Any]]:
        """The inputs of the body, and by position their tangents, among the inputs of a region."""
        pairs = list(zip(self._order, given, strict=True))
        return [x for (_, pushed), x in pairs if not pushed], {i: x for (i, pushed), x in pairs if pushed}

    def graph(self) -> Graph:
        """The body with tangents."""
        n = self.count

        def function(*given: Tensor) -> list[Any]:
            values, tangents = _push(self.body, *self.split(given), self.beside)
            moving = [tangents[i] for i in self.moving]
            return [*values[:n], *moving, *values[n:], *[tangents[k] for k in self.collected]]

        return trace_closed(function, self.types(), f"{self.body.name}_jvp")

    def values(self, outs: Sequence[Any]) -> list[Any]:
        """The outputs of the loop among those of the loop with tangents."""
        after = self.count + len(self.moving)
        return [*outs[: self.count], *outs[after : len(outs) - len(self.collected)]]

    def results(self, outs: Sequence[Any]) -> list[Any]:
        """The tangents of the outputs of the loop, None for zero, among the outputs of that with tangents."""
        found: list[Any] = [None] * len(self.body.outputs)
        stacked = outs[len(self.moving) + len(self.body.outputs) :]
        collected = [self.beside.of_rows(t) for t in stacked[: len(self.collected)]]
        for i, out in zip(
            [*self.moving, *self.collected],
            [*outs[self.count :][: len(self.moving)], *collected],
            strict=False,
        ):
            found[i] = out
        return found


def scan_jvp(primals: Values, tangents: Values, outs: object, **attrs: Any) -> list[Any]:
    """The tangents of the outputs of a scan."""
    return push_scan(primals, tangents, TANGENTS, **attrs)[1]


def push_scan(primals: Values, tangents: Values, beside: Beside, **attrs: Any) -> tuple[list[Any], list[Any]]:
    """The outputs of a scan, and what flows beside them, None for nothing."""
    first, carries, mapped = int(attrs["counted"]), attrs["carries"], attrs["mapped"]
    pushed = _Pushed(attrs["body"], carries, mapped, tangents[first:], beside)
    changed = {
        **attrs,
        "body": pushed.graph(),
        "carries": carries + len(pushed.moving),
        "mapped": mapped + sum(i in pushed.active for i in range(carries, carries + mapped)),
    }
    operands = pushed.operands(primals[first:], tangents[first:], attrs["length"])
    found: Sequence[Any] = control.scan(*primals[:first], *operands, **changed)  # type: ignore[assignment]
    return pushed.values(found), pushed.results(found)


def while_jvp(primals: Values, tangents: Values, outs: object, **attrs: Any) -> list[Any]:
    """The tangents of the outputs of a while loop."""
    return push_while(primals, tangents, TANGENTS, **attrs)[1]


def push_while(
    primals: Values, tangents: Values, beside: Beside, **attrs: Any
) -> tuple[list[Any], list[Any]]:
    """The outputs of a while loop, and what flows beside them, None for nothing."""
    pushed, test = _Pushed(attrs["body"], attrs["carries"], 0, tangents, beside), attrs["test"]
    changed = {
        **attrs,
        "test": trace_closed(lambda *given: replay(test, pushed.split(given)[0]), pushed.types(), "test"),
        "body": pushed.graph(),
        "carries": attrs["carries"] + len(pushed.moving),
    }
    operands = pushed.operands(primals, tangents)
    found: Sequence[Any] = control.while_loop(*operands, **changed)  # type: ignore[assignment]
    results = pushed.results(found)
    if attrs["trips"] is None:
        return pushed.values(found), results
    return [*pushed.values(found[:-1]), found[-1]], [*results, None]


def branch_jvp(op: Op, primals: Values, tangents: Values, branches: Sequence[Graph]) -> list[Any]:
    """The tangents of the outputs of ``cond`` or ``switch``: those of the branch that ran."""
    return push_branches(op, primals, tangents, TANGENTS, branches)[1]


def push_branches(
    op: Op,
    primals: Values,
    tangents: Values,
    beside: Beside,
    branches: Sequence[Graph],
    *,
    with_values: bool = False,
) -> tuple[list[Any], list[Any]]:
    """The outputs of ``cond`` or ``switch``, if asked for, and what flows beside them, None for nothing."""
    xs, given = primals[1:], {i: t for i, t in enumerate(tangents[1:]) if t is not None}
    reached = sorted(set[int]().union(*[reached_outputs(b, given) for b in branches]))

    def pushed(branch: Graph) -> Graph:
        def function(*items: Tensor) -> list[Any]:
            tangents = dict(zip(given, items[len(xs) :], strict=True))
            values, found = _push(branch, items[: len(xs)], tangents, beside)
            return [*(values if with_values else ()), *[found[k] for k in reached]]

        types = types_of(branch.inputs)
        return trace_closed(
            function, [*types, *[beside.type_of(types[i]) for i in given]], f"{branch.name}_jvp"
        )

    count = len(branches[0].outputs)
    found = op(primals[0], *xs, *given.values(), branches=tuple(pushed(b) for b in branches))
    values, pushed_on = (found[:count], found[count:]) if with_values else ((), found)
    tangent = dict(zip(reached, pushed_on, strict=True))
    return [*values], [tangent.get(k) for k in range(count)]
