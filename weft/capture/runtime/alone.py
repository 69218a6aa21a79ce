"""Tensors that are numbers of Python on some way: ``s += 1`` makes a new number there, and changes a tensor.

Who else has it sees the change on one way only, which no graph tells: that is refused.
"""

from __future__ import annotations

import gc
from types import FrameType
from typing import Any

from weft.capture.runtime.owners import is_made_inside, is_outside
from weft.errors import CaptureError
from weft.ops.alias import parents_of
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor


def check_alone(tensor: Any, sign: str, frame: FrameType) -> None:
    """Raise if a tensor that may be a number is about to change, and others than its variable have it."""
    known = thread.capture.root.notes.numbers
    parts = _parts_of(tensor) if known else {}
    mixed = _mixed(parts)
    if not mixed:
        return
    sharing = [
        name
        for name, value in frame.f_locals.items()
        if isinstance(value, Tensor)
        and not parts.keys().isdisjoint(others := _parts_of(value))
        and _mixed(others)
    ]
    if len(sharing) > 1 or any(_is_of_user(x) for t in mixed for x in gc.get_referrers(t)):
        where = known[id(mixed[0])][2]
        names = " and ".join(sharing[:2]) or "what changes"
        raise CaptureError(
            sign,
            f"a number must not be changed in place if {where} leaves a number of Python on one way and a "
            f"tensor on the other, and several have it, got {names}: a number does not change",
            hint="write `x = x + y`, or make it a tensor on both ways, with weft.tensor(...)",
        )


def _parts_of(tensor: Any) -> dict[int, Any]:
    """A tensor with all that it may be, or shows elements of, by id."""
    found: dict[int, Any] = {}
    waiting = [tensor]
    while waiting:
        at = waiting.pop()
        if id(at) not in found:
            found[id(at)] = at
            waiting += parents_of(at)
    return found


def _mixed(parts: dict[int, Any]) -> list[Any]:
    """Those among some tensors that are numbers on some way."""
    known = thread.capture.root.notes.numbers
    return [t for key, t in parts.items() if key in known and known[key][0] is t]


def _is_of_user(holder: Any) -> bool:
    """Whether what holds a tensor is a list, a dict or an object of captured code, or from outside."""
    if isinstance(holder, dict) and any(_has_attributes(x, holder) for x in gc.get_referrers(holder)):
        return True
    if isinstance(holder, list | dict | set):
        return is_made_inside(holder) or is_outside(holder)
    return not isinstance(holder, tuple | FrameType) and is_made_inside(holder)


def _has_attributes(x: Any, attributes: dict[str, Any]) -> bool:
    """Whether an object, which is none of weft's own, has these attributes."""
    own = None if isinstance(x, type | FrameType) else getattr(x, "__dict__", None)
    return own is attributes and not type(x).__module__.startswith("weft.")
