"""From stages to what runs them: elements by number where that can be, streams where it must be.

A plan belongs to one pipeline and lives as long as it: what ``cache`` keeps is in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.data import access, stage, stream
from weft.data.access import Access, Window
from weft.data.ahead import Ahead, Worker
from weft.data.cache import CacheStream, Kept, disk_cache, filled_cache
from weft.data.hoist import hoist
from weft.data.keys import stage_key
from weft.data.process import Parcel, ProcessWorker, start_method
from weft.data.stage import TRANSFORMS, Batch, Element, Prefetch, Stage
from weft.data.stream import ChunkFeed, RangeFeed, ReadFeed, State, Steps, Stream
from weft.data.text import describe_stage
from weft.data.transform import transform_of

Numbers = dict[Stage, int]


def split(last: Stage) -> tuple[Stage | None, int]:
    """The stream that a stage is made of element by element, and how many of its elements make one.

    None if elements can be had by number; workers then need nothing but the number.
    """
    width = 1
    while not stage.is_indexable(last):
        if not isinstance(last, (Batch, *TRANSFORMS)):
            return last, width
        width *= last.size if isinstance(last, Batch) else 1
        last = last.inputs[0]
    return None, 1


class Work:
    """Computes elements of a stage, in any thread."""

    def __init__(self, plan: Plan, last: Stage, epoch: int) -> None:
        self.prefix, self.width = split(last)
        self._window = None if self.prefix is None else Window()
        self._epoch = epoch
        self.access = plan.access(last, self.prefix, self._window)

    def __call__(self, i: int, chunk: Any) -> Element:
        """Element i, made of a stretch of a stream if it needs one."""
        self._show(chunk)
        return self.access.get(self._epoch, i)

    def wanted(self, i: int, chunk: Any) -> bool:
        """Whether there is an element i; the last stretch of a stream may be too short for one."""
        self._show(chunk)
        return i < self.access.size()

    def _show(self, chunk: Any) -> None:
        if self._window is not None:
            self._window.set(*chunk)

    def stop(self) -> None:
        """A thread cannot be stopped: it ends after the element that it works on."""

    def close(self) -> None:
        """There is nothing to free."""


class _Reader:
    """Gives on what was read, where there is nothing to compute."""

    def __call__(self, i: int, chunk: Any) -> Element:
        return chunk

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


def _work_of(numbers: Numbers, draws: Numbers, wanted: Stage, epoch: int) -> Work:
    return Work(Plan(numbers, draws), wanted, epoch)


def plan_of(last: Stage) -> tuple[Plan, Stage]:
    """A plan for a pipeline, and the stage to open, which is the last one or a prefetch of it."""
    moved, was = hoist(last)
    shown = stage.numbers_of(last)
    numbers = {x: shown[was[x]] for x in stage.stages_of(moved)}
    return Plan(numbers, stage.draw_numbers_of(moved)), moved


class Plan:
    """How a pipeline runs.

    Args:
        numbers: of each stage in texts.
        draws: of each stage in random keys.
    """

    def __init__(self, numbers: Numbers, draws: Numbers) -> None:
        self.numbers = numbers
        self.draws = draws
        self._accesses: dict[Stage, Access] = {}
        self._kept: dict[Stage, Kept] = {}

    # By number

    def access(self, last: Stage, end: Stage | None = None, window: Window | None = None) -> Access:
        """Elements of a stage by number, of those of a stream in a window if it ends in one."""
        if last is end:
            assert window is not None
            return window
        found = self._accesses.get(last)
        if found is None:
            inputs = [] if _is_read(last) else [self.access(x, end, window) for x in last.inputs]
            found = _ACCESSES[type(last)](self, last, inputs)
            if end is None:
                self._accesses[last] = found
        return found

    # One after the other

    def open(self, last: Stage, epoch: int, state: State | None = None) -> Stream:
        """The elements of a stage in an epoch, from a state on."""
        if isinstance(last, Prefetch):
            return self._ahead(last, epoch, state)
        if stage.is_indexable(last) or isinstance(last, (Batch, *TRANSFORMS)):
            work = Work(self, last, epoch)
            return Steps(self._feed(work, epoch, state), work)
        return _STREAMS[type(last)](self, last, epoch, state)

    def open_input(self, last: Stage, epoch: int, state: State | None) -> Stream:
        """The elements of a stage's input."""
        return self.open(last.inputs[0], epoch, state and state["input"])

    def opener(self, last: Stage) -> stream.Open:
        """A function that opens a stage."""
        return lambda epoch, state: self.open(last, epoch, state)

    def _feed(self, work: Work, epoch: int, state: State | None) -> Stream:
        if work.prefix is None:
            return RangeFeed(work.access.size(), state)
        source = self.open(work.prefix, epoch, state and state["input"])
        return ChunkFeed(source, work.width, work.wanted, state)

    def _ahead(self, last: Prefetch, epoch: int, state: State | None) -> Stream:
        work = Work(self, last.inputs[0], epoch)
        if work.prefix is last.inputs[0]:  # a stream with nothing to share out
            return Ahead(ReadFeed(self.open(work.prefix, epoch, state)), lambda: [_Reader()], last.count)

        def hire() -> list[Worker]:
            by_process = last.mode == "process"
            return self._processes(last, work, epoch) if by_process else [work] * last.workers

        feed = self._feed(work, epoch, state)
        try:
            return Ahead(feed, hire, last.count)
        except BaseException:
            feed.close()
            raise

    def _processes(self, last: Prefetch, work: Work, epoch: int) -> list[Worker]:
        given: Any = work
        if start_method(last) != "fork":
            given = Parcel((self.numbers, self.draws, last.inputs[0], epoch), _work_of)
        found: list[Worker] = []
        try:
            for _ in range(last.workers):
                found.append(ProcessWorker(given, last, self._describe))  # noqa: PERF401 - ended if the next fails
        except BaseException:
            for worker in found:
                worker.stop()
                worker.close()
            raise
        finally:
            if isinstance(given, Parcel):
                given.close()
        return found

    def _describe(self, number: int) -> str:
        """A stage for a message."""
        return next((describe_stage(x) for x, n in self.numbers.items() if n == number), "unknown")

    def kept(self, last: Stage) -> Kept:
        """What a cache of a stream has kept."""
        return self._kept.setdefault(last, Kept())

    def key(self, last: Any, epoch: int) -> Any:
        """The key of a stage in an epoch."""
        return stage_key(last.seed, self.draws[last], epoch)


