"""On which ways of a run a gradient reaches what control flow was given.

A parameter that one branch alone uses gets a gradient only where that branch runs; one that only the body of
a loop uses, only where there is a turn. The way back gives zeros elsewhere, which an optimizer must not take
for a gradient. So a truth value is found for each operand: whether some result that a gradient came to was
computed from it, in this run. What the graphs tell by themselves is found first. Where a test decides that
stands outside, it is the truth; else marks of the operands are pushed along with the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import bool_, int64, kind
from weft.ir.graph import Graph, Node
from weft.ir.types import TensorType
from weft.ops import compare, control
from weft.ops.call import call
from weft.ops.op import NoGradient, Op
from weft.ops.size import size_value
from weft.ops.stop import when_chosen
from weft.ops.view.primitives import broadcast_to
from weft.tensor.choices import Truth, both, either, negation
from weft.tensor.dispatch import apply, captured_constant, wrap
from weft.tensor.tensor import Tensor
from weft.transform.control.forward import Beside, push_branches, push_scan, push_while
from weft.transform.control.regions import has_partial, is_smooth
from weft.transform.forward import Dual
from weft.transform.levels import Traced
from weft.transform.tracing import replay

Way = bool | None  # whether a result is computed from an operand; None where only a run tells
Row = dict[int, Way]  # of one result, by operand; False for those that are left out
_MOST_TURNS = 64  # that are followed one by one where carries go on being exchanged


def branch_ways(
    op: Op,
    seeds: Sequence[Truth],
    index: Tensor,
    xs: Sequence[Tensor],
    branches: Sequence[Graph],
    needed: Sequence[bool],
) -> list[Truth]:
    """Whether a gradient reaches the operands of ``cond`` or ``switch``, from whether one came to results."""
    tables = [_rows(branch) for branch in branches]
    asked = _Asked(_agreed(tables), seeds, needed[1:])

    def told(pairs: Sequence[tuple[int, int]]) -> list[Truth]:
        if all(table[k].get(i, False) is not None for table in tables for k, i in pairs):
            return [_of_branches(index, [bool(t[k].get(i)) for t in tables]) for k, i in pairs]
        given = [index, *xs]
        return _marked(
            pairs, lambda marks, beside: push_branches(op, given, marks, beside, branches), given, 1
        )

    return [False, *asked.truths(told)]


def while_ways(
    seeds: Sequence[Truth],
    xs: Sequence[Tensor],
    test: Graph,
    body: Graph,
    carries: int,
    trips: object,
    needed: Sequence[bool],
) -> list[Truth]:
    """Likewise for the operands of a while loop."""
    turns = _turns(body, carries, None)
    asked = _Asked(_agreed(turns), seeds, needed)

    def told(pairs: Sequence[tuple[int, int]]) -> list[Truth]:
        if (found := _by_first_turn(turns, pairs)) is not None:
            ran = replay(test, xs)[0]
            return [_chosen(ran, *ways) for ways in found]
        attrs: dict[str, Any] = {"test": test, "body": body, "carries": carries, "trips": trips}
        attrs["checkpoint_every"] = None
        return _marked(pairs, lambda marks, beside: push_while(xs, marks, beside, **attrs), xs, 0)

    return asked.truths(told)


def scan_ways(
    seeds: Sequence[Truth],
    xs: Sequence[Tensor],
    body: Graph,
    carries: int,
    mapped: int,
    length: Any,
    reverse: bool,
    counted: bool,
    needed: Sequence[bool],
) -> list[Truth]:
    """Likewise for the operands of a scan."""
    first, known = int(counted), length if isinstance(length, int) and not counted else None
    turns = _turns(body, carries, known)
    asked = _Asked(turns[-1] if known is not None else _agreed(turns), seeds, needed[first:])

    def told(pairs: Sequence[tuple[int, int]]) -> list[Truth]:
        if known is None and (found := _by_first_turn(turns, pairs)) is not None:
            count: Any = xs[0] if first else wrap(size_value(length, int64)._data)
            return [_chosen(count > 0, *ways) for ways in found]
        attrs: dict[str, Any] = {"body": body, "carries": carries, "mapped": mapped, "length": length}
        attrs |= {"reverse": reverse, "counted": counted, "checkpoint_every": None}
        return _marked(pairs, lambda marks, beside: push_scan(xs, marks, beside, **attrs), xs, first)

    return [*[False] * first, *asked.truths(told)]


class _Asked:
    """What is to be found: whether a gradient reaches operands by the results that one came to."""

    def __init__(self, rows: Sequence[Row], seeds: Sequence[Truth], needed: Sequence[bool]) -> None:
        self._rows = rows
        self._seeds = [(k, seed) for k, seed in enumerate(seeds) if seed is not False and k < len(rows)]
        self._needed = needed

    def truths(self, told: Callable[[list[tuple[int, int]]], list[Truth]]) -> list[Truth]:
        """The truth of each operand; ``told`` gives those of pairs of a result and an operand."""
        out: list[Truth] = []
        unsure: list[tuple[int, int]] = []
        for i, needed in enumerate(self._needed):
            ways = [(k, seed, self._rows[k].get(i, False)) for k, seed in self._seeds] if needed else []
            truth: Truth = False
            for _, seed, way in ways:
                truth = either(truth, seed) if way else truth
            out.append(truth)
            if truth is not True:
                unsure += [(k, i) for k, _, way in ways if way is None]
        seeds = dict(self._seeds)
        for (k, i), truth in zip(unsure, told(unsure) if unsure else (), strict=True):
            out[i] = either(out[i], both(seeds[k], truth))
        return out


# What graphs tell by themselves


def _rows(graph: Graph) -> list[Row]:
    """Which inputs of a graph each output is computed from."""
    return [_row(graph, k) for k in range(len(graph.outputs))]


def _row(graph: Graph, k: int) -> Row:
    behind: dict[Any, Way] = {graph.outputs[k]: True} if is_smooth(graph.outputs[k]) else {}
    for node in reversed(graph.nodes) if behind else ():
        outs = {j: behind[v] for j, v in enumerate(node.outputs) if v in behind}
        if not outs:
            continue
        for i, way in _behind_node(node, outs).items():
            value = node.inputs[i]
            if is_smooth(value) and way is not False:
                behind[value] = way if behind.get(value, False) is False else _or(behind[value], way)
    return {i: behind[v] for i, v in enumerate(graph.inputs) if v in behind}


def _behind_node(node: Node, outs: Row) -> Row:
    """The inputs of a node that some of its outputs are computed from."""
    if node.op in _CONTROL or node.op is call:
        first, rows = _rows_of_control(node)
        found: Row = {}
        for k, way in outs.items():
            for i, inner in rows[k].items() if k < len(rows) else ():
                found[i + first] = _or(found.get(i + first, False), _and(way, inner))
        return found
    if isinstance(node.op.vjp, NoGradient):
        return {}
    way = True if any(outs.values()) and node.op is not when_chosen else None
    return {i: way for i in range(len(node.inputs)) if has_partial(node.op, i)}


def _rows_of_control(node: Node) -> tuple[int, list[Row]]:
    """Which operands each result of control flow is computed from, and the place where these begin."""
    attrs = node.attrs
    if node.op is call:
        return 0, _rows(attrs["body"])
    if node.op in (control.cond, control.switch):
        return 1, _agreed([_rows(b) for b in attrs["branches"]])
    if node.op is control.while_loop:
        return 0, _agreed(_turns(attrs["body"], attrs["carries"], None))
    known = attrs["length"] if isinstance(attrs["length"], int) and not attrs["counted"] else None
    turns = _turns(attrs["body"], attrs["carries"], known)
    return int(attrs["counted"]), turns[-1] if known is not None else _agreed(turns)


_CONTROL = (control.cond, control.switch, control.scan, control.while_loop)


def _turns(body: Graph, carries: int, count: int | None) -> list[list[Row]]:
    """Which operands the results of a loop are computed from after no turn, one, two, ... up to a count.

    It ends where another turn changes nothing.
    """
    one = _rows(body)
    now: list[Row] = [{k: True} if is_smooth(body.inputs[k]) else {} for k in range(carries)]
    gathered: list[Row] = [{} for _ in range(carries, len(one))]
    turns = [[*now, *gathered]]
    while count is None or len(turns) <= count:
        if len(turns) > _MOST_TURNS:
            everything = _agreed(turns)
            return [everything] if count is not None else [*turns, everything]
        gathered = [
            _merged(old, _after(row, now, carries))
            for old, row in zip(gathered, one[carries:], strict=True)
        ]  # of the turn that comes now, whose carries are those of before
        now = [_after(row, now, carries) for row in one[:carries]]
        turns.append([*now, *gathered])
        if turns[-1] == turns[-2]:
            break
    return turns


def _after(row: Row, before: Sequence[Row], carries: int) -> Row:
    """What a value of a turn is computed from, by what the carries were that came into it."""
    out: Row = {i: way for i, way in row.items() if i >= carries}
    for c, way in row.items():
        if c < carries:
            out = _merged(out, {i: _and(way, inner) for i, inner in before[c].items()})
    return out


def _merged(a: Row, b: Row) -> Row:
    return {i: _or(a.get(i, False), b.get(i, False)) for i in {**a, **b}}


def _or(a: Way, b: Way) -> Way:
    return True if a or b else None if a is None or b is None else False


def _and(a: Way, b: Way) -> Way:
    return False if a is False or b is False else None if a is None or b is None else True


def _agreed(tables: Sequence[Sequence[Row]]) -> list[Row]:
    """What holds on whichever way: None where ways differ."""
    out = []
    for rows in zip(*tables, strict=True):
        found: Row = {}
        for i in set().union(*rows):
            ways = {row.get(i, False) for row in rows}
            found[i] = ways.pop() if len(ways) == 1 else None
        out.append(found)
    return out


# What a run tells


def _by_first_turn(
    turns: Sequence[Sequence[Row]], pairs: Sequence[tuple[int, int]]
) -> list[tuple[bool, bool]] | None:
    """For pairs of a result and an operand, the way with a turn or more and that without; None if unknown."""
    if len(turns) > 3 or (len(turns) == 3 and turns[1] != turns[2]):
        return None
    found = [(turns[-1][k].get(i, False), turns[0][k].get(i, False)) for k, i in pairs]
    if any(None in ways for ways in found):
        return None
    return [(bool(a), bool(b)) for a, b in found]


def _chosen(test: Truth, here: bool, there: bool) -> Truth:
    if here is there:
        return here
    return test if here else negation(test)


def _of_branches(index: Any, ways: Sequence[bool]) -> Truth:
    """Whether the branch that runs is one of some."""
    if index.dtype == bool_:
        return _chosen(index, *ways)
    truth: Truth = False
    for b, way in enumerate(ways):
        is_it = index <= 0 if b == 0 else index >= b if b == len(ways) - 1 else index == b
        truth = either(truth, is_it) if way else truth
    return truth


class Marked(Dual):
    """A value, and of which operands it was computed: a truth value for each (None stands for none)."""

    __slots__ = ()

    def interpret(self, op: Op, inputs: Sequence[Tensor], attrs: dict[str, Any]) -> tuple[Any, ...]:
        """Run op on the values, and join their marks."""
        level = self.level
        pairs = [_MARKS.take(level, t) for t in inputs]
        primals, marks = [p for p, _ in pairs], [m for _, m in pairs]
        result = apply(op, primals, attrs)
        outs = result if op.outputs != 1 else (result,)
        beside = Marks(next(m.shape[0] for m in marks if m is not None))
        pushed = _push(op, primals, marks, beside, attrs, len(outs))
        return tuple(
            Marked(level, o, m) if m is not None and kind(o.dtype) in "fc" else o._data
            for o, m in zip(outs, pushed, strict=True)
        )

    def lift(self, constant: Tensor) -> Tensor:
        """A constant as a tensor of the same transform."""
        return wrap(Marked(self.level, constant, None), constant._node)

    def map(self, function: Any) -> Marked:
        """Value and marks after a function that keeps their values."""
        return Marked(self.level, function(self.primal), self.tangent)


def _push(
    op: Op, primals: list[Tensor], marks: list[Any], beside: Marks, attrs: dict[str, Any], count: int
) -> Sequence[Any]:
    """The marks of an op's outputs."""
    if op in (control.cond, control.switch):
        return push_branches(op, primals, marks, beside, **attrs)
    if op is control.while_loop:
        return push_while(primals, marks, beside, **attrs)
    if op is control.scan:
        return push_scan(primals, marks, beside, **attrs)
    if isinstance(op.vjp, NoGradient):
        return [None] * count
    if op is when_chosen:
        return [None if marks[0] is None else compare.logical_and(marks[0], primals[1])]
    found = [m for i, m in enumerate(marks) if m is not None and has_partial(op, i)]
    joined = None
    for m in found:
        joined = m if joined is None or joined is m else compare.logical_or(joined, m)
    return [joined] * count


