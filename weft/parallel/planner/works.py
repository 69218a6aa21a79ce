"""What the program of a rank does, step by step, with times: measured here, or by what a device can do."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from weft.base.parts import Parts
from weft.base.ranks import enter_world
from weft.base.records import NamedTuple
from weft.base.threads import get_num_threads, set_num_threads
from weft.ir.graph import Graph, Node
from weft.loop.ir import Loop
from weft.parallel.planner.clusters import Device
from weft.parallel.planner.world import PlannedWorld
from weft.passes.pipeline import lower
from weft.schedule.explanation import ExplainedStep, Explanation, Limits, explain_program
from weft.schedule.origins import steps_of
from weft.schedule.program import lower_graph
from weft.schedule.work import trips_of

_TIME = 0.6  # seconds that are spent on measuring calls, about
_LEAST = 3  # calls at least
_QUIET = 0.1  # of the calls take less than what is taken: others use this machine, too


class Work(NamedTuple):
    """A step of a program.

    Attributes:
        name: what it computes.
        seconds: that all its runs take; of a collective nothing.
        runs: how often it is run in a call.
        node: the collective that it is, or None.
    """

    name: str
    seconds: float
    runs: float
    node: Node | None = None


def is_collective(node: Node) -> bool:
    """Whether ranks meet in a node."""
    return bool(node.op.effect) and "mesh" in node.attrs


# By what a device can do


def rated_works(graph: Graph, device: Device, precision: str) -> list[Work]:
    """The steps of a graph, with times by operations and bytes."""
    program = lower_graph(lower(graph))
    limits = Limits(device.bandwidth, device.bandwidth, 0, device.flops[precision])
    explained = explain_program(graph, program, limits).steps
    turns = [1.0]
    found = []
    for step, told in zip(steps_of(program), explained, strict=True):
        del turns[step.depth + 1 :]
        if not step.number:
            inside = trips_of(step.statement, {}) if isinstance(step.statement, Loop) else 1.0
            turns.append(turns[-1] * inside)
            continue
        seconds = device.product_seconds(told.flops, told.bytes, precision)
        found.append(_work(told, turns[-1] * seconds, turns[-1]))
    return found


def _work(told: ExplainedStep, seconds: float, runs: float) -> Work:
    node = told.nodes[0] if len(told.nodes) == 1 and is_collective(told.nodes[0]) else None
    return Work(told.ops or told.name, 0.0 if node is not None else seconds, runs, node)


# Measured


def measured_works(run: Any, arrays: Sequence[Any], ranks: int, processors: int) -> list[Work]:
    """The steps of what a backend made, with times measured on this machine, without those of messages.

    As many calls run side by side as ranks would, up to the number of processors: they share memory and
    caches.

    Args:
        run: what the backend made, or what calls that on a rank, with what belongs to a call.
        arrays: of the inputs, for one rank.
        ranks: that will run on this machine.
        processors: that they share.
    """
    beside = max(1, min(ranks, processors))
    before = get_num_threads()
    set_num_threads(max(1, processors // ranks))
    try:
        whole = call_seconds(run, arrays, ranks, beside)
        explained = _explained(run, arrays, ranks)
    finally:
        set_num_threads(before)
    waits = max(1.0, ranks / processors)
    if not isinstance(explained, Explanation):
        return [
            Work("all", waits * whole, 1.0),
            *[Work(n.op.name, 0.0, 1.0, n) for n in run.graph.nodes if is_collective(n)],
        ]
    rows = [(s, s.measured) for s in explained.kernels if s.measured is not None]
    total = sum(m.seconds for _, m in rows) or 1.0
    return [_work(s, waits * whole * m.seconds / total, m.runs) for s, m in rows]


def _explained(run: Any, arrays: Sequence[Any], ranks: int) -> Any:
    before = enter_world(PlannedWorld(ranks))
    try:
        return run.explain([_copied(a) for a in arrays])
    finally:
        enter_world(before)


def call_seconds(run: Any, arrays: Sequence[Any], ranks: int, beside: int) -> float:
    """The time of a call of a rank that waits for nobody, while as many run beside it.

    The others are processes: threads would take turns with Python's lock, and leave the processors that share
    a core, and the memory, to this one. What is overwritten is, as in training.
    """
    flags = [False] * len(arrays)
    for given, _ in run.donated:
        flags[given] = True
    own = [_copied(a) for a in arrays]
    # The processor time of a rank with one thread: that others use the machine, too, does not change it.
    clock = time.thread_time if get_num_threads() == 1 else time.perf_counter
    before = enter_world(PlannedWorld(ranks))
    try:
        run.donating(own, flags)
        with companions(lambda: run.donating(own, flags), beside - 1):
            times: list[float] = []
            begin = time.perf_counter()
            while len(times) < _LEAST or time.perf_counter() - begin < _TIME:
                start = clock()
                run.donating(own, flags)
                times.append(clock() - start)
    finally:
        enter_world(before)
    return float(np.quantile(times, _QUIET))


@contextmanager
def companions(work: Callable[[], object], count: int) -> Iterator[None]:
    """Processes, copies of this one, that do some work over and over while a block runs."""
    children: list[int] = []
    try:
        for _ in range(count if hasattr(os, "fork") else 0):
            ready, told = os.pipe()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # threads: a copy needs none of them
                children.append(os.fork())
            if not children[-1]:
                _repeat(work, told)
            os.close(told)
            os.read(ready, 1)
            os.close(ready)
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _repeat(work: Callable[[], object], told: int) -> NoReturn:
    """What a copy of this process does until it is killed, or until the first one is gone."""
    parent = os.getppid()
    try:
        work()
        os.write(told, b"1")
        while os.getppid() == parent:
            work()
    finally:
        os._exit(1)


def _copied(data: Any) -> Any:
    if type(data) is Parts:
        return Parts(np.array(data.part), data.shape, data.cut, data.mesh)
    return np.array(data)


def processors_here() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))
