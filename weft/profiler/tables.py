"""Events and allocations added up, by op, line, module or thread, as tables; files for trace viewers."""

from __future__ import annotations

import json
import linecache
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.base.hooks import hooks
from weft.base.notebook import place_text
from weft.errors import ArgumentError
from weft.profiler.log import Event, Line, Part
from weft.schedule.explanation import share_of_limit, show_seconds, show_share

_AROUND = ("module", "region")  # kinds of events that only hold others
UNKNOWN = "(unknown)"
TOP = "(top)"  # the outermost module, and what is in none


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table of times.

    Attributes:
        name: of the op, the line, the module, the thread.
        seconds: that it took, without what other rows have.
        share: of the seconds of all rows.
        count: how often it ran.
        bytes: read and written.
        flops: floating-point operations, of kernels.
        text: of the source line, or what kind of event it is.
        limit: how much of what the machine can do at best its kernels reach; 0 where nobody knows.
    """

    name: str
    seconds: float
    share: float
    count: int
    bytes: int
    flops: int
    text: str = ""
    limit: float = 0.0


Cells = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Rows under a title; its text is as wide as it must be. ``rich.print`` shows it, too.

    Attributes:
        title: what is shown.
        head: names of the columns; the last two are texts, the others numbers.
        rows: that are shown, the largest first.
        cells: their texts.
    """

    title: str
    head: Cells
    rows: tuple[Any, ...]
    cells: tuple[Cells, ...]

    def __str__(self) -> str:
        lines = [self.head, *self.cells]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.head))]
        texts = len(self.head) - 2
        shown = [
            "  ".join(f"{c:>{w}}" if i < texts else f"{c:<{w}}" for i, (c, w) in enumerate(zip(line, widths)))  # noqa: B905 - of one length
            for line in lines
        ]
        return "\n".join([self.title, *[line.rstrip() for line in shown]])

    def __rich__(self) -> Any:
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(title=Text(self.title), title_justify="left", box=None, header_style="bold")
        for i, name in enumerate(self.head):
            numbers = i < len(self.head) - 2
            table.add_column(name, justify="right" if numbers else "left", no_wrap=numbers)
        for cells in self.cells:
            table.add_row(*map(Text, cells))
        return table

    def _repr_html_(self) -> str:
        return hooks.profile_html(self)

    def show(self) -> None:
        """Print it, by rich if that is installed."""
        try:
            from rich import print as show
        except ImportError:
            print(self)  # noqa: T201 - what it is for
        else:
            show(self)


def _parts(event: Event) -> Sequence[Part]:
    return event.parts or (Part(event.line, event.module, "", 1.0),)


def show_line(line: Line | None) -> tuple[str, str]:
    """``model.py:18`` and the text there."""
    if line is None:
        return UNKNOWN, ""
    return place_text(*line), linecache.getline(*line).strip()


def time_rows(events: Iterable[Event], by: str, threads: dict[int, str]) -> list[Row]:
    """Events added up, the row that took longest first."""
    ways: dict[str, Callable[[Event], list[tuple[str, str, float]]]] = {  # name, text and share of each row
        "op": lambda e: [(e.name, e.kind, 1.0)],
        "line": lambda e: [(*show_line(part.line or e.line), part.share) for part in _parts(e)],
        "module": lambda e: [(part.module or TOP, "", part.share) for part in _parts(e)],
        "thread": lambda e: [(f"{e.thread} {threads.get(e.thread, '')}", "", 1.0)],
    }
    way, in_modules = way_of("table", ways, by), ("op", "kernel", "call", "module")
    sums: dict[tuple[str, str], list[float]] = {}
    for event in events:
        counts = event.kind in in_modules if by == "module" else event.kind not in _AROUND
        for name, text, share in way(event) if counts else ():
            row = sums.setdefault((name, text), [0.0, 0, 0.0, 0.0, 0.0, 0.0])
            row[0] += event.own * 1e-9 * share
            row[1] += event.count
            row[2] += event.bytes * share
            row[3] += event.flops * share
            row[4] += event.at_best * 1e-9 * share
            row[5] += event.own * 1e-9 * share if event.at_best else 0.0
    total = sum(row[0] for row in sums.values()) or 1.0
    rows = [
        Row(
            name,
            seconds,
            seconds / total,
            int(count),
            round(moved),
            round(flops),
            text,
            share_of_limit(at_best, limited),
        )
        for (name, text), (seconds, count, moved, flops, at_best, limited) in sums.items()
    ]
    return sorted(rows, key=lambda row: -row.seconds)


