"""Pipelines: what cannot be is refused, and errors of a rank are told to all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.parallel.pipelines import PLAIN, Layers, quick
from weft import nn
from weft import parallel as par
from weft.errors import BoundsError, DivergenceError, DomainError, ParallelError


def test_statistics_of_a_batch() -> None:
    """Of what comes in they are right, running ones, too; behind weights they are refused with the line."""

    def program(at: int, mesh: Any = None) -> Any:
        weft.manual_seed(0)
        layers = [nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)]
        layers.insert(at, nn.BatchNorm1d(4))
        model = nn.Sequential(*layers)
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Any) -> Any:
            x = par.shard(x, "data")
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run: Any = step if mesh is None else weft.compile(step, mesh=mesh, backend="interpret")
        x = weft.tensor(np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32))
        losses = [float(run(x)) for _ in range(2)]
        return losses, [t.detach().full().numpy() for t in (*model.parameters(), *model.buffers())]

    expected = program(0)
    found = par.simulate(lambda: program(0, par.mesh(data=1, pipe=2)), 2)
    for losses, tensors in found:
        np.testing.assert_allclose(losses, expected[0], rtol=1e-5)
        for a, b in zip(tensors, expected[1], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    with pytest.raises(ParallelError, match="one microbatch after another") as error:
        par.simulate(lambda: program(2, par.mesh(data=1, pipe=2)), 2)
    assert "loss = model(x).square().mean()" in str(error.value)
    assert "batch normalisation" in str(error.value)


REFUSED: dict[str, tuple[dict[str, int], dict[str, Any], type[Exception], list[str]]] = {
    "no batch": ({"pipe": 2}, {}, ParallelError, ["must have 'data', too", "par.mesh(data=1, pipe=...)"]),
    "no axis": ({"data": 2}, {"stages": 2}, ParallelError, ["stages need a mesh with the axis 'pipe'"]),
    "stages": ({"data": 1, "pipe": 2}, {"stages": 3}, DomainError, ["a multiple of the 2 ranks, got 3"]),
    "name": ({"data": 1, "pipe": 2}, {"schedule": "2f2b"}, DomainError, ["must be one of gpipe", "'2f2b'"]),
    "kind": (
        {"data": 1, "pipe": 2},
        {"schedule": 3},
        DomainError,
        ["must be a name or made by par.schedule"],
    ),
    "count": (
        {"data": 1, "pipe": 2},
        {"microbatches": 0},
        DomainError,
        ["microbatches must be a positive int"],
    ),
    "batch": (
        {"data": 1, "pipe": 2},
        {"microbatches": 5},
        ParallelError,
        ["must divide by the 5 microbatches of 1 rank, got 24", 'par.shard(x, "data")', "that divide 24"],
    ),
    "nodes": (
        {"data": 1, "pipe": 2},
        {"stages": 400},
        ParallelError,
        ["each of the 400 stages", "fewer stages"],
    ),
    "marks": (
        {"data": 1, "pipe": 2},
        {"stages": 4, "model": {"marks": 2}},
        ParallelError,
        ["4 stages need 3 marks one behind the other, got 1", "par.next_stage(x)"],
    ),
    "table": (
        {"data": 1, "pipe": 2},
        {"schedule": par.schedule("gpipe", ranks=2, microbatches=3), "microbatches": 4},
        ParallelError,
        ["2 ranks, 4 microbatches and 2 stages", "2 ranks, 3 microbatches"],
    ),
}


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(name: str) -> None:
    axes, settings, kind, words = REFUSED[name]
    with pytest.raises(kind) as error:
        par.simulate(lambda: quick(axes, PLAIN, **settings), 2)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "train" in str(error.value) or "pipelines.py" in str(error.value) or "stages" in name


def test_tables_by_hand_run_and_deadlocks_do_not() -> None:
    axes = {"data": 1, "pipe": 2}
    first = [("F", 0, 1), ("F", 0, 0), ("B", 0, 1), ("B", 0, 0)]
    second = [("F", 1, 1), ("F", 1, 0), ("B", 1, 1), ("B", 1, 0)]
    mine = par.Schedule("mine", [first, second])
    usual = par.simulate(lambda: quick(axes, PLAIN, microbatches=2), 2)[0]
    assert par.simulate(lambda: quick(axes, PLAIN, schedule=mine), 2)[0]["digest"] == usual["digest"]
    late = [("F", 1, 1), ("B", 1, 1), ("F", 1, 0), ("B", 1, 0)]
    stuck = par.Schedule("stuck", [[first[1], first[3], first[0], first[2]], late])
    with pytest.raises(ParallelError, match="rank 1: F1 of stage 1 waits for F1 of stage 0 on rank 0"):
        par.simulate(lambda: quick(axes, PLAIN, schedule=stuck), 2)


def test_an_error_of_one_stage_is_raised() -> None:
    def program() -> Any:
        mesh = par.mesh(data=1, pipe=2)
        model = Layers(PLAIN)
        run = weft.compile(lambda x: model(par.shard(x, "data")).sum(), mesh=mesh)
        good = float(run(weft.zeros(8, dtype=weft.int64)))
        run(weft.tensor([0, 0, 0, 0, 0, 0, 0, 9]))
        return good

    with pytest.raises(BoundsError, match="for axis 0 of size 4, got 9"):
        par.simulate(program, 2)


def test_ranks_with_other_schedules_are_told() -> None:
    def program() -> Any:
        return quick({"data": 1, "pipe": 2}, PLAIN, schedule="gpipe" if par.rank() else "1f1b")

    with pytest.raises(DivergenceError, match=r"stages, version [0-9a-f]{8}"):
        par.simulate(program, 2)


def test_messages_go_to_ranks_that_are_there() -> None:
    from weft.ops.pipeline import receive, send

    attrs = {"number": 0, "axis": "pipe", "mesh": "pipe=2"}
    with pytest.raises(DomainError, match=r"send: the other rank must be in 0..1, got 2"):
        send.type_rule(weft.TensorType((2,), weft.float32), to=2, **attrs)
    with pytest.raises(DomainError, match=r"receive: the other rank must be in 0..1, got -1"):
        receive.type_rule(shape=(2,), dtype="float32", source=-1, **attrs)


def test_a_message_that_nobody_sends_is_told() -> None:
    def program() -> Any:
        par.mesh(pipe=-1)
        from weft.ops.pipeline import receive

        attrs = {"axis": "pipe", "mesh": "pipe=2", "number": 3}
        return receive.eval(shape=(2,), dtype="float32", source=1 - par.rank(), **attrs)

    with pytest.raises(DivergenceError, match="receive of f32"):
        par.simulate(program, 2)
