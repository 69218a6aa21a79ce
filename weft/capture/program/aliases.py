"""Views among the inputs of a program: which of them a program that changes tensors was captured with.

A program that changes a tensor was written for the views that its inputs were of each other. Tensors that it
does not know see a change when a call ends. So it serves a call in which the inputs that are in one tree with
a tensor that it changes are the same ones, taken by the same steps. Mostly there are none; whether that is
still so is asked only after a link was made somewhere.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.concrete import is_concrete
from weft.base.dtypes import int64
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.capture.program.described import LeafOut, ViewOut
from weft.capture.program.guards import Names
from weft.capture.program.program import Program
from weft.capture.program.sources import Argument, Fixed, Gradient, InSlot, ParentOf, Source, tensor_code
from weft.ir.graph import Value
from weft.ops.alias import CHOICE, Step, epoch, link
from weft.ops.op import TensorLike
from weft.ops.size import size_value
from weft.tensor.alias import is_aliased, path_of, root_of, settle_links
from weft.tensor.dispatch import wrap


def _taken(parent: Any, step: Step[Any], args: Any) -> Any:
    """A view on the way to another one."""
    if type(parent._data) is np.ndarray:
        return wrap(step.array(parent._data, args))
    if is_concrete(parent._data):  # on a device, whose views the ops take
        return wrap(step.get(wrap(parent._data), args)._data)
    return step.get(parent, args)


class Unknown(NamedTuple):
    """Stands in the arguments of a step for a number that only a run tells."""

    number: int


def describe_tensor(
    tensor: Any, value_of: Callable[[Any], Value], is_outside: Callable[[Any], bool]
) -> LeafOut:
    """A tensor that leaves a capture, with what it is a view of."""
    leaf = LeafOut(
        value_of(tensor), weakref.ref(tensor), id(tensor), tensor._node, retains=tensor.retains_grad
    )
    if not hasattr(tensor, "_link") or is_outside(tensor):
        return leaf
    parent, step, args = tensor._link
    if step is CHOICE:
        one, other = (describe_tensor(x, value_of, is_outside) for x in (parent, args.other))
        return leaf._replace(pick=(value_of(args.truth), one, other))
    return leaf._replace(view=_describe_view(tensor, value_of, is_outside))


def _describe_view(
    tensor: Any, value_of: Callable[[Any], Value], is_outside: Callable[[Any], bool]
) -> ViewOut:
    base, steps = tensor, []
    while hasattr(base, "_link") and base._link[1] is not CHOICE and not is_outside(base):
        base, step, args = base._link
        steps.append((step, args))
    numbers: list[Value] = []

    def plain(x: Any) -> Any:
        if type(x) is tuple:
            return tuple(map(plain, x))
        if isinstance(x, slice):
            return slice(plain(x.start), plain(x.stop), plain(x.step))
        if isinstance(x, Mapping):
            return {name: plain(value) for name, value in x.items()}
        if isinstance(x, Size):
            x = wrap(size_value(x, int64)._data)
        if not isinstance(x, TensorLike):
            return x
        numbers.append(value_of(x))
        return Unknown(len(numbers) - 1)

    path = tuple((step, plain(args)) for step, args in reversed(steps))
    return ViewOut(describe_tensor(base, value_of, is_outside), path, tuple(numbers))


def link_view(view: Any, parent: Any, steps: Sequence[tuple[Any, Any]], numbers: Sequence[Any]) -> None:
    """Make a tensor that a call gave a view of another one, by steps from there."""

    def known(x: Any) -> Any:
        if type(x) is tuple:
            return tuple(map(known, x))
        if isinstance(x, slice):
            return slice(known(x.start), known(x.stop), known(x.step))
        if isinstance(x, Mapping):
            return {name: known(value) for name, value in x.items()}
        return int(numbers[x.number]) if isinstance(x, Unknown) else x

    for i, (step, args) in enumerate(steps):
        args = known(args)
        is_last = i == len(steps) - 1
        child = view if is_last else _taken(parent, step, args)
        link(child, parent, step, args)
        parent = child


def is_tensor_source(source: Source) -> bool:
    """Whether a source is a tensor, rather than a number or the state of a generator."""
    return isinstance(source, Argument | Fixed | Gradient | InSlot | ParentOf)


class Aliases:
    """What a program relies on of the views among its inputs."""

    __slots__ = (
        "_expected",
        "_fixed",
        "_given",
        "_has_parents",
        "_inputs",
        "_read",
        "_replaced",
        "fixed_quiet",
        "is_fixed",
        "mark",
    )

    def __init__(self, program: Program) -> None:
        targets = [u.target for u in program.updates if u.kind == "data"]
        names = Names(program.arguments)
        self._fixed = [t.held for t in targets if isinstance(t, Fixed)]
        self.is_fixed = len(self._fixed) == len(targets)
        self._given = _gather([t for t in targets if not isinstance(t, Fixed)], names)
        self._replaced = _gather([u.target for u in program.updates if u.replaces], names)
        self._inputs = _gather([s for s in program.sources if is_tensor_source(s)], names)
        self._read = any(isinstance(s, InSlot | Gradient) for s in program.sources)
        self._has_parents = any(isinstance(s, ParentOf) for s in (*targets, *program.sources))
        self._expected = list(program.aliases)
        self.mark: Any = None
        self.fixed_quiet = False

    def quiet(self, a: Sequence[Any]) -> bool:
        """Whether none of the tensors that the program changes is a view or has one."""
        if self._has_parents:
            return False
        if self.mark is not epoch.mark or not self.fixed_quiet:  # views may have gone since
            self.mark = epoch.mark
            for tensor in self._fixed:
                if is_aliased(tensor):
                    settle_links(tensor)
            self.fixed_quiet = not any(map(is_aliased, self._fixed))
        return self.fixed_quiet and (self.is_fixed or not any(map(is_aliased, self._given(a))))

    def quiet_code(self, names: Names) -> str:
        """The expression for ``quiet(a)``, which asks this object only after a link was made somewhere."""
        own = names(self)
        asked = f"{own}.quiet(a)"
        return f"({own}.mark is epoch.mark and {own}.fixed_quiet or {asked})" if self.is_fixed else asked

    def holds_code(self, names: Names) -> str:
        """The expression for ``holds(a)``, likewise."""
        own = names(self)
        if self._read or self._expected or not self.is_fixed:
            return f"{own}.holds(a)"
        return f"({own}.mark is epoch.mark and {own}.fixed_quiet or {own}.holds(a))"

    def holds(self, a: Sequence[Any]) -> bool:
        """Whether the views among the inputs of a call are those of the captured call."""
        try:
            return self._holds(a)
        except AttributeError:  # what was a view is none any more, and has no parent
            return False

    def _holds(self, a: Sequence[Any]) -> bool:
        if self._read and len(set(map(id, found := self._inputs(a)))) < len(found):
            return False  # two slots hold one tensor, which the captured call found in one
        if self.quiet(a):
            return not self._expected
        for tensor in self._replaced(a):
            settle_links(tensor)
            if is_aliased(tensor):
                return False  # the captured call met one that had no views
        changed = [*self._fixed, *self._given(a)]
        return signature(self._inputs(a), changed) == self._expected


def _gather(sources: Sequence[Source], names: Names) -> Any:
    """A function of the tensors among the arguments that gives the tensors of sources."""
    if not sources:
        return lambda a: ()
    return names.function("tensors", "a", f"({''.join(tensor_code(s, names) + ', ' for s in sources)})")


def signature(inputs: Sequence[Any], changed: Sequence[Any]) -> list[Any]:
    """Each tree that has a changed tensor and several inputs: the numbers of these, with their paths."""
    roots = {id(root_of(t)) for t in changed if is_aliased(t)}
    trees: dict[int, list[Any]] = {}
    for number, tensor in enumerate(inputs):
        if is_aliased(tensor) and id(root := root_of(tensor)) in roots:
            trees.setdefault(id(root), []).append((number, path_of(tensor)))
    return [tree for tree in trees.values() if len(tree) > 1]
