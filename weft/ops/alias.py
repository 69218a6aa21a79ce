"""Which tensors show the elements of which: links from views to the tensors that they are views of.

Data are values that nobody writes to while others hold them. What makes a tensor a view is its *link*: the
tensor it was taken from (its parent), and the step that takes it. The parent knows its living views, so a
change of either reaches the other: upwards each step puts the new part into its parent, downwards each step
is taken again (``weft.tensor.alias``). Making a view costs a tuple and a weak reference; ops pay nothing.

A step is a view in meaning, however the elements lie in memory: what an op makes counts as lying in one
piece, so whether a reshape is a view is the same in eager code and in graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Generic, TypeVar
from weakref import ref

from weft.base.forks import Level, lock_of
from weft.base.hooks import hooks
from weft.base.records import NamedTuple
from weft.base.shapes import Shape
from weft.base.switch import switch
from weft.ops.op import Array, Op, Tensor, intercepted

Strides = tuple[Any, ...]


A = TypeVar("A")


class Step(Generic[A]):
    """How a view is taken from its parent; ``args`` are what the call was given."""

    overlaps = False  # whether several elements of the view are one of the parent
    keeps_history = True  # whether gradients flow through it

    @property
    def unrecorded(self) -> Step[A]:
        """The same step, taken where nothing records: no gradient flows through it."""
        found: Step[A] | None = self.__dict__.get("_unrecorded")
        if found is None:
            found = self.__dict__["_unrecorded"] = Unrecorded(self) if self.keeps_history else self
        return found

    def get(self, parent: Tensor, args: A) -> Tensor:
        """The view of a parent."""
        raise NotImplementedError

    def put(self, parent: Tensor, part: Tensor, args: A) -> Tensor:
        """A parent with another view."""
        raise NotImplementedError

    def array(self, parent: Array, args: A) -> Array:
        """The view of an array, which shares its memory."""
        raise NotImplementedError

    def strides(self, shape: Shape, strides: Strides, args: A) -> Strides:
        """How far apart elements of the view are along each axis, given that of the parent."""
        raise NotImplementedError


class Unrecorded(Step[A]):
    """A step that was taken under ``no_grad``: the view shows the elements, and has no place in the graph."""

    keeps_history = False

    def __init__(self, step: Step[A]) -> None:
        self.step = step
        self.overlaps = step.overlaps

    def get(self, parent: Tensor, args: A) -> Tensor:
        """The view of a parent."""
        return self.step.get(parent, args)

    def put(self, parent: Tensor, part: Tensor, args: A) -> Tensor:
        """A parent with another view."""
        return self.step.put(parent, part, args)

    def array(self, parent: Array, args: A) -> Array:
        """The view of an array."""
        return self.step.array(parent, args)

    def strides(self, shape: Shape, strides: Strides, args: A) -> Strides:
        """Those of the step."""
        return self.step.strides(shape, strides, args)


class OpStep(Step[Mapping[str, Any]]):
    """An op of one input that gives its elements in another order."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.overlaps = op.name == "broadcast_to"

    def get(self, parent: Tensor, args: Mapping[str, Any]) -> Tensor:
        """The op on the parent."""
        return self.op(parent, **args)

    def array(self, parent: Array, args: Mapping[str, Any]) -> Array:
        """The op on an array."""
        if self.overlaps and parent.size == prod(args["shape"]):
            return parent.reshape(args["shape"])  # nothing is repeated, so it may be written to
        out: Array = self.op.eval(parent, **args)
        return out


class Same(Step[str | None]):
    """All elements as they are, cut from the graph: what ``detach`` takes."""

    keeps_history = False

    def get(self, parent: Tensor, args: str | None) -> Tensor:
        """The parent."""
        return parent

    def put(self, parent: Tensor, part: Tensor, args: str | None) -> Tensor:
        """The part."""
        return part

    def array(self, parent: Array, args: str | None) -> Array:
        """The array."""
        return parent

    def strides(self, shape: Shape, strides: Strides, args: str | None) -> Strides:
        """Those of the parent."""
        return strides


