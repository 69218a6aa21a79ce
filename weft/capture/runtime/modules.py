"""How modules take part in a capture: the nodes that a module's call makes carry its path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from weft.base.public import public
from weft.ops.alias import CHOICE
from weft.ops.op import intercepted
from weft.tensor.accumulate import has_gradient
from weft.tensor.creation import zeros_like
from weft.tensor.dispatch import wrap
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.captured import Captured
from weft.transform.frozen import SetUp
from weft.transform.staging import Unsettled


@public
def is_capturing() -> bool:
    """Whether this thread captures a graph now, so that operations go into it.

    >>> import weft
    >>> weft.jit.is_capturing()
    False
    """
    return bool(intercepted.threads) and thread.capture is not None


@contextmanager
def module_scope(path: str) -> Iterator[None]:
    """Let what is captured in a ``with`` block carry the path of a module, such as ``encoder.layers.3.attn``.

    >>> import weft
    >>> with weft.jit.module_scope("encoder"):
    ...     x = weft.ones(2) + 1.0
    """
    capture = thread.capture
    if capture is None:
        yield
        return
    before = capture.module_path
    capture.module_path = tuple(path.split(".")) if path else ()
    try:
        yield
    finally:
        capture.module_path = before


def call_forward(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call what a module computes in the way captured code calls a function."""
    from weft.capture.runtime import interface as runtime

    return runtime.call(function, *args, **kwargs)


@contextmanager
def outside() -> Iterator[None]:
    """Let what runs in a ``with`` block compute at once, though this thread captures a graph.

    What is made there lives on after the capture, such as the state that an optimizer makes at first.
    """
    from weft.transform.captured import not_capturing

    with not_capturing():
        yield


def before_capture(tensor: Any) -> Any:
    """A tensor from outside as it was before the capture that runs, if one does; in ``outside()``."""
    data = tensor._data
    array = data.before(tensor) if isinstance(data, Captured) else None
    return tensor if array is None else wrap(array)


def begin_again() -> None:
    """Begin the running capture again if it is in a branch or loop, as something was set up from outside."""
    capture = thread.capture
    if capture is not None and capture.region and capture.root.guards_reads:
        raise SetUp


def read_attribute(obj: Any, name: str) -> Any:
    """An attribute, which a running capture then relies on: a change is noticed at the next call."""
    value = getattr(obj, name)
    root = _root()
    if root is not None:
        root.read_attr(obj, name, value)
    return value


def write_attribute(obj: Any, name: str, value: Any) -> None:
    """Set an attribute; where this thread captures, each call of what is captured sets it."""
    from weft.capture.runtime.attributes import setattr_

    setattr_(obj, name, value)


def check_settled(module: Any, name: str, value: Any, *, is_one: bool) -> None:
    """Raise where only a run tells which parameter a module is to hold: Python then decides it.

    Args:
        module: the module.
        name: of the attribute.
        value: what it is to be.
        is_one: whether that is a certain parameter.
    """
    capture = thread.capture
    if is_one or capture is None or not isinstance(value, Tensor):
        return
    if capture.region or getattr(value, "_link", (None, None))[1] is CHOICE:
        told = f"{name} must be a parameter that is known, got one that only a run tells"
        raise Unsettled(type(module).__name__, told, hint="set it outside, or choose between values")


def name_parts(owner: Any, parts: dict[str, Any]) -> None:
    """Name tensors that belong to another one, as the state of an optimizer does, for inputs of a graph."""
    root = _root()
    path = "" if root is None else root.paths.get(id(owner), "")
    if root is not None and path:
        for name, part in parts.items():
            root.name_outside(part, f"{path}.{name}")


def read_item(container: Any, key: Any) -> Any:
    """An item of a dict or a list, which a running capture then relies on."""
    value = container[key]
    root = _root()
    if root is not None:
        root.read_item(container, key, value)
    return value


def held_parts(params: Iterable[Any]) -> list[tuple[Any, list[Any]]]:
    """The parameters that have gradients, with True; each of which only a run tells it, with that truth."""
    known, untold = list[Any](), list[tuple[Any, list[Any]]]()
    for p in params:
        truth = has_gradient(p)
        if truth is True:
            known.append(p)
        elif truth is not False:
            untold.append((truth, [p]))
    return [(True, known), *untold] if known else untold


def where_held(parts: Iterable[tuple[Any, list[Any]]], action: Callable[[list[Any]], Any]) -> None:
    """Do something with each part of some parameters, in the runs in which it has gradients."""
    for truth, params in parts:
        if truth is True:
            action(params)
        else:
            _only_where(truth, partial(_with_known, params, action))


def zero_gradient(p: Any) -> None:
    """Set the gradient of a parameter to zeros, if it has one."""
    where_held(held_parts([p]), _zero)


def _zero(params: list[Any]) -> None:
    for p in params:
        p.grad = zeros_like(p)


def _with_known(params: list[Any], action: Callable[[list[Any]], Any]) -> None:
    for p in params:
        thread.capture.settle_presence(p)
    action(params)


def _only_where(truth: Any, action: Callable[[], None]) -> None:
    """Let each run do something where a truth value holds."""
    from weft.transform.control.flat import run_cond
    from weft.transform.control.unmet import until_met

    def taken(_: list[Any]) -> list[Any]:
        action()
        return []

    until_met(lambda: run_cond(truth, [taken, lambda _: []], []))


def _root() -> Any:
    """The root that this thread captures, if it notes what is read, or None."""
    capture = thread.capture
    return None if capture is None or not capture.root.guards_reads else capture.root
