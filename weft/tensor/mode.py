"""Whether operations record: ``no_grad``, ``enable_grad`` and ``inference_mode``.

The switch is per thread. The hot path asks the thread only while some thread has recording off, which
``switch.off`` counts; so code that never turns it off pays one attribute read.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class _Thread(threading.local):
    recording = True


class _Switch:
    __slots__ = ("lock", "off")

    def __init__(self) -> None:
        self.off = 0
        self.lock = threading.Lock()


thread = _Thread()
switch = _Switch()


def is_grad_enabled() -> bool:
    """Whether operations on tensors that require grad record, in this thread.

    >>> import weft
    >>> with weft.no_grad():
    ...     weft.is_grad_enabled()
    False
    """
    return thread.recording


def set_recording(recording: bool) -> bool:
    """Turn recording on or off in this thread; gives what it was before."""
    before = thread.recording
    if before is not recording:
        with switch.lock:
            switch.off += -1 if recording else 1
        thread.recording = recording
    return before


class _Recording:
    """A context manager and decorator that sets recording and puts it back."""

    _recording = True

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(set_recording(self._recording))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        set_recording(self._before.pop())

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with type(self)():
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


class no_grad(_Recording):  # noqa: N801 - used as a function, spelled like one
    """Run code without recording: a context manager, and a decorator.

    >>> import weft
    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> with weft.no_grad():
    ...     y = x * x
    >>> y.requires_grad
    False
    """

    _recording = False

    def __new__(cls, function: Any = None) -> Any:
        self = super().__new__(cls)
        if function is None:
            return self
        self.__init__()
        return self(function)


class enable_grad(no_grad):  # noqa: N801 - used as a function, spelled like one
    """Record again inside ``no_grad``: a context manager, and a decorator.

    >>> import weft
    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> with weft.no_grad(), weft.enable_grad():
    ...     y = x * x
    >>> y.requires_grad
    True
    """

    _recording = True


class inference_mode(no_grad):  # noqa: N801 - used as a function, spelled like one
    """Run code that will never need gradients; weft's ``no_grad`` has no cost left to save, so they are one.

    >>> import weft
    >>> with weft.inference_mode():
    ...     weft.is_grad_enabled()
    False
    """


class set_grad_enabled:  # noqa: N801 - used as a function, spelled like one
    """Set recording at once; as a context manager, put it back at the end.

    >>> import weft
    >>> with weft.set_grad_enabled(False):
    ...     weft.is_grad_enabled()
    False
    """

    def __init__(self, enabled: bool) -> None:
        self._before = set_recording(bool(enabled))

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        set_recording(self._before)
