"""One row in one framework, in a process of its own: ``python -m bench.gpu.worker ROW FRAMEWORK``.

The last line that it prints is JSON: the median time of a step in microseconds (of one operation, where it is
a chain of them), that of the first one in seconds, the most memory that was held, and losses where steps give
them.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

from bench.gpu.row import Row, peak_bytes, waiter
from bench.gpu.rows import ROWS

STRETCHES = 5


def measure(row: Row, framework: str) -> dict[str, Any]:
    """The figures of a row."""
    step = row.makers[framework]()
    if row.own_time:
        return {"us": float(step())}
    wait = waiter(framework)
    begin = time.perf_counter()
    result = step()
    wait(result)
    found: dict[str, Any] = {"first_s": time.perf_counter() - begin}
    if row.losses:
        found["losses"] = [float(result)] + [float(step()) for _ in range(row.losses - 1)]
    for _ in range(5):
        result = step()
    wait(result)
    times = [_stretch(step, wait, row.turns) / row.ops for _ in range(STRETCHES)]
    return found | {"us": statistics.median(times), "all_us": times, "peak": peak_bytes(framework)}


def _stretch(step: Any, wait: Any, turns: int) -> float:
    result = None
    begin = time.perf_counter()
    for _ in range(turns):
        result = step()
    wait(result)
    return (time.perf_counter() - begin) / turns * 1e6


if __name__ == "__main__":
    name, framework = sys.argv[1:]
    print(json.dumps(measure(next(r for r in ROWS if r.name == name), framework)))
