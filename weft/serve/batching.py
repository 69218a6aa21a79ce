"""Requests put together: those that wait at the same time are run as one, and the results taken apart.

All of it happens in the thread of the event loop, but for runs that take long. What waits is run when nothing
runs: so requests that arrive one by one do not wait, and while many arrive, those that came during one run
are the next. Requests whose sizes differ in more than the rows are never put together. A run that nobody
waits for any more is stopped, at one of its loops.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from time import perf_counter
from typing import Any

import numpy as np

from weft.base.stopping import Stoppable
from weft.errors import StoppedError
from weft.serve.metrics import ModelMetrics
from weft.serve.protocol import Array
from weft.serve.settings import RefusedError, Settings

INLINE = (
    0.0005  # seconds: what takes less is run in the loop's own thread, as going to another one costs that
)
_MEMORY = 0.8  # how much of what runs took before stays in the estimate of what they take

Run = Callable[[Sequence[Array]], list[Array]]
Key = tuple[tuple[int, ...], ...]


@dataclass(eq=False, slots=True)
class Job:
    """A request that waits for its results."""

    arrays: list[Array]
    rows: int
    future: asyncio.Future[list[Array]]
    since: float = field(default_factory=perf_counter)


class Worker:
    """A thread that runs one thing after the other; the process does not wait for it to end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._thread: Thread | None = None

    def submit(
        self, loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """What a function that raises nothing will give, for an event loop."""
        if self._thread is None:
            self._thread = Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        future = loop.create_future()
        self._queue.put((loop, future, function, args))
        return future

    def close(self) -> None:
        """End when all is done."""
        self._queue.put(None)
        self._thread = None

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            loop, future, function, args = item
            found = function(*args)
            with suppress(RuntimeError):  # the event loop has ended meanwhile
                loop.call_soon_threadsafe(lambda f=future, x=found: f.done() or f.set_result(x))


class Batcher:
    """Runs a model on requests.

    Args:
        run: from the arrays of the inputs to those of the outputs.
        settings: how many rows, how long to wait.
        batched: whether requests may be put together: all arrays then have the rows as their first axis.
        metrics: to be told.
        inline: whether runs that were short so far may be made in the thread of the event loop; not where a
            loop may take long for other numbers.
    """

    def __init__(
        self, run: Run, settings: Settings, batched: bool, metrics: ModelMetrics, *, inline: bool = True
    ) -> None:
        self.settings = settings
        self.batched = batched
        self._run = run
        self._metrics = metrics
        self._begin(None)
        self._seconds = 1.0  # that a run takes, as far as is known
        self._inline = INLINE if inline else 0.0
        self._runs = Stoppable()
        self._worker = Worker("weft-serve")

    def _begin(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Work in an event loop; what belonged to another one is forgotten, as it has ended."""
        self._loop = loop
        self.waiting = 0
        self._groups: dict[Key, deque[Job]] = {}
        self._handle: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None  # for the oldest request
        self._running: list[Job] = []  # in the thread

    def submit(self, arrays: list[Array]) -> asyncio.Future[list[Array]]:
        """The results of a request, to be awaited; an error if there is no place left to wait."""
        if self.waiting >= self.settings.max_queue:
            raise RefusedError(503, "too many requests wait; try again later", {"retry-after": "1"})
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._begin(loop)
        rows = arrays[0].shape[0] if self.batched else 1
        key = tuple([a.shape[1:] for a in arrays]) if self.batched else ()
        job = Job(arrays, rows, loop.create_future())
        if self._timer is None:
            self._timer = loop.call_later(self.settings.timeout, self._expire)
        self._groups.setdefault(key, deque()).append(job)
        self.waiting += 1
        self._schedule(loop)
        return job.future

    def close(self) -> None:
        """End the thread, when what it runs has ended."""
        self._worker.close()

    @property
    def is_stuck(self) -> bool:
        """Whether a run goes on that nobody waits for any more."""
        return bool(self._running) and all(job.future.done() for job in self._running)

    def stop(self, reason: str) -> None:
        """Answer all requests with an error, and stop what runs."""
        for job in [*self._running, *[job for group in self._groups.values() for job in group]]:
            if not job.future.done():
                job.future.set_exception(RefusedError(503, f"the request was not answered: {reason}"))
        self._runs.stop(reason)

    # When to run

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._running or not self.waiting:
            return
        delay = self._delay() if self.settings.max_delay else 0.0
        if delay > 0.0:
            if self._handle is None:
                self._handle = loop.call_later(delay, self._start)
        elif self._handle is None or isinstance(self._handle, asyncio.TimerHandle):
            if self._handle is not None:
                self._handle.cancel()
            self._handle = loop.call_soon(self._start)

    def _delay(self) -> float:
        """Seconds until the oldest request has waited long enough; 0 where there is a full batch."""
        rows = [sum(job.rows for job in group) for group in self._groups.values()]
        if not self.batched or max(rows, default=0) >= self.settings.max_batch:
            return 0.0
        oldest = min(group[0].since for group in self._groups.values())
        return max(0.0, oldest + self.settings.max_delay - perf_counter())

    def _start(self) -> None:
        """Run what has waited longest, with all that fits it."""
        self._handle = None
        jobs = self._take()
        loop = asyncio.get_running_loop()
        if not jobs:
            self._schedule(loop)
        elif self._seconds < self._inline:
            self._deliver(jobs, self._execute(jobs))
            self._schedule(loop)
        else:
            self._running = jobs
            running = self._worker.submit(loop, self._execute, jobs)
            running.add_done_callback(lambda done: self._finish(jobs, done))

    def _finish(self, jobs: list[Job], done: asyncio.Future[list[Any]]) -> None:
        self._running = []
        self._deliver(jobs, done.result())
        self._schedule(asyncio.get_running_loop())

    def _take(self) -> list[Job]:
        if not self._groups:
            return []
        key = min(self._groups, key=lambda k: self._groups[k][0].since)
        jobs: list[Job] = []
        group, rows = self._groups[key], 0
        while group and (not jobs or (self.batched and rows + group[0].rows <= self.settings.max_batch)):
            job = group.popleft()
            self.waiting -= 1
            if not job.future.done():
                jobs.append(job)
                rows += job.rows
        if not group:
            del self._groups[key]
        return jobs

    # The run

    def _execute(self, jobs: list[Job]) -> list[Any]:
        """The results or the error of each; where the whole fails, each is run by itself."""
        start = perf_counter()
        try:
            with self._runs:
                found = self._together(jobs)
                if found is None:
                    found = [self._alone(job) for job in jobs]
        except StoppedError as error:
            found = [RefusedError(503, f"{error.op}: {error.message}")] * len(jobs)
        seconds = perf_counter() - start
        self._seconds = min(1.0, _MEMORY * self._seconds + (1.0 - _MEMORY) * seconds)
        self._metrics.run(seconds, sum(job.rows for job in jobs), len(jobs))
        return found

    def _together(self, jobs: list[Job]) -> list[Any] | None:
        if len(jobs) == 1:
            return None
        try:
            parts = zip(*[job.arrays for job in jobs], strict=True)
            results = self._run([np.concatenate(arrays) for arrays in parts])
        except StoppedError:
            raise
        except Exception:  # each is run by itself, and has its own error
            return None
        found, at = [], 0
        for job in jobs:
            found.append([result[at : at + job.rows] for result in results])
            at += job.rows
        return found

    def _alone(self, job: Job) -> Any:
        try:
            return self._run(job.arrays)
        except StoppedError:
            raise
        except Exception as error:
            return error

    def _deliver(self, jobs: list[Job], found: list[Any]) -> None:
        for job, result in zip(jobs, found, strict=True):
            if job.future.done():
                continue
            if isinstance(result, BaseException):
                job.future.set_exception(result)
            else:
                job.future.set_result(result)

    def _expire(self) -> None:
        """Answer requests that have waited too long, and stop a run whose results nobody takes."""
        self._timer = None
        jobs = [*self._running, *[job for group in self._groups.values() for job in group]]
        open_jobs = [job for job in jobs if not job.future.done()]
        before = perf_counter() - self.settings.timeout
        for job in open_jobs:
            if job.since <= before:
                job.future.set_exception(RefusedError(504, "the answer took too long"))
        if self.is_stuck:
            self._runs.stop(f"no end within {self.settings.timeout:g} s")
        left = [job.since for job in open_jobs if job.since > before]
        if left:
            self._timer = asyncio.get_running_loop().call_later(min(left) - before, self._expire)
