"""Truth in captured code: what an ``if`` asks of a tensor, a Number, a list, or an object of the user."""

from __future__ import annotations

from typing import Any

from weft.base.sizes import Size
from weft.capture.runtime.meet import as_predicate
from weft.capture.runtime.methods import call_method_of, may_have_methods
from weft.capture.runtime.number import Number
from weft.capture.runtime.places import note_read
from weft.capture.runtime.whole import truth
from weft.ops import compare as ops
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor


def is_staged(x: Any) -> bool:
    """Whether a value is a tensor or Number of a capture that puts control flow into its graph."""
    if not isinstance(x, Tensor | Number):
        return False
    capture = thread.capture
    return capture is not None and capture.root.stages_control


def asked(x: Any) -> Any:
    """What is asked for its truth: of a list, and of a size, whose truth only a run tells, a Number.

    Of an object of the user it is what its ``__bool__`` or ``__len__`` gives, which runs once.
    """
    capture = thread.capture
    if capture is None:
        return x
    if isinstance(x, list):
        note_read(x, "len")
        grown: Any = x  # perhaps: see weft.capture.runtime.lists.GraphList
        if getattr(x, "is_grown", False):
            return grown.graph_length
    if isinstance(x, Size):
        return x != 0 if capture.root.guards_reads else x
    return _answer(x) if may_have_methods(x) else x


def _answer(x: Any) -> Any:
    """What the special methods of an object say about its truth; itself if it has none."""
    out = call_method_of(x, "__bool__")
    if out is NotImplemented:
        length = call_method_of(x, "__len__")
        return x if length is NotImplemented else length
    if not isinstance(out, bool) and not (isinstance(out, Number) and out.kind is bool):
        raise TypeError(f"__bool__ should return bool, returned {type(out).__name__}")
    return out


def not_(x: Any) -> Any:
    """``not x``."""
    x = asked(x)
    if not is_staged(x):
        return not truth(x)
    return Number(bool, ops.logical_not(as_predicate(x)._value()))


def as_bool(x: Any) -> Any:
    """``bool(x)``."""
    x = asked(x)
    return Number(bool, as_predicate(x)._value()) if is_staged(x) else truth(x)
