"""What a tensor at the end of a turn of a loop refers to, in terms of what was there when the turn began.

A variable holds a reference. At the end of a turn it may be what some variable held at the start, a tensor
from around the loop, one that the turn made, a view of any of these, or, after an ``if``, one of two that the
run picks. ``ref_of`` reads that off the links of a tensor (``weft.ops.alias``); ``Case`` lists say the same
as a decision: the first case whose truth holds is the one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.concrete import is_concrete
from weft.base.records import NamedTuple
from weft.base.shapes import size_of
from weft.base.sizes import is_known
from weft.ir.types import TensorType
from weft.ops.alias import CHOICE, PATH, link_choice
from weft.ops.op import TensorLike, type_of
from weft.tensor.alias import family_of, is_aliased
from weft.tensor.choices import Truth, both, either, negation, picked
from weft.tensor.mode import enable_grad, thread
from weft.transform.captured import is_cut
from weft.transform.slots import DataSlot


class Start(NamedTuple):
    """What a position held when the turn began."""

    position: int


class Outer:
    """A tensor from around the loop."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.tensor is self.tensor

    def __hash__(self) -> int:
        return hash((type(self), id(self.tensor)))


class New(Outer):
    """A tensor that the turn made."""


class View(NamedTuple):
    """A view of what another reference refers to, by steps with their arguments and shapes before them.

    ``who`` is the tensor that it is: another one may show the same elements.
    """

    base: Ref
    steps: tuple[tuple[Any, Any, Any], ...]
    type: TensorType
    who: Any


class Pick(NamedTuple):
    """One of two, which a truth value of the turn picks."""

    truth: Any
    first: Ref
    other: Ref


Ref = Start | Outer | View | Pick


def is_outer(tensor: Any) -> bool:
    """Whether a tensor is from around the running region; one that it changes has data of the region."""
    region, data = thread.capture, tensor._data
    return is_concrete(data) or data.level < region.level or DataSlot(tensor).key in region.journal


def ref_of(tensor: Any, starts: Mapping[int, int]) -> Ref:
    """What a tensor refers to; starts has the positions of tensors that were held at the start, by id."""
    if is_outer(tensor):
        return Outer(tensor)
    if id(tensor) in starts:
        return Start(starts[id(tensor)])
    if not hasattr(tensor, "_link"):
        return New(tensor)
    parent, step, args = tensor._link
    if step is CHOICE:
        return Pick(args.truth, ref_of(parent, starts), ref_of(args.other, starts))
    base = ref_of(parent, starts)
    before = base.steps if isinstance(base, View) else ()
    base = base.base if isinstance(base, View) else base
    return View(base, (*before, (step, args, parent.shape)), type_of(tensor), New(tensor))


def tokens(ref: Ref) -> Iterator[tuple[str, int]]:
    """What a reference may share elements with: positions, and tensors by id with all of their trees."""
    if isinstance(ref, Start):
        yield "position", ref.position
    elif isinstance(ref, View):
        yield from tokens(ref.base)
    elif isinstance(ref, Pick):
        yield from tokens(ref.first)
        yield from tokens(ref.other)
    else:
        yield from (("tensor", id(t)) for t in related(ref.tensor))


def related(tensor: Any) -> list[Any]:
    """A tensor with all that a change of it may reach."""
    return family_of(tensor) if is_aliased(tensor) else [tensor]


def outers(ref: Ref) -> list[Any]:
    """The tensors from around, or of the turn, that a reference may refer to."""
    if isinstance(ref, Start):
        return []
    if isinstance(ref, View):
        return outers(ref.base)
    return [*outers(ref.first), *outers(ref.other)] if isinstance(ref, Pick) else [ref.tensor]


class Components:
    """Sets of tokens that hang together."""

    def __init__(self) -> None:
        self._above: dict[Any, Any] = {}

    def find(self, token: Any) -> Any:
        """The one that stands for all of its set."""
        while (above := self._above.get(token, token)) != token:
            token = above
        return token

    def join(self, members: Sequence[Any]) -> None:
        """Make one set of these."""
        for token in members[1:]:
            a, b = self.find(members[0]), self.find(token)
            if a != b:
                self._above[b] = a


# Decisions


class Case(NamedTuple):
    """Where a truth holds, and none before it in the list does, it is this; the last holds always."""

    truth: Truth
    what: Any


