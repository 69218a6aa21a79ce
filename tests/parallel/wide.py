"""A pipeline of layers so wide that the gradients of a stage come in pieces; also for several processes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import weft
from tests.parallel.training import classify, digest
from weft import nn
from weft import parallel as par
from weft.parallel.staged import told

WIDTH, LAYERS, CLASSES, BATCH = 160, 5, 4, 16


def make(axes: dict[str, int], **settings: Any) -> tuple[Any, Any, tuple[Any, Any]]:
    """A compiled step on a mesh, its model, and a batch."""
    mesh = par.mesh(**axes)
    weft.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))
    optimizer = weft.optim.Adam(model.parameters(), lr=0.01)

    step = classify(model, optimizer, clip=1.0)
    rng = np.random.default_rng(0)
    x = weft.tensor(rng.standard_normal((BATCH, WIDTH)).astype(np.float32))
    return weft.compile(step, mesh=mesh, **settings), model, (x, weft.tensor(rng.integers(0, CLASSES, BATCH)))


def train(axes: dict[str, int], **settings: Any) -> tuple[str, list[float], Any]:
    """A digest of the weights after two steps, the losses, and the step."""
    run, model, batch = make(axes, **settings)
    losses = [float(run(*batch)) for _ in range(2)]
    arrays = [p.detach().full().numpy() for p in model.parameters()]
    return digest(arrays), losses, run


def order(run: Any) -> list[str]:
    """What a rank does, in order."""
    return [line for node in run.lowered.nodes if (line := told(node))]


def main() -> None:
    """Bits and the order of a rank, between processes; rank 0 has both axes beside others."""
    axes = {"data": 2, "pipe": par.size() // 2}
    found, _, run = train(axes, stages=2, microbatches=2)
    plain = train(axes, stages=2, microbatches=2, disable=["overlap"])[0]
    assert plain == found
    lines = order(run)
    calls = [i for i, line in enumerate(lines) if line.startswith("weights")]
    assert (
        calls[0] < next(i for i, line in enumerate(lines) if line.startswith("start_all_reduce")) < calls[-1]
    )
    sys.stdout.write(f"rank {par.rank()} {found}\n")


if __name__ == "__main__":
    main()
