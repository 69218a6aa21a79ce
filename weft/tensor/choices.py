"""A change in a capture where some variable is one of two tensors, which a run picks.

The tree of a choice has two parents (``weft.ops.alias``), so a change of it is one of both: each gets its new
elements, or keeps those that it has, by the truth of the choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.concrete import is_concrete
from weft.ops import compare
from weft.ops.alias import CHOICE, link_choice, parents_of
from weft.ops.op import Tensor, intercepted
from weft.ops.select import select
from weft.ops.stop import when_chosen
from weft.tensor.dispatch import stage, wrap
from weft.tensor.mode import enable_grad, running_levels, thread


def without_history(tensor: Tensor) -> Tensor:
    """What a tensor shows, cut from the graph."""
    if not intercepted.threads:
        return wrap(tensor._data)
    stage(tensor)
    data = tensor._data
    return wrap(data if is_concrete(data) or thread.capture is None else data.detached())


Truth = Any  # a 0-d bool tensor, or True or False


def both(a: Truth, b: Truth) -> Truth:
    """``a and b``."""
    if a is True or b is False:
        return b
    return a if b is True or a is False else compare.logical_and(a, b)


def either(a: Truth, b: Truth) -> Truth:
    """``a or b``."""
    if a is False or b is True:
        return b
    return a if b is False or a is True else compare.logical_or(a, b)


def negation(a: Truth) -> Truth:
    """``not a``."""
    return not a if isinstance(a, bool) else compare.logical_not(a)


def picked(truth: Any, first: Tensor, other: Tensor) -> Tensor:
    """What the one of two tensors shows that a run picks; it keeps its graph, also where nothing records."""
    with enable_grad():
        return _select(truth, first, other)


def _select(truth: Truth, first: Tensor, other: Tensor) -> Tensor:
    """What the one of two tensors shows that a run picks; the other one gets no gradient, not zeros."""
    return select(truth, chosen_if(truth, first), chosen_if(negation(truth), other))


def chosen_if(truth: Truth, tensor: Tensor) -> Tensor:
    """A tensor, whose gradient is one if it is the one of several that a run picks."""
    asks = thread.capture is not None and thread.capture.has_gradient(tensor)
    return when_chosen(tensor, truth) if asks and isinstance(truth, Tensor) else tensor


def choice_of(truth: Any, first: Tensor, other: Tensor) -> Tensor:
    """The one of two tensors that a run picks: a change of it is a change of that one."""
    out = picked(truth, first, other)
    link_choice(out, truth, first, other)
    return out


def is_met(tensor: Tensor) -> bool:
    """Whether a tensor is one of a capture that goes on."""
    return not is_concrete(tensor._data) and tensor._data.level in running_levels


def meet_parents(tensor: Tensor, top: Tensor | None = None) -> None:
    """Let a capture know all that a change reaches on its way up to the top, before anything has changed."""
    waiting = [tensor]
    while waiting:
        view = waiting.pop()
        for parent in parents_of(view) if view is not top else ():
            thread.capture.root.meet_parent(parent, view)
            thread.capture.meet(parent)
            waiting.append(parent)


class ChoiceChange:
    """One change of a tensor, as all of its family come to show it."""

    def __init__(self, family: Sequence[Tensor]) -> None:
        self._family = family
        self._shown: dict[int, Tensor] = {}  # what tensors show, until a root changes
        self._cut: dict[int, Tensor] = {}  # what those got that the graph of the change ends at
        self._stale: set[int] = set()  # of these, whose elements changed once more
        self._recorded: set[int] = set()  # roots that got the graph of the change

    def run(self, tensor: Tensor, value: Tensor, *, history: bool) -> None:
        """Give the tensor a value, with ``history`` by a change that the graph knows."""
        for x in (tensor, *self._family):  # what they show is taken anew from there
            if is_met(x):
                meet_parents(x)
        self._put(tensor, value, history, set())
        for x in self._family:
            if hasattr(x, "_link") and is_met(x):
                kept = not x._link[1].keeps_history  # what it shows has its graph already
                x._assign(self._current(x), history=kept or self._is_recorded(x))

    def _current(self, x: Tensor) -> Tensor:
        """What a tensor shows of the roots, as they are by now."""
        if not hasattr(x, "_link"):
            return x
        if id(x) in self._cut and id(x) not in self._stale:
            return self._cut[id(x)]
        if id(x) not in self._shown:
            self._shown[id(x)] = self._taken(x)
        return self._shown[id(x)]

    def _taken(self, x: Tensor) -> Tensor:
        """What a tensor shows, taken anew from its parents; one that is cut from them keeps its graph."""
        parent, step, args = x._link
        if step is CHOICE:
            return _select(args.truth, self._current(parent), self._current(args.other))
        out: Tensor = step.get(self._current(parent), args)
        if step.keeps_history:
            return out
        holder = self._cut.get(id(x), x)
        out = without_history(out)
        return wrap(holder._kept_place(out), holder._node) if is_met(x) else out

    def _is_recorded(self, x: Tensor) -> bool:
        """Whether a tensor gets the graph of the change, or values alone."""
        if not hasattr(x, "_link"):
            return id(x) in self._recorded
        if id(x) in self._cut:
            return True
        return x._link[1].keeps_history and any(map(self._is_recorded, parents_of(x)))

    def _put(self, x: Tensor, new: Tensor, history: bool, way: set[int]) -> None:
        """Let what x shows be new; way has the tensors between, where the graph of the change ended."""
        if not hasattr(x, "_link"):
            x._assign(new, history=history)
            self._recorded |= {id(x)} if history else set()
            self._shown.clear()
            self._stale |= {id(t) for t in self._family if id(t) not in way and id(x) in _roots(t)}
            return
        parent, step, args = x._link
        if step is CHOICE:
            self._put(parent, _select(args.truth, new, self._current(parent)), history, way)
            self._put(args.other, _select(args.truth, self._current(args.other), new), history, way)
            return
        if history and not step.keeps_history:
            self._cut[id(x)], way = new, {*way, id(x)}
            self._stale.discard(id(x))
        value = new if step.keeps_history else without_history(new)
        above = step.put(self._current(parent), value, args)
        self._put(parent, above, history and step.keeps_history, way)


def _roots(tensor: Tensor) -> set[int]:
    """The ids of the tensors that one shows elements of in the end."""
    found, waiting = set[int](), [tensor]
    while waiting:
        x = waiting.pop()
        if hasattr(x, "_link"):
            waiting += parents_of(x)
        else:
            found.add(id(x))
    return found
