"""Choices: ``if``, ternaries, ``and``, ``or``, ``not``, chained comparisons and ``assert``.

Where the value that decides is plain Python, these do what Python does, operand by operand. Where it is a
tensor of a capture, both sides go into the graph and the run decides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from weft.capture.runtime.ambient import note_environment
from weft.capture.runtime.failing import is_settled
from weft.capture.runtime.hashed import known_key
from weft.capture.runtime.identity import is_, is_not
from weft.capture.runtime.meet import Statement, as_predicate, meet
from weft.capture.runtime.methods import method_of
from weft.capture.runtime.number import KINDS, Number
from weft.capture.runtime.operators import binary
from weft.capture.runtime.owners import CONTAINERS
from weft.capture.runtime.places import changes_since
from weft.capture.runtime.raising import raised
from weft.capture.runtime.text import looked_at, text_attributes
from weft.capture.runtime.truth import as_bool, asked, is_staged, not_
from weft.capture.runtime.users_keys import note_key
from weft.capture.runtime.variables import putting_back, without_assigning
from weft.capture.runtime.whole import items, truth, whole
from weft.ops import compare as ops
from weft.ops.effects import check
from weft.tensor.mode import call_user, thread
from weft.tensor.tensor import Tensor
from weft.transform.control.flat import attempt

Thunk = Callable[[], Any]
State = tuple[Any, ...]


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


def run_where(test: Any, then: Thunk, orelse: Thunk) -> Any:
    """``then if test else orelse`` of code that a backward pass runs where a gradient comes."""
    test = asked(test)
    if not is_staged(test):
        return then() if truth(test) else orelse()
    return _choose(test, then, orelse, "backward")


def _choose(test: Any, then: Thunk, orelse: Thunk, kind: str) -> Any:
    then, orelse = without_assigning(then), without_assigning(orelse)
    branches = (lambda: (then(),), lambda: (orelse(),))
    (out,) = meet(as_predicate(test), branches, (None,), ("the value",), Statement.here(kind))
    return out


def and_(*thunks: Thunk) -> Any:
    """``a and b and c``: the first that is false, else the last."""
    return _short_circuit(thunks, stop_at=False)


def or_(*thunks: Thunk) -> Any:
    """``a or b or c``: the first that is true, else the last."""
    return _short_circuit(thunks, stop_at=True)


def all_true(*thunks: Thunk) -> Any:
    """``a and b`` where only its truth matters, as in the test of an ``if``."""
    return _short_circuit([partial(_truth_of, thunk) for thunk in thunks], stop_at=False, is_test=True)


def any_true(*thunks: Thunk) -> Any:
    """``a or b`` where only its truth matters."""
    return _short_circuit([partial(_truth_of, thunk) for thunk in thunks], stop_at=True, is_test=True)


def _truth_of(thunk: Thunk) -> Any:
    value = asked(thunk())
    return as_predicate(value) if is_staged(value) else truth(value)


def _short_circuit(thunks: Sequence[Thunk], *, stop_at: bool, is_test: bool = False) -> Any:
    for i, thunk in enumerate(thunks):
        value = thunk()
        if i == len(thunks) - 1:
            return value
        if is_staged(answer := asked(value)):
            return _logical(answer, value, thunks[i + 1 :], stop_at=stop_at, is_test=is_test)
        if truth(answer) is stop_at:
            return value
    raise AssertionError("and_ and or_ have operands")


def _logical(left: Any, value: Any, rest: Sequence[Thunk], *, stop_at: bool, is_test: bool) -> Any:
    """``value and rest`` where a tensor says its truth: a logical op if both are truths, and pure."""
    kind = "or" if stop_at else "and"
    capture = thread.capture
    truth = as_predicate(left)
    if not _is_truth(left) or left is not value:
        return _choose(left, *_sides(value, rest, stop_at=stop_at), kind)
    right: list[Any] = []

    def evaluate() -> tuple[Any]:
        right.append(_short_circuit(rest, stop_at=stop_at))
        return (right[0],)

    mark, made = len(capture.nodes), len(capture.notes.made)
    try:
        with attempt(capture):
            with putting_back(*rest):
                evaluate()
            safe = all(_is_safe(n) for n in capture.nodes[mark:]) and not changes_since(capture, made)
            if not (_is_truth(right[0]) and safe):
                raise _Unsafe
    except Exception:  # the other way tells whether it is a true one
        return _choose(left, *_sides(left, rest, stop_at=stop_at), kind)
    other = right[0]
    if other is stop_at and (is_test or isinstance(left, Number)):
        return other  # whatever the left side is
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


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    **{sign: partial(binary, sign) for sign in ("<", "<=", ">", ">=", "==", "!=")},
    "is": is_,
    "is not": is_not,
    "in": lambda x, y: _is_in(x, y),
    "not in": lambda x, y: not_(_is_in(x, y)),
}


def _is_in(x: Any, container: Any) -> Any:
    """``x in container``, which is guarded where the container is from outside."""
    capture = thread.capture
    if capture is not None and container is os.environ:
        note_environment(x)
        return x in container
    if capture is None:
        return x in container
    x = looked_at(x)
    method = method_of(container, "__contains__")
    if method is not None:
        return as_bool(call_user(method, container, x))
    if isinstance(container, list | tuple) and any(method_of(y, "__eq__") for y in (x, *items(container))):
        equals = [lambda y=y: True if y is x else as_bool(binary("==", y, x)) for y in container]
        return or_(*equals, lambda: False)
    if isinstance(x, Tensor) and isinstance(container, list | tuple) and any(is_(x, y) for y in container):
        whole(container)
        return True
    if not isinstance(container, list | tuple):
        x = known_key(x)
    if not isinstance(container, CONTAINERS):
        return x in whole(container)
    if not isinstance(container, list):
        note_key(x, container)
    found = x in container
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
    value = asked(test())
    if not is_staged(value):
        if not truth(value):
            raise AssertionError(*(() if message is None else (looked_at(message()),)))
        return
    predicate = as_predicate(value).detach()

    def fail() -> None:
        raise AssertionError(*(() if message is None else (looked_at(message()),)))

    if is_settled("assert", (AssertionError,), lambda: predicate, fail):
        return
    text = "" if message is None else _text_ahead(message)
    if text is None:  # to make it is an effect, which only a run that fails may have

        def fail_here() -> Any:
            raise raised(AssertionError(message()))  # type: ignore[misc]

        meet(predicate, (tuple, fail_here), (), (), Statement.here("assert"))
        return
    operands, attrs = text_attributes(text)
    check.on_tensors(predicate, *[t.detach() for t in operands], **attrs)


def _text_ahead(message: Thunk) -> str | None:
    """The text of a message that nobody may need; None if to make it changes something, or fails."""
    capture = thread.capture
    mark, made = len(capture.nodes), len(capture.notes.made)
    try:
        with attempt(capture), putting_back(message):
            text = str(message())
            if changes_since(capture, made) or not all(n.is_pure for n in capture.nodes[mark:]):
                raise _Unsafe
            return text
    except Exception:
        return None
