"""Whether a gradient that a captured backward pass computes is one, in this run.

Where an ``if`` or a loop of the graph decides whether a loss was computed from a tensor at all, backward
gives it zeros on the other ways, and eager code gives it nothing. So it is found for each gradient from which
roots a way leads to it: surely, or only if a truth value holds that a run tells. Control flow knows
(``Op.ways``), and every other op passes on what comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.base.records import NamedTuple
from weft.tensor.choices import Truth, either
from weft.tensor.mode import thread
from weft.tensor.node import Node, Output


class Reach(NamedTuple):
    """From which roots a way leads to an edge.

    Attributes:
        sure: bit k is set if one does from root k on whichever way a run takes.
        told: of other roots a truth value, by their numbers.
    """

    sure: int
    told: Mapping[int, Truth]

    def __or__(self, other: Reach) -> Reach:
        sure = self.sure | other.sure
        told = {k: truth for k, truth in self.told.items() if not sure >> k & 1}
        for k, truth in other.told.items():
            if not sure >> k & 1:
                told[k] = either(told.get(k, False), truth)
        return Reach(sure, told)

    def of(self, root: int) -> Truth:
        """Whether a way leads there from a root."""
        return True if self.sure >> root & 1 else self.told.get(root, False)

    def roots(self) -> list[int]:
        """The numbers of the roots that a way may lead from."""
        return [*_bits(self.sure), *self.told]


_NOWHERE = Reach(0, {})


def reach_of(root: int, truth: Truth) -> Reach:
    """What a root reaches if something holds."""
    return Reach(1 << root, {}) if truth is True else _NOWHERE if truth is False else Reach(0, {root: truth})


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Ways:
    """The nodes that a backward pass ran, in order, and what tells which of its gradients a run has."""

    def __init__(self) -> None:
        self._log: list[tuple[Node, Sequence[Any], Sequence[Any], Sequence[bool]]] = []
        self._depends = False  # whether control flow is among them
        self._roots: list[tuple[Any, int]] = []  # those that were asked about last
        self._found: dict[Any, Reach] = {}  # what they reach
        self._count = 0  # by way of how many of the nodes

    def note(self, node: Node, saved: Sequence[Any], edges: Sequence[Any], grads: Sequence[Any]) -> None:
        """Take note of a node that gave gradients for its inputs."""
        given = [e is not None and g is not None for e, g in zip(edges, grads, strict=True)]
        self._depends = self._depends or node.rule.ways is not None
        self._log.append((node, saved, edges, given))

    def truths(self, roots: Iterable[Any], edges: Sequence[Any]) -> list[Truth]:
        """Whether a way leads to edges that have a gradient, from one of some roots."""
        if not self._depends:
            return [True] * len(edges)
        return [reach.of(0) for reach in self.reach([(root, 0) for root in roots], edges)]

    def reach(self, roots: Iterable[tuple[Any, int]], edges: Sequence[Any]) -> list[Reach]:
        """From which roots, edges with their numbers, ways lead to edges."""
        roots = list(roots)
        if roots != self._roots:
            self._roots, self._found, self._count = roots, {}, 0
            for root, k in roots:
                _add(self._found, root, Reach(1 << k, {}))
        found, start, self._count = self._found, self._count, len(self._log)
        for node, saved, inputs, given in self._log[start:]:
            reached = self._through(node, saved, inputs, found)
            for edge, is_given, reach in zip(inputs, given, reached, strict=True):
                if is_given:
                    _add(found, edge, reach)
        return [found.get(_place_of(edge), _NOWHERE) for edge in edges]

    def _through(
        self, node: Node, saved: Sequence[Any], inputs: Sequence[Any], found: dict[Any, Reach]
    ) -> list[Reach]:
        """What reaches the inputs of a node."""
        rule = node.rule
        came = [found.get((node, k), _NOWHERE) for k in range(max(rule.outputs, 1))]
        total = came[0]
        for reach in came[1:]:
            total |= reach
        if rule.ways is None:
            return [total] * len(inputs)
        out, roots = [_NOWHERE] * len(inputs), total.roots()
        with thread.capture.differentiating(node):
            seeds = [[reach.of(root) for reach in came] for root in roots]
            rows = rule.ways(seeds, tuple(saved), tuple(inputs)) if seeds else ()
        for root, truths in zip(roots, rows, strict=True):
            out = [reach | reach_of(root, truth) for reach, truth in zip(out, truths, strict=True)]
        return out


def _place_of(edge: object) -> tuple[Any, int]:
    return (edge.node, edge.index) if type(edge) is Output else (edge, 0)


def _add(found: dict[Any, Reach], edge: object, reach: Reach) -> None:
    place = _place_of(edge)
    found[place] = found[place] | reach if place in found else reach
