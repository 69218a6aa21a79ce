"""Compiled functions: while a profile runs, calls go to a build of the same program that takes down times.

A call is one entry, with the records of its parts: for each how often it ran, how long that took in all, when
it began first and ended last. ``kernels_of`` makes events of these when the block has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import sqrt
from typing import Any, NamedTuple

from weft.backends.llvm import driver
from weft.backends.llvm.main import RECORD, recorded_statements
from weft.backends.llvm.programs import StoredProgram
from weft.backends.llvm.run import Executable
from weft.base.shapes import size_of
from weft.base.sizes import bind, is_known
from weft.errors import user_frame
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.loop.ir import Wave
from weft.profiler.event import Event, Part
from weft.profiler.log import Entry, _Switch, entries, here, now, switch, take_down, trackers, user_place
from weft.schedule.explanation import ExplainedStep, Limits, explain_program
from weft.schedule.origins import steps_of
from weft.tensor.watch import here as watched

# Only how long kernels that run side by side take in relation to each other is estimated by these.
_LIMITS = Limits(memory=20e9, cache=80e9, held=2**23, flops=60e9)
_CALLER = 3  # frames from a question for the user's line to who has called the program
_LEAVING = 100_000  # ns: it takes longer to leave machine code only if another thread runs Python meanwhile


def install(switch: _Switch) -> None:
    """Begin to watch."""
    switch.replace(Executable, "_run", _run)
    switch.replace(driver, "build_executable", _build)
    switch.replace(StoredProgram, "run", _run_nothing)


def _run_nothing(self: StoredProgram, arrays: Sequence[Any], plan: Any) -> None:
    """Programs from disk take down no times: a call under a profile is compiled like any other."""


_plain_run = Executable._run
_plain_build = driver.build_executable


def _run(
    self: Executable, plan: Any, recipe: Any, arrays: Sequence[Any], flags: Sequence[bool] = ()
) -> list[Any]:
    if watched.inside:  # the kernel of an op
        return _plain_run(self, plan, recipe, arrays, flags)
    place = user_frame(_CALLER)
    run = self._recording or _recording(self, place) if switch.timing else None
    outs: list[Any] = []
    records, ended = None, 0
    begin = now()
    try:
        if run is None:
            outs = _plain_run(self, plan, recipe, arrays, flags)
        else:
            outs, records, ended = run.timed(arrays, run.records.size, flags, recipe)
        return outs
    finally:
        detail = (self, plan.sizes, records, ended)
        entries.append(("call", self.graph.name, begin, now(), here.number, place, here.module, detail))
        for tracker in trackers:
            tracker.call(self, plan, arrays, outs, place, here.module)


def _recording(run: Executable, place: Any) -> Executable:
    begin = now()
    found = run.recording()
    take_down("build", f"{run.graph.name}, to take down times", begin, now(), place)
    return found


def _build(graph: Graph, **options: Any) -> Executable:
    begin = now()
    try:
        return _plain_build(graph, **options)
    finally:
        take_down("build", graph.name, begin, now(), user_place(2))


# From records to events


class _Step(NamedTuple):
    """What is known of a part of a program before it runs."""

    name: str
    what: ExplainedStep
    parts: tuple[Part, ...]
    shapes: tuple[str, ...]


class _Steps:
    """The parts of a program for some sizes, by number of the record: several if they run side by side."""

    def __init__(self, run: Executable, sizes: Mapping[str, int]) -> None:
        explained = explain_program(run.graph, run.program, _LIMITS, sizes).steps
        found = zip(steps_of(run.program), explained, strict=True)
        by_statement = {id(s.statement): e for s, e in found if s.number}
        self.records = [
            [
                self._step(by_statement[id(x)], sizes)
                for x in (s.launches if isinstance(s, Wave) else (s,))
                if id(x) in by_statement
            ]
            for s in recorded_statements(run.program)
        ]

    def _step(self, what: ExplainedStep, sizes: Mapping[str, int]) -> _Step:
        shapes = shown_types([v for node in what.nodes[-1:] for v in node.outputs], sizes)
        return _Step(what.ops or what.name, what, tuple(_parts(what.nodes, sizes)), shapes)


def shown_types(values: Iterable[Value], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Types of values of a graph, with the sizes that a call gave to names."""
    return tuple(str(TensorType(bind(tuple(v.type.shape), sizes), v.type.dtype)) for v in values)


def kernels_of(entry: Entry, known: dict[Any, _Steps]) -> Iterator[Event]:
    """The parts of a call as events, in the order of their beginnings; ``known`` is kept between calls."""
    run, sizes, records, ended = entry.detail
    if records is None:
        return
    key = (id(run), *sorted(sizes.items()))
    if key not in known:
        known[key] = _Steps(run, sizes)
    table = records.reshape(-1, len(RECORD)).tolist()
    ran = [i for i, record in enumerate(table) if record[0]]
    cursor = entry.begin
    for i in sorted(ran, key=lambda i: int(table[i][2])):
        count, total, first, _ = table[i]
        begin = min(max(first, cursor), entry.end)  # those in a loop are shown one after the other
        total = min(total, entry.end - begin)
        yield from _side_by_side(entry, known[key].records[i], begin, total, count)
        cursor = begin + total
    left = max(ended, cursor)
    if ended and entry.end - left > _LEAVING:
        line = None if entry.place is None else entry.place[:2]
        yield Event("wait", "Python's lock", left, entry.end - left, entry.thread, line, entry.module)


def _side_by_side(entry: Entry, steps: list[_Step], begin: int, total: int, count: int) -> Iterator[Event]:
    """Kernels that share a record: each with a part of its time that is in proportion to its work."""
    work = list(accumulate(s.what.estimated for s in steps))
    ends = [begin + round(total * done / work[-1]) for done in work]
    for step, start, end in zip(steps, [begin, *ends], ends, strict=False):
        yield Event(
            "kernel",
            step.name,
            start,
            end - start,
            entry.thread,
            step.parts[0].line if step.parts else None,
            step.parts[0].module if step.parts else "",
            step.shapes,
            bytes=step.what.bytes * count,
            flops=step.what.flops * count,
            count=count,
            parts=step.parts,
            beside=len(steps) - 1,
        )


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
