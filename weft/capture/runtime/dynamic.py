"""``weft.jit.dynamic``: a Python number that a compiled function reads anew at each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.public import public
from weft.capture.program.sources import Dynamic
from weft.capture.runtime.number import KINDS, Number
from weft.errors import ArgumentError
from weft.ops.op import intercepted
from weft.tensor.mode import thread
from weft.transform.captured import not_capturing


@public
def dynamic(read: Callable[[], Any], *, name: str = "number") -> Any:
    """A Python number that may change from call to call of a compiled function, without another capture.

    Outside of a capture it is just ``read()``. In a capture it is a number of the graph, which each call
    gets by calling ``read`` again; it computes as a Python number does. A learning rate is read like this.

    Args:
        read: gives the number.
        name: of the input in the graph.

    >>> import weft
    >>> settings = {"lr": 0.5}
    >>> @weft.compile
    ... def scaled(x):
    ...     return x * weft.jit.dynamic(lambda: settings["lr"])
    >>> scaled(weft.ones(2))
    tensor([0.5000, 0.5000])
    >>> settings["lr"] = 2.0
    >>> scaled(weft.ones(2)), len(scaled.versions)
    (tensor([2., 2.]), 1)
    """
    if not callable(read):
        raise ArgumentError("dynamic", f"takes a function that gives a number, got {type(read).__name__}")
    with not_capturing():  # what it reads is to change
        value = read()
    root = thread.capture.root if intercepted.threads and thread.capture is not None else None
    if root is None or not root.guards_reads:
        return value
    if isinstance(value, Number):  # captured code has put it there
        return value
    kind = type(value)
    if kind not in KINDS:
        root.read_call(read, value)
        return value
    return Number(kind, root.number_input(Dynamic(read, KINDS[kind]), name))
