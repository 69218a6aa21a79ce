"""Gradients of weights are summed as the weights lie, and large ones without copies into buckets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft import parallel as par
from weft.ir.interpret import interpret

F = nn.functional
TURNED = """
graph f(%x: f32[5,3,4], %g: f32[5,4,2]) {
  %0: f32[5,3,2] = matmul(%x, %g)
  %1: f32[5,3,2] = all_reduce(%0, axis="data", mesh="data=1")
  %2: f32[5,2,3] = permute(%1, axes=(0, 2, 1))
  return %2
}"""


def test_turned_sum_has_the_same_values() -> None:
    graph = weft.parse_graph(TURNED)
    turned = par.turn_sums(graph)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s, np.float32) for s in ((5, 3, 4), (5, 4, 2))]
    np.testing.assert_allclose(interpret(turned, arrays)[0], interpret(graph, arrays)[0], rtol=1e-5)
    assert turned.nodes[-1].op.name == "all_reduce"
    assert par.turn_sums(turned) is turned


@pytest.mark.parametrize(
    "text",
    [
        TURNED.replace("return %2", "return %2, %1"),
        TURNED.replace("return %2", "return %2, %0"),
        TURNED.replace("axes=(0, 2, 1)", "axes=(1, 0, 2)").replace("f32[5,2,3]", "f32[3,5,2]"),
    ],
    ids=["sum is used as it is", "product is used as it is", "other order"],
)
def test_other_sums_stay_as_they_are(text: str) -> None:
    graph = weft.parse_graph(text)
    assert par.turn_sums(graph) is graph


def _step(mesh: Any, width: int, **settings: Any) -> tuple[Any, Any]:
    weft.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(12, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3)
    )
    optimizer = weft.optim.Adam(model.parameters(), lr=0.1)

    def step(x: Any, y: Any) -> Any:
        x, y = par.shard(x, "data"), par.shard(y, "data")
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    run = weft.compile(step, mesh=mesh, **settings)
    rng = np.random.default_rng(0)
    x, y = weft.tensor(rng.standard_normal((16, 12), np.float32)), weft.tensor(rng.integers(0, 3, 16))
    for _ in range(3):
        run(x, y)
    return model, run


@pytest.mark.parametrize("settings", [{"reproducible": False}, {}, {"zero": 1}, {"zero": 3}], ids=str)
def test_optimizer_reads_gradients_as_weights_lie(settings: dict[str, Any]) -> None:
    def program() -> list[str]:
        _, run = _step(par.mesh(data=-1), 32, **settings)
        made = {v: node for node in run.lowered.nodes for v in node.outputs}
        ways = []
        for old, new in run.lowered.updates:
            if old.name.endswith("exp_avg") and old.type.ndim == 2:
                ways += [made[v].op.name for v in made[new].inputs if v in made]
        return ways

    for ways in par.simulate(program, 2):
        assert ways
        assert "permute" not in ways


def test_bits_are_those_of_one_rank_with_large_and_small_gradients() -> None:
    def program(zero: int) -> bytes:
        model, run = _step(par.mesh(data=-1), 512, zero=zero)  # 1 MB, which is no part of a bucket
        if par.size() > 1 and not zero:
            sums = [n for n in run.lowered.nodes if n.op.name == "start_all_reduce"]
            assert (512, 512) in [n.inputs[0].type.shape for n in sums]
        return b"".join(p.detach().full().numpy().tobytes() for p in model.parameters())

    one = par.simulate(program, 1, 0)[0]
    assert set(par.simulate(program, 2, 0)) == {one}
    assert set(par.simulate(program, 4, 0)) == {one}
    assert set(par.simulate(program, 2, 2)) == {one}
