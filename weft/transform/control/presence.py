"""Whether tensors have gradients after branches and loops: where only a run tells, a truth value flows along.

See ``weft.transform.gradient_events``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base.records import NamedTuple
from weft.ir.graph import Value
from weft.ops.op import Tensor, type_of
from weft.tensor.dispatch import captured_constant
from weft.tensor.mode import thread
from weft.transform.control.regions import Change, Region
from weft.transform.slots import GradSlot, PresenceSlot


class Presence(NamedTuple):
    """Whether a tensor has a gradient after branches.

    Attributes:
        rows: the slot of that, with its value in each branch; none if they agree.
        absent: whether no branch leaves one.
    """

    rows: list[tuple[PresenceSlot, list[Value]]]
    absent: bool = False


def merge_presence(
    regions: Sequence[Region], slot: GradSlot, changes: Sequence[Change], index: Tensor
) -> Presence:
    """Whether a tensor has a gradient after branches, of which an index picks one."""
    capture = thread.capture
    if capture is None:
        return Presence([])
    own = capture.presence_of(slot.tensor)
    told = _told_by(index, own.get())
    rows = zip(regions, changes, told or [None] * len(regions), strict=True)
    found = [_presence(region, own, change, known) for region, change, known in rows]
    if not any(isinstance(x, Value) for x in found) and len(set(found)) == 1:
        capture.settle_presence(slot.tensor)
        return Presence([], absent=not found[0])
    pairs = zip(regions, found, strict=True)
    return Presence([(own, [x if isinstance(x, Value) else _truth(region, x) for region, x in pairs])])


def _told_by(index: Tensor, truth: Any) -> tuple[bool, bool] | None:
    """Whether there is a gradient where a test holds, and where it does not, if it asks for that alone."""
    if truth is None:
        return None
    if index is truth:
        return True, False
    negated, of = thread.capture.root.notes.absence.get(id(index), (None, None))
    return (False, True) if negated is index and of is truth else None


def _presence(region: Region, own: PresenceSlot, gradient: Change, known: bool | None) -> Value | bool:
    """Whether a tensor has a gradient at the end of a region, if it is known; else the value that tells.

    Args:
        region: the region.
        own: the slot that tells.
        gradient: what the slot of the gradient holds then.
        known: whether there is one where the region begins, if its being run tells.
    """
    change = region.changes.get(own.key)
    if change is not None and change.value is not None:
        return change.value
    outside = own.get()
    if change is not None or gradient.slot.key in region.changes or outside is None:
        return gradient.held is not None
    if known is not None:
        return known
    value = Value(type_of(outside), "")
    region.imports.append((value, outside))
    return value


def _truth(region: Region, known: bool) -> Value:
    return region.capture.number(np.asarray(known)).value


def left_presence(region: Region, slot: PresenceSlot) -> Value:
    """The value that tells at the end of the body of a loop, which carries it."""
    change = region.changes[slot.key]
    return _truth(region, leaves_gradient(region, slot.tensor)) if change.value is None else change.value


def leaves_gradient(region: Region, tensor: Tensor) -> bool:
    """Whether a region that knows leaves a tensor with a gradient."""
    return region.changes[GradSlot(tensor).key].held is not None


def new_presence(region: Region, change: Change, before: object) -> list[tuple[PresenceSlot, Tensor]]:
    """The slot that the body of a loop must carry, with what it holds at first; none if it is known."""
    capture = thread.capture
    if capture is None:
        return []
    own = capture.presence_of(change.slot.tensor)  # type: ignore[attr-defined]
    inside = region.changes.get(own.key)
    outside = own.get()
    agree = (before is None) == (change.held is None)
    if agree and outside is None and (inside is None or inside.value is None):
        return []
    return [(own, captured_constant(np.asarray(before is not None)) if outside is None else outside)]


def settle_presences(region: Region) -> None:
    """Note what is known after a loop that had a turn for sure: whatever its body leaves."""
    for change in region.changes.values():
        slot = change.slot
        if isinstance(slot, PresenceSlot) and change.value is None:
            thread.capture.settle_presence(slot.tensor)
            if not leaves_gradient(region, slot.tensor):
                GradSlot(slot.tensor).put(None)
