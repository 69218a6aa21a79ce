"""What two ranks measure: sums beside mpi4py's own, and training steps beside one rank alone.

Ways to do the same are asked in turn, so that all meet the same noise of the machine. Rank 0 writes the
samples as JSON. While a way that one rank runs alone is asked, the other one sleeps.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

import weft
from bench.workloads import gpt, mlp
from bench.workloads.training import RATE, load_weft
from weft import nn, optim
from weft import parallel as par
from weft.base.ranks import ALONE, enter_world, hiding

SIZES = {"1kB": 1 << 10, "1MB": 1 << 20, "64MB": 64 << 20}
_BURST = 0.1  # seconds
Samples = dict[str, dict[str, list[float]]]


def reduction_ways(size: int) -> dict[str, Callable[[], Any]]:
    """Sums of so many bytes: eager, compiled, in any order, and mpi4py's."""
    x = np.ones(size // 4, np.float32)
    out, given, comm = np.empty_like(x), weft.tensor(x), MPI.COMM_WORLD.Dup()
    compiled = weft.compile(lambda x: par.all_reduce(x, "data"))
    return {
        "mpi4py": lambda: comm.Allreduce(x, out),
        "weft": lambda: par.all_reduce(given, "data"),
        "weft compiled": lambda: compiled(given),
        "weft any order": lambda: par.all_reduce(given, "data", reproducible=False),
    }


def step_ways(name: str, mesh: Any) -> dict[str, Callable[[], Any]]:
    """The training step of a row: on one rank alone, on both, and so that bits depend on their number."""
    return {
        "one rank": alone(_step(name, None)),
        "weft": _step(name, mesh),
        "weft no overlap": _step(name, mesh, disable=["overlap"]),
        "weft any order": _step(name, mesh, reproducible=False),
        "weft any order, no overlap": _step(name, mesh, reproducible=False, disable=["overlap"]),
    }


def alone(step: Callable[[], Any]) -> Callable[[], Any]:
    """A step that rank 0 runs in a world of its own."""

    def run() -> Any:
        before = enter_world(ALONE)
        try:
            return step()
        finally:
            enter_world(before)

    run.ranks = 1  # type: ignore[attr-defined]
    return run


def _step(name: str, mesh: Any, **settings: Any) -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    if name == "gpt":
        arrays = gpt.arrays(rng)
        model = load_weft(gpt.model_of(nn), arrays)
        optimizer: Any = optim.AdamW(model.parameters(), lr=RATE, weight_decay=gpt.DECAY)
        shape = (-1, gpt.VOCABULARY)
    else:
        arrays = mlp.arrays(rng, mlp.MNIST, 128)
        model = load_weft(mlp.network(nn, mlp.MNIST), arrays)
        optimizer = optim.Adam(model.parameters(), lr=RATE)
        shape = (-1, mlp.MNIST[-1])

    def step(x: Any, y: Any) -> Any:
        if mesh is not None:
            x, y = par.shard(x, "data"), par.shard(y, "data")
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).reshape(*shape), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    run = weft.compile(step) if mesh is None else weft.compile(step, mesh=mesh, **settings)
    x, y = weft.tensor(arrays["x"]), weft.tensor(arrays["y"])
    return lambda: run(x, y)


def sleep_until_all_are_here(comm: Any) -> None:
    """A barrier that leaves the processor to the others."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.001)


def measure(
    ways: dict[str, Callable[[], Any]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of each way, in turn; and of those that hide sums, how much of them."""
    comm = MPI.COMM_WORLD.Dup()
    found: dict[str, list[float]] = {name: [] for name in ways}
    hidden: dict[str, float] = {}
    counts: dict[str, int] = {}
    for number in range(-1, rounds):  # the first round compiles, and says how many make a burst
        for name, way in ways.items():
            sleep_until_all_are_here(comm)
            if getattr(way, "ranks", 2) == 1 and comm.Get_rank():
                continue
            if number < 0:
                for _ in range(3):
                    start = time.perf_counter()
                    way()
                seconds = time.perf_counter() - start
                if getattr(way, "ranks", 2) == 2:
                    seconds = comm.bcast(seconds)
                counts[name] = max(1, int(_BURST / seconds))
                continue
            before = hiding.since(type(hiding)())
            start = time.perf_counter()
            for _ in range(counts[name]):
                way()
            found[name].append((time.perf_counter() - start) / counts[name])
            added = hiding.since(before)
            if added.count:
                hidden[name] = added.share
    return found, hidden


def main(rows: list[str], rounds: int) -> None:
    """Measure rows, and write what was found."""
    mesh = par.mesh(data=-1)
    for row in rows:
        kind, what = row.split()
        ways = reduction_ways(SIZES[what]) if kind == "all_reduce" else step_ways(what, mesh)
        samples, hidden = measure(ways, rounds)
        if par.rank() == 0:
            sys.stdout.write(json.dumps({"row": row, "samples": samples, "hidden": hidden}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[2:], int(sys.argv[1]))
