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

from weft.base.dtypes import bool_, int64
from weft.ir.graph import Graph
from weft.ops.op import Op
from weft.ops.size import size_value
from weft.tensor.choices import Truth, both, either, negation
from weft.tensor.engine import node_of, saved_as_tensors
from weft.tensor.node import Leaf
from weft.tensor.tensor import Tensor, wrap
from weft.tensor.ways import Ways
from weft.transform.control.behind import Row, agreed, rows, turns
from weft.transform.control.forward import push_branches, push_scan, push_while
from weft.transform.control.marks import told_by_marks
from weft.transform.tracing import replay


def branch_ways(
    op: Op,
    seeds: Sequence[Truth],
    index: Tensor,
    xs: Sequence[Tensor],
    branches: Sequence[Graph],
    needed: Sequence[bool],
) -> list[Truth]:
    """Whether a gradient reaches the operands of ``cond`` or ``switch``, from whether one came to results."""
    tables = [rows(branch) for branch in branches]
    asked = _Asked(agreed(tables), seeds, needed[1:])

    def told(pairs: Sequence[tuple[int, int]]) -> list[Truth]:
        if all(table[k].get(i, False) is not None for table in tables for k, i in pairs):
            return [_of_branches(index, [bool(t[k].get(i)) for t in tables]) for k, i in pairs]
        given = [index, *xs]
        return told_by_marks(
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
    tables = turns(body, carries, None)
    asked = _Asked(agreed(tables), seeds, needed)

    def told(pairs: Sequence[tuple[int, int]]) -> list[Truth]:
        if (found := _by_first_turn(tables, pairs)) is not None:
            ran = replay(test, xs)[0]
            return [_chosen(ran, *ways) for ways in found]
        attrs: dict[str, Any] = {"test": test, "body": body, "carries": carries, "trips": trips}
        attrs["checkpoint_every"] = None
        return told_by_marks(pairs, lambda marks, beside: push_while(xs, marks, beside, **attrs), xs, 0)

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
    tables = turns(body, carries, known)
    asked = _Asked(tables[-1] if known is not None else agreed(tables), seeds, needed[first:])

    def told(pairs: Sequence[tuple[int, int]]) -> list[Truth]:
        if known is None and (found := _by_first_turn(tables, pairs)) is not None:
            count: Any = xs[0] if first else wrap(size_value(length, int64)._data)
            return [_chosen(count > 0, *ways) for ways in found]
        attrs: dict[str, Any] = {"body": body, "carries": carries, "mapped": mapped, "length": length}
        attrs |= {"reverse": reverse, "counted": counted, "checkpoint_every": None}
        return told_by_marks(pairs, lambda marks, beside: push_scan(xs, marks, beside, **attrs), xs, first)

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


# What a run tells


def _by_first_turn(
    tables: Sequence[Sequence[Row]], pairs: Sequence[tuple[int, int]]
) -> list[tuple[bool, bool]] | None:
    """For pairs of a result and an operand, the way with a turn or more and that without; None if unknown."""
    if len(tables) > 3 or (len(tables) == 3 and tables[1] != tables[2]):
        return None
    found = [(tables[-1][k].get(i, False), tables[0][k].get(i, False)) for k, i in pairs]
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


# Of a tensor


def leads_to_leaf(edge: Any) -> Truth:
    """Whether a tensor was computed from one with ``requires_grad``, in this run, by its edge.

    Raises:
        GradientError: a backward has used up what would tell.
    """
    if edge is None or type(edge) is Leaf:
        return edge is not None
    leaves, nodes, ways = set[Any](), set[Any](), Ways()
    waiting, behind_control = [edge], list[Any]()
    has_crossed = False  # the leaves before are there in every run
    while waiting or behind_control:
        has_crossed = has_crossed or not waiting
        node = node_of(waiting.pop() if waiting else behind_control.pop())
        edges = () if type(node) is Leaf else [e for e in node.edges if e is not None]
        if not edges:  # a leaf, or what stands for the graph of an argument
            if not has_crossed:
                return True
            leaves.add(node)
        elif node not in nodes:
            nodes.add(node)
            (waiting if node.rule.ways is None else behind_control).extend(edges)
    for node in sorted(nodes, key=lambda n: n.nr, reverse=True):
        saved = node.saved if node.rule.ways is None else saved_as_tensors(node)
        ways.note(node, saved, node.edges, node.edges)
    truth: Truth = not leaves
    for one in ways.truths([edge], [*leaves]):
        truth = either(truth, one)
    return truth
