"""``weft.jit.dynamic``: a Python number that a compiled function reads anew at each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.public import public
from weft.capture.program.slots import PythonSlot
from weft.capture.program.sources import Dynamic
from weft.capture.runtime.number import KINDS, Number
from weft.capture.runtime.places import ContentsSlot
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
    if _reads_what_changed(read):
        from weft.capture.runtime.calls import call

        return call(read)
    kind = type(value)
    if kind not in KINDS:
        root.read_call(read, value)
        return value
    return Number(kind, root.number_input(Dynamic(read, KINDS[kind]), name))


def _reads_what_changed(read: Callable[[], Any]) -> bool:
    """Whether a function reads numbers that captured code has set: others in their places give another one.

    A call that reads them when it begins would find those of before.
    """
    slots, capture = list[Any](), thread.capture
    while capture is not None:
        slots += [s for s, _ in capture.journal.values() if isinstance(s, PythonSlot | ContentsSlot)]
        capture = capture.parent
    held = [(slot, slot.get()) for slot in slots]
    others = [(slot, content, _other(content)) for slot, content in held]
    others = [(slot, content, other) for slot, content, other in others if other is not content]
    if not others:
        return False
    with not_capturing():
        before = read()
        try:
            for slot, _, other in others:
                slot.put(other)
            return bool(read() != before)
        except Exception:  # such as a position that is not there
            return True
        finally:
            for slot, content, _ in others:
                slot.put(content)


def _other(content: Any) -> Any:
    """Something like the content of a place, with other numbers; itself if there are none."""
    if type(content) in KINDS:
        return not content if isinstance(content, bool) else content + 1
    if type(content) in (list, tuple):
        items = [_other(x) for x in content]
        return content if all(a is b for a, b in zip(items, content, strict=True)) else type(content)(items)
    if type(content) is dict:
        found = {key: _other(x) for key, x in content.items()}
        return content if all(found[key] is content[key] for key in found) else found
    return content
