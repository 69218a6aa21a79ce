"""What leaves a capture, described without holding tensors: those which nobody else holds die with it."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from weft.base.records import NamedTuple
from weft.base.trees import Structure
from weft.ir.graph import Value
from weft.tensor.engine import node_of
from weft.tensor.node import FREED, Leaf


class LeafOut(NamedTuple):
    """A leaf of something that leaves a capture.

    Attributes:
        value: in the graph, of a tensor or a number.
        reference: to the tensor.
        identity: its id, which tells equal ones apart.
        edge: its place in the dynamic graph.
        plain: the leaf itself, if it is nothing of the graph.
        kind: of a number.
        copied: whether each call gives a copy of the plain leaf.
        view: of a tensor that is a view, what it is a view of.
        number: of a tensor that is a number on some way: whether it is one, and of which kind.
        pick: of a tensor that is one of two, which a run picks: a truth value, and the two.
        retains: whether it is a tensor that keeps its gradient, though it is no leaf.
        built: the id of a container or an object that is described by itself.
    """

    value: Value | None = None
    reference: Any = None
    identity: int = 0
    edge: Any = None
    plain: Any = None
    kind: type | None = None
    copied: bool = False
    view: ViewOut | None = None
    pick: tuple[Value, LeafOut, LeafOut] | None = None
    number: tuple[Value, type] | None = None
    retains: bool = False
    built: int = 0

    def tensors(self) -> list[LeafOut]:
        """Itself, or the tensors that it is one of."""
        if self.pick is None:
            return [self]
        return [*self.pick[1].tensors(), *self.pick[2].tensors()]

    def bases(self) -> set[int]:
        """The identities of the tensors that it is, or shows elements of."""
        found, waiting = set[int](), self.tensors()
        while waiting:
            leaf = waiting.pop()
            if leaf.view is None:
                found.add(leaf.identity)
            else:
                waiting += leaf.view.base.tensors()
        return found


class ViewOut(NamedTuple):
    """What a tensor that leaves a capture is a view of.

    Attributes:
        base: the tensor that it is a view of: a root, or one of two.
        steps: from there to the view, each with its arguments, in which numbers stand for ``numbers``.
        numbers: values that only a run tells.
    """

    base: LeafOut
    steps: tuple[tuple[Any, Any], ...]
    numbers: tuple[Value, ...]


class TreeOut(NamedTuple):
    """A tree that leaves a capture."""

    structure: Structure
    leaves: list[LeafOut]


class BuiltOut(NamedTuple):
    """A container or an object that leaves a capture, and that each call makes anew.

    Attributes:
        kind: the class of an object.
        tree: the container, or a pair of what an object holds: its attributes by name, and its items.
        pick: a truth value, and what it is where that holds and where it does not; None for a new one.
    """

    kind: type | None
    tree: TreeOut
    pick: tuple[Value, LeafOut | None, LeafOut | None] | None = None

    def leaves(self) -> list[LeafOut]:
        """What it holds, or may be."""
        return [*self.tree.leaves, *self.ways()]

    def ways(self) -> list[LeafOut]:
        """The others that it may be."""
        return [] if self.pick is None else [x for x in self.pick[1:] if isinstance(x, LeafOut)]


class Change(NamedTuple):
    """A slot that captured code changed, what it held before, and what it holds now."""

    slot: Any
    old: Any
    new: TreeOut


class Backward(NamedTuple):
    """The backward graph of a capture, before it is split from the forward one.

    Attributes:
        forward: how many nodes belong to the forward pass.
        seeds: inputs, a gradient for each of ``roots``.
        roots: ids of the tensors that gradients flow to.
        targets: for each tensor from outside that requires grad, by its value, its gradient.
        reach: for each of these from which roots a way leads to it; None where one does from all of them.
    """

    forward: int
    seeds: tuple[Value, ...]
    roots: tuple[int, ...]
    targets: dict[Value, Value]
    reach: list[tuple[int, dict[int, Value]]] | None


def is_freed(edge: Any) -> bool:
    """Whether backward has used up some of the graph behind an edge."""
    return any(not isinstance(node, Leaf) and node.saved is FREED for node in _nodes_behind(edge))


def hangs_on(edge: Any, leaves: Container[Any]) -> bool:
    """Whether the graph behind an edge goes back to one of some leaves."""
    return any(isinstance(node, Leaf) and node in leaves for node in _nodes_behind(edge))


def is_behind(edge: Any, target: Any) -> bool:
    """Whether gradients that enter a graph by an edge flow on to another edge."""
    nodes = [node for node in _nodes_behind(edge) if not isinstance(node, Leaf)]
    return any(e is target for node in nodes for e in node.edges)


def _nodes_behind(edge: Any) -> Iterator[Any]:
    """The nodes and leaves of the graph behind an edge, each once."""
    seen: set[Any] = set()
    waiting = [edge]
    while waiting:
        node = node_of(waiting.pop())
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        if not isinstance(node, Leaf):
            waiting += node.edges
