"""Batching of control flow: a predicate that all examples share stays one, else it becomes a mask.

Where examples differ, all of them run. One that does not take a branch, or whose loop has ended, runs on the
operands of one that does, so that nothing is computed where the program would not have: no NaN arises in
values or in gradients, and a loop ends when the last example's does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import bool_, int64, kind
from weft.ir.graph import Graph
from weft.ir.types import TensorType
from weft.ops import control
from weft.ops.batching import move_axis, to_front
from weft.ops.compare import logical_not
from weft.ops.op import Op, type_of
from weft.ops.select import select
from weft.ops.stop import stop_gradient
from weft.ops.view.primitives import broadcast_to, concat, reshape
from weft.tensor.tensor import Tensor, wrap
from weft.transform.batch import Batched
from weft.transform.control.regions import trace_closed, types_of, zeros
from weft.transform.levels import new_level
from weft.transform.tracing import replay

Flags = Sequence[bool]
Axes = Sequence[int | None]
Result = tuple[tuple[Any, ...], tuple[int | None, ...]]


class _BatchedGraph:
    """A graph of a batch of examples.

    Attributes:
        graph: the graph; what is batched has the examples along the first axis.
        flags: for each output, whether it is batched.
    """

    def __init__(self, graph: Graph, batched: Flags, size: int, force: Collection[int] = ()) -> None:
        self.flags: list[bool] = []

        def function(*given: Tensor) -> list[Tensor]:
            with new_level() as level:
                inputs = [wrap(Batched(level, x, 0)) if b else x for x, b in zip(given, batched, strict=True)]
                outs = [_example_first(level, o) for o in replay(graph, inputs)]
            self.flags = [b or k in force for k, (_, b) in enumerate(outs)]
            return [o if b or k not in force else to_front(o, None, size) for k, (o, b) in enumerate(outs)]

        types = [
            batch_type(v.type, size) if b else v.type for v, b in zip(graph.inputs, batched, strict=True)
        ]
        self.graph = trace_closed(function, types, graph.name)


def batch_type(t: TensorType, size: int) -> TensorType:
    """The type of a batch of values of a type."""
    return TensorType((size, *t.shape), t.dtype)


def _example_first(level: int, out: Tensor) -> tuple[Any, bool]:
    data = out._data
    if type(data) is Batched and data.level == level:
        return move_axis(data.value, data.axis, 0), True
    return out, False


def _result(outs: Sequence[Any], axes: Axes, size: int) -> Result:
    """Outputs with their axes; one that is not batched is repeated if it hangs in a graph."""
    alone = [a is None and o._node is not None for o, a in zip(outs, axes, strict=True)]
    values = [to_front(o, None, size) if one else o for o, one in zip(outs, alone, strict=True)]
    return tuple(values), tuple(0 if one else a for a, one in zip(axes, alone, strict=True))


# Masks


def _mask_like(mask: Any, x: Any) -> Any:
    """A truth value of each example, ready to be broadcast with what has the examples first."""
    return reshape(mask, shape=(*mask.shape, *[1] * (x.ndim - 1))) if x.ndim > 1 else mask


def _choose(mask: object, x: object, y: object) -> Any:
    return select(_mask_like(mask, x), x, y)


def _borrowed(mask: Any, values: Sequence[Any], batched: Flags) -> list[Any]:
    """Values in which examples outside the mask have what the first one inside has, as constants."""
    if mask.shape[0] == 0:
        return list(values)
    first = mask.astype(int64).argmax(axis=0)
    out = []
    for x, b in zip(values, batched, strict=True):
        if b:
            other = x[first]
            other = stop_gradient(other) if kind(other.dtype) in "fc" else other
            x = _choose(mask, x, other)
        out.append(x)
    return out


# Branches


def branch_batch(op: Op, size: int, values: Sequence[Tensor], axes: Axes, attrs: dict[str, Any]) -> Result:
    """``cond``, ``switch``: one branch if examples share the predicate, else each that some example takes."""
    branches = attrs["branches"]
    xs = [v if a is None else move_axis(v, a, 0) for v, a in zip(values[1:], axes[1:], strict=True)]
    batched = [a is not None for a in axes[1:]]
    if axes[0] is not None:
        return _all_branches(op, size, move_axis(values[0], axes[0], 0), xs, batched, branches)
    flags = [any(fs) for fs in zip(*[_BatchedGraph(b, batched, size).flags for b in branches], strict=True)]
    force = {k for k, flag in enumerate(flags) if flag}
    new = tuple(_BatchedGraph(b, batched, size, force).graph for b in branches)
    outs = op.on_tensors(values[0], *xs, branches=new)
    return _result(outs, [0 if flag else None for flag in flags], size)


def _all_branches(
    op: Op, size: int, index: object, xs: Sequence[Any], batched: Flags, branches: Sequence[Graph]
) -> Result:
    outs: list[Any] = []
    for i, branch in enumerate(branches):
        mask = _takes(op, index, i, len(branches))
        found = _guarded(mask, size, xs, batched, branch)
        outs = [_choose(mask, new, old) for new, old in zip(found, outs, strict=True)] if outs else found
    return tuple(outs), (0,) * len(outs)


def _takes(op: Op, index: Any, i: int, count: int) -> Any:
    """Which examples take branch i."""
    if op is control.cond:
        return logical_not(index) if i else index
    if i == 0:
        return index <= 0
    return index >= i if i == count - 1 else index == i


def _guarded(mask: Any, size: int, xs: Sequence[Any], batched: Flags, branch: Graph) -> list[Any]:
    """What a branch gives for the examples that take it; it does not run if there are none."""
    body = _BatchedGraph(branch, batched, size, range(len(branch.outputs))).graph

    def taken(mask: object, *given: object) -> list[Any]:
        return replay(body, _borrowed(mask, given, batched))

    def skipped(*given: object) -> list[Any]:
        return [zeros(v.type) for v in body.outputs]

    types = [type_of(mask), *types_of(body.inputs)]
    regions = (trace_closed(taken, types, branch.name), trace_closed(skipped, types, "skipped"))
    return list(control.cond.on_tensors(mask.any(), mask, *xs, branches=regions))


# Loops


def _batched_body(
    body: Graph, carries: int, batched: list[bool], size: int, *, all_carries: bool, rest: bool = False
) -> _BatchedGraph:
    """The body of a loop for a batch, where each carry that becomes batched is batched from the start on.

    ``batched`` is changed to tell which inputs are. With ``rest`` what is collected is batched in any case.
    """
    if all_carries:
        batched[:carries] = [True] * carries
    others = set(range(carries, len(body.outputs))) if rest else set()
    while True:
        force = {i for i in range(carries) if batched[i]} | others
        out = _BatchedGraph(body, batched, size, force)
        new = [i for i in range(carries) if out.flags[i] and not batched[i]]
        if not new:
            return out
        for i in new:
            batched[i] = True


def _start(values: Sequence[Any], axes: Axes, batched: Flags, size: int) -> list[Any]:
    """Carries and fixed operands with the examples first where they are batched."""
    return [to_front(v, a, size) if b else v for v, a, b in zip(values, axes, batched, strict=True)]


def scan_batch(op: Op, size: int, values: Sequence[Tensor], axes: Axes, attrs: dict[str, Any]) -> Result:
    """``scan``: the same loop on batches; a number of rows of each example's own becomes a mask."""
    counted, n, mapped = int(attrs["counted"]), attrs["carries"], attrs["mapped"]
    steps, operands, where = values[:counted], values[counted:], axes[counted:]
    batched = [a is not None for a in where]
    masked = bool(counted) and axes[0] is not None
    body = _batched_body(attrs["body"], n, batched, size, all_carries=masked, rest=masked)
    rows = range(n, n + mapped)
    given = _start(operands, where, batched, size)
    for i in rows:
        given[i] = operands[i] if where[i] is None else move_axis(operands[i], where[i] or 0, 1)
    if masked:
        outs = _masked_scan(steps[0], body.graph, given, batched, size, attrs)
    else:
        outs = op.on_tensors(*steps, *given, **{**attrs, "body": body.graph})
    placed = [(0 if k < n else 1) if flag else None for k, flag in enumerate(body.flags)]
    return _result(outs, placed, size)


