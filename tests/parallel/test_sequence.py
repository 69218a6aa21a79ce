"""Transformers whose sequence is cut over ranks: the same losses and weights as on one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft import nn
from weft import parallel as par

X = np.random.default_rng(0).standard_normal((8, 16, 8)).astype(np.float32)


class Block(nn.Module):
    """Attention and two products, with the sequence cut between them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: Any) -> Any:
        x = par.shard(x, "data", "model", None)
        h = par.shard(self.norm1(x), "data", None, None)
        q, k, v = (f(h).reshape(-1, 16, 4, 2).permute(0, 2, 1, 3) for f in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = par.shard(x + self.out(a.permute(0, 2, 1, 3).reshape(-1, 16, 8)), "data", "model", None)
        h = par.shard(self.norm2(x), "data", None, None)
        return par.shard(x + self.down(F.gelu(self.up(h))), "data", "model", None)


def trained(sizes: dict[str, int] | None, **settings: Any) -> tuple[list[float], list[Any], str]:
    """Losses, weights and graph of three steps, on a mesh or without."""
    weft.manual_seed(0)
    model = nn.Sequential(Block())
    mesh = None if sizes is None else par.mesh(**sizes)
    if mesh is not None:
        par.place(model, par.auto(model, mesh), mesh)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    run: Any = step if mesh is None else weft.compile(step, mesh=mesh, **settings)
    losses = [float(run(weft.tensor(X))) for _ in range(3)]
    weights = [getattr(p, "full", lambda p=p: p)().detach().numpy().copy() for p in model.parameters()]
    return losses, weights, "" if mesh is None else str(run.lowered)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("settings", [{}, {"reproducible": False}], ids=["reproducible", "fastest"])
@pytest.mark.parametrize("sizes", [{"data": 2, "model": 2}, {"data": 1, "model": 4}])
def test_training_gives_what_one_process_gives(sizes: dict[str, int], settings: dict[str, Any]) -> None:
    losses, weights, _ = trained(None)
    assert losses[-1] < losses[0]
    for found, moved, graph in par.simulate(
        lambda: trained(sizes, **settings), sizes["data"] * sizes["model"]
    ):
        np.testing.assert_allclose(found, losses, rtol=2e-5)
        for a, b in zip(moved, weights, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6)
        assert "reduce_scatter(" in graph
        assert "all_to_all" not in graph
