"""Requests put together: those that wait at the same time are run as one, and the results taken apart.

All of it happens in the thread of the event loop, but for runs that take long. What waits is run when nothing
runs: so requests that arrive one by one do not wait, and while many arrive, those that came during one run
are the next. Requests whose sizes differ in more than the rows are never put together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

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


class Batcher:
    """Runs a model on requests.

    Args:
        run: from the arrays of the inputs to those of the outputs.
        settings: how many rows, how long to wait.
        batched: whether requests may be put together: all arrays then have the rows as their first axis.
        metrics: to be told.
    """

    def __init__(self, run: Run, settings: Settings, batched: bool, metrics: ModelMetrics) -> None:
        self.settings = settings
        self.batched = batched
        self._run = run
        self._metrics = metrics
        self._begin(None)
        self._seconds = 1.0  # that a run takes, as far as is known
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="weft-serve")

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
        self._pool.shutdown(wait=False)

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
        elif self._seconds < INLINE:
            self._deliver(jobs, self._execute(jobs))
            self._schedule(loop)
        else:
            self._running = jobs
            running = loop.run_in_executor(self._pool, self._execute, jobs)
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
        found = self._together(jobs)
        if found is None:
            found = [self._alone(job) for job in jobs]
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
        """Answer requests that have waited too long; what runs goes on, and nobody takes its results."""
        self._timer = None
        jobs = [*self._running, *[job for group in self._groups.values() for job in group]]
        open_jobs = [job for job in jobs if not job.future.done()]
        before = perf_counter() - self.settings.timeout
        for job in open_jobs:
            if job.since <= before:
                job.future.set_exception(RefusedError(504, "the answer took too long"))
        left = [job.since for job in open_jobs if job.since > before]
        if left:
            self._timer = asyncio.get_running_loop().call_later(min(left) - before, self._expire)
