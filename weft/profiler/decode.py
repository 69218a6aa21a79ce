"""From the log to events: lines, shapes and bytes in the user's terms, kernels, and the own time of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from weft.ir.types import TensorType
from weft.profiler.compiled import kernels_of, shown_types
from weft.profiler.event import Event
from weft.profiler.log import Entry


def events_of(entries: Sequence[Entry]) -> list[Event]:
    """The events of a log, by thread and beginning, an event before those inside of it."""
    known: dict[Any, Any] = {}
    found: list[Event] = []
    for entry in entries:
        found.append(_event(entry))
        if entry.kind == "call":
            found += kernels_of(entry, known)
    return with_own_times(found)


def _event(entry: Entry) -> Event:
    shapes: tuple[str, ...] = ()
    moved = 0
    if entry.kind == "op":
        taken, made = entry.detail
        shapes = tuple(str(TensorType(shape, dtype)) for shape, dtype in taken)
        moved = sum(prod(shape) * dtype.itemsize for shape, dtype in (*taken, *made))
    elif entry.kind == "call":
        run, sizes, *_ = entry.detail
        shapes = shown_types(run.graph.inputs, sizes)
    line = None if entry.place is None else entry.place[:2]
    duration = entry.end - entry.begin
    return Event(
        entry.kind, entry.name, entry.begin, duration, entry.thread, line, entry.module, shapes, moved
    )


def with_own_times(events: Iterable[Event]) -> list[Event]:
    """Events in order, each with its time without the events inside of it.

    One that knows no line takes that of the event around it.
    """
    ordered = sorted(events, key=lambda e: (e.thread, e.begin, -e.end))
    own = [e.duration for e in ordered]
    lines = [e.line for e in ordered]
    around: list[int] = []  # numbers of the events that are open, the innermost last
    for i, event in enumerate(ordered):
        while around and not _holds(ordered[around[-1]], event):
            around.pop()
        if around:
            own[around[-1]] -= event.duration
            lines[i] = lines[i] or lines[around[-1]]
        around.append(i)
    found = zip(ordered, own, lines, strict=True)
    return [replace(e, own=max(time, 0), line=line) for e, time, line in found]


def _holds(outer: Event, inner: Event) -> bool:
    return outer.thread == inner.thread and inner.begin < outer.end and inner.end <= outer.end
