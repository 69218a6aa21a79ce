"""Weights have the same bits on any number of ranks: small models, whose loops a compiler likes to change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft import nn, optim
from weft import parallel as par
from weft.base.ranks import tree_fold

# Inputs, hidden units, outputs, batch, activation, and how a step is taken. With one output products are
# short, and a compiler may fuse them with sums in one way or in another.
MODELS = [
    (1, 4, 1, 32, nn.GELU, optim.AdamW),
    (2, 8, 1, 32, nn.ReLU, optim.SGD),
    (2, 9, 1, 24, nn.Tanh, optim.Adam),
    (5, 1, 1, 24, nn.ReLU, optim.SGD),
    (2, 2, 1, 16, nn.ReLU, optim.AdamW),
    (3, 5, 2, 16, nn.Tanh, optim.Adam),
]


def trained(ranks: int, sizes: tuple[int, ...], activation: Any, optimizer: Any) -> bytes:
    inputs, hidden, outputs, batch = sizes
    mesh = par.mesh(data=ranks)
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(inputs, hidden), activation(), nn.Linear(hidden, outputs))
    opt = optimizer(model.parameters(), lr=0.05)

    def step(x: Any, y: Any) -> Any:
        x, y = par.shard(x, "data"), par.shard(y, "data")
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        return loss

    run = weft.compile(step, mesh=mesh)
    rng = np.random.default_rng(sum(sizes))
    for _ in range(3):
        x, y = (rng.standard_normal((batch, n)).astype(np.float32) for n in (inputs, outputs))
        run(weft.tensor(x), weft.tensor(y))
    weights: Any = [p.detach() for p in model.parameters()]
    return b"".join(w.full().numpy().tobytes() for w in weights)


@pytest.mark.parametrize("model", MODELS, ids=[f"{m[:4]}-{m[4].__name__}-{m[5].__name__}" for m in MODELS])
def test_weights_have_the_same_bits_on_one_two_and_four_ranks(model: Any) -> None:
    *sizes, activation, optimizer = model
    found = [par.simulate(trained, n, n, tuple(sizes), activation, optimizer)[0] for n in (1, 2, 4)]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 8, 40])
def test_bits_of_a_turn_do_not_depend_on_how_often_a_loop_turns(length: int) -> None:
    def along(xs: Any, w: Any) -> Any:
        def turn(carry: Any, x: Any) -> tuple[Any, Any]:
            return carry, ((x @ w) * x[0] + x[1] * 0.3 - x @ w[:, 0] * 1.7).sum()

        return weft.scan(turn, weft.tensor(0.0), xs)[1]

    rng = np.random.default_rng(3)
    xs, w = rng.standard_normal((40, 2)).astype(np.float32), rng.standard_normal((2, 2)).astype(np.float32)
    run = weft.compile(along)
    whole = run(weft.tensor(xs), weft.tensor(w)).numpy()
    part = weft.compile(along)(weft.tensor(xs[:length]), weft.tensor(w)).numpy()
    np.testing.assert_array_equal(part, whole[:length])


def of_a_whole_batch(zero: int) -> bytes:
    """Weights after a step that ranks share nothing of but the state; parts of weights are woven together."""
    mesh = par.mesh(data=-1)
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 36), nn.Tanh(), nn.Linear(36, 3))
    opt = optim.AdamW(model.parameters(), lr=0.05)

    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        return loss

    run = weft.compile(step, mesh=mesh, zero=zero)
    rng = np.random.default_rng(1)
    for _ in range(3):
        run(*[weft.tensor(rng.standard_normal((12, n)).astype(np.float32)) for n in (24, 3)])
    weights: Any = [p.detach() for p in model.parameters()]
    return b"".join(w.full().numpy().tobytes() for w in weights)


@pytest.mark.filterwarnings("ignore")
def test_sums_do_not_depend_on_how_gathered_weights_lie_in_memory() -> None:
    whole = par.simulate(of_a_whole_batch, 1, 0)[0]
    for ranks in (2, 4):
        assert set(par.simulate(of_a_whole_batch, ranks, 3)) == {whole}


@pytest.mark.parametrize("count", [1, 2, 3, 6, 8, 12, 20, 32])
def test_shards_are_added_up_by_one_tree_whatever_their_number(count: int) -> None:
    mesh = par.mesh(data=1)
    rows = np.random.default_rng(count).standard_normal((count, 5)).astype(np.float32)
    rows *= np.float32(10) ** np.arange(count)[:, None]  # so that the order of additions shows
    run = weft.compile(lambda x: par.shard(x, "data").sum(axis=0), mesh=mesh, microbatches=count)
    found = run(weft.tensor(rows)).numpy()
    np.testing.assert_array_equal(found, tree_fold(list(rows), np.add))


def test_loops_over_shards_write_gradients_once_and_leave_large_weights_as_they_are() -> None:
    """Neither are stacks filled before they are written, nor are matrices turned that are better packed."""
    mesh = par.mesh(data=1)
    w = weft.zeros(512, 300, requires_grad=True)

    def step(x: Any) -> Any:
        w.grad = None
        (par.shard(x, "data") @ w.T).square().sum().backward()
        return w.grad

    run = weft.compile(step, mesh=mesh)
    run(weft.ones(16, 300))
    text = "".join(map(str, run.explain()))
    assert "loop:" in text
    assert "fill for scan" not in text
    assert "turn for scan" not in text
