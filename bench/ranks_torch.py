"""What two ranks of PyTorch measure: sums by gloo, and training steps by DistributedDataParallel.

The counterpart of ``ranks_program``, with the same models, batches and bursts; torchrun starts it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bench.workloads import gpt, mlp
from bench.workloads.training import RATE, load_torch

SIZES = {"1kB": 1 << 10, "1MB": 1 << 20, "64MB": 64 << 20}
_BURST = 0.1  # seconds


def reduction_ways(size: int) -> dict[str, Callable[[], Any]]:
    """Sums of so many bytes, in place."""
    x = torch.ones(size // 4)
    return {"torch gloo": lambda: dist.all_reduce(x)}


def step_ways(name: str) -> dict[str, Callable[[], Any]]:
    """The training step of a row, each rank with its half of the batch."""
    return {"torch ddp": _step(name)}


def _step(name: str) -> Callable[[], Any]:
    rng, functional = np.random.default_rng(0), torch.nn.functional
    if name == "gpt":
        arrays = gpt.arrays(rng)
        model = load_torch(gpt.model_of(torch.nn), arrays)
        optimizer: Any = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=gpt.DECAY, fused=True)
        classes = gpt.VOCABULARY
    else:
        arrays = mlp.arrays(rng, mlp.MNIST, 128)
        model = load_torch(mlp.network(torch.nn, mlp.MNIST), arrays)
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
        classes = mlp.MNIST[-1]
    shared = DistributedDataParallel(model)
    x, y = (torch.from_numpy(arrays[n]).chunk(dist.get_world_size())[dist.get_rank()] for n in "xy")

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(shared(x).reshape(-1, classes), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def measure(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each way, in turn."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for name, way in ways.items():
        for _ in range(3):
            start = time.perf_counter()
            way()
        seconds = torch.tensor(time.perf_counter() - start)
        dist.broadcast(seconds, 0)  # both ranks take as many
        count = max(1, int(_BURST / float(seconds)))
        for _ in range(rounds):
            dist.barrier()
            start = time.perf_counter()
            for _ in range(count):
                way()
            found[name].append((time.perf_counter() - start) / count)
    return found


def main(rows: list[str], rounds: int) -> None:
    """Measure rows, and write what was found."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for row in rows:
        kind, what = row.split()
        ways = reduction_ways(SIZES[what]) if kind == "all_reduce" else step_ways(what)
        samples = measure(ways, rounds)
        if dist.get_rank() == 0:
            sys.stdout.write(json.dumps({"row": row, "samples": samples}) + "\n")
            sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[2:], int(sys.argv[1]))
