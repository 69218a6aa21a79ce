"""Which tensor, list or object one is: ``is``, ``id()``, and tensors as keys of dicts and members of sets.

The answer goes into the graph as Python got it, so calls are checked to find the same tensors. In a loop, and
after an ``if``, a variable may hold one tensor or another, which only a run tells: then nobody can ask.
"""

from __future__ import annotations

from typing import Any

from weft.base.concrete import is_concrete
from weft.capture.runtime.builtins import handles
from weft.capture.runtime.joined import may_be_one
from weft.capture.runtime.number import Number
from weft.capture.runtime.truth import not_
from weft.capture.runtime.undefined import check_defined
from weft.capture.runtime.whole import whole
from weft.errors import CaptureError
from weft.ops.alias import CHOICE, parents_of
from weft.tensor import dispatch
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.frozen import check_known
from weft.transform.slots import DataSlot


def is_(left: Any, right: Any) -> Any:
    """``left is right``."""
    if thread.capture is None:
        return left is right
    check_defined(left, right)
    if left is right:
        return True
    if isinstance(left, Number) or isinstance(right, Number):
        return _is_number(left, right)
    if not (isinstance(left, Tensor) and isinstance(right, Tensor)):
        if may_be_one(left, right):
            raise _unknown("list or object")
        return False
    one, other = _candidates(left), _candidates(right)
    if one.keys() & other.keys():
        raise _unknown("tensor")
    for x in one.values():
        for y in other.values():
            thread.capture.root.read_apart(x, y)
    return False


def is_not(left: Any, right: Any) -> Any:
    """``left is not right``."""
    return not_(is_(left, right))


def subject(x: Any) -> Any:
    """What ``match`` looks at: Python compares itself, so it needs the numbers that a run tells."""
    if type(x) is tuple:
        return tuple(map(subject, x))
    return x.value() if isinstance(x, Number) else whole(x)


def _is_number(left: Any, right: Any) -> Any:
    """Whether two values are one, of which a run tells one: truth values are, where they are equal."""
    kinds = [x.kind if isinstance(x, Number) else type(x) for x in (left, right)]
    if kinds == [bool, bool]:
        return left == right
    if kinds[0] is kinds[1]:
        raise _unknown("number")
    return False


@handles(id)
def _id(obj: Any) -> int:
    check_defined(obj)
    identify(obj)
    return id(obj)


def identify(obj: Any) -> None:
    """Note that captured code asked which tensor one is, if it is one."""
    if isinstance(obj, Tensor) and thread.capture is not None:
        (tensor, *others) = _candidates(obj).values()
        if others:
            raise _unknown("tensor")
        thread.capture.root.read_identity(tensor)


dispatch.IDENTIFY = identify


def _candidates(tensor: Any) -> dict[int, Any]:
    """The tensors that one may be in a run, by id."""
    found: dict[int, Any] = {}
    waiting = [tensor]
    while waiting:
        at = waiting.pop()
        if hasattr(at, "_link") and at._link[1] is CHOICE:
            waiting += parents_of(at)
        elif not check_known(thread.capture.root.frozen, at) or _is_carried(at):
            raise _unknown("tensor")
        else:
            found[id(at)] = at
    return found


def _is_carried(tensor: Any) -> bool:
    """Whether a tensor stands for what a variable holds at the start of a turn."""
    if is_concrete(tensor._data):
        return False
    capture = tensor._data.capture
    made = capture.region and tensor._data.value in capture.inputs
    return made and DataSlot(tensor).key not in capture.journal


def _unknown(what: str) -> CaptureError:
    hint = "compare with ==" if what == "number" else "keep a number beside it that tells which one it is"
    return CaptureError(
        "is",
        f"which {what} a variable holds must be known when it is asked for, got one that only a run tells",
        hint=hint,
    )
