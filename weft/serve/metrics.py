"""What a server counts, in the text format of Prometheus.

The format is a line for each number, and counting must cost next to nothing, so there is no library for it.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

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


def metrics_text(models: Sequence[ModelMetrics], other: Counter[int]) -> str:
    """The text of all metrics; ``other`` are the answers that belong to no model, by status."""
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
    return "\n".join([*lines, *_process_lines()]) + "\n"


def _head(name: str, told: str, kind: str) -> list[str]:
    return [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]


def _label(model: str) -> str:
    text = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'model="{text}"'


def _codes(model: str, codes: Counter[int]) -> list[str]:
    return [f'weft_requests_total{{{_label(model)},code="{code}"}} {n}' for code, n in sorted(codes.items())]


def _process_lines() -> Iterator[str]:
    """The process, under the names that all exporters use."""
    times = os.times()
    found = {
        ("process_cpu_seconds_total", "time of the processors", "counter"): times.user + times.system,
        ("process_start_time_seconds", "when it began", "gauge"): _STARTED,
    }
    statm, handles = Path("/proc/self/statm"), Path("/proc/self/fd")
    if statm.exists():
        pages = int(statm.read_text().split()[1])
        found["process_resident_memory_bytes", "memory in use", "gauge"] = pages * os.sysconf("SC_PAGE_SIZE")
        found["process_open_fds", "open files and connections", "gauge"] = len(os.listdir(handles))
    for (name, told, kind), value in found.items():
        yield from _head(name, told, kind)
        yield f"{name} {value}"
