"""Compiled steps on a mesh: values, bits, what fails, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from tests.parallel.training import MODELS, train, train_alone
from weft import parallel as par
from weft.errors import ArgumentError, BoundsError, DivergenceError, ParallelError


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", MODELS)
def test_weights_have_the_same_bits_on_every_number_of_ranks(name: str) -> None:
    """Dropout, batch statistics, clipping by the norm of all gradients and the optimizer's state included."""
    expected, _, weights = train_alone(name)
    digests = set()
    for n in (1, 4) if name == "mlp" else (1, 2):
        for losses, digest, arrays in par.simulate(train, n, name):
            digests.add(digest)
            np.testing.assert_allclose(losses, expected, rtol=1e-4)
            for a, b in zip(arrays, weights, strict=True):
                np.testing.assert_allclose(a, b, rtol=5e-3, atol=5e-4)
    assert len(digests) == 1


@pytest.mark.rotating(2)
def test_native_sums_are_close_and_equal_on_all_ranks() -> None:
    expected = train_alone("mlp")[0]
    found = par.simulate(lambda: train("mlp", reproducible=False), 2)
    assert found[0][1] == found[1][1]
    np.testing.assert_allclose(found[0][0], expected, rtol=1e-4)


def in_world(n: int, program: Any) -> list[Any]:
    return par.simulate(program, n)


def test_passes_are_named_in_the_history_and_can_be_left_out() -> None:
    def program(**settings: Any) -> list[str]:
        mesh = par.mesh(data=-1)
        w = weft.ones(4, 3)

        def loss(x: Any) -> Any:
            x = par.shard(x, "data")
            return weft.grad(lambda w: (weft.tanh(x @ w) ** 2).sum())(w), (x @ w).sum()

        run = weft.compile(loss, mesh=mesh, **settings)
        run(weft.ones(8, 4))
        return [record.name for record in run.lowered.history()]

    for kept in in_world(2, program):
        assert [n for n in kept if n in ("partition", "fold_shards", "bucket")] == [
            "partition", "fold_shards", "bucket",
        ]  # fmt: skip
    assert "bucket" not in in_world(2, lambda: program(disable=["bucket"]))[0]
    assert "fold_shards" not in in_world(2, lambda: program(reproducible=False))[0]


def step_with_class(wrong: int) -> list[float]:
    """The weights after a step in which the last rank has a class number of its own, which may be wrong."""
    mesh = par.mesh(data=-1)
    w = weft.zeros(4, 3, requires_grad=True)

    def step(x: Any, y: Any) -> Any:
        x, y = par.shard(x, "data"), par.shard(y, "data")
        loss = F.cross_entropy(x @ w, y)
        loss.backward()
        with weft.no_grad():
            w.sub_(w.grad)
        w.grad = None
        return loss

    run = weft.compile(step, mesh=mesh)
    x, y = weft.ones(8, 4), weft.tensor([0, 1, 2, 0, 1, 2, 0, wrong])
    before = w.detach().numpy().copy()
    try:
        run(x, y)
    finally:
        changed = (w.detach().numpy() != before).any()
        assert changed == (wrong < 3)
    return [float(v) for v in w.detach().numpy().ravel()]


def test_rank_that_fails_keeps_all_from_committing() -> None:
    assert in_world(2, lambda: step_with_class(1))[0] == in_world(1, lambda: step_with_class(1))[0]
    with pytest.raises(BoundsError, match="class numbers must be in"):
        in_world(2, lambda: step_with_class(7))


def test_calls_that_differ_are_told_before_they_begin() -> None:
    def program() -> Any:
        run = weft.compile(lambda x: par.shard(x, "data").sum(), mesh=par.mesh(data=-1))
        return run(weft.ones(8 + 8 * par.rank()))

    with pytest.raises(DivergenceError, match=r"rank 1: call of .*version"):
        in_world(2, program)


def test_batches_of_several_sizes_have_a_version_each() -> None:
    def program() -> list[float]:
        run = weft.compile(lambda x: par.shard(x, "data").sum() * 2.0, mesh=par.mesh(data=-1))
        return [float(run(weft.arange(float(n)))) for n in (8, 16, 24, 8)]

    assert in_world(2, program)[1] == [n * (n - 1) for n in (8.0, 16.0, 24.0, 8.0)]


