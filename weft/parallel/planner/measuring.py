"""This machine as a cluster: what a processor computes, and what sums between its processes take.

Run by several processes (``python -m weft.parallel.planner.measuring``), it measures sums of several sizes in
compiled functions, as steps have them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from math import ceil, log2
from typing import Any

import numpy as np

from weft.base.threads import get_num_threads, set_num_threads
from weft.config import Settings
from weft.errors import ParallelError
from weft.parallel.launch import find_launcher
from weft.parallel.planner.clusters import Cluster, Device, Link
from weft.parallel.planner.works import processors_here

_SIZES = (8, 1 << 20, 16 << 20)  # bytes of the sums that are measured
_TIME = 0.4  # seconds for each
_QUIET = 0.1  # of the sums take less than what is taken
_LIMIT = 120  # seconds for all of it
_LARGE = 1 << 26  # bytes


def measure_cluster(ranks: int = 2, name: str = "here") -> Cluster:
    """What this machine can do, with so many ranks on it."""
    before = get_num_threads()
    processors = processors_here()
    set_num_threads(max(1, processors // ranks))
    try:
        flops, bandwidth = _product_rate(), _copy_rate()
    finally:
        set_num_threads(before)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / ranks
    device = Device("a processor", memory, bandwidth, {"f32": flops}, product=1.0, sweep=1.0, launch=1e-7)
    return Cluster(name, device, (_measured_link(ranks, processors),), processors)


def _product_rate() -> float:
    """Operations a second of a product of matrices."""
    import weft

    run, x = weft.compile(lambda x: x @ x), weft.ones(512, 512)
    return 2 * 512**3 / _least(lambda: run(x))


def _copy_rate() -> float:
    """Bytes a second, read and written, of arrays that no cache holds."""
    source, target = np.zeros(_LARGE, np.uint8), np.zeros(_LARGE, np.uint8)
    return 2 * _LARGE / _least(lambda: np.copyto(target, source))


def _least(work: Callable[[], object], times: int = 7) -> float:
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def _measured_link(ranks: int, processors: int) -> Link:
    """Latency and bandwidth, from the time of small and of large sums; each has two rounds of messages."""
    times = _run(ranks, max(1, processors // ranks))
    latency = times[0] / (2 * ceil(log2(ranks)))
    sent = 2 * (ranks - 1) / ranks * (_SIZES[2] - _SIZES[1])
    return Link("shared memory", 0, sent / max(times[2] - times[1], 1e-9), 1.0, latency)


def _run(ranks: int, threads: int) -> list[float]:
    if ranks < 2:
        raise ParallelError("plan", f"measuring links takes at least two ranks, got {ranks}")
    command = [*find_launcher().command(ranks), sys.executable, "-m", "weft.parallel.planner.measuring"]
    env = {**os.environ, Settings.num_threads.variable: str(threads), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_LIMIT, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    if done.returncode or not lines:
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ParallelError("plan", f"the ranks must measure sums, they ended with {done.returncode}: {why}")
    return [float(x) for x in json.loads(lines[-1])]


def cluster_text(cluster: Cluster) -> str:
    """A cluster as the text of a file.

    >>> from weft.parallel.planner.clusters import find_cluster, parse_cluster
    >>> from weft.parallel.planner.measuring import cluster_text
    >>> laptop = find_cluster("laptop")
    >>> parse_cluster(cluster_text(laptop)) == laptop
    True
    """
    lines = [f'name = "{cluster.name}"', f"processors = {cluster.processors}", "", "[device]"]
    fields = cluster.device._asdict()
    flops = fields.pop("flops")
    lines += [_line(k, v) for k, v in fields.items()]
    lines += ["", "[device.flops]", *[_line(k, v) for k, v in flops.items()]]
    for link in cluster.links:
        lines += ["", "[[links]]", *[_line(k, v) for k, v in link._asdict().items()]]
    return "\n".join([*lines, ""])


def _line(name: str, value: Any) -> str:
    return f"{name} = {json.dumps(value) if isinstance(value, str) else repr(value)}"


def measure_sums() -> list[float]:
    """Seconds of sums of several sizes over all ranks; all of them call it."""
    import weft
    from weft import parallel as par

    par.mesh(data=-1)
    run = weft.compile(lambda x: par.all_reduce(x, "data"))
    found = []
    for size in _SIZES:
        x = weft.ones(max(1, size // 4))
        run(x)
        times: list[float] = []
        count = 0
        begin = time.perf_counter()
        run(x)
        one = time.perf_counter() - begin
        turns = int(max(par.all_reduce(weft.tensor(_TIME / max(one, 1e-6)), "data").item() / par.size(), 5))
        while count < min(turns, 400):
            start = time.perf_counter()
            run(x)
            times.append(time.perf_counter() - start)
            count += 1
        found.append(float(np.quantile(times, _QUIET)))
    return found


if __name__ == "__main__":
    seconds = measure_sums()
    from weft.parallel import rank

    if rank() == 0:
        sys.stdout.write(json.dumps(seconds) + "\n")
