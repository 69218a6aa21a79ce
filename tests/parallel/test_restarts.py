"""``weft launch --restarts``: what goes on after a rank failed, with how many ranks, on which processors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parallel.launching import environment, needs_mpi
from weft.parallel import launch as launching
from weft.parallel.run import processors_of

# Counts to 6, saves after each step, and dies at the third in its first run.
SCRIPT = """
import os, signal, sys, weft
from pathlib import Path
from weft import parallel as par

par.mesh(data=-1)
saved = Path(sys.argv[1])
step = int(saved.read_text()) if saved.exists() else 0
print("begins at", step, "on", par.size(), "with", len(os.sched_getaffinity(0)), flush=True)
first = step == 0
while step < 6:
    step += 1
    assert float(par.all_reduce(weft.tensor(1.0), "data")) == par.size()
    if first and step == 3:
        par.barrier()
        if sys.argv[2] == "all" or par.rank() == par.size() - 1:
            if sys.argv[2] == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError("a broken disk")
    if par.rank() == 0:
        new = saved.with_suffix(".new")
        new.write_text(str(step))
        new.replace(saved)  # a kill leaves the one or the other
    par.barrier()
print("done at", step, "on", par.size())
"""


def run_script(tmp_path: Path, n: int, how: str, restarts: int) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    options = ["-n", str(n), "--threads", "1", "--restarts", str(restarts)]
    command = [
        sys.executable,
        "-m",
        "weft.cli",
        "launch",
        *options,
        str(script),
        str(tmp_path / "saved"),
        how,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, env=environment(), check=False)


@pytest.mark.rotating(2)
@needs_mpi
def test_a_run_goes_on_without_the_rank_that_was_killed(tmp_path: Path) -> None:
    found = run_script(tmp_path, 3, "killed", 2)
    assert found.returncode == 0, found.stderr
    assert "a rank failed; starting again on 2 of 3 ranks (restart 1 of 2)" in found.stderr
    assert re.search(r"\[1\] begins at [23] on 2", found.stdout)  # rank 0 may have saved before it was ended
    assert sorted(line for line in found.stdout.splitlines() if "done" in line) == [
        f"[{rank}] done at 6 on 2" for rank in range(2)
    ]


@pytest.mark.rotating(2)
@needs_mpi
def test_a_rank_that_raised_is_left_out_and_one_can_go_on_alone(tmp_path: Path) -> None:
    found = run_script(tmp_path, 2, "raises", 1)
    assert found.returncode == 0, found.stderr
    assert "[1] OSError: a broken disk" in found.stderr
    assert "starting again on 1 of 2 ranks" in found.stderr
    if len(os.sched_getaffinity(0)) == 2:
        assert "[0] begins at 0 on 2 with 1" in found.stdout  # each rank has a processor
    assert found.stdout.splitlines()[-1] == "done at 6 on 1"


@pytest.mark.rotating(2)
@needs_mpi
def test_an_error_of_all_ranks_is_the_programs_own(tmp_path: Path) -> None:
    found = run_script(tmp_path, 2, "all", 3)
    assert found.returncode != 0
    assert "starting again" not in found.stderr


@pytest.mark.rotating(2)
def test_without_restarts_the_first_failure_is_the_end(tmp_path: Path) -> None:
    found = run_script(tmp_path, 1, "raises", 0)
    assert found.returncode != 0
    assert found.stderr.count("OSError: a broken disk") == 1
    assert "begins at 0" in found.stdout
    assert (
        run_script(tmp_path, 1, "raises", 5).stdout.splitlines()[-1] == "done at 6 on 1"
    )  # by what was saved


@pytest.mark.parametrize(
    ("n", "failed", "left"),
    [(4, 0, 2), (4, 1, 2), (8, 3, 4), (6, 1, 5), (2, 0, 1), (1, 0, None), (2, 2, None)],
)
def test_how_many_ranks_go_on(n: int, failed: int, left: int | None) -> None:
    """One at least is gone; of a power of two a power of two goes on, which divides the shards of a batch."""
    found = launching._left(launching._World(n, ()), failed)
    assert (None if found is None else found.n) == left


def test_hosts_that_do_not_answer_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ssh").write_text('#!/bin/sh\ncase "$*" in *good*) exit 0;; esac\nexit 255\n')
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    world = launching._World(8, ("good1:4", "bad1:4"))
    assert launching._left(world, 0) == launching._World(4, ("good1:4",))
    assert launching._left(launching._World(8, ("bad1", "bad2")), 0) is None
    monkeypatch.setenv("PATH", "")
    assert not launching._answers("good1")


def test_ranks_have_processors_of_their_own_where_there_are_enough() -> None:
    shares = [processors_of(place, 3, 2, range(8)) for place in range(3)]
    assert shares == [[0, 1], [2, 3], [4, 5]]
    assert processors_of(2, 3, 3, range(8)) == list(range(8))


# Trains for 8 steps without a checkpoint of its own; the last rank of two has no data after the fifth.
TRAINS = """
import sys, weft, hashlib
from weft import nn, parallel as par

def batches():
    for number in range(8):
        if number == 5 and par.rank() == 1:
            raise OSError("a broken disk")
        x = weft.arange(32.0).reshape(16, 2) * 0.01 * (number + 1)
        yield x, weft.concatenate([x, x], axis=1)

class Source:
    def __iter__(self):
        return batches()

mesh = par.mesh(data=-1)
weft.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4))
optimizer = weft.optim.Adam(model.parameters(), lr=0.1)
trainer = weft.Trainer(
    model, weft.mse_loss, optimizer, Source(), mesh=mesh, zero=1, directory=sys.argv[1], progress=False
)
trainer.resume()
print("begins at", trainer.step, "on", par.size(), flush=True)
trainer.fit(epochs=1)
weights = b"".join(p.detach().full().numpy().tobytes() for p in model.parameters())
print("ends at", trainer.step, hashlib.sha256(weights).hexdigest()[:16], flush=True)
"""


def trains(tmp_path: Path, directory: str, n: int, restarts: int) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "trains.py"
    script.write_text(TRAINS)
    options = ["-n", str(n), "--threads", "1", "--restarts", str(restarts)]
    command = [sys.executable, "-m", "weft.cli", "launch", *options, str(script), str(tmp_path / directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, env=environment(), check=False)


@needs_mpi
def test_after_an_error_of_one_rank_all_save_the_last_step_and_a_restart_goes_on(tmp_path: Path) -> None:
    """The others say which rank failed and how; weights at the end are those of a run without errors."""
    found = trains(tmp_path, "two", 2, 1)
    assert found.returncode == 0, found.stderr
    assert "[1] OSError: a broken disk" in found.stderr
    assert "[0] parallel: all ranks must succeed, rank 1 failed with OSError: a broken disk" in found.stderr
    assert "[0] begins at 0 on 2" in found.stdout
    assert "begins at 5 on 1" in found.stdout
    alone = trains(tmp_path, "one", 1, 0)
    assert alone.stdout.splitlines()[-1] == found.stdout.splitlines()[-1]
    assert alone.stdout.splitlines()[-1].startswith("ends at 8 ")
