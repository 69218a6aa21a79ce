"""``weft.profile``: a block whose parts are timed, and what can be asked of it afterwards."""

from __future__ import annotations

from functools import cached_property
from types import TracebackType
from typing import Any, Self

from weft.errors import ArgumentError
from weft.profiler.decode import events_of
from weft.profiler.event import Event
from weft.profiler.log import Entry, here, now, switch, take_down, threads, user_place
from weft.profiler.tables import Row, Table, time_rows, time_table
from weft.profiler.trace import trace_of, write_trace
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    def __enter__(self) -> Self:
        if self._first is not None:
            raise ArgumentError(type(self).__name__, "a block must not be entered again while it is open")
        self.__dict__.pop("events", None)
        self._entries = None
        self._first = switch.open(timing=self._timing)
        self._begin = now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        first, self._first = self._first, None
        if first is not None:
            self._end = now()
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
        return time_table(shown, title, by)

    def show(self, by: str = "op", limit: int | None = 20) -> None:
        """Print a table."""
        self.table(by, limit).show()

    def save(self, path: Any) -> None:
        """Write a file that trace viewers open: chrome://tracing, https://ui.perfetto.dev."""
        write_trace(path, trace_of(self.events, threads, self._begin))

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        if self._entries is None:
            return "<profile: not run yet>"
        return f"<profile: {len(self.events)} events in {show_seconds(self.seconds)}>"
