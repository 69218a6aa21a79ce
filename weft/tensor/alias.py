"""A change of a tensor, seen through all tensors that show its elements.

Links (``weft.ops.alias``) make a tree: a view hangs by the tensor it was taken from. A change of one of them
goes up to the root, each parent getting its new part, and from there down to all other living views. So data
stay values: what a graph has saved, or NumPy was given, is not written to. Where nobody but the tensors of
the tree holds an array, it is written in place, and all of them see it without being told.

Gradients follow PyTorch's rules. While recording, a change through a view is a change of its base, which gets
the history of the change; the other views then come from the new base. Without recording, and through
``detach()``, ``data`` and views that were taken without recording, only values change, and every tensor keeps
its place in the graph. To change a view that was taken so while recording is an error where gradients are.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from weft.base.concrete import is_concrete
from weft.base.forks import Level, lock_of
from weft.errors import CaptureError, GradientError
from weft.ops.alias import CHOICE, CUT_PATH, SAME, Step, Unrecorded, forget_views, link, parents_of
from weft.ops.op import Array, Tensor, intercepted
from weft.tensor.choices import ChoiceChange, is_met, meet_parents, without_history
from weft.tensor.dispatch import stage, wrap
from weft.tensor.mode import enable_grad, thread
from weft.tensor.node import Leaf

ndarray = np.ndarray

# Held while arrays of a tree are written, so that threads may change rows of one tensor side by side.
writing = lock_of(Level.CONTENTS)


def views_of(tensor: Tensor) -> list[Tensor]:
    """The living views that were taken from a tensor itself; those of a capture that has ended are not."""
    found = [v for r in getattr(tensor, "_views", ()) if (v := r()) is not None]
    return [v for v in found if _is_view_of(v, tensor)]


def _is_view_of(view: Tensor, tensor: Tensor) -> bool:
    return any(p is tensor for p in parents_of(view)) and not _has_ended(view)


def _has_ended(tensor: Tensor) -> bool:
    return not is_concrete(tensor._data) and tensor._data.has_ended()


def is_aliased(tensor: Tensor) -> bool:
    """Whether a tensor is a view, or has had views."""
    return hasattr(tensor, "_link") or hasattr(tensor, "_views")


def base_of(tensor: Tensor) -> Tensor | None:
    """The tensor that a view comes from in the end; None of no view, and of what ``detach`` gave."""
    base = None
    while (found := getattr(tensor, "_link", None)) is not None and _is_taken(found[1], found[2]):
        base = tensor = found[0]
    return base


def _is_taken(step: Step[Any], args: Any) -> bool:
    """Whether a step is one of a view, be it taken without recording."""
    if step is CUT_PATH:
        return all(_is_taken(one, own) for one, own, _ in args)
    return step.keeps_history or isinstance(step, Unrecorded)


def root_of(tensor: Tensor) -> Tensor:
    """The tensor at the root of the tree."""
    while (found := getattr(tensor, "_link", None)) is not None:
        tensor = found[0]
    return tensor


def with_ancestors(tensor: Tensor) -> list[Tensor]:
    """A tensor, and all that it is a view of."""
    out, waiting = list[Tensor](), [tensor]
    while waiting:
        out.append(waiting.pop())
        waiting += parents_of(out[-1])
    return out


def path_of(tensor: Tensor) -> list[Any]:
    """The steps from a view up to the root, with their arguments."""
    out = []
    while (found := getattr(tensor, "_link", None)) is not None:
        tensor, step, args = found
        out.append((step, args))
    return out


def settle_links(tensor: Tensor) -> None:
    """Forget views that are gone, and a twin that nothing else is a view of."""
    if hasattr(tensor, "_views") and not views_of(tensor):
        forget_views(tensor, lambda view: _is_view_of(view, tensor))
    forget_lone_twin(tensor)


def members(root: Tensor) -> Iterator[Tensor]:
    """All living tensors of a tree, each after its parent."""
    waiting, seen = [root], set[int]()
    while waiting:
        tensor = waiting.pop()
        if id(tensor) not in seen:  # a choice hangs by two tensors, maybe of one tree
            seen.add(id(tensor))
            yield tensor
            waiting += views_of(tensor)


def family_of(tensor: Tensor) -> list[Tensor]:
    """All tensors that a change of one may reach: its tree, and those that choices tie to it."""
    found, waiting = dict[int, Tensor](), [tensor]
    while waiting:
        tensor = waiting.pop()
        if id(tensor) not in found:
            found[id(tensor)] = tensor
            waiting += [*parents_of(tensor), *views_of(tensor)]
    return list(found.values())


def _has_choice(family: Sequence[Tensor]) -> bool:
    return any(getattr(t, "_link", (None, None))[1] is CHOICE for t in family)


# Cut from the graph


def detached(tensor: Tensor) -> Tensor:
    """A tensor of the same elements, cut from the graph: a change of either shows in the other."""
    twin = tensor if _captures() else _twin(tensor)
    out = tensor._value()
    if twin is tensor and _is_captured(out):  # of the region that runs, so that it is known to be made there
        out = wrap(thread.capture.as_captured(out).detached())
    link(out, twin, SAME, None if twin is tensor else _HIDDEN)
    return out


_HIDDEN = "twin"  # the argument of the step from a twin, which nobody but its views holds


def _is_captured(tensor: Tensor) -> bool:
    """Whether a tensor is of the capture that runs or from around it, and of no transform inside of it."""
    data = tensor._data
    return is_concrete(data) or bool(data.level <= thread.capture.level)


def _captures() -> bool:
    """Whether this thread captures: tensors from outside then keep the links they have."""
    return bool(intercepted.threads) and thread.capture is not None


def _twin(tensor: Tensor) -> Tensor:
    """What has the elements of a tensor and no place in the graph; the tensor is a view of it, or its twin.

    It is what a detached tensor holds on to, so that this keeps no graph alive.
    """
    chain = []  # from the tensor up to the first that has a twin, or to the root
    while (found := getattr(tensor, "_link", None)) is not None and found[2] is not _HIDDEN:
        chain.append((tensor, found))
        tensor = found[0]
    if found is None:
        twin = tensor._value()
        link(tensor, twin, SAME, _HIDDEN)
    else:
        twin = found[0]
    for view, (_, step, args) in reversed(chain):
        above, twin = twin, view._value()
        link(twin, above, step, args)
    return twin


def forget_lone_twin(tensor: Tensor) -> None:
    """Let go of a twin that nothing else is a view of any more, so that it holds no array."""
    found = getattr(tensor, "_link", None)
    if found is None or found[2] is not _HIDDEN or hasattr(found[0], "_link"):
        return
    if len(views_of(found[0])) == 1:
        del tensor._link


def take_over(tensor: Tensor, source: Tensor) -> None:
    """Let a tensor show the elements of another one; its views stay with what it showed before."""
    if _captures():
        thread.capture.take_over(tensor, source)
        return
    leave_views(tensor)
    twin = _twin(source)
    tensor._data, tensor._form = twin._data, None
    link(tensor, twin, SAME, _HIDDEN)


def leave_views(tensor: Tensor) -> None:
    """Give the views of a tensor another parent, which has its elements and its place in the tree."""
    views = views_of(tensor)
    if not views:
        return
    old = wrap(tensor._data, tensor._node)
    if (found := getattr(tensor, "_link", None)) is not None:
        link(old, *found)
    for view in views:
        _, step, args = view._link
        link(view, old, step, args)
    del tensor._views


# Changes


def _own_count() -> int:
    """What getrefcount says of an array that one local name holds; it differs between Python versions."""
    probe = np.empty(1)
    return sys.getrefcount(probe)


_OWN = _own_count()


def write_in_place(tensor: Tensor) -> Array | None:
    """The array of a tensor if it may be written to: only tensors of its tree hold it; else None."""
    root = root_of(tensor)
    owner = root._data
    if type(owner) is not ndarray or owner.base is not None or not owner.flags.writeable:
        return None
    held = 0
    for member in members(root):
        data = member._data
        if data is not owner and (
            type(data) is not ndarray
            or data.base is not owner
            or not data.flags.writeable
            or sys.getrefcount(data) != _OWN + 1
        ):
            return None
        held += 1
    del data, member
    return tensor._data if sys.getrefcount(owner) == _OWN + held else None


def change(tensor: Tensor, value: Tensor, *, history: bool = False) -> None:
    """Give a tensor of a tree another value, and all others of the tree theirs.

    With ``history`` the change is one that the graph knows; else all keep their places in it.
    """
    forget_lone_twin(tensor)
    if intercepted.threads:
        stage(tensor)
    if _captures() and _has_choice(family := family_of(tensor)):
        for member in family:
            forget_lone_twin(member)
        ChoiceChange(family_of(tensor)).run(tensor, value, history=history)
        return
    datas, nodes = zip(*[(t._data, t._node) for t in (value, *members(root_of(tensor)))], strict=True)
    by_ops = any(type(data) is not ndarray for data in datas)  # in a region the graph knows of gradients
    history = history and (by_ops or any(node is not None for node in nodes))
    if history or by_ops:
        _change_by_ops(tensor, value, history=history)
    else:
        del datas  # whoever holds an array keeps it from being written to
        with writing:
            _change_arrays(tensor, value._data)


def check_ways_up(tensor: Tensor, op: str, value: Tensor | None = None) -> None:
    """Raise if a change must not reach a parent: a leaf that gradients are asked for, or by way of no_grad.

    Args:
        tensor: that is to be changed.
        op: by whom.
        value: what it is to be, if that may have a gradient.
    """
    waiting = [tensor]
    while waiting:
        tensor = waiting.pop()
        tensor._check_changeable(op)
        found = getattr(tensor, "_link", None)
        if found is None or not _is_taken(found[1], found[2]):
            continue
        above = parents_of(tensor)
        waiting += above
        if not found[1].keeps_history and thread.recording:
            others = [t for t in above if type(t._node) is not Leaf]  # of which it is told by itself
            _check_unrecorded(op, others if value is None else [*others, value])


def _check_unrecorded(op: str, tensors: Iterable[Tensor]) -> None:
    """Raise if one of these has a gradient, beside a view that was taken under no_grad and is to change."""
    for tensor in tensors:
        if _has_gradient(tensor):
            raise (CaptureError if _captures() else GradientError)(  # it may be on a way that no call takes
                op,
                "a view that was taken under no_grad must not be changed while recording, as gradients would "
                "not follow, got one of a tensor that has them, or a change to what has",
                hint="take the view where the change is, or change a .detach() of the tensor",
            )


def _has_gradient(tensor: Tensor) -> bool:
    """Whether gradients flow through a tensor; a region of a capture tells it by its graph."""
    data = tensor._data
    if tensor._node is not None or is_concrete(data) or not _captures():
        return tensor._node is not None
    return bool(thread.capture.has_gradient(tensor))


def _change_arrays(tensor: Tensor, value: Array) -> None:
    """The change where all are arrays and nothing is recorded: places in the graph stay as they are."""
    array = write_in_place(tensor)
    if array is not None:
        array[...] = value
        return
    path: list[tuple[Step[Any], Any]] = []
    root = tensor
    while (found := getattr(root, "_link", None)) is not None:
        root, step, args = found
        if step.overlaps:
            step.put(root, wrap(value), args)  # raises unless nothing is repeated
        path.append((step, args))
    owner = np.array(root._data, order="C")
    target = owner
    for step, args in reversed(path):
        target = step.array(target, args)
    target[...] = value
    refresh(root, owner)


def refresh(root: Tensor, owner: Array) -> None:
    """Let the tensors of a tree show an array, which its root then holds."""
    for member in members(root):
        found = getattr(member, "_link", None)
        member._data = owner if found is None or member is root else found[1].array(found[0]._data, found[2])
        member._form = None


def _change_by_ops(tensor: Tensor, value: Tensor, *, history: bool) -> None:
    """The change by ops, which go into the graph that is recorded or captured."""
    top = _top_of_change(tensor)
    if _captures():
        meet_parents(tensor, top)
    came, news = {}, [(tensor, value, history)]
    while tensor is not top:
        parent, step, args = tensor._link
        came[id(parent)] = tensor
        history = history and step.keeps_history
        value = step.put(parent if history else without_history(parent), value, args)
        tensor = parent
        news.append((tensor, value, history))
    for changed, new, known in reversed(news):
        changed._assign(new, history=known)
        _hand_down(changed, came.get(id(changed)), history=known)


def _top_of_change(tensor: Tensor) -> Tensor:
    """The tensor up to which a change goes: the root; in a capture, up to where all that it met see it.

    Tensors from outside that it has not met are told when a call of the graph ends.
    """
    if not _captures():
        return root_of(tensor)
    met = {id(m) for m in members(root_of(tensor)) if is_met(m)}
    while not met <= {id(m) for m in members(tensor)}:
        tensor = tensor._link[0]
    return tensor


def catch_up(tensor: Tensor, changed: Iterable[Tensor], known: Container[int]) -> None:
    """Let a tensor that a capture meets only now show the changes of others of its tree.

    Args:
        tensor: that is met.
        changed: what the capture has changed by now.
        known: the ids of those that were met before, so that every change went up to them.
    """
    root = root_of(tensor)  # a change of a choice has met the roots of all that it may be
    changed = [x for x in changed if root_of(x) is root and all(s is not CHOICE for s, _ in path_of(x))]
    path: list[tuple[Step[Any], Any]] = []
    above = tensor
    while changed and (found := getattr(above, "_link", None)) is not None:
        above, step, args = found
        path.insert(0, (step, args))
        if id(above) in known:
            _show_part(tensor, above, path)
            return
    for other in changed:
        with enable_grad():  # a change that was recorded stays so, wherever the tensor is met
            change(other, wrap(other._data, other._node), history=_is_recorded(other))


def _is_recorded(tensor: Tensor) -> bool:
    """Whether a capture changed a tensor from outside in a way that its graph knows."""
    return id(tensor) in thread.capture.root.took_graphs


def _show_part(tensor: Tensor, above: Tensor, path: Sequence[tuple[Step[Any], Any]]) -> None:
    """Let a tensor show its elements of one that it is a view of by several steps."""
    history = _is_recorded(above)
    shown = above
    with enable_grad():
        for step, args in path:
            history = history and step.keeps_history
            shown = step.get(shown if history else without_history(shown), args)
    tensor._assign(shown, history=history)


def _hand_down(changed: Tensor, done: Tensor | None, *, history: bool) -> None:
    """Let the views of a tensor show its new elements, but for one that has them.

    One that a capture has not met is told when a call has ended; views of it may have been met.
    """
    captures = _captures()
    waiting = [(changed, changed, history)]  # with what the tensor shows
    while waiting:
        parent, shown, known = waiting.pop()
        for view in views_of(parent):
            if view is done or (captures and not any(map(is_met, members(view)))):
                continue
            _, step, args = view._link
            kept = known and step.keeps_history
            part = step.get(shown if kept else without_history(shown), args)
            if not captures or is_met(view):
                view._assign(part, history=kept)
                part = view
            waiting.append((view, part, kept))