class Path(Step[tuple[tuple[Step[Any], Any, Shape], ...]]):
    """Several steps as one; the arguments are the steps with theirs, and the shapes that they start from."""

    def get(self, parent: Tensor, args: tuple[tuple[Step[Any], Any, Shape], ...]) -> Tensor:
        """The view at the end."""
        for step, own, _ in args:
            parent = step.get(parent, own)
        return parent

    def put(self, parent: Tensor, part: Tensor, args: tuple[tuple[Step[Any], Any, Shape], ...]) -> Tensor:
        """The parent with another view at the end."""
        (step, own, _), *rest = args
        if rest:
            part = self.put(step.get(parent, own), part, tuple(rest))
        return step.put(parent, part, own)

    def array(self, parent: Array, args: tuple[tuple[Step[Any], Any, Shape], ...]) -> Array:
        """The view of an array at the end."""
        for step, own, _ in args:
            parent = step.array(parent, own)
        return parent

    def strides(
        self, shape: Shape, strides: Strides, args: tuple[tuple[Step[Any], Any, Shape], ...]
    ) -> Strides:
        """Those at the end."""
        for step, own, start in args:
            strides = step.strides(start, strides, own)
        return strides


class CutPath(Path):
    """Several steps as one, of which some cut the graph."""

    keeps_history = False


UNKNOWN = float("nan")  # a stride that depends on a run; it equals no other


class Picked(NamedTuple):
    """The arguments of a choice: a truth value that only a run tells, and the parent where it is false."""

    truth: Tensor
    other: Tensor


class Choice(Step[Picked]):
    """One of two tensors, which a run picks: what a variable is after a branch that assigns it on one way."""

    def strides(self, shape: Shape, strides: Strides, args: Picked) -> Strides:
        """Those of both, where they are the same; else none that anybody knows."""
        same = strides == strides_of(args.other)
        return strides if same else (UNKNOWN,) * len(strides)


SAME = Same()
CHOICE = Choice()
PATH = Path()
CUT_PATH = CutPath()


class Epoch:
    """A mark that is another object after each link, which tells who looked before to look again."""

    __slots__ = ("mark",)

    def __init__(self) -> None:
        self.mark = object()


epoch = Epoch()
_forgetting = lock_of(Level.CONTENTS)


def link_taken(view: Tensor, parent: Tensor, step: Step[A], args: A) -> None:
    """Make a tensor the view of another one that it was taken as just now, by who records or does not."""
    link(view, parent, step.unrecorded if switch.off and not hooks.recording() else step, args)


def link(view: Tensor, parent: Tensor, step: Step[A], args: A) -> None:
    """Make a tensor a view of another one."""
    view._link = (parent, step, args)
    epoch.mark = object()
    _enter_view(parent, view)


def link_path(view: Tensor, base: Tensor, steps: tuple[tuple[Step[Any], Any, Shape], ...]) -> None:
    """Make a tensor a view of another one by several steps."""
    link(view, base, PATH if all(step.keeps_history for step, _, _ in steps) else CUT_PATH, steps)


def link_choice(choice: Tensor, truth: Tensor, first: Tensor, other: Tensor) -> None:
    """Make a tensor the one of two that a run picks."""
    choice._link = (first, CHOICE, Picked(truth, other))
    _enter_view(first, choice)
    _enter_view(other, choice)


def _enter_view(parent: Tensor, view: Tensor) -> None:
    """Let a parent know a view, whatever other threads do with it: nothing locks, as this is done often."""
    entry = ref(view)
    try:
        views = parent._views
        views.append(entry)
        if parent._views is not views:  # it was put away in between
            raise AttributeError
    except AttributeError:
        views = _enter_in_list(parent, entry)
    count = len(views)
    if count >= 64 and not count & (count - 1):  # now and then, so that a loop over rows leaves nothing
        forget_views(parent)


