"""What ranks compile by themselves is the same on all of them, whatever the order of sets is there."""

from __future__ import annotations

from typing import Any

import weft
import weft.nn.functional as F
from weft import nn
from weft import parallel as par


def _text() -> str:
    """Of a step that adds up gradients in a loop, and returns a loss that has a graph of its own."""
    mesh = par.mesh(data=-1)
    weft.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = weft.optim.AdamW(model.parameters(), lr=0.1)

    def step(x: Any, y: Any) -> Any:
        x, y = par.shard(x, "data"), par.shard(y, "data")
        optimizer.zero_grad()
        for i in range(2):
            loss = F.cross_entropy(model(x * (i + 1.0)), y) / 2
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss

    run = weft.compile(step, mesh=mesh)
    run(weft.ones(16, 6), weft.tensor([0, 1, 2, 0] * 4))
    return str(run.lowered.to_text(locations=False))


def test_programs_of_all_ranks_are_the_same_text() -> None:
    assert len({_text() for _ in range(5)}) == 1  # which of a loop's values are kept is told by sets
