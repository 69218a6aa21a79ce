"""Choices: ``if``, ternaries, ``and``, ``or``, ``not``, chained comparisons and ``assert``.

Where the value that decides is plain Python, these do what Python does, operand by operand. Where it is a
tensor of a capture, both sides go into the graph and the run decides.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from weft.base.sizes import Size
from weft.capture.number import KINDS, Number
from weft.capture.runtime_ambient import note_environment
from weft.capture.runtime_meet import Statement, as_predicate, meet
from weft.capture.runtime_places import CONTAINERS, note_read
from weft.capture.runtime_text import text_attributes
from weft.capture.runtime_whole import truth, whole
from weft.errors import CaptureError
from weft.ops import compare as ops
from weft.ops.effects import check
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.control.flat import attempt

Thunk = Callable[[], Any]
State = tuple[Any, ...]


def is_staged(x: Any) -> bool:
    """Whether a value is a tensor or Number of a capture that puts control flow into its graph."""
    if not isinstance(x, Tensor | Number):
        return False
    capture = thread.capture
    return capture is not None and getattr(capture.root, "stages_control", True)


def asked(x: Any) -> Any:
    """What is asked for its truth: of a list, and of a size, whose truth only a run tells, a Number."""
    if isinstance(x, list) and thread.capture is not None:
        note_read(x, "len")
        grown: Any = x  # perhaps: see weft.capture.runtime_lists.GraphList
        return grown.graph_length if getattr(x, "is_grown", False) else x
    if isinstance(x, Size) and thread.capture is not None:
        return x != 0 if hasattr(thread.capture.root, "stages_control") else x
    return x


def if_stmt(
    test: Any, then: Callable[..., State], orelse: Callable[..., State], state: State, names: Sequence[str]
) -> State:
    """``if test: ... else: ...`` as functions from the variables before to those after."""
    test = asked(test)
    if not is_staged(test):
        return then(*state) if truth(test) else orelse(*state)
    at = Statement.here("if")
    return meet(as_predicate(test), (lambda: then(*state), lambda: orelse(*state)), state, names, at)


def if_exp(test: Any, then: Thunk, orelse: Thunk) -> Any:
    """``then if test else orelse``."""
    test = asked(test)
    if not is_staged(test):
        return then() if truth(test) else orelse()
    return _choose(test, then, orelse, "if")


def _choose(test: Any, then: Thunk, orelse: Thunk, kind: str) -> Any:
    branches = (lambda: (then(),), lambda: (orelse(),))
    (out,) = meet(as_predicate(test), branches, (None,), ("the value",), Statement.here(kind))
    return out


def and_(*thunks: Thunk) -> Any:
    """``a and b and c``: the first that is false, else the last."""
    return _short_circuit(thunks, stop_at=False)


def or_(*thunks: Thunk) -> Any:
    """``a or b or c``: the first that is true, else the last."""
    return _short_circuit(thunks, stop_at=True)


def _short_circuit(thunks: Sequence[Thunk], *, stop_at: bool) -> Any:
    for i, thunk in enumerate(thunks):
        value = thunk()
        if i == len(thunks) - 1:
            return value
        if is_staged(truth_asked := asked(value)):
            return _logical(truth_asked, thunks[i + 1 :], stop_at=stop_at)
        if truth(value) is stop_at:
            return value
    raise AssertionError("and_ and or_ have operands")


def _logical(left: Any, rest: Sequence[Thunk], *, stop_at: bool) -> Any:
    """``left and rest`` where left is a tensor: a logical op if both are truths and nothing else happens."""
    kind = "or" if stop_at else "and"
    capture = thread.capture
    truth = as_predicate(left)
    if not _is_truth(left):
        return _choose(left, *_sides(left, rest, stop_at=stop_at), kind)
    right: list[Any] = []

    def evaluate() -> tuple[Any]:
        right.append(_short_circuit(rest, stop_at=stop_at))
        return (right[0],)

    mark = len(capture.nodes)
    try:
        with attempt(capture):
            evaluate()
            if not (_is_truth(right[0]) and all(_is_safe(n) for n in capture.nodes[mark:])):
                raise _Unsafe
    except (_Unsafe, CaptureError):
        return _choose(left, *_sides(left, rest, stop_at=stop_at), kind)
    other = right[0]
    joined = (ops.logical_or if stop_at else ops.logical_and)(
        truth, as_predicate(other) if not isinstance(other, bool) else other
    )
    return Number(bool, joined) if isinstance(left, Number) and not isinstance(other, Tensor) else joined


class _Unsafe(Exception):  # noqa: N818 - says that another way must be taken
    """The right side must not be evaluated unless the left side asks for it."""


def _is_safe(node: Any) -> bool:
    """Whether a node may run though nobody may need it: it has a result for all inputs, and no effect."""
    return bool(getattr(node.op, "total", False)) and not node.regions


def _is_truth(x: Any) -> bool:
    if isinstance(x, Number):
        return x.kind is bool
    if isinstance(x, Tensor):
        return x.dtype == KINDS[bool] and x.shape == ()
    return isinstance(x, bool)


def _sides(left: Any, rest: Sequence[Thunk], *, stop_at: bool) -> tuple[Thunk, Thunk]:
    def more() -> Any:
        return _short_circuit(rest, stop_at=stop_at)

    def stay() -> Any:
        return left

    return (stay, more) if stop_at else (more, stay)


def not_(x: Any) -> Any:
    """``not x``."""
    x = asked(x)
    if not is_staged(x):
        return not truth(x)
    out = ops.logical_not(as_predicate(x))
    return Number(bool, out) if isinstance(x, Number) else out


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "is": operator.is_,
    "is not": operator.is_not,
    "in": lambda x, y: _is_in(x, y),
    "not in": lambda x, y: not _is_in(x, y),
}


def _is_in(x: Any, container: Any) -> Any:
    """``x in container``, which is guarded where the container is from outside."""
    capture = thread.capture
    if capture is not None and container is os.environ:
        note_environment(x)
        return x in container
    if capture is None or not isinstance(container, CONTAINERS):
        return x in whole(container)
    found = x in container
    if hasattr(capture.root, "read_member"):
        capture.root.read_member(container, x, found)
    return found


def compare(left: Any, rest: Sequence[tuple[str, Thunk]]) -> Any:
    """``a < b < c``, each operand evaluated once, and only if those before it hold."""
    held = {0: left}

    def step(i: int, sign: str, thunk: Thunk) -> Any:  # which may come twice: see _logical
        held[i + 1] = right = thunk()
        return _OPERATORS[sign](held[i], right)

    steps = [partial(step, i, sign, thunk) for i, (sign, thunk) in enumerate(rest)]
    return _short_circuit(steps, stop_at=False)


def assert_stmt(test: Thunk, message: Thunk | None = None) -> None:
    """``assert test, message``; on a tensor the run checks it."""
    if not __debug__:
        return
    value = test()
    if not is_staged(value):
        if not truth(value):
            raise AssertionError(*(() if message is None else (message(),)))
        return
    operands, attrs = text_attributes("" if message is None else str(message()))
    check.on_tensors(as_predicate(value).detach(), *[t.detach() for t in operands], **attrs)