def _is_read(last: Stage) -> bool:
    """Whether a cache reads all of its input at once."""
    return isinstance(last, stage.Cache) and (last.path is not None or stage.is_ahead(last.inputs[0]))


def _cache(plan: Plan, last: stage.Cache, inputs: list[Access]) -> Access:
    if inputs:
        return access.CacheAccess(inputs[0])
    opener = plan.opener(last.inputs[0])
    return filled_cache(opener) if last.path is None else disk_cache(last, opener)


_ACCESSES: dict[type[Stage], Callable[[Plan, Any, list[Access]], Access]] = {
    stage.Arrays: lambda plan, x, inputs: access.ArraysAccess(x),
    stage.Items: lambda plan, x, inputs: access.ItemsAccess(x, plan.numbers[x]),
    stage.Files: lambda plan, x, inputs: access.FilesAccess(x, plan.numbers[x]),
    stage.Batch: lambda plan, x, inputs: access.BatchAccess(inputs[0], x, plan.numbers[x]),
    stage.Shuffle: lambda plan, x, inputs: access.ShuffleAccess(inputs[0], x, plan.draws[x]),
    stage.Cache: _cache,
    stage.Repeat: lambda plan, x, inputs: access.RepeatAccess(inputs[0], x),
    stage.Take: lambda plan, x, inputs: access.RangeAccess(inputs[0], 0, x.count),
    stage.Skip: lambda plan, x, inputs: access.RangeAccess(inputs[0], x.count, None),
    stage.Concat: lambda plan, x, inputs: access.ConcatAccess(inputs),
    stage.Zip: lambda plan, x, inputs: access.ZipAccess(inputs),
    stage.Interleave: lambda plan, x, inputs: access.InterleaveAccess(inputs, x),
    **{
        kind: lambda plan, x, inputs: access.TransformAccess(
            inputs[0], transform_of(x, plan.numbers[x], plan.draws[x])
        )
        for kind in TRANSFORMS
    },
}


def _open_all(plan: Plan, last: Stage, epoch: int, state: State | None) -> list[Stream]:
    states = state["inputs"] if state else [None] * len(last.inputs)
    return [plan.open(x, epoch, s) for x, s in zip(last.inputs, states, strict=True)]


_STREAMS: dict[type[Stage], Callable[[Plan, Any, int, State | None], Stream]] = {
    stage.Generator: lambda plan, x, epoch, state: stream.GeneratorStream(x, plan.numbers[x], epoch, state),
    stage.Filter: lambda plan, x, epoch, state: stream.FilterStream(
        x, plan.numbers[x], epoch, plan.open_input(x, epoch, state), state["seen"] if state else 0
    ),
    stage.Flatten: lambda plan, x, epoch, state: stream.FlattenStream(
        x, plan.numbers[x], epoch, plan.open_input(x, epoch, state), state
    ),
    stage.Shuffle: lambda plan, x, epoch, state: stream.ShuffleStream(
        plan.open_input(x, epoch, None), plan.key(x, epoch), x.buffer, state
    ),
    stage.Take: lambda plan, x, epoch, state: stream.TakeStream(
        plan.open_input(x, epoch, state), 0, x.count, state
    ),
    stage.Skip: lambda plan, x, epoch, state: stream.TakeStream(
        plan.open_input(x, epoch, state), x.count, None, state
    ),
    stage.Repeat: lambda plan, x, epoch, state: stream.RepeatStream(
        plan.opener(x.inputs[0]), x.times, epoch, state
    ),
    stage.Concat: lambda plan, x, epoch, state: stream.ConcatStream(
        [plan.opener(y) for y in x.inputs], epoch, state
    ),
    stage.Zip: lambda plan, x, epoch, state: stream.ZipStream(_open_all(plan, x, epoch, state)),
    stage.Interleave: lambda plan, x, epoch, state: stream.InterleaveStream(
        x, _open_all(plan, x, epoch, state), state
    ),
    stage.Cache: lambda plan, x, epoch, state: CacheStream(plan.kept(x), plan.opener(x.inputs[0]), state),
}