def _masked_scan(
    steps: Any, body: Graph, given: Sequence[Any], batched: Flags, size: int, attrs: dict[str, Any]
) -> Sequence[Any]:
    """A scan in which each example takes part in the rows it has."""
    n, length = attrs["carries"], attrs["length"]
    ones = broadcast_to.on_tensors(wrap(np.ones((), np.int64)), shape=(length,))
    numbers = reshape(ones.cumsum(axis=0) - 1, shape=(length, 1))
    running = numbers < reshape(steps, shape=(1, size))

    def function(*items: object) -> list[Any]:
        carry, mask, rest = items[:n], items[n], items[n + 1 :]
        outs = replay(body, _borrowed(mask, [*carry, *rest], batched))
        kept = [_choose(mask, new, old) for new, old in zip(outs, carry, strict=False)]
        return [*kept, *[_choose(mask, y, zeros(type_of(y))) for y in outs[n:]]]

    types = types_of(body.inputs)
    masked = trace_closed(function, [*types[:n], TensorType((size,), bool_), *types[n:]], body.name)
    changed = {**attrs, "body": masked, "mapped": attrs["mapped"] + 1}
    most = concat((wrap(np.zeros(1, steps.dtype)), steps), axis=0).max()  # 0 for no examples
    outs: Sequence[Any] = control.scan.on_tensors(most, *given[:n], running, *given[n:], **changed)
    return outs


