"""Programs of every op compile for the other architecture: for ARM on x86-64, for x86-64 on ARM.

``make test`` takes some cases of an eighth of the ops for one processor, others whenever weft's code is
another, and ``make test-all`` of every op; ``make test-cross`` takes all cases for each processor.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PARTS = 2  # processes; each imports everything anew
ABORTING = """
import os
from tests.backends.llvm.crossing import compile_all, other_targets
programs = [("fine", lambda target: []), ("faulty", lambda target: os.abort())]
compile_all(enumerate(programs), other_targets())
"""


def run(*args: str) -> tuple[int, str]:
    """The exit code of a process, and the last that it said."""
    done = subprocess.run(
        [sys.executable, *args],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    name = (done.stdout.splitlines() or ["nothing"])[-1]
    return done.returncode, f"{name}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize("part", range(PARTS))
def test_every_op_compiles_for_the_other_architecture(part: int) -> None:
    code, told = run("-m", "tests.backends.llvm.crossing", str(part), str(PARTS))
    assert code == 0, f"exit code {code} at {told}"


def test_an_abort_is_told_by_the_name_of_the_program() -> None:
    code, told = run("-c", ABORTING)
    assert code != 0
    assert told.startswith("faulty, for ")
