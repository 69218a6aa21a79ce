"""Elements made ahead of time by threads, in the order and with the draws of making them in step.

A thread takes the next piece of work under a lock, with the state of the feed after it, and computes outside
of it; so the order is that in which work was taken, and the state that is told is that of what was given out.
With processes, what a thread does for each piece is ask its process (``weft.data.process``).
"""

from __future__ import annotations

import os
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from weft.data.stage import Element
from weft.data.stream import State, Stream

_PATIENCE = 10.0  # seconds to wait for threads that are still in a function of the user


class Worker(Protocol):
    """Who computes elements for one thread."""

    def __call__(self, i: int, chunk: Any) -> Element:
        """Element i."""

    def stop(self) -> None:
        """Give up what is being computed, if that can be done, and end."""

    def close(self) -> None:
        """Free what it has, when nobody waits for it any more."""


class _Task:
    """An element that is being made, or has been."""

    __slots__ = ("done", "error", "state", "value")

    def __init__(self) -> None:
        self.value: Element = None
        self.error: BaseException | None = None
        self.state: State = {}
        self.done = False


class _Board:
    """What the threads and the stream share. It does not hold the stream, which may be forgotten any time."""

    def __init__(self, feed: Stream, count: int) -> None:
        self.feed = feed
        self.count = count
        self.pending: deque[_Task] = deque()  # in order, those that were begun and not yet given out
        self.changed = threading.Condition()
        self.taking = threading.Lock()
        self.ended = False  # nothing more is to be begun

    def begin(self) -> tuple[_Task, tuple[int, Any]] | None:
        """The next piece of work, when there is room for its result; None when there is no more."""
        with self.taking:
            with self.changed:
                self.changed.wait_for(lambda: self.ended or len(self.pending) < self.count)
                if self.ended:
                    return None
            task = _Task()
            try:
                work = self.feed.next()
                task.state = self.feed.state()
            except StopIteration:
                self._end()
                return None
            except BaseException as error:  # given to the training loop when its turn comes
                task.error, task.done = error, True
                self._end(task)
                return None
            with self.changed:
                self.pending.append(task)
            return task, work

    def _end(self, *last: _Task) -> None:
        with self.changed:
            self.pending.extend(last)
            self.ended = True
            self.changed.notify_all()

    def finish(self, task: _Task) -> None:
        """Tell that a piece of work is done."""
        with self.changed:
            task.done = True
            self.changed.notify_all()

    def stop(self) -> None:
        """Begin nothing more, and forget what was made."""
        with self.changed:
            self.ended = True
            self.pending.clear()
            self.changed.notify_all()

    def take(self) -> _Task:
        """The next element, when it is there; ``StopIteration`` after the last."""
        with self.changed:
            self.changed.wait_for(lambda: self.pending[0].done if self.pending else self.ended)
            if not self.pending:
                raise StopIteration
            task = self.pending.popleft()
            self.changed.notify_all()
            return task


def _serve(board: _Board, worker: Worker) -> None:
    while (begun := board.begin()) is not None:
        task, work = begun
        try:
            task.value = worker(*work)
        except BaseException as error:  # likewise
            task.error = error
        board.finish(task)


class _Crew:
    """The threads of a stream and who works for them. Like the board it does not hold the stream."""

    def __init__(self, feed: Stream, workers: list[Worker], count: int) -> None:
        self.board = _Board(feed, max(count, len(workers)))
        self._workers = workers
        self._owner = os.getpid()
        self._threads = [
            threading.Thread(target=_serve, args=(self.board, w), name="weft-data", daemon=True)
            for w in workers
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End all of them, whatever they do; also if Ctrl-C is pressed meanwhile."""
        if os.getpid() != self._owner:  # a forked process has copies of what is not its own
            return
        with interrupts_held():
            self.board.stop()
            for worker in self._workers:
                worker.stop()
            if threading.current_thread() not in self._threads:  # where garbage may be collected, too
                self._join()

    def _join(self) -> None:
        """Wait for the threads, and free what no thread uses any more."""
        end = time.monotonic() + _PATIENCE
        for thread, worker in zip(self._threads, self._workers, strict=True):
            thread.join(max(0.0, end - time.monotonic()))
            if not thread.is_alive():
                worker.close()
        if not any(thread.is_alive() for thread in self._threads):
            self.board.feed.close()


class Ahead(Stream):
    """Elements made by some workers while others are used, at most ``count`` of them ahead."""

    def __init__(self, feed: Stream, hire: Callable[[], list[Worker]], count: int) -> None:
        self._state = feed.state()
        with interrupts_held():  # who is hired can be let go from here on
            crew = _Crew(feed, hire(), count)
            self._end = weakref.finalize(self, crew.close)
        self._board = crew.board

    def next(self) -> Element:
        task = self._board.take()
        if task.error is not None:
            raise task.error
        self._state = task.state
        return task.value

    def state(self) -> State:
        return self._state

    def close(self) -> None:
        self._end()


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let Ctrl-C wait until what is done inside is done."""
    before: Any = None
    if threading.current_thread() is threading.main_thread():  # no other thread is interrupted
        before = signal.getsignal(signal.SIGINT)
    if not callable(before):
        yield
        return
    held: list[Any] = []
    signal.signal(signal.SIGINT, lambda *args: held.append(args))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            before(*held[0])
