"""On which ways of a run a gradient reaches what control flow was given.

A parameter that one branch alone uses gets a gradient only where that branch runs; one that only the body of
a loop uses, only where there is a turn. The way back gives zeros elsewhere, which an optimizer must not take
for a gradient. So a truth value is found for each operand: whether some result that a gradient came to was
computed from it, in this run. What the graphs tell by themselves is found first. Where a test decides that
stands outside, it is the truth; else marks of the operands are pushed along with the values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.base.dtypes import bool_, int64
from weft.ir.graph import Graph
from weft.ops.op import Op
from weft.ops.size import size_value
from weft.tensor.choices import Truth, both, either, negation
from weft.tensor.engine import node_of, saved_as_tensors
from weft.tensor.mode import thread
from weft.tensor.node import Leaf
from weft.tensor.tensor import Tensor, wrap
from weft.tensor.ways import Ways
from weft.transform.control.behind import Row, agreed, rows, turns
from weft.transform.control.forward import push_branches, push_scan, push_while
from weft.transform.control.marks import told_by_marks
from weft.transform.tracing import replay


def branch_ways(
    op: Op,
    seeds: Sequence[Sequence[Truth]],
    index: Tensor,
    xs: Sequence[Tensor],
    branches: Sequence[Graph],
    needed: Sequence[bool],
) -> list[list[Truth]]:
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

    return [[False, *row] for row in asked.truths(told)]


def while_ways(
    seeds: Sequence[Sequence[Truth]],
    xs: Sequence[Tensor],
    test: Graph,
    body: Graph,
    carries: int,
    trips: object,
    needed: Sequence[bool],
) -> list[list[Truth]]:
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
    seeds: Sequence[Sequence[Truth]],
    xs: Sequence[Tensor],
    body: Graph,
    carries: int,
    mapped: int,
    length: Any,
    reverse: bool,
    counted: bool,
    needed: Sequence[bool],
) -> list[list[Truth]]:
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

    return [[*[False] * first, *row] for row in asked.truths(told)]


class _Asked:
    """What is to be found: whether gradients reach operands, each by the results that it came to."""

    def __init__(self, rows: Sequence[Row], seeds: Sequence[Sequence[Truth]], needed: Sequence[bool]) -> None:
        self._rows = rows
        self._seeds = [
            {k: truth for k, truth in enumerate(row) if truth is not False and k < len(rows)} for row in seeds
        ]
        self._needed = needed

    def truths(self, told: Callable[[list[tuple[int, int]]], list[Truth]]) -> list[list[Truth]]:
        """Of each gradient those of the operands; ``told`` gives those of pairs of result and operand."""
        out = [self._sure(seeds) for seeds in self._seeds]
        unsure = [
            [
                (k, i)
                for i, truth in enumerate(truths)
                if truth is not True and self._needed[i]
                for k in seeds
                if self._rows[k].get(i, False) is None
            ]
            for seeds, truths in zip(self._seeds, out, strict=True)
        ]
        pairs = sorted(set[tuple[int, int]]().union(*unsure))
        found = dict(zip(pairs, told(pairs) if pairs else (), strict=True))
        for seeds, truths, asked in zip(self._seeds, out, unsure, strict=True):
            for k, i in asked:
                truths[i] = either(truths[i], both(seeds[k], found[k, i]))
        return out

    def _sure(self, seeds: Mapping[int, Truth]) -> list[Truth]:
        """Whether a gradient reaches each operand by the results that are surely computed from it."""
        out: list[Truth] = [False] * len(self._needed)
        for i, needed in enumerate(self._needed):
            for k, seed in seeds.items() if needed else ():
                out[i] = either(out[i], seed) if self._rows[k].get(i, False) else out[i]
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


def _of_branches(index: Tensor, ways: Sequence[bool]) -> Truth:
    """Whether the branch that runs is one of some."""
    if index.dtype == bool_:
        return _chosen(index, *ways)
    truth: Truth = False
    for b, way in enumerate(ways):
        is_it = index <= 0 if b == 0 else index >= b if b == len(ways) - 1 else index == b
        truth = either(truth, is_it) if way else truth
    return truth


# Of tensors


def lead_to_leaves(edges: Sequence[Any]) -> list[Truth]:
    """Whether tensors were computed from one with ``requires_grad``, in this run, by their edges.

    Raises:
        GradientError: a backward has used up what would tell.
    """
    behind, nodes = [_behind(edge) for edge in edges], set[Any]()
    leaves = {leaf: None for found in behind if found is not None for leaf in found[0]}
    nodes.update(*[found[1] for found in behind if found is not None])
    ways, freed = Ways(), {} if thread.capture is None else thread.capture.root.notes.freed
    for node in sorted(nodes, key=lambda n: n.nr, reverse=True):
        saved = node.saved if node.rule.ways is None else saved_as_tensors(node, freed.get(node))
        ways.note(node, saved, node.edges, node.edges)
    roots = [
        (edge, k) for k, (edge, found) in enumerate(zip(edges, behind, strict=True)) if found is not None
    ]
    reached = ways.reach(roots, [*leaves])
    out: list[Truth] = []
    for k, (edge, found) in enumerate(zip(edges, behind, strict=True)):
        truth: Truth = edge is not None and found is None
        for one in {id(t): t for t in (reach.of(k) for reach in reached)}.values():
            truth = either(truth, one)
        out.append(truth)
    return out


def _behind(edge: object) -> tuple[set[Any], set[Any]] | None:
    """The leaves behind an edge, and the nodes on the way; None if a leaf is there in every run, or none."""
    if edge is None or type(edge) is Leaf:
        return None
    leaves, nodes = set[Any](), set[Any]()
    waiting, behind_control = [edge], list[Any]()
    has_crossed = False  # the leaves before are there in every run
    while waiting or behind_control:
        has_crossed = has_crossed or not waiting
        node = node_of(waiting.pop() if waiting else behind_control.pop())
        edges = () if type(node) is Leaf else [e for e in node.edges if e is not None]
        if not edges:  # a leaf, or what stands for the graph of an argument
            if not has_crossed:
                return None
            leaves.add(node)
        elif node not in nodes:
            nodes.add(node)
            (waiting if node.rule.ways is None else behind_control).extend(edges)
    return leaves, nodes
