"""What goes on beside the program: collectives that were started, carried on by a thread.

MPI moves large messages only while somebody asks for them. Machine code holds no lock of Python, so a thread
can ask while kernels run; who waits for a collective carries it on alone. Where ranks of one machine compute
on all its processors there is no thread: it would take one from a rank, and, worse, be stopped while it holds
the lock of Python.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from weft.base.lazy import cached_property
from weft.base.ranks import Pending

_TICK = 0.0002  # seconds between looks


class Started(Pending):
    """The steps of a collective, and how far it is."""

    def __init__(self, steps: Iterator[Any], wait: Callable[[Any], None]) -> None:
        self._steps, self._wait = steps, wait
        self._lock = threading.RLock()
        self._request: Any = None
        self._begin = time.perf_counter()
        self.done = False

    def post(self) -> None:
        """Send what can be sent before anything has come."""
        with self._lock:
            self._next()

    def advance(self) -> bool:
        """Go as far as it goes without waiting; whether it is done."""
        if not self._lock.acquire(blocking=False):
            return False  # somebody else carries it on
        try:
            while not self.done:
                if self._request is not None and not self._request.Test():
                    return False
                self._next()
            return True
        finally:
            self._lock.release()

    def finish(self) -> None:
        """Wait until it is done."""
        with self._lock:
            while not self.done:
                if self._request is not None:
                    self._wait(self._request)
                self._next()

    def _next(self) -> None:
        try:
            self._request = next(self._steps)
        except StopIteration:
            self.done, self.seconds = True, time.perf_counter() - self._begin

    def drop(self) -> None:
        """Give it up."""
        with self._lock:
            self.done = True
            close = getattr(self._steps, "close", None)
            if close is not None:
                close()


class Progress:
    """Carries on what was started.

    Args:
        may_thread: tells whether a thread may do so; it is asked when something is first started. Else what
            was started goes on while others are started, and when it is waited for.
    """

    def __init__(self, may_thread: Callable[[], bool]) -> None:
        self._may_thread = may_thread
        self._open: list[Started] = []
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None

    @cached_property
    def has_thread(self) -> bool:
        """Whether what is started goes on while the program computes."""
        return self._may_thread()

    def begin(self, steps: Iterator[Any], wait: Callable[[Any], None]) -> Started:
        """Start a collective."""
        started = Started(steps, wait)
        started.post()
        with self._change:
            self._open.append(started)
            if self.has_thread:
                self._change.notify()
        if not self.has_thread:
            self.advance()
        elif self._thread is None:
            self._thread = threading.Thread(target=self._run, name="weft progress", daemon=True)
            self._thread.start()
        return started

    def advance(self) -> None:
        """Carry on all that is under way, without waiting."""
        with self._change:
            self._open = [started for started in self._open if not started.advance() and not started.done]

    def drop(self) -> None:
        """Give up all that is under way."""
        with self._change:
            for started in self._open:
                started.drop()
            self._open.clear()

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: bool(self._open))
            self.advance()
            time.sleep(_TICK)
