"""A program: what the capture of one call leaves behind, ready to be called again.

It is a graph, the sources of its inputs, the guards it relies on, how its results become what the function
returned, and what it changes outside: the data and gradients of tensors, attributes, items, generators.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from weft.base.dtypes import kind
from weft.base.records import NamedTuple
from weft.base.trees import Structure
from weft.capture.program.guards import Guard, TensorGuard
from weft.capture.program.sources import Argument, Fixed, Gradient, InSlot, Source
from weft.ir.graph import Graph


class Made(NamedTuple):
    """A tensor that each call makes: the number of its result, and its place in the dynamic graph.

    Attributes:
        result: the position among the results of the graph.
        place: "graph" if gradients flow to it, "leaf" if it is a leaf that requires grad, "freed" if backward
            has used up its graph, "apart" if it ends at leaves that nobody has, "" if it requires none.
        view: what it is a view of, if that is something that lives on.
        retains: whether it keeps its gradient, though it is no leaf.
        flows: the result that tells whether gradients flow to it in this run; None if they always do.
    """

    result: int
    place: str
    view: View | None = None
    retains: bool = False
    flows: int | None = None


class View(NamedTuple):
    """What a tensor that each call makes is a view of.

    Attributes:
        parent: another one that it makes, or a tensor from outside.
        steps: from there to the view, with their arguments.
        numbers: the results that stand in these arguments.
    """

    parent: Any
    steps: tuple[tuple[Any, Any], ...]
    numbers: tuple[int, ...]


class Plain(NamedTuple):
    """A Python value that each call gives, or a copy of it."""

    value: Any
    copied: bool = False


class Scalar(NamedTuple):
    """A Python number that each call computes: the position of its result, and what it is."""

    result: int
    kind: type


class Item(NamedTuple):
    """The tensor with a number among those that a call makes."""

    number: int


class Pick(NamedTuple):
    """One of two contents, which the truth of a tensor that each call makes picks.

    Attributes:
        truth: that tensor.
        one: where it is true.
        other: where it is false.
        value: a tensor with the elements of the one that is picked, for who wants no more of it.
    """

    truth: Item
    one: Any
    other: Any
    value: Item


class BuiltAt(NamedTuple):
    """The container or object with a number among those that a call builds."""

    number: int


Content = Item | Plain | Scalar | Pick | BuiltAt | Argument | Fixed | InSlot | Gradient


class Tree(NamedTuple):
    """What a call puts somewhere: a tree and its leaves."""

    structure: Structure
    leaves: tuple[Content, ...]


class Built(NamedTuple):
    """A container or an object that each call builds, as it is in more than one place, or an object.

    Attributes:
        kind: the class of an object, which is made before the containers, and filled after them.
        content: the container, or a pair of what an object holds: its attributes by name, and its items.
        pick: of a container that may be another one, the tensor whose truth tells, and what it is where it
            holds and where it does not; None for the new one.
    """

    kind: type | None
    content: Tree
    pick: tuple[Item, Content | None, Content | None] | None = None


def new_object(kind: type) -> Any:
    """An object of a class, without attributes: no constructor runs."""
    base = next((c for c in (SimpleNamespace, list, dict) if issubclass(kind, c)), object)
    return base.__new__(kind)


def fill_object(made: Any, attributes: dict[str, Any], items: Any) -> None:
    """Give an object its attributes and items, as they are: no method of its class runs."""
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
    if isinstance(items, list):
        list.extend(made, items)
    elif items is not None:
        dict.update(made, items)


class Update(NamedTuple):
    """Something that each call changes, and what it holds then: outside, or the gradient of what it makes.

    Attributes:
        kind: "data" or "grad" of a tensor, whose source is the target, or "slot".
        target: a source, a tensor that the call makes, or a slot.
        content: what it gets.
        replaces: whether a tensor is assigned data, which its views would not get.
    """

    kind: str
    target: Any
    content: Tree
    replaces: bool = False


class Reach(NamedTuple):
    """From which roots of a backward graph a way leads to an input.

    Attributes:
        sure: bit k is set if one does from root k in every run.
        told: roots of which a run tells, each with the number of a truth: these are the last results.
    """

    sure: int
    told: tuple[tuple[int, int], ...]


class Program(NamedTuple):
    """What a capture leaves behind.

    Attributes:
        graph: its inputs are those of ``sources``; its outputs are the results that calls use.
        sources: where the array of each input is found.
        returned: what the function returned.
        made: the tensors that each call makes.
        updates: what each call changes.
        guards: Python values that it relies on.
        tensors: tensors from outside whose type it relies on.
        arguments: the tensors among the arguments of the captured call.
        derivative: its forward and backward graphs, if something that it gives has a gradient.
        wrt: the inputs that the backward graph gives gradients of.
        reach: for each of these from which roots a way leads to it; empty if one does from all of them.
        roots: the tensors among ``made`` that it takes gradients of, in order.
        untold_gradient: whether the ops of its graph do not tell its gradient: see ``CaptureRoot``.
        untold_tangent: whether they do not tell its tangents.
        aliases: the views among its inputs that it relies on, see ``weft.capture.program.aliases``.
        built: containers and objects that each call builds, those that others hold before these.
    """

    graph: Graph
    sources: tuple[Source, ...]
    returned: Tree
    made: tuple[Made, ...]
    updates: tuple[Update, ...]
    guards: tuple[Guard, ...]
    tensors: tuple[TensorGuard, ...]
    arguments: tuple[Any, ...]
    derivative: Any = None
    wrt: tuple[int, ...] = ()
    reach: tuple[Reach, ...] = ()
    roots: tuple[int, ...] = ()
    untold_gradient: bool = False
    untold_tangent: bool = False
    aliases: Sequence[Any] = ()
    built: tuple[Built, ...] = ()

    @property
    def trees(self) -> list[Tree]:
        """What leaves a call: what it returns and changes, and what it builds for these."""
        return [self.returned, *[u.content for u in self.updates], *[b.content for b in self.built]]

    @property
    def has_cut_results(self) -> bool:
        """Whether a tensor of floating numbers that calls make has no gradient."""
        results = self.graph.results
        return any(not m.place and kind(results[m.result].type.dtype) in "fc" for m in self.made)
