"""What may fail in a run where captured code handles the error: the handler is Python's, the run is none.

Outside of branches and loops of the graph the capture asks whether it fails, which leaves a guard: one
version goes on, and in another one the error is raised while it is captured, so that the handler runs.
Inside of them nobody can ask. Such an ``if`` or loop is then run by Python, by the values that it asks for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from weft.capture.runtime.handling import Kinds, is_handled
from weft.capture.runtime.places import changed_since, watching
from weft.errors import CaptureError
from weft.ops import compare
from weft.ops.classes import pick_class, put_class, take_class
from weft.ops.effects import check, error_class
from weft.ops.index import gather_nd, scatter_add_nd, scatter_nd
from weft.ops.op import Op
from weft.ops.scattering import fold_into
from weft.tensor.dispatch import captured_constant
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.captured import Captured
from weft.transform.staging import Unstaged, shown_as_capture_error

_HINT = "handle it where the function is called, or choose by `if` what the handler does"


@shown_as_capture_error
class Handled(Unstaged):
    """Only a run tells whether code fails whose error captured code handles."""

    def __init__(self, op: str, kinds: Kinds, where: tuple[str, int] | None = None) -> None:
        names = " or ".join(kind.__name__ for kind in kinds)
        what = f"must not raise what captured code handles where only the run tells it, got {names}"
        super().__init__(op, what, hint=_HINT)
        self.location = where or self.location


def is_settled(op: str, kinds: Kinds, holds: Callable[[], Any], fail: Callable[[], Any]) -> bool:
    """Whether it is known from now on that something does not fail, as code around handles its error.

    Args:
        op: what may fail.
        kinds: the classes of what it raises.
        holds: gives the truth value that it does not.
        fail: raises as eager code does.

    Raises:
        Handled: only the run tells it.
    """
    if not is_handled(kinds):
        return False
    if thread.capture.region:
        raise Handled(op, kinds)
    try:
        holding = bool(holds())
    except Exception as error:  # of a capture that knows types alone, or of a transform
        raise Handled(op, kinds) from error
    if not holding:
        fail()
    return holding


def known_of(tensor: Any) -> Any:
    """The array of a tensor in the call that is captured."""
    root, data = thread.capture.root, tensor._data
    return root.known(data.value) if isinstance(data, Captured) else data


def before_failing(op: Op, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> None:
    """Told before the running capture takes an op that raises for some values."""
    notes = thread.capture.root.notes
    notes.failing += 1
    if not notes.handlers:
        return
    kinds = _kinds_of(op, attrs)

    def fail() -> None:
        op.eval(*[known_of(x) for x in inputs], **attrs)

    is_settled(op.name, kinds, lambda: _holds(op, inputs, attrs, kinds), fail)


def _kinds_of(op: Op, attrs: Mapping[str, Any]) -> Kinds:
    if op is check:
        return (error_class(attrs["error"][0]) if attrs.get("error") else Exception,)
    return (op.raises or Exception,)


def _holds(op: Op, inputs: Sequence[Any], attrs: Mapping[str, Any], kinds: Kinds) -> Any:
    """A truth value that an op does not fail."""
    if op is check:
        return inputs[0]
    if op in _INDEXED:
        first = _INDEXED[op]
        sizes, from_end = inputs[0].shape, attrs.get("from_end", True)
        fits = [_fits(i, size, from_end) for i, size in zip(inputs[first:], sizes, strict=False)]
        return functools.reduce(compare.logical_and, fits)
    if op in (take_class, pick_class, put_class):
        count = attrs["classes"] if op is put_class else inputs[0].shape[attrs["axis"]]
        target = inputs[1]
        known = compare.logical_and(target >= 0, target < count)
        return compare.logical_or(known, target == attrs["ignore"]).all()
    raise Handled(op.name, kinds)


_INDEXED = {gather_nd: 1, scatter_nd: 2, scatter_add_nd: 2, fold_into: 2}  # how many inputs are no indices


def _fits(index: Any, size: Any, from_end: bool) -> Any:
    index = index if isinstance(index, Tensor) else captured_constant(index)
    return compare.logical_and(index >= (-size if from_end else 0), index < size).all()


# finally


def started() -> int | None:
    """How much may fail of what was captured so far."""
    return None if thread.capture is None else thread.capture.root.notes.failing


@contextmanager
def finishing(count: int | None) -> Iterator[None]:
    """While code runs that eager code runs after a failure, too: it must not change what is outside.

    A call that fails changes nothing. What such code puts back as the call has found it is right, and so are
    tensors, which may be put back by computing.

    Args:
        count: what ``started`` gave before.
    """
    capture = thread.capture
    if capture is None or count is None or capture.root.notes.failing == count:
        yield
        return
    with watching(capture):
        yield
        for slot in changed_since(capture):
            if not _is_as_found(slot):
                raise CaptureError(
                    "finally",
                    f"must not change what is outside, got a change of {slot.describe()}: a run that fails "
                    "before it changes nothing",
                    hint="change it in the function that calls, in a `finally` there",
                )


def _is_as_found(slot: Any) -> bool:
    """Whether a slot holds what it did when the call began."""
    capture, held, known = thread.capture, slot.get(), []
    while capture is not None:
        known += [capture.journal[slot.key][1]] if slot.key in capture.journal else []
        capture = capture.parent
    if not known or known[-1] is held or isinstance(held, Tensor):
        return True
    return isinstance(held, _PLAIN) and type(held) is type(known[-1]) and bool(held == known[-1])


_PLAIN = (bool, int, float, str, bytes, type(None))