class Marks(Beside):
    """Truth values that flow beside values, one for each of some operands."""

    def __init__(self, count: int) -> None:
        self._count = count

    def put(self, level: int, primal: Any, beside: Any) -> Traced:
        """Data that stand for a value with its marks."""
        return Marked(level, primal, beside)

    def type_of(self, t: TensorType) -> TensorType:
        """One truth value for each operand."""
        return TensorType((self._count,), bool_)

    def nothing(self, t: TensorType) -> Any:
        """No operand."""
        return captured_constant(np.zeros(self._count, bool_))

    def in_rows(self, beside: Any, length: object) -> Any:
        """The same for each row."""
        return broadcast_to(beside, shape=(length, self._count))

    def of_rows(self, beside: Any) -> Any:
        """A stack is computed from what one of its rows is."""
        return beside.any(axis=0)


_MARKS = Marks(0)


def _marked(
    pairs: Sequence[tuple[int, int]],
    push: Callable[[list[Any], Marks], Sequence[Any]],
    operands: Sequence[Tensor],
    first: int,
) -> list[Truth]:
    """The truths of pairs of a result and an operand, by marks that are pushed along with the values.

    Args:
        pairs: of numbers.
        push: gives the marks of the results from those of all operands of the op.
        operands: these.
        first: how many of them come before those that the numbers count.
    """
    wanted = sorted({i for _, i in pairs})
    given: list[Any] = [None] * len(operands)
    for mark, i in zip(np.eye(len(wanted), dtype=bool_), wanted, strict=True):
        given[first + i] = captured_constant(mark)
    found = push(given, Marks(len(wanted)))
    return [False if found[k] is None else found[k][wanted.index(i)] for k, i in pairs]
