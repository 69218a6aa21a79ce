"""Runs that end before they are done: loops look whether somebody has asked for it.

A run belongs to a thread. Whoever may want to end what one runs opens a block of ``Stoppable`` in it, and
calls ``stop`` from another one. The interpreter looks at ``asked``. Machine code looks at a word of its own
(``WANTED``), and tells in another one which thread runs it (``BUSY``): 20 times a second somebody passes on
there what was asked. For the main thread that is to let Python look for signals, too: this is how Ctrl-C ends
a compiled loop.
"""

from __future__ import annotations

import os
import threading
import time
from threading import get_ident
from typing import Any
from weakref import WeakSet

from weft.errors import StoppedError

WANTED, BUSY = 18, 20  # places among the words of a run
LOOK = 1  # what is wanted: that it looks for signals; or else the number of the thread that is to end it

runs: WeakSet[Any] = WeakSet()  # what has words that machine code with loops looks at; changed under `lock`
asked: dict[int, str] = {}  # by thread that is to end what it runs, why
lock = threading.Lock()

_TICK = 0.05  # seconds
_IDLE = 20  # ticks without a run, after which nobody ticks


class Stoppable:
    """A block of a thread in which others may end its runs.

    >>> import threading, weft
    >>> from weft.base.stopping import Stoppable
    >>> @weft.compile
    ... def forever(x):
    ...     while x.sum() > 0.0:
    ...         x = x + 1.0
    ...     return x
    >>> with Stoppable() as runs:
    ...     threading.Timer(0.05, runs.stop, ["a stop after 50 ms"]).start()
    ...     forever(weft.ones(2))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.StoppedError: while_loop: must end by itself, got a stop after 50 ms
    ...
    """

    __slots__ = ("_thread",)

    def __init__(self) -> None:
        self._thread: int | None = None

    def __enter__(self) -> Stoppable:
        self._thread = get_ident()
        return self

    def __exit__(self, *_: object) -> None:
        with lock:
            if self._thread is not None:
                asked.pop(self._thread, None)
            self._thread = None

    def stop(self, reason: str) -> None:
        """End what the block runs, now or next; nothing happens when the block has ended."""
        with lock:
            if self._thread is not None:
                asked[self._thread] = reason
        ticker.tick()


def check_asked(op: str) -> None:
    """Raise if this thread was asked to end what it runs; to be called where ``asked`` holds anything."""
    if get_ident() in asked:
        raise stopped_error(op)


def stopped_error(op: str) -> StoppedError:
    """The error of a run of this thread that was stopped."""
    return StoppedError(op, f"must end by itself, got {asked.get(get_ident(), 'a stop')}")


class _Ticker:
    """Passes on what runs are asked, as long as there are some.

    Attributes:
        main: the thread that handles signals.
        is_there: whether a thread ticks.
    """

    def __init__(self) -> None:
        self.main = threading.main_thread().ident
        self.is_there = False

    def start(self) -> None:
        """Begin to tick."""
        self.is_there = True
        threading.Thread(target=self._go_on, name="weft-stopping", daemon=True).start()

    def _go_on(self) -> None:
        idle = 0
        while True:
            time.sleep(_TICK)
            idle = 0 if self.tick() else idle + 1
            if idle >= _IDLE:
                self.is_there = False
                if not self.tick():  # a run that began before has found that somebody ticks
                    return
                self.is_there = True

    def tick(self) -> bool:
        """Tell the runs of all threads what is wanted; whether there are any."""
        with lock:
            threads = [self._tell(run.words) for run in runs]
        return any(threads)

    def _tell(self, words: Any) -> int:
        thread = int(words[BUSY])
        if thread in asked:
            words[WANTED] = thread  # another run that has these words by then takes no notice
        elif thread == self.main and not words[WANTED]:
            words[WANTED] = LOOK
        return thread


ticker = _Ticker()


def _begin_child() -> None:
    """In the child of a fork there is one thread, which handles signals; nobody runs anything else."""
    global lock, runs
    lock = threading.Lock()
    asked.clear()
    runs = WeakSet(list(runs))  # a thread that went through the old one will never be done
    for run in runs:
        if int(run.words[BUSY]) != get_ident():
            run.words[BUSY] = 0
    ticker.main, ticker.is_there = get_ident(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_child)
