"""Anomaly detection: stop at the first op that makes a NaN, and at the first gradient that goes NaN.

While it is on, ops take the general path, which shows each result to the thread's watch; and an observer
gives each node that is recorded a ``Watch``, which the engine's slow path looks at. While it is off nothing
of it is on any path.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.concrete import is_on_device
from weft.base.dtypes import kind
from weft.base.frames import format_location, user_location
from weft.base.records import NamedTuple
from weft.errors import AnomalyError, WeftError
from weft.ops.nan import ALL, describe_fault
from weft.ops.op import OPS, Attrs, Op, Tensor, intercepted
from weft.tensor.mode import Scope, leave, observing, thread
from weft.tensor.node import Instrumented, Node
from weft.tensor.rules import Backward

if TYPE_CHECKING:
    from weft.tensor.provenance import Provenance


class Watch:
    """What is looked for in the gradients that a node makes, and where its op stood.

    Attributes:
        nan: look for NaN.
        inf: look for infinite values.
        location: file and line of the op.
        within: the op in whose backward this one was recorded, or "".
    """

    __slots__ = ("inf", "location", "nan", "within")

    def __init__(
        self, nan: bool, inf: bool, location: tuple[str, int] | None = None, within: str = ""
    ) -> None:
        self.nan = nan
        self.inf = inf
        self.location = location
        self.within = within


class _Before(NamedTuple):
    """What was before a scope was entered."""

    watch: Watch | None
    observing: AbstractContextManager[None]
    evaluated: Callable[..., None] | None
    staged: bool  # whether ops of this thread took the general path


class _Thread(threading.local):
    watch: Watch | None = None  # what the innermost detect_anomaly looks for

    def __init__(self) -> None:
        self.entered: list[tuple[object, _Before]] = []
        self.running: Instrumented | None = None  # the rule that runs, as what it records belongs to its op
        self.in_rule = False  # whether one runs: what it computes is looked at as gradients


_thread = _Thread()


class detect_anomaly(Scope):  # noqa: N801 - used as a function, spelled like one
    """Name the first line that makes a NaN, in results or in gradients: a context manager, and a decorator.

    An op that gives a NaN stops with an AnomalyError, which shows the ranges of what went in and how it
    follows from the leaves. Ops that run inside remember the line they stood at, and backward stops at the
    first whose gradient has a NaN. A backward that runs inside checks all nodes, wherever they were
    recorded. It makes every op slower, so it is for debugging.

    Args:
        check_nan: look for NaN; if not, other errors in backward still name the forward line.
        check_inf: look for infinities too: in gradients, and in results of ops whose inputs are finite.
        forward: look at results; if not, at gradients alone.

    >>> import weft
    >>> x = weft.tensor([0.0, 4.0], requires_grad=True)
    >>> with weft.detect_anomaly():
    ...     y = weft.log(x - 1.0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.AnomalyError: log: results must not be NaN, got 1 in f32[2], from f32[2] in -1..3
    ...
    >>> with weft.detect_anomaly():
    ...     weft.sqrt(x * x).sum().backward()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.AnomalyError: mul: the gradient of input 0 (x) must not be NaN, got one at index (0,)
    ...
    """

    def __init__(self, check_nan: bool = True, *, check_inf: bool = False, forward: bool = True) -> None:
        self._watch = Watch(bool(check_nan), bool(check_inf))
        self._forward = bool(forward) and (self._watch.nan or self._watch.inf)

    def __enter__(self) -> None:
        context, ident = observing(_locate), get_ident()
        context.__enter__()
        before = _Before(_thread.watch, context, thread.evaluated, ident in intercepted.threads)
        _thread.entered.append((self, before))
        _thread.watch = self._watch
        if self._forward:
            from weft.tensor.provenance import Provenance  # few programs look for anomalies

            thread.evaluated = functools.partial(_look, self._watch, Provenance())
            intercepted.threads.add(ident)
        else:
            thread.evaluated = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        before = leave(_thread.entered, self)
        if before is not None:
            _thread.watch, thread.evaluated = before.watch, before.evaluated
            if not before.staged and thread.capture is None:
                intercepted.threads.discard(get_ident())
            before.observing.__exit__(None, None, None)


def _look(
    watch: Watch, provenance: Provenance, op: Op, inputs: Sequence[Any], outs: Sequence[Any], attrs: Attrs
) -> None:
    """Raise if an op made a result that is looked for."""
    if _thread.in_rule:
        return
    location = user_location(3)
    provenance.note(op.name, location, inputs, outs)
    for out in outs:
        arrays = [_on_host(x) for x in inputs]
        fault = describe_fault(_on_host(out), arrays, attrs, ALL if watch.inf else True)
        if fault and (watch.nan or "NaN," not in fault):
            error = AnomalyError(op.name, fault, location=location)
            error._path = provenance.path_to(out)
            raise error


def _locate(node: Node) -> None:
    """Give a node a watch; what a backward records stands where its forward op stood."""
    watch, outer = _thread.watch, _thread.running
    if watch is None:
        return
    if outer is not None and outer.watch is not None:
        location, within = outer.watch.location, outer.name
    else:
        location, within = user_location(2), ""
    node.instrument().watch = Watch(watch.nan, watch.inf, location, within)


def is_watching() -> bool:
    """Whether this thread is inside ``detect_anomaly()``."""
    return _thread.watch is not None


def check_seed(grad: Tensor) -> None:
    """Raise if the gradient that a watched backward starts from is wrong already."""
    if _thread.watch is not None and (found := _find(grad, _thread.watch)):
        raise AnomalyError("backward", f"the gradient it starts from must not be {found}")


def run_rule(
    rule: Backward,
    grads_out: Any,
    saved: tuple[Any, ...],
    edges: Sequence[Any],
    *,
    careful: bool = False,
    run: Callable[..., Sequence[Any]] | None = None,
) -> Sequence[Any]:
    """Run the rule of a node, or ``run`` for it, and check what it gives if node or thread is watched."""
    if run is None:
        run = rule.careful if careful and rule.careful is not None else rule.run
    own = rule.watch if type(rule) is Instrumented else None
    watch = own or _thread.watch
    if watch is None:
        return run(grads_out, saved, tuple(edges))
    _check(rule, grads_out if rule.outputs > 1 else [grads_out], watch, "output", [True] * rule.outputs)
    before = _thread.running, _thread.in_rule
    try:
        _thread.running = rule if own is not None else None  # type: ignore[assignment]
        _thread.in_rule = True
        grads = run(grads_out, saved, tuple(edges))
    finally:
        _thread.running, _thread.in_rule = before
    _check(rule, grads, watch, "input", [e is not None for e in edges])
    return grads


def _check(rule: Backward, grads: Sequence[Any], watch: Watch, side: str, wanted: Sequence[bool]) -> None:
    for i, (grad, asked) in enumerate(zip(grads, wanted, strict=True)):
        if asked and (found := _find(grad, watch)):
            where = f"input {i}{_name(rule, i)}" if side == "input" else "the output, as a hook left it,"
            raise _anomaly(rule, f"the gradient of {where} must not be {found}", watch)


def _name(rule: Backward, i: int) -> str:
    op = OPS.get(rule.name)
    return f" ({op.inputs[i]})" if op is not None and i < len(op.inputs) else ""


def _anomaly(rule: Backward, message: str, watch: Watch) -> AnomalyError:
    op = f"{rule.name} in the backward of {watch.within}" if watch.within else rule.name
    if watch.location is None:
        unknown = "run the forward inside weft.detect_anomaly() too, to see the line of the op"
        return AnomalyError(op, message, hint=unknown)
    began = user_location()
    hint = None if began is None else f"backward began at {format_location(began)}"
    return AnomalyError(op, message, location=watch.location, hint=hint)


def _find(grad: Tensor, watch: Watch) -> str:
    """What is wrong with a gradient, and where first: ``NaN (at index (0,))``; "" if nothing is."""
    data = _on_host(getattr(grad, "_data", grad))
    if not isinstance(data, np.ndarray | np.generic) or kind(data.dtype) not in "fc":
        return ""
    if watch.nan and (bad := np.isnan(data)).any():
        return f"NaN, got one at index {_first(bad)}"
    if watch.inf and (bad := np.isinf(data)).any():
        return f"infinite, got one at index {_first(bad)}"
    return ""


def _on_host(data: object) -> object:
    """Data whose values can be looked at: a copy of what is on a device."""
    return data.to_host() if is_on_device(data) else data  # type: ignore[attr-defined]


def _first(mask: Any) -> tuple[int, ...]:
    return tuple(map(int, np.argwhere(mask)[0]))


def explain(error: Exception, node: Node) -> None:
    """Say in an error that a rule raised whose backward ran, and where its op stood if that is known."""
    rule = node.rule
    watch = rule.watch if type(rule) is Instrumented else None
    if isinstance(error, AnomalyError) or (watch is None and isinstance(error, WeftError)):
        return
    place = f", which stood at {format_location(watch.location)}" if watch and watch.location else ""
    error.add_note(f"in the backward of {rule.name}{place}")
