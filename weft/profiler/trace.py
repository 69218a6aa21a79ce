"""Events as a file that trace viewers open: chrome://tracing, ui.perfetto.dev and others.

The form is the Trace Event Format, with complete events ("X"), counters ("C") and names of threads ("M").
Times are microseconds from the beginning of the block.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.profiler.event import Event

Record = dict[str, Any]


def trace_of(
    events: Sequence[Event],
    threads: Mapping[int, str],
    first: int,
    counters: Iterable[tuple[int, int]] = (),
) -> Record:
    """What is written into the file: events, and the memory in use at some times (in ns)."""
    process = os.getpid()
    used = sorted({event.thread for event in events})
    records: list[Record] = [
        {"ph": "M", "ts": 0, "pid": process, "tid": 0, "name": "process_name", "args": {"name": "weft"}}
    ]
    records += [
        {
            "ph": "M",
            "ts": 0,
            "pid": process,
            "tid": number,
            "name": "thread_name",
            "args": {"name": threads.get(number, f"thread {number}")},
        }
        for number in used
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
