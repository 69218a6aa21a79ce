"""Worlds of processes on MPI: the same collectives, and ranks that fail."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.parallel.launching import launch, lines_of_ranks, needs_mpi
from tests.parallel.training import train
from weft import parallel as par
from weft.parallel.mpi import is_free

PROGRAM = Path(__file__).parent / "mpi_program.py"
pytestmark = needs_mpi


@pytest.mark.rotating(2)
@pytest.mark.parametrize("n", [2, 4])
def test_collectives_between_processes(n: int) -> None:
    """All checks of the program; weights after training have the bits of one simulated rank."""
    lines = lines_of_ranks(n, PROGRAM, "all")
    digest = par.simulate(train, 1, "mlp")[0][1]
    assert lines == [f"rank {r} {digest}" for r in range(n)]


@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    ("what", "told"),
    [("raises", "rank 1 failed with ValueError: an error of rank 1"), ("leaves", "rank 1: has ended")],
)
def test_rank_that_fails_or_leaves_ends_the_run(what: str, told: str) -> None:
    start = time.monotonic()
    found = launch(2, PROGRAM, what)
    assert found.returncode != 0
    assert told in found.stderr
    assert time.monotonic() - start < 30  # of a hang it would be minutes


@pytest.mark.parametrize(
    ("mine", "ranks", "threads", "free"),
    [
        (4, 2, 1, True),
        (4, 2, 2, False),
        (4, 4, 1, False),
        (2, 2, 1, True),
        (2, 2, 2, False),
        (1, 4, 1, False),
    ],
)
def test_sums_go_on_beside_where_a_processor_is_free(
    monkeypatch: pytest.MonkeyPatch, mine: int, ranks: int, threads: int, free: bool
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)  # of which a launcher may give each rank its own
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(mine)))
    assert is_free(ranks, threads) is free


def test_rank_that_is_killed_ends_the_run() -> None:
    start = time.monotonic()
    assert launch(3, PROGRAM, "dies").returncode != 0
    assert time.monotonic() - start < 30  # of a hang it would be minutes
