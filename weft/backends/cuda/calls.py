"""Graphs called on arrays of a device: by a program for it, or op by op where there is none."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from weft.backends.capabilities import Call, Timed, Watcher
from weft.backends.cuda.array import DeviceArray
from weft.backends.cuda.card import Card
from weft.backends.cuda.eager import Runner, current_build
from weft.backends.cuda.execute import CudaExecutable
from weft.errors import DeviceError, ParallelError, WeftError
from weft.ir.graph import Graph
from weft.tensor.dispatch import wrap
from weft.tensor.mode import no_grad
from weft.transform.tracing import replay

_programs: WeakKeyDictionary[Graph, dict[int, Runner | None]] = WeakKeyDictionary()


def run_on_device(graph: Graph, arrays: Sequence[Any]) -> list[Any]:
    """The results of a graph, on the device of the first of the arrays that is on any."""
    run = program_for(graph, arrays)
    if run is not None:
        return list(run(arrays))
    with no_grad():
        return [t._data for t in replay(graph, [wrap(a) for a in arrays])]


def program_for(graph: Graph, arrays: Sequence[Any]) -> Runner | None:
    """What runs a graph on the device of the first of the arrays that is on any; None if nothing does."""
    on = next(a for a in arrays if type(a) is DeviceArray).card
    known = _programs.setdefault(graph, {})
    if id(on) not in known:
        known[id(on)] = _compiled(graph, on)
    return known[id(on)]


def device_of(graph: Graph) -> Card | None:
    """A device that a graph has run on, if it has on any."""
    found = [run for run in _programs.get(graph, {}).values() if isinstance(run, CudaExecutable)]
    return found[-1].card if found else None


def explain_graph(graph: Graph, arrays: Sequence[Any]) -> Any:
    """What a graph does on the device of its arrays; its text where there is no program for it."""
    run = program_for(graph, arrays)
    return str(graph) if run is None else run.explain(arrays)  # type: ignore[attr-defined]


def watched_call(graph: Graph, arrays: Sequence[Any], watcher: Watcher) -> list[Any]:
    """The results of a graph, run by way of a profile, which is told how long its kernels take."""
    run = program_for(graph, arrays)
    if not isinstance(run, CudaExecutable):
        return run_on_device(graph, arrays)
    return watched_run(run, arrays, lambda: run(arrays), watcher)


def watched_run(
    run: CudaExecutable, arrays: Sequence[Any], plain: Callable[[], list[Any]], watcher: Watcher
) -> list[Any]:
    """Likewise of what runs a graph; ``plain`` is the call as it would have been."""
    from weft.backends.cuda.explain import times_of

    inputs = [run.fitted(a) for a in arrays]
    plan, seen = run.plan_for(inputs), run.watched
    if not plan.fits:  # no kernel runs
        return plain()

    def timed() -> Timed:
        begin = time.perf_counter_ns()
        outputs, times = times_of(run, inputs)
        return Timed(outputs, np.array(seen.rows(times, begin), np.int64).reshape(-1, 4), 0)

    call = Call(seen, arrays, plan.numbers, 0, plain, timed)
    return watcher.call(call)


def _compiled(graph: Graph, on: Any) -> Runner | None:
    build = current_build()
    if build is None:
        return None
    try:
        return build(graph, on)
    except (DeviceError, ParallelError):  # of the device itself, or of other ranks
        raise
    except WeftError:  # something in it has no kernel
        return None