def way_of(op: str, ways: dict[str, Any], by: str) -> Any:
    """One of several ways by its name."""
    if by not in ways:
        raise ArgumentError(op, f"by must be one of {', '.join(ways)}, got {by!r}")
    return ways[by]


def time_table(rows: Sequence[Row], title: str, by: str) -> Table:
    """Rows as a table; a column tells of the machine's limit where that is known of any."""
    limited = any(row.limit for row in rows)
    cells = [
        (
            show_seconds(row.seconds),
            f"{100 * row.share:.1f}%",
            str(row.count),
            show_seconds(row.seconds / row.count if row.count else 0.0),
            show_rate(row.bytes, row.seconds, "B/s"),
            show_rate(row.flops, row.seconds, "flop/s"),
            *((show_share(row.limit),) if limited else ()),
            row.name,
            row.text,
        )
        for row in rows
    ]
    head = ("time", "share", "count", "each", "moved", "computed", *(("of limit",) * limited), by, "")
    return Table(title, head, tuple(rows), tuple(cells))


def show_rate(amount: float, seconds: float, unit: str) -> str:
    """So much a second, or nothing if there is none.

    >>> from weft.profiler.tables import show_rate
    >>> show_rate(3e9, 1.5, "B/s")
    '2.0 GB/s'
    """
    if not amount or not seconds:
        return ""
    rate = amount / seconds
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.1f} {letter}{unit}"
    return f"{rate:.0f} {unit}"


# A file that trace viewers open: the Trace Event Format, times in microseconds from the beginning

Record = dict[str, Any]


def trace_of(
    events: Sequence[Event], threads: Mapping[int, str], first: int, counters: Iterable[tuple[int, int]] = ()
) -> Record:
    """What is written into the file: events, and the memory in use at some times (in ns)."""
    process = os.getpid()
    used = sorted({event.thread for event in events})
    names = {(0, "process_name"): "weft"}
    names |= {(number, "thread_name"): threads.get(number, f"thread {number}") for number in used}
    records: list[Record] = [
        {"ph": "M", "ts": 0, "pid": process, "tid": number, "name": what, "args": {"name": name}}
        for (number, what), name in names.items()
    ]
    records += [_record(event, process, first) for event in events]
    memory = {"ph": "C", "pid": process, "tid": 0, "name": "memory"}
    records += [memory | {"ts": (at - first) / 1e3, "args": {"bytes": total}} for at, total in counters]
    return {"traceEvents": records, "displayTimeUnit": "ms"}


def _record(event: Event, process: int, first: int) -> Record:
    args: Record = {
        "line": None if event.line is None else f"{event.line[0]}:{event.line[1]}",
        "module": event.module,
        "shapes": list(event.shapes),
        "bytes": event.bytes,
        "flops": event.flops,
        "of limit": show_share(share_of_limit(event.at_best, event.duration)),
        "count": event.count if event.count > 1 else 0,
        "lines": [f"{p.line[0]}:{p.line[1]}" for p in event.parts if p.line is not None][1:],
        "beside": event.beside,
    }
    return {
        "ph": "X",
        "ts": (event.begin - first) / 1e3,
        "dur": event.duration / 1e3,
        "pid": process,
        "tid": event.thread,
        "name": event.name,
        "cat": event.kind,
        "args": {name: value for name, value in args.items() if value},
    }


def write_trace(path: Any, trace: Record) -> None:
    """Write the file."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(trace, file)
