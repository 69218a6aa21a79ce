"""Compiled functions: while a profile runs, calls go to a build of the same program that takes down times.

A call is one entry, with the records of its parts: for each how often it ran, how long that took in all, when
it began first and ended last. ``kernels_of`` makes events of these when the block has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from math import sqrt
from typing import Any, NamedTuple

from weft.backends import Array, Executable, known_backends
from weft.backends.capabilities import Call
from weft.base.frames import user_frame
from weft.base.shapes import size_of
from weft.base.sizes import bind, is_known
from weft.errors import DeviceError
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.profiler.log import (
    Entry,
    Event,
    Part,
    _Switch,
    entries,
    here,
    now,
    switch,
    take_down,
    trackers,
    user_place,
)
from weft.schedule.explanation import ExplainedStep
from weft.tensor.watch import here as watched

_CALLER = 4  # frames from a question for the user's line to who has called the program
_LITTLE = 1e-6  # seconds, of a step of which nobody knows how long it takes at best
_LEAVING = 100_000  # ns: it takes longer to leave machine code only if another thread runs Python meanwhile


def install(switch: _Switch) -> None:
    """Begin to watch all backends that can be."""
    for backend in known_backends():
        with suppress(DeviceError):  # one that takes down no times
            switch.at_end(backend.watch(_Watcher()))


class _Watcher:
    """What backends tell, while a profile runs."""

    def call(self, call: Call) -> list[Array]:
        """Do a call, and take it down."""
        if watched.inside:  # the kernel of an op
            return call.plain()
        place = user_frame(_CALLER)
        run, timing = call.run, bool(switch.timing)
        if timing and not run.has_recording:
            begin = now()
            run.recording()
            take_down("build", f"{run.graph.name}, to take down times", begin, now(), place)
        outs: list[Array] = []
        records, ended = None, 0
        begin = now()
        try:
            if timing:
                outs, records, ended = call.timed()
            else:
                outs = call.plain()
            return outs
        finally:
            detail = (run, call.sizes, records, ended)
            entries.append(("call", run.graph.name, begin, now(), here.number, place, here.module, detail))
            for tracker in trackers:
                tracker.call(call, outs, place, here.module)

    def build(self, graph: Graph, build: Callable[[], Executable]) -> Executable:
        """Build a graph, and take that down."""
        begin = now()
        try:
            return build()
        finally:
            take_down("build", graph.name, begin, now(), user_place(2))


# From records to events


class _Step(NamedTuple):
    """What is known of a part of a program before it runs."""

    name: str
    what: ExplainedStep
    parts: tuple[Part, ...]
    shapes: tuple[str, ...]


def _step(what: ExplainedStep, sizes: Mapping[str, int]) -> _Step:
    shapes = shown_types([v for node in what.nodes[-1:] for v in node.outputs], sizes)
    return _Step(what.ops or what.name, what, tuple(_parts(what.nodes, sizes)), shapes)


def shown_types(values: Iterable[Value], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Types of values of a graph, with the sizes that a call gave to names."""
    return tuple(str(TensorType(bind(tuple(v.type.shape), sizes), v.type.dtype)) for v in values)


def kernels_of(entry: Entry, known: dict[Any, list[list[_Step]]]) -> Iterator[Event]:
    """The parts of a call as events, in the order of their beginnings; ``known`` is kept between calls."""
    run, sizes, records, ended = entry.detail
    if records is None:
        return
    key = (id(run), *sorted(sizes.items()))
    if key not in known:
        steps = run.recorded_steps(sizes)  # by number of the record: several if they run side by side
        known[key] = [[_step(what, sizes) for what in found] for found in steps]
    table = records.tolist()
    ran = [i for i, record in enumerate(table) if record[0]]
    cursor = entry.begin
    for i in sorted(ran, key=lambda i: int(table[i][2])):
        count, total, first, _ = table[i]
        begin = min(max(first, cursor), entry.end)  # those in a loop are shown one after the other
        total = min(total, entry.end - begin)
        yield from _side_by_side(entry, known[key][i], begin, total, count, run.knows_limits)
        cursor = begin + total
    left = max(ended, cursor)
    if ended and entry.end - left > _LEAVING:
        line = None if entry.place is None else entry.place[:2]
        yield Event("wait", "Python's lock", left, entry.end - left, entry.thread, line, entry.module)


def _side_by_side(
    entry: Entry, steps: list[_Step], begin: int, total: int, count: int, limits: bool
) -> Iterator[Event]:
    """Kernels that share a record: each with a part of its time that is in proportion to its work."""
    work = list(accumulate(s.what.estimated or _LITTLE for s in steps))
    ends = [begin + round(total * done / work[-1]) for done in work]
    for step, start, end in zip(steps, [begin, *ends], ends, strict=False):
        line, module, *_ = step.parts[0] if step.parts else (None, "")
        what = "kernel", step.name, start, end - start, entry.thread, line, module, step.shapes
        work_done = step.what.bytes * count, step.what.flops * count
        at_best = round(step.what.estimated * count * 1e9) if limits else 0
        yield Event(*what, *work_done, count, step.parts, beside=len(steps) - 1, at_best=at_best)


def _parts(nodes: Sequence[Node], sizes: Mapping[str, int]) -> Iterator[Part]:
    """The lines and modules of a kernel's nodes, the time of which is shared out by their work."""
    work: dict[tuple[Any, str, str], float] = {}
    for node in nodes:
        at = node.location
        key = (None, "", "") if at is None else (at.place, at.module, at.phase)
        work[key] = work.get(key, 0.0) + _work(node, sizes)
    total = sum(work.values())
    for (line, module, phase), share in sorted(work.items(), key=lambda item: -item[1]):
        yield Part(line, module, phase, share / total)


def _work(node: Node, sizes: Mapping[str, int]) -> float:
    """About how much a node computes: elements, and for products how many numbers each sums up."""
    shapes = [bind(tuple(v.type.shape), sizes) for v in (*node.outputs, *node.inputs)]
    numbers = [float(size_of(s)) if is_known(s) else 1.0 for s in shapes]
    most = max(numbers, default=1.0)
    if node.op.linear == "each" and len(node.inputs) == 2 and not node.op.accepts:
        made, a, b = numbers[0], *numbers[len(node.outputs) :][:2]
        return 1.0 + 2 * sqrt(made * a * b)  # for a matmul of m, k, n: 2 m k n
    return 1.0 + most
