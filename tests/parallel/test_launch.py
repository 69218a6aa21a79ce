"""``weft launch``: which command starts the ranks, and what becomes of what they write and how they end."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.parallel.launching import environment, needs_mpi
from weft.errors import ArgumentError, ParallelError
from weft.parallel.launch import Launcher, find_launcher, launch
from weft.parallel.run import Prefixed

SCRIPT = """
import sys, weft
from weft import parallel as par
par.mesh(data=-1)
total = par.all_reduce(weft.tensor(1.0 + par.rank()), "data")
print("total", float(total), sys.argv[1:], weft.get_num_threads())
print("partial", end="")
if "fails" in sys.argv and par.rank() == 1:
    raise KeyError("mine")
if "ends" in sys.argv and par.rank() == 1:
    sys.exit(3)
if len(sys.argv) > 2:
    par.barrier()
"""


def weft_launch(tmp_path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    options = [a for a in args if a.startswith("-") or a.isdecimal()]
    rest = [a for a in args if a not in options]
    command = [sys.executable, "-m", "weft.cli", "launch", *options, str(path), *rest]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(), check=False)


def test_one_rank_runs_without_a_launcher(tmp_path: Path) -> None:
    found = weft_launch(tmp_path, "-n", "1", "--threads", "1", "given")
    assert (found.returncode, found.stdout) == (0, "total 1.0 ['given'] 1\npartial"), found.stderr


@pytest.mark.rotating(2)
@needs_mpi
def test_ranks_write_their_number_before_each_line(tmp_path: Path) -> None:
    found = weft_launch(tmp_path, "-n", "2", "--threads", "1", "given")
    assert found.returncode == 0, found.stderr
    expected = [f"[{r}] {text}" for r in range(2) for text in ("partial", "total 3.0 ['given'] 1")]
    assert sorted(found.stdout.splitlines()) == expected


@pytest.mark.rotating(2)
@needs_mpi
@pytest.mark.parametrize(
    ("what", "told"), [("fails", "[1] KeyError: 'mine'"), ("ends", "rank 1 ended with 3")]
)
def test_rank_that_fails_ends_all(tmp_path: Path, what: str, told: str) -> None:
    start = time.monotonic()
    found = weft_launch(tmp_path, "-n", "2", what, "waits")
    assert found.returncode != 0
    assert told in found.stderr
    assert "[0] parallel: all ranks must succeed, rank 1 failed with" in found.stderr
    assert time.monotonic() - start < 20


def test_commands_of_launchers() -> None:
    assert Launcher("srun", "srun").command(8) == ["srun", "-n", "8"]
    assert Launcher("srun", "srun").command(2, ["a"]) == ["srun", "-n", "2", "--nodelist", "a"]
    assert Launcher("hydra", "m").command(2, ["a", "b"]) == ["m", "-n", "2", "-hosts", "a,b"]
    assert Launcher("openmpi", "m").command(2, ["a"]) == ["m", "-n", "2", "--host", "a"]


def test_slurm_comes_first_and_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ParallelError, match=r"mpiexec(.|\n)*weft\[mpi\]"):
        find_launcher()
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert find_launcher() == Launcher("srun", str(tmp_path / "srun"))
    with pytest.raises(ArgumentError, match="must be a file"):
        launch(str(tmp_path / "none.py"), n=1)


def test_lines_are_written_whole(capsys: pytest.CaptureFixture[str]) -> None:
    out = Prefixed(sys.stdout, "[3] ")
    for text in ("a", "b\nc", "\n", "\n", "d"):
        out.write(text)
    assert capsys.readouterr().out == "[3] ab\n[3] c\n[3] \n"
    out.flush()
    assert capsys.readouterr().out == "[3] d\n"
    assert out.encoding == sys.stdout.encoding
