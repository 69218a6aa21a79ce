"""Rows of two ranks: sums beside mpi4py's own, training steps beside one rank, and what equal bits cost.

One program of two processes (``ranks_program``) measures all ways of a row in turn.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from bench.line import Line, Settings
from bench.process import ROOT, python_settings

ROW = "ranks"
SUMS = {"all_reduce 1kB": 0.9, "all_reduce 1MB": 0.9, "all_reduce 64MB": 0.9}
STEPS = {"step mnist_mlp": 1.8, "step gpt": 1.7}
BITS_GOAL = 0.95  # the time of a step in any order over that of one with equal bits
_ONE_THREAD = {"WEFT_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def measure_ranks(settings: Settings) -> Iterator[Line]:
    """The lines, each of a program of its own."""
    for what, goal in (*SUMS.items(), *STEPS.items()):
        line = Line(f"{ROW} {what.removeprefix('step ')}", goal)
        try:
            found = _run(what, settings)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            line.failed["weft"] = str(error)[:300]
            yield line
            continue
        line.samples = found["samples"]
        yield line
        if what in STEPS:
            yield _cost_of_bits(line)


def _cost_of_bits(step: Line) -> Line:
    """Equal bits on every number of ranks beside sums in any order, of the same step."""
    samples = {"weft": step.samples["weft"], "any order": step.samples["weft any order"]}
    return Line(f"{step.name} equal bits", BITS_GOAL, samples=samples)


def _run(what: str, settings: Settings) -> dict[str, dict[str, list[float]]]:
    if find_spec("mpi4py") is None:
        raise RuntimeError("needs mpi4py: pip install 'weft[mpi]'")
    from weft.parallel.launch import find_launcher

    program = [settings.python("weft"), "-m", "bench.ranks_program", str(settings.rounds), what]
    given = {**os.environ, **python_settings("weft"), **_ONE_THREAD, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*find_launcher().command(2), *program],
        env=given,
        cwd=Path(ROOT),
        capture_output=True,
        text=True,
        timeout=settings.compile_limit * 2,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
    return dict(json.loads(lines[-1]))
