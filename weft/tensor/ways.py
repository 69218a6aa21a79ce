"""Whether a gradient that a captured backward pass computes is one, in this run.

Where an ``if`` or a loop of the graph decides whether a loss was computed from a tensor at all, backward gives
it zeros on the other ways, and eager code gives it nothing. So a truth value goes back beside each gradient:
whether a way to it was taken. It is True but behind control flow, which knows (``Op.ways``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.tensor.choices import Truth, either
from weft.tensor.node import Node, Output

_Place = tuple[Any, int]  # a node and the number of an output, or a leaf


def _place_of(edge: Any) -> _Place:
    return (edge.node, edge.index) if type(edge) is Output else (edge, 0)


class Ways:
    """The truth values of one backward pass, by what gradients came to."""

    def __init__(self) -> None:
        self._truths: dict[_Place, Truth] = {}

    def of(self, edge: Any, default: Truth = False) -> Truth:
        """Whether a gradient came to an edge."""
        return self._truths.get(_place_of(edge), default)

    def arrive(self, edge: Any, truth: Truth) -> None:
        """Take note of a gradient that came to an edge if something holds."""
        place = _place_of(edge)
        self._truths[place] = either(self._truths.get(place, False), truth)

    def pass_on(self, node: Node, saved: Sequence[Any], edges: Sequence[Any], grads: Sequence[Any]) -> None:
        """Take note of the gradients that a node gave for its inputs."""
        rule = node.rule
        came = [self._truths.get((node, k), False) for k in range(max(rule.outputs, 1))]
        if rule.ways is not None:
            truths = rule.ways(came, saved, edges)
        else:
            truth: Truth = False
            for one in came:
                truth = either(truth, one)
            truths = [truth] * len(edges)
        for edge, grad, truth in zip(edges, grads, truths, strict=True):
            if edge is not None and grad is not None:
                self.arrive(edge, truth)
