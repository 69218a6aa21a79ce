"""What each thread does with operations: whether they record, and who is told of each node.

``no_grad``, ``enable_grad``, ``inference_mode`` and ``set_grad_enabled`` set the first, anomaly detection and
checkpoints the second. Both are per thread; see ``weft.base.switch`` for what that costs.
"""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Generator, Iterator, Set
from contextlib import contextmanager
from threading import get_ident
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from weft.base.hooks import hooks
from weft.base.public import public
from weft.base.switch import switch
from weft.errors import ArgumentError

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Observer = Callable[[Any], None]

# Of inspect, without the cost of importing it.
_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200


class _Thread(threading.local):
    recording = True
    observer: Observer | None = None  # called with each node as it is recorded
    evaluated: Callable[..., None] | None = None  # called with each op that ran, its inputs and outputs
    capture: Any = None  # the innermost graph that this thread captures, see weft.transform.building

    def __init__(self) -> None:
        self.entered: list[tuple[object, bool]] = []  # scopes that are open, with what was before each
        self.casts: list[tuple[object, Any]] = []  # likewise those of autocast


thread = _Thread()


def call_user(function: Callable[..., Any], /, *args: object, **kwargs: object) -> Any:
    """Call a function of the user; in a capture from source its control flow goes into the graph."""
    if thread.capture is None or (call := hooks.call_converted) is None or thread.capture.root.region:
        return function(*args, **kwargs)
    return call(function, *args, **kwargs)


running_levels: set[int] = set()  # of the transforms that run, in all threads; each number is used once


@public
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
        if not recording:
            switch.off.add(get_ident())
        thread.recording = recording
        if recording and thread.observer is None:
            switch.off.discard(get_ident())
    return before


@contextmanager
def observing(observer: Observer, *, alone: bool = False) -> Iterator[None]:
    """Have an observer called with each node this thread records, then those outside, unless alone."""
    before = outer = thread.observer

    def both(node: object) -> None:
        observer(node)
        if outer is not None:
            outer(node)

    try:
        switch.off.add(get_ident())
        thread.observer = observer if alone else both
        yield
    finally:
        thread.observer = before
        if before is None and thread.recording:
            switch.off.discard(get_ident())


@contextmanager
def resumed(levels: Set[int]) -> Iterator[None]:
    """Let data of transforms that have ended be used again, where a part of them is run again."""
    missing = levels - running_levels
    running_levels.update(missing)
    try:
        yield
    finally:
        running_levels.difference_update(missing)


class Scope:
    """A context manager that is a decorator too. Subclasses may be entered again, and by several threads."""

    def __enter__(self) -> None:
        raise NotImplementedError  # each kind of scope says it

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError  # each kind of scope says it

    def __call__(self, function: F) -> F:
        """The function, run inside this scope; a generator is inside it while it runs, not while it waits."""
        name = type(self).__name__
        if not callable(function):
            raise ArgumentError(name, f"must decorate a function, got {type(function).__name__}")
        code = getattr(function, "__code__", None)
        flags = 0 if code is None else code.co_flags
        if flags & _ASYNC_GENERATOR:
            raise ArgumentError(
                name, "must not decorate an async generator", hint=f"use `with weft.{name}():`"
            )
        return functools.update_wrapper(self._wrap(function, flags), function)  # type: ignore[return-value]

    def _wrap(self, function: Callable[..., Any], flags: int) -> Callable[..., Any]:
        if flags & _GENERATOR:
            return lambda *args, **kwargs: self._drive(function(*args, **kwargs))
        if flags & _COROUTINE:
            drive = types.coroutine(self._drive)

            async def coroutine(*args: object, **kwargs: object) -> Any:
                return await drive(function(*args, **kwargs))

            return coroutine

        def call(*args: object, **kwargs: object) -> Any:
            with self:
                return function(*args, **kwargs)

        return call

    def _drive(self, steps: Any) -> Generator[Any, Any, Any]:
        """Run a generator or coroutine step by step, each step inside this scope."""
        step, argument = steps.send, None
        while True:
            try:
                with self:
                    item = step(argument)
            except StopIteration as stop:
                return stop.value
            try:
                argument = yield item
                step = steps.send
            except GeneratorExit:
                with self:
                    steps.close()
                raise
            except BaseException as error:  # it is thrown on, into the generator
                step, argument = steps.throw, error


class _Recording(Scope):
    """A scope that sets recording, and puts it back."""

    _recording = True

    def __enter__(self) -> None:
        thread.entered.append((self, thread.recording))
        if not self._recording:
            switch.off.add(get_ident())
        thread.recording = self._recording  # last, so that an interrupt before it has changed nothing

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        before = leave(thread.entered, self)
        if before is not None:
            set_recording(before)


def leave(entered: list[tuple[object, T]], scope: object) -> T | None:
    """Take a scope off the stack of open ones, with what it stored.

    It is the last, unless a generator ended out of turn.
    """
    for i in range(len(entered) - 1, -1, -1):
        if entered[i][0] is scope:
            return entered.pop(i)[1]
    return None


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

    @overload
    def __new__(cls, function: None = None) -> Self: ...
    @overload
    def __new__(cls, function: F) -> F: ...  # type: ignore[misc]
    def __new__(cls, function: Any = None) -> Any:  # noqa: D102 - the class says it
        scope = super().__new__(cls)
        return scope if function is None else scope(function)


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

    @overload
    def __new__(cls, mode: bool = True) -> Self: ...
    @overload
    def __new__(cls, mode: F) -> F: ...  # type: ignore[misc]
    def __new__(cls, mode: Any = True) -> Any:  # noqa: D102 - the class says it
        if not isinstance(mode, bool):
            return super().__new__(cls, mode)
        scope = super().__new__(cls)
        scope._recording = not mode
        return scope


class set_grad_enabled(_Recording):  # noqa: N801 - used as a function, spelled like one
    """Set recording at once; a ``with`` block puts it back at the end, a decorator sets it in the function.

    >>> import weft
    >>> with weft.set_grad_enabled(False):
    ...     weft.is_grad_enabled()
    False
    """

    def __init__(self, enabled: bool) -> None:
        self._recording = bool(enabled)
        self._at_first: bool | None = set_recording(self._recording)

    def __enter__(self) -> None:
        before, self._at_first = self._at_first, None
        super().__enter__()
        if before is not None:  # entering ends what the call began
            thread.entered[-1] = (self, before)

    def __call__(self, function: F) -> F:
        """The function, run with recording set; the call of ``set_grad_enabled`` itself is taken back."""
        if self._at_first is not None:
            set_recording(self._at_first)
            self._at_first = None
        return super().__call__(function)
