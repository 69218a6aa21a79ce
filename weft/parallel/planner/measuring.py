"""This machine as a cluster: what a processor computes, and what collectives between its processes take.

Run by several processes (``python -m weft.parallel.planner.measuring``), it measures collectives of several
sizes in compiled steps.
"""

from __future__ import annotations

import json
import logging
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

_OPS = ("all_reduce", "all_gather")
_SIZES = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23)  # bytes that are summed, gathered
_COUNT = 4  # collectives of a step that measures them
_RESULTS = 64  # tensors that a step changes, to measure what each of them takes
_WIDTH = 128  # of its products
_TIME = 0.3  # seconds for each
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
    """What collectives take in steps, and from sums of several sizes latency and bandwidth."""
    table = _run(ranks, max(1, processors // ranks))
    sums = table["all_reduce"]
    latency = sums[0][1] / (2 * ceil(log2(ranks)))
    (less, sooner), (more, later) = sums[-2:]
    sent = 2 * (ranks - 1) / ranks * (more - less)
    return Link("shared memory", 0, sent / max(later - sooner, 1e-9), 1.0, latency, {"ranks": ranks, **table})


def _run(ranks: int, threads: int) -> dict[str, Any]:
    if ranks < 2:
        raise ParallelError("plan", f"measuring links takes at least two ranks, got {ranks}")
    command = [*find_launcher().command(ranks), sys.executable, "-m", "weft.parallel.planner.measuring"]
    env = {**os.environ, Settings.num_threads.variable: str(threads), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_LIMIT, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ParallelError("plan", f"the ranks must measure sums, they ended with {done.returncode}: {why}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


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
        fields = link._asdict()
        measured = fields.pop("measured")
        lines += ["", "[[links]]", *[_line(k, v) for k, v in fields.items()]]
        lines += ["", "[links.measured]", *[_line(k, v) for k, v in measured.items()]] * bool(measured)
    return "\n".join([*lines, ""])


def _line(name: str, value: Any) -> str:
    return f"{name} = {json.dumps(value) if isinstance(value, str) else repr(value)}"


def measure_collectives() -> dict[str, Any]:
    """What collectives of several sizes take in a step, beside the same step of a rank that waits for nobody.

    All ranks call it. A step has a few of them with products in between, so that sums go on beside: it has
    what belongs to one, such as the calls of Python, threads that want the same processor, and caches that
    are cold. What a plan adds to the time of a rank by itself is just that.
    """
    from weft import parallel as par

    mesh = par.mesh(data=-1)
    call = _added_seconds(mesh, "", 0)
    result = max(0.0, _added_seconds(mesh, "", 0, _RESULTS) - call) / _RESULTS
    found: dict[str, Any] = {"call": max(0.0, call), "result": result}
    for op in _OPS:
        found[op] = [[size, max(0.0, _added_seconds(mesh, op, size) - call) / _COUNT] for size in _SIZES]
        for i in range(1, len(_SIZES)):  # by noise alone more bytes take less
            found[op][i][1] = max(found[op][i][1], found[op][i - 1][1])
    return found


def _added_seconds(mesh: Any, op: str, size: int, results: int = 0) -> float:
    """What a step with collectives over so many bytes takes more on all ranks than on one by itself.

    It changes so many tensors, of which each call gives a new state.
    """
    import weft
    from weft import parallel as par
    from weft.parallel.planner.works import call_seconds

    ranks = par.size()
    width = max(1, size // (4 * ranks)) * ranks  # elements of what is summed or gathered
    shape = (width,) if op == "all_gather" else (ranks, width)
    xs = [weft.ones(shape) for _ in range(_COUNT if op else 0)]

    def step(w: Any, *xs: Any) -> Any:
        found = []
        for x in xs:
            w = weft.tanh(w @ w)
            part = par.shard(x, *["data", None][: x.ndim])
            found.append(par.shard(part * 2.0, None) if op == "all_gather" else part.sum(axis=0))
        for t in state:
            t.add_(1.0)
        return w, found

    state = [weft.zeros(8) for _ in range(results)]
    options: dict[str, Any] = {"mesh": mesh, "reproducible": False, "disable": ["bucket"], "capture": "trace"}
    run = weft.compile(step, **options)
    args = [weft.ones(_WIDTH, _WIDTH) / _WIDTH, *xs]
    for _ in range(3):
        run(*args)
    times: list[float] = []
    begin = time.perf_counter()
    run(*args)
    one = time.perf_counter() - begin
    turns = int(max(par.all_reduce(weft.tensor(_TIME / max(one, 1e-6)), "data").item() / par.size(), 5))
    for _ in range(min(turns, 400)):
        par.barrier()
        start = time.perf_counter()
        run(*args)
        times.append(time.perf_counter() - start)
    alone = call_seconds(run.versions[0].run, [x.numpy() for x in (*args, *state)], par.size(), 1)
    par.barrier()
    added = float(np.quantile(times, _QUIET)) - alone
    return float(par.all_reduce(weft.tensor(added), "data").item()) / par.size()


if __name__ == "__main__":
    logging.disable()  # that nothing is cut
    table = measure_collectives()
    from weft.parallel import rank

    if rank() == 0:
        sys.stdout.write(json.dumps(table) + "\n")
