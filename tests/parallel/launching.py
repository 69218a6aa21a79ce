"""Programs run by several processes, for tests: they need mpi4py and an ``mpiexec``."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from weft.errors import ParallelError
from weft.parallel.launch import find_launcher

ROOT = Path(__file__).parent.parent.parent


def has_mpi() -> bool:
    """Whether programs can be run by several processes here."""
    try:
        return find_spec("mpi4py") is not None and bool(find_launcher())
    except ParallelError:
        return False


needs_mpi = pytest.mark.skipif(not has_mpi(), reason="needs mpi4py and mpiexec: pip install 'weft[mpi]'")


def environment() -> dict[str, str]:
    """That of this process, in which weft is found, with one thread for each rank."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def launch(n: int, path: Path, *args: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a script on n ranks; gives what it printed, by all ranks."""
    command = [*find_launcher().command(n), sys.executable, str(path), *args]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, env=environment(), check=False
    )


def lines_of_ranks(n: int, path: Path, *args: str) -> list[str]:
    """The lines that a script prints on n ranks, in order; it must end well on all of them."""
    found = launch(n, path, *args)
    assert found.returncode == 0, found.stderr
    return sorted(filter(None, found.stdout.split("\n")))
