"""What a compiled function does on a GPU, and how long its kernels take there, by events of the driver.

The table is the same as that of the processor's programs (``weft.schedule.explanation``); the steps are those
of the program of loops that the kernels were made of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

from weft.backends.cuda.array import DeviceArray, new_array
from weft.backends.cuda.build import loops_of
from weft.backends.cuda.card import Card, PerCard
from weft.backends.cuda.compiling import machine_of
from weft.backends.cuda.cudnn import has_biases
from weft.backends.cuda.execute import CudaExecutable
from weft.backends.cuda.libraries import commit_of, is_collective
from weft.backends.cuda.meeting import shared_graph
from weft.backends.cuda.program import (
    Check,
    CopyBytes,
    FillBytes,
    HostCall,
    Launch,
    LibraryCall,
    MatrixProduct,
    all_steps,
    evaluate,
)
from weft.backends.cuda.streams import Event
from weft.backends.cuda.walk import Walk
from weft.backends.made_up import NOT_MEASURED, made_up
from weft.base.dtypes import uint8
from weft.errors import WeftError
from weft.ir.graph import Graph
from weft.loop.ir import Program
from weft.ops.collective import commit
from weft.schedule.explanation import ExplainedStep, Explanation, Limits, Measured, explain_program
from weft.schedule.gpu.machine import Gpu as Machine
from weft.schedule.origins import steps_of

_RUNS = 5
_LARGE, _SMALL = 1 << 28, 1 << 23  # bytes of copies that caches do not hold, and that they do
_WORK = (
    Launch,
    CopyBytes,
    FillBytes,
    MatrixProduct,
    LibraryCall,
    HostCall,
)  # steps that a statement of loops becomes
_CLOCK, _CACHE = 13, 38  # of CUdevice_attribute: kHz of a processor, bytes of the last cache
_LANES = 128  # multiply-adds of float32 that a processor does at a time
_UNITS, _FEW_UNITS = (
    {(8, 0): 1024, (9, 0): 2048, (10, 0): 4096},
    512,
)  # and those of its tensor cores in halves


def explain_on_device(run: CudaExecutable, graph: Graph, arrays: Sequence[Any] | None = None) -> Explanation:
    """What a graph does on a device, with times measured on arrays; nothing that the call changes stays.

    Without arrays it runs on made-up ones, unless that might never end, have effects, or need other ranks.
    """
    program, note = loops_for(graph, run), ""
    sizes, seconds, measured = run.known_sizes(), None, list[Measured]()
    if arrays is None:
        arrays, note = (None, NOT_MEASURED) if run.meets else made_up(graph, sizes)
    if arrays is not None:
        inputs = [run.fitted(a) for a in arrays]
        plan = run.plan_for(inputs)
        sizes = dict(plan.numbers)
        try:
            seconds, measured = _measure(run, program, inputs) if plan.fits else (None, [])
        except WeftError:
            if not note:
                raise
            note = NOT_MEASURED
    explained = explain_program(graph, program, measure_limits(run.card), sizes, measured)
    device = f"{run.card.device} ({run.card.name})"
    return dataclasses.replace(explained, seconds=seconds, note=note, device=device, program=run.program)


def loops_for(graph: Graph, run: CudaExecutable) -> Program:
    """The program of loops that what runs a graph was made of; the same one each time."""
    every = all_steps(run.program.steps)
    called = any(isinstance(step, LibraryCall) and not is_collective(step) for step in every)
    machine = machine_of(run.card)._replace(cudnn=called, adds_biases=has_biases(run.program))
    known = _loops.setdefault(graph, {})
    key = machine, str(sorted(run.options.items()))
    if key not in known:
        hosts, commits_there = run.program.hosts, commit_of(run.program.steps) is not None
        commits = commits_there or any(entry.op is commit for entry in hosts)
        known[key] = loops_of(shared_graph(graph, run.card, commits=commits), machine, **run.options)
    return known[key]


_loops: WeakKeyDictionary[Graph, dict[tuple[Machine, str], Program]] = WeakKeyDictionary()


def _measure(
    run: CudaExecutable, program: Program, inputs: Sequence[DeviceArray]
) -> tuple[float, list[Measured]]:
    """The seconds of a call, and those of each step in it: the least of several runs."""
    steps = [s for s in steps_of(program) if s.number]
    whole = min(_elapsed(run.card, lambda: run(inputs)) for _ in range(_RUNS))
    tables = [times_of(run, inputs)[1] for _ in range(_RUNS)]
    work = [step for step in all_steps(run.program.steps) if isinstance(step, _WORK)]
    best = [min((table[id(step)] for table in tables), key=lambda m: m.seconds) for step in work]
    numbers = run.plan_for(inputs).numbers
    parts = [
        Measured(found.runs, found.seconds * share)
        for step, found in zip(work, best, strict=True)
        for share in _shares(step, numbers)
    ]
    return whole, parts if len(parts) == len(steps) else []  # else nobody knows which is which


def _shares(step: Any, numbers: Mapping[str, int]) -> list[float]:
    """What of a step's time is that of each of its parts: of launches that are one, by their blocks."""
    if not isinstance(step, Launch) or step.many == 1:
        return [1.0]
    each = len(step.arguments) // step.many
    try:
        firsts = [evaluate(first, numbers) for first in (*step.arguments[::each], step.grid)]  # type: ignore[arg-type]
    except (KeyError, TypeError, WeftError):  # a size that the run tells
        return [1 / step.many] * step.many
    return [(end - first) / max(firsts[-1], 1) for first, end in pairwise(firsts)]