def while_batch(op: Op, size: int, values: Sequence[Tensor], axes: Axes, attrs: dict[str, Any]) -> Result:
    """``while_loop``: the same loop on batches; a predicate of each example's own becomes a mask."""
    n, test, trips = attrs["carries"], attrs["test"], attrs["trips"]
    batched = [a is not None for a in axes]
    body = _batched_body(attrs["body"], n, batched, size, all_carries=False)
    tested = _BatchedGraph(test, batched, size)
    if tested.flags[0]:
        body = _batched_body(attrs["body"], n, batched, size, all_carries=True, rest=True)
        tested = _BatchedGraph(test, batched, size)
        given = _start(values, axes, batched, size)
        outs = _masked_while(tested.graph, body.graph, given, batched, size, attrs)
    else:
        given = _start(values, axes, batched, size)
        outs = op.on_tensors(*given, **{**attrs, "test": tested.graph, "body": body.graph})
    placed = [(0 if k < n else 1) if flag else None for k, flag in enumerate(body.flags)]
    if trips is not None:
        placed.append(0 if tested.flags[0] else None)
    return _result(outs, placed, size)


def _masked_while(
    test: Graph, body: Graph, given: Sequence[Any], batched: Flags, size: int, attrs: dict[str, Any]
) -> Sequence[Any]:
    """A loop that runs until no example goes on; one that does not keeps its carries.

    Two more carries tell which examples still run, and how many iterations each has had.
    """
    n = attrs["carries"]
    (going,) = replay(test, given)
    count = broadcast_to.on_tensors(wrap(np.zeros((), np.int64)), shape=(size,))

    def function(*items: object) -> list[Any]:
        carry, mask, counts, fixed = items[:n], items[n], items[n + 1], items[n + 2 :]
        safe = _borrowed(mask, [*carry, *fixed], batched)
        outs = replay(body, safe)
        kept = [_choose(mask, new, old) for new, old in zip(outs, carry, strict=False)]
        (still,) = replay(test, [*outs[:n], *safe[n:]])
        return [*kept, mask & still, counts + mask.astype(int64), *outs[n:]]

    types = types_of(body.inputs)
    more = [TensorType((size,), bool_), TensorType((size,), int64)]
    inner = [*types[:n], *more, *types[n:]]
    changed = {
        **attrs,
        "test": trace_closed(lambda *items: [items[n].any()], inner, "test"),
        "body": trace_closed(function, inner, body.name),
        "carries": n + 2,
    }
    outs = control.while_loop.on_tensors(*given[:n], going, count, *given[n:], **changed)
    if attrs["trips"] is None:
        return outs[:n]  # type: ignore[no-any-return]
    return [*outs[:n], *outs[n + 2 : -1], outs[n + 1]]
