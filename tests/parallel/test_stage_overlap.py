"""Inside of stages: sums over the batch and messages go on while something else is computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.parallel import wide
from tests.parallel.launching import lines_of_ranks, needs_mpi
from tests.parallel.pipelines import train, world
from weft import parallel as par
from weft.errors import ParallelError
from weft.ops.pipeline import start_receive, wait_receive
from weft.parallel import stage_plan
from weft.parallel.overlap import is_later_piece
from weft.parallel.schedules import TABLES

PROGRAM = Path(wide.__file__)


def places(lines: list[str], begin: str) -> list[int]:
    return [i for i, line in enumerate(lines) if line.startswith(begin)]


def test_sums_start_between_the_pieces_of_the_last_backward_pass() -> None:
    alone = par.simulate(lambda: wide.train({"data": 1, "pipe": 1}, stages=2, microbatches=4), 1)[0]
    found = par.simulate(lambda: wide.train({"data": 2, "pipe": 2}, microbatches=2), 4)
    assert {digest for digest, *_ in found} == {alone[0]}
    for _, losses, run in found:
        assert losses == alone[1]
        lines = wide.order(run)
        pieces, starts = places(lines, "weights"), places(lines, "start_all_reduce of f32[")
        large = [i for i in starts if lines[i] != "start_all_reduce of f32[] over data"]
        last = max(i for i in pieces if lines[i].endswith(".0"))
        assert last < large[0] < pieces[-1]
        assert all(i > pieces[-1] for i in places(lines, "wait_all_reduce"))


def test_explain_tells_the_order_of_a_rank(capsys: pytest.CaptureFixture[str]) -> None:
    def program() -> Any:
        run = wide.train({"data": 1, "pipe": 2}, microbatches=2)[2]
        return str(run.explain()[0]) if par.rank() == 0 else "", wide.order(run)

    text, lines = par.simulate(program, 2)[0]
    assert "\n".join(["this rank, in order:", *[f"  {line}" for line in lines]]) in text
    assert capsys.readouterr().out


def test_messages_come_while_the_part_before_runs() -> None:
    run = par.simulate(lambda: wide.train({"data": 1, "pipe": 2}, microbatches=4), 2)[0][2]
    lines = wide.order(run)
    starts, waits = places(lines, "start receive"), places(lines, "wait receive")
    assert len(starts) == len(waits) == 4
    for start, wait in zip(starts, waits, strict=True):
        between = [line for line in lines[start:wait] if line.startswith(("forward", "weights"))]
        assert sum(not is_later_piece(line) for line in between) == 1


@pytest.mark.rotating(2)
def test_without_the_pass_ranks_wait_and_bits_are_the_same() -> None:
    axes = {"data": 2, "pipe": 2}
    found = par.simulate(lambda: wide.train(axes, microbatches=2, disable=["overlap"]), 4)[0]
    assert found[0] == par.simulate(lambda: wide.train(axes, microbatches=2), 4)[0][0]
    lines = wide.order(found[2])
    assert not places(lines, "start")
    assert len(places(lines, "receive")) == 2


@pytest.mark.rotating(2)
@pytest.mark.parametrize("schedule", sorted(TABLES))
def test_pieces_of_small_models_have_the_bits_of_one_process(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Residual layers, norms, tied weights and ZeRO, with as many pieces as there can be."""
    monkeypatch.setattr(stage_plan, "_LEAST", 16)
    settings: dict[str, Any] = {"model": {"tied": True, "dropout": 0.2}, "stages": 4, "adam": True}
    kinds, axes = [1, 2, 3, 4], {"data": 2, "pipe": 2}
    alone = train({"data": 1, "pipe": 1}, kinds, backend="interpret", **settings)
    assert "weights1.1" in {n.attrs.get("function") for n in alone["run"].lowered.nodes}
    for zero in (0, 2):
        more = {"zero": zero, "schedule": schedule, "backend": "interpret", **settings}
        found = par.simulate(lambda more=more: train(axes, kinds, **more), world(axes))
        assert {one["digest"] for one in found} == {alone["digest"]}


def test_plans_hide_sums_beside_the_pieces() -> None:
    def exposed(**settings: Any) -> Any:
        step, _, batch = wide.make({"data": 1, "pipe": 1}, stages=2, microbatches=2, **settings)
        plan = step.plan(*batch, mesh="data=2,pipe=2", cluster="dgx-a100")
        (row,) = [row for row in plan.traffic if row.what == "all_reduce over data"]
        return row

    hidden, waited = exposed(), exposed(disable=["overlap"])
    assert hidden.seconds == pytest.approx(waited.seconds)
    assert waited.exposed == pytest.approx(waited.seconds)
    assert hidden.exposed < 0.9 * waited.exposed


def test_a_message_must_be_started_before_it_is_waited_for() -> None:
    def program() -> Any:
        par.mesh(pipe=-1)
        return wait_receive.eval(np.zeros(2), source=0, number=3, axis="pipe", mesh="pipe=2")

    with pytest.raises(ParallelError, match="must have been started, got none of number 3 from 0"):
        par.simulate(program, 2)
    given = {"shape": (2,), "dtype": "float32", "source": 5, "number": 0, "axis": "pipe", "mesh": "pipe=2"}
    with pytest.raises(weft.errors.DomainError, match=r"must be in 0..1, got 5"):
        start_receive.type_rule(**given)


@pytest.mark.rotating(2)
@needs_mpi
@pytest.mark.parametrize("n", [2, 4])
def test_between_processes(n: int) -> None:
    lines = lines_of_ranks(n, PROGRAM)
    alone = par.simulate(lambda: wide.train({"data": 1, "pipe": 1}, stages=2, microbatches=4), 1)[0]
    assert lines == [f"rank {r} {alone[0]}" for r in range(n)]
