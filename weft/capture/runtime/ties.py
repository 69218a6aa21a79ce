"""Which tensor a variable is after an ``if``: a new one, or one of those that the two ways left in it.

A tensor that a branch made, and that one variable alone holds, simply becomes what the node gives. But where
a way leaves a tensor from around in a variable, or a view of one, a later change of either must show in the
other: the variable then holds a *choice* of two tensors (``weft.ops.alias``), which the truth of the test
picks. Links that a branch made are made again after it; numbers that they need, and tensors that several
variables show, flow out of the branch for that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from weft.base.concrete import is_concrete
from weft.base.trees import tree_flatten
from weft.capture.runtime.state import BLANK, Carried, Plan, is_leaf
from weft.capture.runtime.undefined import is_undefined
from weft.ops.alias import CHOICE, link_choice, link_path, parents_of
from weft.ops.op import TensorLike
from weft.tensor.alias import is_aliased, with_ancestors
from weft.tensor.choices import choice_of
from weft.tensor.dispatch import wrap
from weft.tensor.mode import running_levels, thread
from weft.tensor.tensor import Tensor
from weft.transform.frozen import hand_on


class Ties:
    """The tensors of all variables where two ways meet.

    Attributes:
        exports: way and tensor of what must flow out of a branch besides the variables.

    Args:
        ended: what the variables are at the end of each way.
        truths: tensors of each way that are needed besides.
    """

    def __init__(self, ended: Sequence[Sequence[Any]], truths: Sequence[Sequence[Any]]) -> None:
        tensors = [[x for value in values for x in _tensors(value)] for values in ended]
        self._held = [Counter(map(id, found)) for found in tensors]
        self.exports: list[tuple[int, Any]] = []
        for way, found in enumerate(tensors):
            roots = Counter(id(r) for x in {id(x): x for x in found}.values() for r in _local_roots(x))
            for x in found:
                for needed in _needed(x, roots, self._held[way]):
                    self._export(way, needed)
            for truth in truths[way]:
                if not is_around(truth):
                    self._export(way, truth)
        self._cells: dict[tuple[int, int], Any] = {}  # by way and id of a tensor, the one that stands for it
        self._shown: dict[tuple[int, int], Any] = {}  # by way and id of a view, what it shows
        self._joined: dict[tuple[int, int], Any] = {}  # by ids of two such, what is one of them
        self._truth: Any = None

    def _export(self, way: int, tensor: Any) -> None:
        if not any(way == w and tensor is y for w, y in self.exports):
            self.exports.append((way, tensor))

    def begin(self, truth: Any, exported: Sequence[Any]) -> None:
        """The node is there: its predicate, and what flowed out for ``exports``."""
        self._truth = truth
        for (way, x), out in zip(self.exports, exported, strict=True):
            (self._shown if hasattr(x, "_link") else self._cells)[way, id(x)] = out
            hand_on(thread.capture.root.frozen, (x,), out)

    def tied(self, plan: Plan, pair: Sequence[Any], news: Sequence[Any]) -> list[Any]:
        """The tensors that flow out of the node for one variable, tied to those they may be."""
        ended = [_leaves(value, len(plan.parts)) for value in pair]
        rest = iter(news)
        out = []
        for part, one, other in zip(plan.parts, *ended, strict=True):
            if isinstance(part, Carried):
                new = next(rest)
                out.append(new if part.kind is not None else self._tie(new, one, other))
                hand_on(thread.capture.root.frozen, (one, other), out[-1])
        return out

    def tied_gradient(self, new: Any, pair: Sequence[Any]) -> Any:
        """Likewise for a gradient; where a way leaves none, new has zeros, which nobody else has."""
        known = [x for x in pair if isinstance(x, Tensor)]
        if len(known) == 2:
            return self._tie(new, *pair)
        way = 0 if pair[0] is known[0] else 1
        return new if self._is_own(way, known[0]) else self._beside_new(way, known[0], new)

    def _beside_new(self, way: int, tensor: Any, new: Any) -> Any:
        """What is a tensor that others hold where that way is taken, and else one that nobody has."""
        cells = [wrap(new._data), wrap(new._data)]
        cells[way] = self._cell(way, tensor, new)
        link_choice(new, self._truth, *cells)
        return new

    def _tie(self, new: Any, one: Any, other: Any) -> Any:
        for way, (x, y) in enumerate(((one, other), (other, one))):
            if isinstance(y, Tensor):
                continue
            if not isinstance(x, Tensor) or self._is_own(way, x):
                return new
            is_absent = y is None or y is BLANK  # an item that is there on one way alone, else a number
            return self._cell(way, x, new) if is_absent else self._beside_new(way, x, new)
        if all(self._is_own(way, x) for way, x in enumerate((one, other))):
            return new
        cells = [self._cell(way, x, new) for way, x in enumerate((one, other))]
        key = (id(cells[0]), id(cells[1]))
        if key not in self._joined:
            self._joined[key] = new
            link_choice(new, self._truth, *cells)
        return self._joined[key]

    def _is_own(self, way: int, tensor: Any) -> bool:
        """Whether a branch made a tensor that one variable alone holds, and no view of another."""
        return self._held[way][id(tensor)] == 1 and not is_around(tensor) and not is_aliased(tensor)

    def _cell(self, way: int, tensor: Any, new: Any) -> Any:
        """The tensor that stands for one that a way left, after the node."""
        if is_around(tensor):
            return tensor
        key = (way, id(tensor))
        if key not in self._cells:
            self._cells[key] = self._again(way, tensor, self._shown.get(key, new))
            hand_on(thread.capture.root.frozen, (tensor,), self._cells[key])
        return self._cells[key]

    def _again(self, way: int, tensor: Any, new: Any) -> Any:
        """A tensor that a branch made, made again after it by its link; new has what it shows."""
        if not hasattr(tensor, "_link"):
            return wrap(new._data, new._node)
        if not all(self._is_known(way, x) for x in bases_of(tensor)):
            out = wrap(new._data, new._node)  # of a tensor that nothing else shows, unless it may be another
            hand_on(thread.capture.root.frozen, with_ancestors(tensor), out)
            return out
        base, steps = tensor, list[tuple[Any, Any, Any]]()
        while not self._is_known(way, base) and base._link[1] is not CHOICE:
            base, step, args = base._link
            steps.insert(0, (step, self.outer(way, args), base.shape))
        if steps:
            # what it shows is known: taken again, it might fail on the way that was not taken
            out = wrap(new._data, new._node)
            link_path(out, self._cell(way, base, new), tuple(steps))
            return out
        parent, _, args = tensor._link
        truth = self.outer(way, args.truth)
        return choice_of(truth, self._cell(way, parent, new), self._cell(way, args.other, new))

    def _is_known(self, way: int, root: Any) -> bool:
        return is_around(root) or (way, id(root)) in self._cells

    def outer(self, way: int, args: Any) -> Any:
        """The arguments of a step of a way, with tensors that flowed out for those of the branch."""
        if isinstance(args, tuple):
            return tuple(self.outer(way, x) for x in args)
        if isinstance(args, slice):
            return slice(*[self.outer(way, x) for x in (args.start, args.stop, args.step)])
        if not isinstance(args, TensorLike):
            return args
        key = (way, id(args))
        return self._shown.get(key, self._cells.get(key, args))


def is_around(tensor: Any) -> bool:
    """Whether a tensor was there before the branches: outside, or made by a capture that goes on."""
    data = tensor._data
    return is_concrete(data) or data.level in running_levels


def _needed(tensor: Any, roots: Counter[int], held: Counter[int]) -> Iterator[Any]:
    """What must flow out of a branch so that a tensor can be made again after it."""
    waiting = [tensor]
    # where something else shows one of its bases, all of them must be there to choose between
    is_tied = any(is_around(x) or roots[id(x)] > 1 or held[id(x)] for x in bases_of(tensor))
    while waiting:
        x = waiting.pop()
        if is_around(x):
            continue
        if not hasattr(x, "_link"):
            if x is not tensor and is_tied:
                yield x
            continue
        waiting += parents_of(x)
        yield from (t for t in _tensors_of(x._link[2]) if not is_around(t))
        if x._link[1] is CHOICE:  # a view that is one of two shows something else than the choice does
            yield from (p for p in parents_of(x) if hasattr(p, "_link") and not is_around(p))


def bases_of(tensor: Any) -> list[Any]:
    """The tensors that one is a view of in the end, up to those from around."""
    out, waiting = [], [tensor]
    while waiting:
        x = waiting.pop()
        if is_around(x) or not hasattr(x, "_link"):
            out.append(x)
        else:
            waiting += parents_of(x)
    return out


def _local_roots(tensor: Any) -> list[Any]:
    return [x for x in bases_of(tensor) if not is_around(x)]


def _tensors_of(args: Any) -> Iterator[Any]:
    """The tensors in the arguments of a step: numbers that only a run tells."""
    if hasattr(args, "truth"):
        yield args.truth
    elif isinstance(args, tuple):
        for x in args:
            yield from _tensors_of(x)
    elif isinstance(args, slice):
        yield from _tensors_of((args.start, args.stop, args.step))
    elif isinstance(args, TensorLike):
        yield args


def _leaves(value: Any, count: int) -> list[Any]:
    return [None] * count if is_undefined(value) else tree_flatten(value, is_leaf=is_leaf)[0]


def _tensors(value: Any) -> list[Any]:
    leaves = [] if is_undefined(value) else tree_flatten(value, is_leaf=is_leaf)[0]
    return [x for x in leaves if isinstance(x, Tensor)]