def _enter_in_list(parent: Tensor, entry: ref[Tensor]) -> list[ref[Tensor]]:
    """Enter a view into the list that a parent has, or into a first one."""
    views: list[ref[Tensor]] | None = None
    while views is None:
        try:
            views = parent._views
        except AttributeError:
            views = parent._views = [entry]  # no other thread runs between the look and this
        else:
            views.append(entry)
            if getattr(parent, "_views", None) is not views:
                views = None
    return views


def forget_views(parent: Tensor, is_living: Callable[[Tensor], bool] | None = None) -> None:
    """Forget views that are gone, or of no use; those that other threads take in the meantime stay."""
    with _forgetting:
        views = getattr(parent, "_views", None)
        if views is None:
            return
        count = len(views)
        alive = [r for r in views[:count] if (v := r()) is not None and (is_living is None or is_living(v))]
        if alive:
            parent._views = alive
        else:
            del parent._views
        for entry in views[count:]:  # who saw the old list last has written to it before
            if (view := entry()) is not None:
                _enter_view(parent, view)


def unlink(tensor: Tensor) -> None:
    """Let a tensor be no view any more; its own views stay views of it."""
    if hasattr(tensor, "_link"):
        del tensor._link


def parents_of(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors that a view was taken from: one, or the two that a choice picks from."""
    found = getattr(tensor, "_link", None)
    if found is None:
        return ()
    return (found[0], found[2].other) if found[1] is CHOICE else (found[0],)


# Where elements lie


def contiguous_strides(shape: Shape) -> Strides:
    """Those of elements that lie one after another."""
    out: list[Any] = []
    step: Any = 1
    for size in reversed(shape):
        out.append(step)
        step = step * size
    return tuple(reversed(out))


def strides_of(tensor: Tensor) -> Strides:
    """How far apart the elements of a tensor are along each axis, counted in elements of its base."""
    note_layout(tensor)
    return _strides_of(tensor)


def note_layout(tensor: Tensor) -> None:
    """Tell a capture of this thread that it matters how the elements of a tensor lie."""
    if intercepted.threads:
        hooks.note_layout(tensor)


def layout_of(tensor: Tensor) -> Strides | None:
    """How elements lie, which nobody is told of: None if one after another, else their strides."""
    return None if _is_contiguous(tensor) else _strides_of(tensor)


def _strides_of(tensor: Tensor) -> Strides:
    chain = []
    while (found := getattr(tensor, "_link", None)) is not None:
        tensor = found[0]
        chain.append(found)
    out = contiguous_strides(tensor.shape)
    for parent, step, args in reversed(chain):
        out = step.strides(parent.shape, out, args)
    return out


def is_contiguous(tensor: Tensor) -> bool:
    """Whether the elements of a tensor lie one after another in its base."""
    note_layout(tensor)
    return _is_contiguous(tensor)


def _is_contiguous(tensor: Tensor) -> bool:
    if not hasattr(tensor, "_link"):
        return True
    pairs = zip(tensor.shape, _strides_of(tensor), contiguous_strides(tensor.shape), strict=True)
    return 0 in tensor.shape or all(a == b for size, a, b in pairs if size != 1)


def reshaped_strides(shape: Shape, strides: Strides, new: Shape) -> Strides | None:
    """The strides of elements in another shape, or None where no strides tell where they are."""
    if 0 in shape:
        return contiguous_strides(new)
    blocks = _merged(shape, strides)
    out: list[Any] = []
    for size in reversed(new):
        if size == 1:
            out.append(1)
            continue
        while blocks and blocks[-1][0] == 1:
            blocks.pop()
        if not blocks:
            return None
        length, step = blocks[-1]
        if length % size != 0:
            return None
        out.append(step)
        blocks[-1] = (length // size, step * size)
    return tuple(reversed(out)) if all(length == 1 for length, _ in blocks) else None


def _merged(shape: Shape, strides: Strides) -> list[tuple[Any, Any]]:
    """Axes as lengths and strides, neighbours made one where their elements lie evenly."""
    blocks: list[tuple[Any, Any]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if blocks and blocks[-1][1] == stride * size:
            blocks[-1] = (blocks[-1][0] * size, stride)
        else:
            blocks.append((size, stride))
    return blocks