def times_of(run: CudaExecutable, inputs: Sequence[DeviceArray]) -> tuple[list[Any], dict[int, Measured]]:
    """The results of a call, and by identity of a step how often it ran and how long that took."""
    stream = run.card.current()
    plan = run.plan_for(inputs)
    for array in inputs:
        array.block.read_on(stream)
    outputs: list[Any] = [
        new_array(run.card, shape, kind.dtype, stream) if all(isinstance(n, int) for n in shape) else None
        for shape, kind in zip(plan.shapes, run.program.outputs, strict=True)
    ]
    walk = _TimedWalk(run, plan.numbers, inputs, outputs, stream)
    keep_busy(run.card, len(run.program.steps))
    walk.run(run.program.steps)
    run.raise_failure(walk.context_words())
    return walk.results(), walk.times()


class _TimedWalk(Walk):
    """A walk that records an event before and after each step."""

    def run(self, listed: Sequence[Any]) -> None:
        """Do steps in their order; the device has something to do while the host is busy or waits."""
        for step in listed:
            if not isinstance(step, _WORK):
                super().run((step,))
                if isinstance(step, Check):
                    keep_busy(self.stream.card, len(listed))
                continue
            if isinstance(step, Launch) and step.many > 1:  # there is much to be told
                keep_busy(self.stream.card, len(step.arguments))
            start, end = Event(), Event()
            start.record(self.stream)
            super().run((step,))
            end.record(self.stream)
            self.marks.append((id(step), start, end))

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.marks: list[tuple[int, Event, Event]] = []

    def times(self) -> dict[int, Measured]:
        """What the events tell, when all is done."""
        self.stream.synchronize()
        found = {id(step): Measured(0, 0.0) for step in all_steps(self.program.steps)}
        for key, start, end in self.marks:
            runs, seconds = found[key]
            found[key] = Measured(runs + 1, seconds + start.elapsed_time(end) * 1e-3)
        return found


def keep_busy(card: Card, steps: int) -> None:
    """Have the device do something while the host gives it steps, so that it never waits for one."""
    room = new_array(card, (_room(card, _LARGE),), uint8)
    for _ in range(min(1 + steps // 4, 64)):
        card.driver.cuMemsetD8Async(room.pointer, 0, room.nbytes, card.current().handle)


def _room(card: Card, size: int) -> int:
    """So many bytes, or fewer where the device has few left."""
    return min(size, card.pool.info()[0] // 8)


def _elapsed(card: Card, work: Callable[[], object]) -> float:
    """Seconds that the device takes for work."""
    start, end = Event(), Event()
    keep_busy(card, 4)
    start.record(card.current())
    work()
    end.record(card.current())
    end.synchronize()
    return start.elapsed_time(end) * 1e-3


# The machine


def measure_limits(card: Card) -> Limits:
    """What a device can do at best: copies of its memory, and multiply-adds at the rate of its clock."""
    return _limits.of(card)


def _measured_limits(card: Card) -> Limits:
    turns = 2 * card.multiprocessors * card.attribute(_CLOCK) * 1e3
    rates = _copy_rate(card, _LARGE), _copy_rate(card, _SMALL)
    units = _UNITS.get(card.capability, _FEW_UNITS)
    return Limits(*rates, card.attribute(_CACHE) // 2, _LANES * turns or 1e12, units * turns)


_limits = PerCard(_measured_limits)


def _copy_rate(card: Card, size: int) -> float:
    """Bytes a second, read and written."""
    again, size = _LARGE // size, _room(card, size)
    source, target = (new_array(card, (size,), uint8) for _ in range(2))

    def work() -> None:
        for _ in range(again):
            card.driver.cuMemcpyDtoDAsync(target.pointer, source.pointer, size, card.current().handle)

    return 2 * size * again / min(_elapsed(card, work) for _ in range(_RUNS))


# For profiles


class Watched:
    """A graph on a device, as a profile sees it.

    Attributes:
        graph: the graph.
        run: what runs it.
    """

    has_recording = knows_limits = True

    def __init__(self, graph: Graph, run: CudaExecutable) -> None:
        self.graph, self.run = graph, run

    @property
    def program(self) -> Program:
        """The loops that its kernels were made of."""
        return loops_for(self.graph, self.run)

    def recording(self) -> Watched:
        """Itself: steps are timed by events, whatever made them."""
        return self

    def recorded_steps(self, sizes: Mapping[str, int]) -> list[list[ExplainedStep]]:
        """What each row of records is of, with the time that the device needs for it at best."""
        explained = explain_program(self.graph, self.program, measure_limits(self.run.card), sizes)
        return [[step] for step in explained.kernels]

    def rows(self, times: Mapping[int, Measured], begin: int) -> list[tuple[int, int, int, int]]:
        """Rows of records: how often a step ran, how long in all, when it began and ended, in ns."""
        out, at = [], begin
        for step in all_steps(self.run.program.steps):
            if isinstance(step, _WORK):
                runs, seconds = times[id(step)]
                for share in _shares(step, {}):
                    took = round(seconds * share * 1e9)
                    out.append((runs, took, at, at + took))
                    at += took
        return out
