"""Pipelines: steps without gradients, checkpoints, the trainer, and real processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from tests.parallel.launching import lines_of_ranks, needs_mpi
from tests.parallel.pipelines import KINDS, PLAIN, Layers, quick, same, train, world
from weft import parallel as par

PROGRAM = Path(__file__).parent / "pipeline_program.py"


def test_a_step_without_gradients() -> None:
    def program(mesh: Any = None) -> Any:
        weft.manual_seed(0)
        model = Layers([1, 2, 3])

        def scores(x: Any) -> Any:
            logits = model(par.shard(x, "data"))
            return logits, logits.mean()

        run: Any = scores if mesh is None else weft.compile(scores, mesh=mesh)
        logits, mean = run(weft.arange(16) % 4)
        return logits.detach().numpy(), float(mean)

    expected = program()
    for logits, mean in par.simulate(lambda: program(par.mesh(data=2, pipe=2)), 4):
        np.testing.assert_allclose(logits, expected[0], rtol=1e-5, atol=1e-6)
        assert mean == pytest.approx(expected[1], rel=1e-5)


@pytest.mark.rotating(2)
def test_microbatches_without_stages() -> None:
    """They are the virtual shards of a rank; any number of them."""
    usual = par.simulate(lambda: quick({"data": 2}, PLAIN), 2)[0]
    given = par.simulate(lambda: quick({"data": 2}, PLAIN, microbatches=4), 2)[0]
    assert given["digest"] == usual["digest"]
    for settings in ({"microbatches": 3}, {"microbatches": 6, "reproducible": False}):
        same(par.simulate(lambda s=settings: quick({"data": 2}, PLAIN, **s), 2)[0], train(None, PLAIN))


def resumed(path: str, axes: dict[str, int], steps: range, *, load: bool, zero: int = 0) -> bytes:
    """Weights after some of four steps, begun from a file or saved to it."""
    mesh = par.mesh(**axes)
    weft.manual_seed(1 if load else 0)
    model = Layers(PLAIN)
    optimizer = weft.optim.Adam(model.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        x = par.shard(x, "data")
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), x)
        loss.backward()
        optimizer.step()
        return loss

    if load:
        state = par.load(path, mesh)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    more: dict[str, Any] = {"stages": 2} if "pipe" in axes else {}
    run = weft.compile(step, mesh=mesh, backend="interpret", zero=zero, **more)
    for k in steps:
        run((weft.arange(16) * (k + 1)) % 4)
    if not load:
        weft.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    return b"".join(p.detach().full().numpy().tobytes() for p in model.parameters())


@pytest.mark.rotating(2)
def test_checkpoints_go_from_mesh_to_mesh(tmp_path: Path) -> None:
    path = os.fspath(tmp_path / "state.safetensors")
    whole = par.simulate(lambda: resumed(path, {"data": 1, "pipe": 1}, range(3), load=False), 1)[0]
    half = par.simulate(lambda: resumed(path, {"data": 1, "pipe": 2}, range(2), load=False), 2)[0]
    found = weft.load(path)["model"]
    assert b"".join(found[n].numpy().tobytes() for n, _ in Layers(PLAIN).named_parameters()) == half
    for axes in ({"data": 1, "pipe": 1}, {"data": 2, "pipe": 2}):
        again = par.simulate(lambda a=axes: resumed(path, a, range(2, 3), load=True), world(axes))
        assert set(again) == {whole}
    plain = par.simulate(lambda: resumed(path, {"data": 2}, range(2, 3), load=True), 2)[0]
    np.testing.assert_allclose(np.frombuffer(plain, "f4"), np.frombuffer(whole, "f4"), rtol=1e-3, atol=1e-5)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_trainer_passes_it_on(accumulate: int) -> None:
    """With validation, and a last batch that microbatches do not divide, which all ranks work on whole."""

    def program(axes: dict[str, int] | None) -> Any:
        mesh = None if axes is None else par.mesh(**axes)
        weft.manual_seed(0)
        model = Layers(PLAIN)
        x = weft.arange(19) % 4
        batches = [(x[i : i + 8], x[i : i + 8]) for i in range(0, 19, 8)]
        more = {} if mesh is None else {"mesh": mesh, "microbatches": 2, "schedule": "zero-bubble"}
        trainer = weft.Trainer(
            model, F.cross_entropy, weft.optim.SGD(model.parameters(), lr=0.1), batches, batches[:2],
            progress=False, clip_norm=1.0, accumulate=accumulate, **more,
        )  # fmt: skip
        history = trainer.fit(epochs=1)
        weights = [p.detach().full().numpy() for p in model.parameters()]
        return history[-1]["val_loss"], weights, par.held_bytes(model.parameters())

    expected = program(None)
    axes = {"data": 1, "pipe": 2}
    found = par.simulate(program, world(axes), axes)
    for loss, weights, held in found:
        assert loss == pytest.approx(expected[0], rel=1e-5)
        for a, b in zip(weights, expected[1], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)
        assert held < expected[2]


@pytest.mark.rotating(2)
@needs_mpi
@pytest.mark.parametrize("n", [2, 4])
def test_between_processes(n: int) -> None:
    """All checks of the program; weights have the bits of one process."""
    lines = lines_of_ranks(n, PROGRAM)
    alone = train({"data": 1, "pipe": 1}, KINDS, model={"dropout": 0.2}, stages=4, adam=True)
    assert lines == [f"rank {r} {alone['digest']}" for r in range(n)]
