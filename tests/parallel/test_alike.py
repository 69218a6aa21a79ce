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


def _names() -> tuple[str, ...]:
    """Of the inputs of a step whose optimizer makes its state where tensors of the step have been."""
    weft.manual_seed(0)
    cell, table, head = nn.LSTMCell(4, 4), nn.Embedding(5, 4), nn.Linear(4, 5)
    optimizer = weft.optim.Adam(nn.ModuleList([cell, table, head]).parameters(), lr=0.1)

    def step(t: Any) -> Any:
        optimizer.zero_grad()
        h, c, loss = weft.zeros(2, 4), weft.zeros(2, 4), weft.zeros(())
        for i in range(3):
            h, c = cell(table(t[:, i]), (h, c))
            loss = loss + F.cross_entropy(head(h), t[:, i + 1])
        loss.backward()
        optimizer.step()
        return loss

    run = weft.compile(step, backend="interpret")
    run(weft.tensor([[0, 1, 2, 3], [4, 3, 2, 1]]))
    return tuple(v.name for v in run.graph.inputs)


def test_inputs_have_no_name_of_a_tensor_that_died() -> None:
    """Such a name came and went with the memory, and ranks took their programs for different ones."""
    kept = []  # so that memory is another one each time
    for turn in range(12):
        kept.append([weft.ones(1) for _ in range(turn * 7)])
        assert not [name for name in _names() if name.isdecimal()]
