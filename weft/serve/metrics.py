"""What a server counts, in the text format of Prometheus.

The format is a line for each number, and counting must cost next to nothing, so there is no library for it.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import weft

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_STARTED = time.time()


class Histogram:
    """How often numbers were up to each of some limits.

    >>> from weft.serve.metrics import Histogram
    >>> histogram = Histogram((1.0, 2.0))
    >>> histogram.add(1.5)
    >>> list(histogram.lines("x"))
    ['x_bucket{le="1.0"} 0', 'x_bucket{le="2.0"} 1', 'x_bucket{le="+Inf"} 1', 'x_sum 1.5', 'x_count 1']
    """

    def __init__(self, limits: Sequence[float]) -> None:
        self.limits = limits
        self.counts = [0] * (len(limits) + 1)
        self.sum = 0.0

    def add(self, x: float) -> None:
        """Count a number."""
        self.counts[bisect_left(self.limits, x)] += 1
        self.sum += x

    def state(self) -> list[float]:
        """What it counted, for another process."""
        return [self.sum, *self.counts]

    def include(self, state: Sequence[float]) -> None:
        """Count what another process counted."""
        self.sum += state[0]
        self.counts = [a + int(b) for a, b in zip(self.counts, state[1:], strict=True)]

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        """The text of it."""
        before = f"{labels}," if labels else ""
        after = f"{{{labels}}}" if labels else ""
        for limit, count in zip((*self.limits, "+Inf"), accumulate(self.counts), strict=True):
            yield f'{name}_bucket{{{before}le="{limit}"}} {count}'
        yield f"{name}_sum{after} {self.sum}"
        yield f"{name}_count{after} {sum(self.counts)}"


class ModelMetrics:
    """What is counted of a model."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.codes: Counter[int] = Counter()
        self.latency = Histogram(_SECONDS)
        self.duration = Histogram(_SECONDS)
        self.rows = Histogram(_ROWS)
        self.joined = Histogram(_ROWS)
        self.in_flight = 0
        self.waiting = 0

    def answer(self, status: int, seconds: float) -> None:
        """Count an answer."""
        self.codes[status] += 1
        self.latency.add(seconds)

    def run(self, seconds: float, rows: int, requests: int) -> None:
        """Count a run."""
        self.duration.add(seconds)
        self.rows.add(rows)
        self.joined.add(requests)

    def state(self) -> dict[str, Any]:
        """What was counted, for another process."""
        found: dict[str, Any] = {field: getattr(self, field).state() for _, _, field in _HISTOGRAMS}
        found |= {field: getattr(self, field) for _, _, field in _GAUGES}
        return found | {"codes": {str(code): n for code, n in self.codes.items()}}

    def include(self, state: Mapping[str, Any], *, lives: bool) -> None:
        """Count what another process counted; what is under way only if it lives."""
        for _, _, field in _HISTOGRAMS:
            getattr(self, field).include(state[field])
        for _, _, field in _GAUGES if lives else ():
            setattr(self, field, getattr(self, field) + state[field])
        self.codes.update({int(code): n for code, n in state["codes"].items()})


_HISTOGRAMS = (
    ("weft_request_duration_seconds", "from a request to its answer", "latency"),
    ("weft_run_duration_seconds", "time of a run of the model", "duration"),
    ("weft_batch_rows", "rows of a run", "rows"),
    ("weft_batch_requests", "requests of a run", "joined"),
)
_GAUGES = (
    ("weft_queue_length", "requests that wait for a run", "waiting"),
    ("weft_requests_in_flight", "requests that have no answer yet", "in_flight"),
)


def metrics_text(models: Sequence[ModelMetrics], other: Counter[int], process: Mapping[str, float]) -> str:
    """The text of all metrics.

    Args:
        models: what was counted of each.
        other: the answers that belong to no model, by status.
        process: what is known of the process, or of all that serve together.
    """
    lines = [
        *_head("weft_info", "the version of weft", "gauge"),
        f'weft_info{{version="{weft.__version__}"}} 1',
    ]
    lines += _head("weft_requests_total", "answers by model and status", "counter")
    for model in models:
        lines += _codes(model.name, model.codes)
    lines += _codes("", other)
    for name, told, field in _GAUGES:
        lines += _head(name, told, "gauge")
        lines += [f"{name}{{{_label(m.name)}}} {getattr(m, field)}" for m in models]
    for name, told, field in _HISTOGRAMS:
        lines += _head(name, told, "histogram")
        for model in models:
            lines += getattr(model, field).lines(name, _label(model.name))
    for name, (told, kind) in _PROCESS.items():
        if name in process:
            lines += [*_head(name, told, kind), f"{name} {process[name]}"]
    return "\n".join(lines) + "\n"


def _head(name: str, told: str, kind: str) -> list[str]:
    return [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]


def _label(model: str) -> str:
    text = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'model="{text}"'


def _codes(model: str, codes: Counter[int]) -> list[str]:
    return [f'weft_requests_total{{{_label(model)},code="{code}"}} {n}' for code, n in sorted(codes.items())]


_PROCESS = {  # under the names that all exporters use
    "process_cpu_seconds_total": ("time of the processors", "counter"),
    "process_start_time_seconds": ("when it began", "gauge"),
    "process_resident_memory_bytes": ("memory in use", "gauge"),
    "process_open_fds": ("open files and connections", "gauge"),
}


def process_state() -> dict[str, float]:
    """What is known of this process."""
    times = os.times()
    found = {
        "process_cpu_seconds_total": times.user + times.system,
        "process_start_time_seconds": _STARTED,
    }
    statm, handles = Path("/proc/self/statm"), Path("/proc/self/fd")
    if statm.exists():
        pages = int(statm.read_text().split()[1])
        found["process_resident_memory_bytes"] = pages * os.sysconf("SC_PAGE_SIZE")
        found["process_open_fds"] = len(os.listdir(handles))
    return found


def join_processes(one: Mapping[str, float], other: Mapping[str, float], *, lives: bool) -> dict[str, float]:
    """What is known of two processes that serve together; of one that has ended its time alone counts."""
    cpu, start = "process_cpu_seconds_total", "process_start_time_seconds"
    found = {name: one[name] + (other.get(name, 0) if lives or name == cpu else 0) for name in one}
    return found | {start: min(one[start], other[start])}
