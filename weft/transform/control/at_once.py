"""Running a graph on tensors as eager code would: control flow is followed, and what runs is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.concrete import is_concrete
from weft.ir.graph import Graph
from weft.ops import control
from weft.ops.op import Op
from weft.ops.view.primitives import stack
from weft.transform.tracing import replay


def replay_at_once(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """The results of a graph, of which branches that are not taken leave nothing in the dynamic graph."""
    return replay(graph, inputs, run=_run)


def _run(op: Op, given: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any] | None:
    """The results of control flow that is followed; None for what runs as an op."""
    if op in (control.cond, control.switch):
        return _branch(given, attrs["branches"]) if is_concrete(given[0]._data) else None
    if op is control.while_loop and attrs["trips"] is None:
        return _while(given, **attrs)
    if op is control.scan and not attrs["counted"]:
        return _scan(given, **attrs)
    return None


def _branch(given: Sequence[Any], branches: Sequence[Graph]) -> list[Any]:
    index, *xs = given
    number = index.item()
    place = (0 if number else 1) if isinstance(number, bool) else min(max(number, 0), len(branches) - 1)
    return replay_at_once(branches[place], xs)


def _while(given: Sequence[Any], test: Graph, body: Graph, carries: int, **_: object) -> list[Any] | None:
    state, same = list(given[:carries]), given[carries:]
    while True:
        (goes_on,) = replay_at_once(test, [*state, *same])
        if not is_concrete(goes_on._data):
            return None
        if not goes_on.item():
            return state
        state = replay_at_once(body, [*state, *same])


def _scan(
    given: Sequence[Any], body: Graph, carries: int, mapped: int, length: Any, reverse: bool, **_: object
) -> list[Any] | None:
    state, along, same = list(given[:carries]), given[carries : carries + mapped], given[carries + mapped :]
    count = along[0].shape[0] if along else length
    if not isinstance(count, int) or (count == 0 and len(body.outputs) > carries):
        return None  # of no rows nothing tells the shape
    columns: list[list[Any]] = [[] for _ in body.outputs[carries:]]
    for i in reversed(range(count)) if reverse else range(count):
        outs = replay_at_once(body, [*state, *[x[i] for x in along], *same])
        state = outs[:carries]
        for column, out in zip(columns, outs[carries:], strict=True):
            column.append(out)
    return [*state, *[stack(c[::-1] if reverse else c) for c in columns]]