def test_batch_that_does_not_divide_by_the_shards_is_refused_with_the_fix() -> None:
    def program(**settings: Any) -> Any:
        run = weft.compile(lambda x: par.shard(x, "data").sum(), mesh=par.mesh(data=-1), **settings)
        return float(run(weft.ones(12)))

    with pytest.raises(ParallelError, match="8 virtual shards, got 12") as found:
        in_world(2, program)
    assert "reproducible=False" in str(found.value)
    assert in_world(2, lambda: program(reproducible=False)) == [12.0, 12.0]

    def three() -> Any:
        return weft.compile(lambda x: x, mesh=par.mesh(data=-1))

    with pytest.raises(ParallelError, match="3 ranks along 'data' must divide the 8 virtual shards"):
        in_world(3, lambda: three()(weft.ones(3)))
    with pytest.raises(ArgumentError, match=r"mesh must be made by par\.mesh"):
        weft.compile(lambda x: x, mesh="data=2")  # type: ignore[call-overload]


def test_mesh_of_two_axes_cuts_the_batch_and_the_model() -> None:
    rng = np.random.default_rng(0)
    x, a, b = (rng.standard_normal(s).astype(np.float32) for s in ((16, 8), (8, 12), (12, 4)))

    def program(**settings: Any) -> Any:
        mesh = par.mesh(data=2, model=2)

        def loss(x: Any, a: Any, b: Any) -> Any:
            x, a = par.shard(x, "data", None), par.shard(a, None, "model")
            return (weft.tanh(x @ a) @ b).square().mean()

        run = weft.compile(weft.value_and_grad(loss, argnums=(1, 2)), mesh=mesh, **settings)
        value, grads = run(weft.tensor(x), weft.tensor(a), weft.tensor(b))
        return value.numpy(), *[g.numpy() for g in grads]

    def whole() -> Any:
        call = weft.value_and_grad(
            lambda a, b: (weft.tanh(weft.tensor(x) @ a) @ b).square().mean(), argnums=(0, 1)
        )
        value, grads = call(weft.tensor(a), weft.tensor(b))
        return value.numpy(), *[g.numpy() for g in grads]

    expected = whole()
    for reproducible in (True, False):
        for found in par.simulate(lambda r: program(reproducible=r), 4, reproducible):
            for p, q in zip(found, expected, strict=True):
                np.testing.assert_allclose(p, q, rtol=1e-4, atol=1e-6)


def test_inputs_that_differ_between_ranks_are_refused() -> None:
    """All ranks hold the same parameters and get the whole batch; else results would depend on the rank."""

    def program(own_batch: bool, own_weights: bool) -> Any:
        mesh = par.mesh(data=-1)
        weights = weft.ones(4) * (1 + par.rank() * own_weights)
        run = weft.compile(lambda x: (par.shard(x, "data") * weights).sum(), mesh=mesh)
        run(weft.ones(8, 4))
        return run(weft.ones(8, 4) * (1 + par.rank() * own_batch))

    assert float(par.simulate(program, 2, False, False)[0]) == 32
    with pytest.raises(
        ParallelError, match=r"argument x \(f32\[8,4\]\) must be the same on all ranks"
    ) as found:
        par.simulate(program, 2, True, False)
    assert "give all ranks the whole batch" in str(found.value)
    with pytest.raises(ParallelError, match=r"weights .*must be the same on all ranks.*on rank 1") as found:
        par.simulate(program, 2, False, True)
    assert "par.broadcast" in str(found.value)


def test_gradients_flow_out_of_a_function_on_a_mesh() -> None:
    rng = np.random.default_rng(0)
    x, start = (rng.standard_normal(s).astype(np.float32) for s in ((16, 4), (4, 3)))

    def program() -> Any:
        mesh = par.mesh(data=-1)
        w = weft.tensor(start, requires_grad=True)
        run = weft.compile(lambda x, w: weft.tanh(par.shard(x, "data") @ w).square().sum(), mesh=mesh)
        (run(weft.tensor(x), w) * 2.0).backward()
        assert w.grad is not None
        return w.grad.numpy()

    h = np.tanh(x @ start)
    expected = x.T @ (4 * h * (1 - h * h))
    for found in in_world(2, program):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_branches_and_loops_on_a_mesh() -> None:
    """What has no rule runs whole on every rank; values are right all the same."""

    def program() -> list[float]:
        def f(x: Any) -> Any:
            x = par.shard(x, "data")
            total = x.sum()
            for _ in range(3):
                total = total * 1.5 if total > 10 else total + x.amax()
            return total + weft.cumsum(x, axis=0).sum()

        run = weft.compile(f, mesh=par.mesh(data=-1))
        return [float(run(weft.arange(16.0) * k)) for k in (0.01, 1.0)]

    def plain(k: float) -> float:
        x = np.arange(16.0) * k
        total = x.sum()
        for _ in range(3):
            total = total * 1.5 if total > 10 else total + x.max()
        return float(total + np.cumsum(x).sum())

    for found in in_world(2, program):
        np.testing.assert_allclose(found, [plain(0.01), plain(1.0)], rtol=1e-5)
