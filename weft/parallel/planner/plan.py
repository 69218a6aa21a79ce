"""``Plan``: what a step is predicted to take. It prints, and writes a trace and a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.base.records import NamedTuple, dataclass, field
from weft.schedule.explanation import show_seconds


class Event(NamedTuple):
    """Something that a rank does.

    Attributes:
        rank: which one.
        name: what it is.
        kind: of the parts of a plan, which one it counts to.
        start: seconds from the beginning of the step.
        end: likewise.
        lane: "compute", or "links" for what goes on beside.
    """

    rank: int
    name: str
    kind: str
    start: float
    end: float
    lane: str = "compute"


class Traffic(NamedTuple):
    """What moves between ranks.

    Attributes:
        what: the collective and its axis.
        bytes: that each rank sends in a step, by name of link.
        seconds: that it takes.
        exposed: seconds of it in which nothing else is done.
    """

    what: str
    bytes: Mapping[str, float]
    seconds: float
    exposed: float


@dataclass(frozen=True, repr=False)
class Plan:
    """What a step on a mesh is predicted to take; prints as text.

    Attributes:
        name: what is planned.
        setup: the mesh and how it is used, as text.
        cluster: where, as text.
        ranks: how many there are.
        seconds: of a step.
        parts: seconds of the busiest rank by what it does; they add up to ``seconds``.
        traffic: what moves between ranks.
        memory: bytes of a rank, by what they are for.
        limit: bytes that a device has; 0 where that is not known.
        flops: operations of the step, of all ranks, without those that are done again.
        peak: operations a second that a device can do.
        events: the timeline of one rank of each stage.
        notes: what else is to be said.
    """

    name: str
    setup: str
    cluster: str
    ranks: int
    seconds: float
    parts: Mapping[str, float]
    traffic: Sequence[Traffic]
    memory: Mapping[str, float]
    limit: float
    flops: float
    peak: float
    events: Sequence[Event] = field(default=(), repr=False)
    notes: Sequence[str] = ()

    @property
    def memory_bytes(self) -> float:
        """Bytes of a rank."""
        return sum(self.memory.values())

    @property
    def fits(self) -> bool:
        """Whether a device has enough memory."""
        return not self.limit or self.memory_bytes <= self.limit

    @property
    def rank_flops(self) -> float:
        """Operations a second of a rank, without those that are done again."""
        return self.flops / self.seconds / self.ranks if self.seconds else 0.0

    @property
    def utilization(self) -> float:
        """The part of the peak that operations of the model reach (MFU)."""
        return self.rank_flops / self.peak if self.peak else 0.0

    @property
    def bubble(self) -> float:
        """The part of the time in which a rank waits for others of the pipeline."""
        return self.parts.get("bubble", 0.0) / self.seconds if self.seconds else 0.0

    @property
    def link_bytes(self) -> dict[str, float]:
        """Bytes that a rank sends in a step, by link."""
        found: dict[str, float] = {}
        for row in self.traffic:
            for link, count in row.bytes.items():
                found[link] = found.get(link, 0.0) + count
        return found

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        return f"<plan of {self.name}: {show_seconds(self.seconds)} on {self.setup}>"

    def _lines(self) -> Iterator[str]:
        yield f"{self.name} on {self.cluster}: {self.setup}"
        rate = f"{show_rate(self.rank_flops)} a rank"
        if self.peak:
            rate += f", {self.utilization:.1%} of its peak"
        yield f"step {show_seconds(self.seconds)}, {self.ranks:,} rank{'s' * (self.ranks != 1)}, {rate}"
        yield from _table(
            "time",
            [(name, show_seconds(s), f"{s / self.seconds:.1%}") for name, s in self.parts.items() if s],
        )
        rows = []
        for what, moved, seconds, exposed in self.traffic:
            hidden = 1 - exposed / seconds if seconds else 1.0
            on = ", ".join(f"{show_size(n)} by {link}" for link, n in moved.items())
            rows.append((what, show_seconds(seconds), f"{hidden:.0%} hidden", on))
        yield from _table("sent by a rank", rows)
        yield from _table("memory of a rank", [(k, show_size(n)) for k, n in self.memory.items() if n])
        full = f" of {show_size(self.limit)}" if self.limit else ""
        yield f"  {'all':<12}  {show_size(self.memory_bytes)}{full}{'' if self.fits else ': does not fit'}"
        yield from (f"note: {note}" for note in self.notes)

    def trace(self, path: str | Path) -> Path:
        """Write the timeline as a trace, for ui.perfetto.dev or chrome://tracing."""
        path = Path(path)
        path.write_text(
            json.dumps({"traceEvents": trace_events(self.events), "displayTimeUnit": "ms"}), "utf-8"
        )
        return path

    def page(self, path: str | Path) -> Path:
        """Write a page: the text, the parts as bars, and a picture of the timeline. It needs nothing else."""
        from weft.parallel.planner.page import page_text

        path = Path(path)
        path.write_text(page_text(self), "utf-8")
        return path


def trace_events(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Events as the trace viewers of Chrome and Perfetto know them: a process for each rank.

    >>> from weft.parallel.planner.plan import Event, trace_events
    >>> trace_events([Event(3, "F0", "forward", 0.0, 2e-6)])[-1]
    {'name': 'F0', 'cat': 'forward', 'ph': 'X', 'ts': 0.0, 'dur': 2.0, 'pid': 3, 'tid': 0}
    """
    ranks = sorted({e.rank for e in events})
    lanes = ("compute", "links")
    found: list[dict[str, Any]] = []
    for rank in ranks:
        found.append({"name": "process_name", "ph": "M", "pid": rank, "args": {"name": f"rank {rank}"}})
        found += [
            {"name": "thread_name", "ph": "M", "pid": rank, "tid": i, "args": {"name": lane}}
            for i, lane in enumerate(lanes)
        ]
    for e in events:
        times = {"ts": round(e.start * 1e6, 3), "dur": round((e.end - e.start) * 1e6, 3)}
        found.append(
            {"name": e.name, "cat": e.kind, "ph": "X", **times, "pid": e.rank, "tid": lanes.index(e.lane)}
        )
    return found


def show_rate(flops: float) -> str:
    """Operations a second.

    >>> from weft.parallel.planner.plan import show_rate
    >>> show_rate(1.5e14), show_rate(2e10)
    ('150.0 TFLOP/s', '20.0 GFLOP/s')
    """
    unit, name = (1e12, "T") if flops >= 1e12 else (1e9, "G")
    return f"{flops / unit:.1f} {name}FLOP/s"


def show_size(count: float) -> str:
    """Bytes, in the unit in which that is short.

    >>> from weft.parallel.planner.plan import show_size
    >>> show_size(2.5e9), show_size(800)
    ('2.50 GB', '800 bytes')
    """
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}" if count >= 100 * unit else f"{count / unit:.2f} {name}"
    return f"{count:.0f} bytes"


def _table(title: str, rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    if not rows:
        return
    yield title
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    widths[0] = max(widths[0], 12)
    for row in rows:
        first = f"{row[0]:<{widths[0]}}"
        middle = [f"{text:>{w}}" for text, w in zip(row[1:], widths[1:], strict=True)]
        if len(row) == 4:
            middle[-1] = row[-1]
        yield "  ".join(["", first, *middle]).rstrip()
