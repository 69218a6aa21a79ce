"""``weft.profile``: a block whose parts are timed, the events of its log, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Self

from weft.base.hooks import hooks
from weft.base.lazy import cached_property
from weft.base.ranks import Hiding, hiding
from weft.errors import ArgumentError
from weft.ir.types import TensorType
from weft.profiler.compiled import kernels_of, shown_types
from weft.profiler.log import Entry, Event, here, now, switch, take_down, threads, user_place
from weft.profiler.tables import Row, Table, time_rows, time_table, trace_of, write_trace
from weft.schedule.explanation import show_seconds
from weft.tensor.mode import Scope


class Region(Scope):
    """A part of the program with a name of the user's: a context manager, and a decorator.

    >>> import weft
    >>> with weft.profile() as p:
    ...     with weft.profile.region("first part"):
    ...         x = weft.ones(3) + 1.0
    >>> [event.name for event in p.events if event.kind == "region"]
    ['first part']
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise ArgumentError("region", f"the name must be a str, got {type(name).__name__}")
        self._name = name

    def __enter__(self) -> None:
        here.regions.append((self._name, now(), user_place(1)))

    def __exit__(self, *reason: object) -> None:
        name, begin, place = here.regions.pop()
        if switch.is_open:
            take_down("region", name, begin, now(), place)


class Block:
    """A block that is watched. Subclasses say what is taken down; none can be entered twice at a time."""

    _timing = True

    def __init__(self) -> None:
        self._first: int | None = None
        self._entries: list[Entry] | None = None
        self._begin = self._end = 0
        self._hidden = Hiding()

    def __enter__(self) -> Self:
        if self._first is not None:
            raise ArgumentError(type(self).__name__, "a block must not be entered again while it is open")
        self.__dict__.pop("events", None)
        self._entries = None
        self._first = switch.open(timing=self._timing)
        self._hidden = hiding.since(Hiding())
        self._begin = now()
        return self

    def __exit__(self, *reason: object) -> None:
        first, self._first = self._first, None
        if first is not None:
            self._end = now()
            self._hidden = hiding.since(self._hidden)
            self._entries = switch.close(first, timing=self._timing)

    def _taken_down(self) -> list[Entry]:
        if self._entries is None:
            name = type(self).__name__
            raise ArgumentError(name, "the block must have ended", hint=f"use `with weft.{name}() as p:`")
        return self._entries

    @property
    def seconds(self) -> float:
        """How long the block took."""
        self._taken_down()
        return (self._end - self._begin) * 1e-9


class profile(Block):  # noqa: N801 - used as a function, spelled like one
    """Time what runs in a block: ops, kernels of compiled functions, stages of pipelines, waiting.

    All threads are watched. Compiled functions run by a second build that takes down times, which is
    made at their first call in a block. Before and after the block nothing is slower.

    >>> import weft
    >>> x = weft.ones((64, 64))
    >>> with weft.profile() as p:
    ...     for _ in range(3):
    ...         y = (x @ x).sum()
    >>> sorted((row.name, row.count) for row in p.rows(by="op"))
    [('matmul', 3), ('sum', 3)]
    """

    region = Region

    @cached_property
    def events(self) -> list[Event]:
        """All that ran, by thread and beginning; an event comes before those inside of it."""
        return events_of(self._taken_down())

    def rows(self, by: str = "op") -> list[Row]:
        """Times added up by "op", "line", "module" or "thread", the longest first."""
        return time_rows(self.events, by, threads)

    def table(self, by: str = "op", limit: int | None = 20) -> Table:
        """The same as a table; ``print`` gives text, ``show()`` a table of rich where that is installed.

        Args:
            by: what is added up: "op" (and kernels, stages, ...), "line", "module" or "thread".
            limit: how many rows to show; None for all.
        """
        rows = self.rows(by)
        shown = rows[:limit]
        more = f", {len(rows) - len(shown)} more" if len(rows) > len(shown) else ""
        title = f"{show_seconds(self.seconds)} by {by}{more}"
        if self._hidden.count:
            took = f"{self._hidden.count} sums over ranks took {show_seconds(self._hidden.seconds)}"
            title += f"\n{took}, of which {self._hidden.share:.0%} hidden behind other work"
        return time_table(shown, title, by)

    @property
    def hidden(self) -> float:
        """Of the time that sums over ranks took which the pass ``overlap`` started, the share that was hidden
        behind other work; 0 where there were none.
        """
        self._taken_down()
        return self._hidden.share

    def show(self, by: str = "op", limit: int | None = 20) -> None:
        """Print a table."""
        self.table(by, limit).show()

    def save(self, path: Any) -> None:
        """Write a file that trace viewers open: chrome://tracing, https://ui.perfetto.dev."""
        write_trace(path, trace_of(self.events, threads, self._begin))

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str | None:
        return None if self._entries is None else hooks.profile_html(self.table())

    def __repr__(self) -> str:
        if self._entries is None:
            return "<profile: not run yet>"
        return f"<profile: {len(self.events)} events in {show_seconds(self.seconds)}>"


# From the log to events: lines, shapes and bytes in the user's terms, kernels, and the own time of each


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