def flat(ref: Ref, held: Callable[[int], list[Case]]) -> list[Case]:
    """A reference as a decision between leaves; held says it of what a position held at the start."""
    if isinstance(ref, Start):
        return held(ref.position)
    if isinstance(ref, Pick):
        first = [Case(both(ref.truth, c.truth), c.what) for c in flat(ref.first, held)]
        return [*first, *flat(ref.other, held)]
    return [Case(True, ref)]


def decided(cases: Sequence[Case], choose: Callable[[Truth, Any, Any], Any]) -> Any:
    """What a decision gives, by a function that chooses between two by a truth."""
    out = cases[-1].what
    for case in reversed(cases[:-1]):
        out = case.what if case.truth is True else choose(case.truth, case.what, out)
    return out


def holds(cases: Sequence[Case], leaf: Any) -> Truth:
    """Whether a decision comes to a leaf."""
    out: Truth = cases[-1].what == leaf
    for case in reversed(cases[:-1]):
        is_it = case.what == leaf
        out = either(case.truth, out) if is_it else both(negation(case.truth), out)
    return out


def chosen(truth: Truth, a: Any, b: Any) -> Any:
    """A tensor or the other one, by a truth."""
    return a if a is b else picked(truth, a, b)


def with_graph(tensor: Any) -> Any:
    """A tensor that is one of some has the graph of that one, also where the loop records nothing."""
    if _has_graph(tensor) or not hasattr(tensor, "_link") or tensor._link[1] is not CHOICE:
        return tensor
    parent, _, args = tensor._link
    one, other = with_graph(parent), with_graph(args.other)
    if one is other:
        return one
    if not _has_graph(one) and not _has_graph(other):
        return tensor
    with enable_grad():
        out = chosen(args.truth, one, other)
    link_choice(out, args.truth, one, other)
    return out


def _has_graph(tensor: Any) -> bool:
    """Whether a tensor has a place in the graph: by the tape, or in a region by not being cut from it."""
    return tensor._node is not None or bool(thread.capture.region and not is_cut(tensor))


# The arguments of steps


class Hole(NamedTuple):
    """Stands in the arguments of a step for a number that only a run tells."""

    number: int


def take_numbers(args: Any, found: list[Any]) -> Any:
    """The arguments of a step, with holes where tensors are, which are added to found."""
    if isinstance(args, TensorLike):
        found.append(args)
        return Hole(len(found) - 1)
    if type(args) is tuple:
        return tuple(take_numbers(x, found) for x in args)
    if isinstance(args, slice):
        return slice(*[take_numbers(x, found) for x in (args.start, args.stop, args.step)])
    return args


def put_numbers(args: Any, numbers: Sequence[Any]) -> Any:
    """The arguments of a step, with numbers in the holes."""
    if isinstance(args, Hole):
        return numbers[args.number]
    if type(args) is tuple:
        return tuple(put_numbers(x, numbers) for x in args)
    if isinstance(args, slice):
        return slice(*[put_numbers(x, numbers) for x in (args.start, args.stop, args.step)])
    return args


def numbers_of(steps: Any) -> list[Any]:
    """The numbers in steps that only a run tells."""
    found: list[Any] = []
    take_numbers(steps, found)
    return found


_MOST_COUNTED = 2**16  # elements of a base whose views are compared one by one


def show_the_same(one: Any, other: Any, base: TensorType) -> bool:
    """Whether steps, with holes, take the same elements of a base in the same order, and history alike."""
    if one == other:
        return True
    known = is_known(base.shape) and size_of(base.shape) <= _MOST_COUNTED
    if not known or _keeps_history(one) != _keeps_history(other):
        return False
    if _has_hole(one) or _has_hole(other):
        return False
    numbers = np.arange(size_of(base.shape)).reshape(base.shape)
    return np.array_equal(PATH.array(numbers, one), PATH.array(numbers, other))


def _keeps_history(steps: Any) -> bool:
    return all(step.keeps_history for step, _, _ in steps)


def _has_hole(args: Any) -> bool:
    if isinstance(args, slice):
        return _has_hole((args.start, args.stop, args.step))
    return isinstance(args, Hole) or (type(args) is tuple and any(map(_has_hole, args)))
