"""A small problem, and trainers of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft import data, nn

COUNT = 52  # in batches of 8 the last one is smaller


def examples() -> tuple[Any, Any]:
    """Points and which of their coordinates is largest."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((COUNT, 3)).astype(np.float32)
    return x, x.argmax(axis=1)


def batches(size: int = 8) -> list[Any]:
    x, y = examples()
    return [(x[i : i + size], y[i : i + size]) for i in range(0, COUNT, size)]


def pipeline(size: int = 8) -> Any:
    return data.from_arrays(*examples()).shuffle(seed=3).batch(size)


def classifier() -> Any:
    """A model with everything that has state: parameters, running statistics, random numbers."""
    weft.manual_seed(7)
    first = nn.Linear(3, 12, bias=False)  # a bias would be all rounding errors: what follows removes it
    return nn.Sequential(first, nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.25), nn.Linear(12, 3))


def trainer(
    directory: Path | None = None,
    *,
    source: Any = None,
    loss: Any = weft.cross_entropy,
    average: bool = False,
    **settings: Any,
) -> Any:
    """A trainer with a schedule, clipping, validation and a metric."""
    model = classifier()
    if average:
        settings["ema"] = weft.optim.EMA(model, decay=0.9)
    optimizer = weft.optim.Adam(model.parameters(), lr=0.02)
    scheduler = weft.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.8)
    given = {
        "validation": batches(16),
        "metrics": ["accuracy"],
        "scheduler": scheduler,
        "clip_norm": 1.0,
        "progress": False,
        "log_every": 3,
        "logs": ("csv",),
        **settings,
    }
    return weft.Trainer(
        model,
        loss,
        optimizer,
        pipeline() if source is None else source,
        directory=directory,
        **given,
    )


def bits(trainer: Any) -> dict[str, bytes]:
    """All numbers of a trainer's model and optimizer."""
    state = {"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()["state"]}
    leaves = weft.tree_leaves(state)
    return {str(i): x.detach().numpy().tobytes() for i, x in enumerate(leaves) if isinstance(x, weft.Tensor)}


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: x for k, x in row.items() if k != "seconds"} for row in history]
