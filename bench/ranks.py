"""Rows of two ranks: sums beside mpi4py's own, training steps beside one rank and beside PyTorch's DDP, and
what equal bits cost.

One program of two processes (``ranks_program``) measures all ways of a row in turn; PyTorch's program
(``ranks_torch``) takes turns with it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from bench.line import Line, Settings
from bench.process import ROOT, python_settings

ROW = "ranks"
PEER = "torch"
SUMS = {"all_reduce 1kB": 0.9, "all_reduce 1MB": 0.9, "all_reduce 64MB": 0.9}
STEPS = {"step mnist_mlp": 1.8, "step gpt": 1.7}
BITS_GOAL = 0.95  # the time of a step in any order over that of one with equal bits
DDP_GOAL = 1.0  # the time of a step by DistributedDataParallel over that of weft's
_TURNS = 2  # of each program
_ONE_THREAD = {"WEFT_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_FAILURES = (OSError, RuntimeError, subprocess.SubprocessError)
Samples = dict[str, list[float]]


def line_name(what: str) -> str:
    """What the line of a sum or a step is called."""
    return f"{ROW} {what.removeprefix('step ')}"


NAMES = frozenset(map(line_name, (*SUMS, *STEPS)))


def is_asked(rows: Sequence[str]) -> bool:
    """Whether some of these lines are among the rows that were named, or all rows are wanted."""
    return not rows or ROW in rows or not NAMES.isdisjoint(rows)


def measure_ranks(settings: Settings, rows: Sequence[str] = ()) -> Iterator[Line]:
    """The lines that were named, each of a program of its own, and of one of PyTorch's if it is wanted."""
    for what, goal in (*SUMS.items(), *STEPS.items()):
        line, peer = Line(line_name(what), goal), Line("", DDP_GOAL)
        if rows and ROW not in rows and line.name not in rows:
            continue
        for _ in range(_TURNS):
            _measure(line, "weft", what, settings)
            if settings.wanted([PEER]):
                _measure(peer, PEER, what, settings)
        yield from _lines(what, line, peer)


def _lines(what: str, line: Line, peer: Line) -> Iterator[Line]:
    """What is told of a row."""
    if what in SUMS:  # gloo's is beside mpi4py's, which is the one to reach
        line.samples |= peer.samples
        line.failed |= peer.failed
        line.beside = tuple(peer.samples)
        yield line
        return
    yield line
    if "weft" not in line.samples:
        return
    any_order = {"weft": line.samples["weft"], "any order": line.samples["weft any order"]}
    yield Line(f"{line.name} equal bits", BITS_GOAL, samples=any_order)
    if peer.samples or peer.failed:
        ours = {name: line.samples[name] for name in ("weft", "weft any order")}
        yield Line(f"{line.name} DDP", peer.goal, samples={**ours, **peer.samples}, failed=peer.failed)


def _measure(line: Line, label: str, what: str, settings: Settings) -> None:
    """Add the samples of one turn of a program to a line."""
    if line.failed:
        return
    try:
        found = _run(label, what, settings)
    except _FAILURES as error:
        line.failed[label] = str(error)[:300]
        return
    for name, samples in found.items():
        line.samples.setdefault(name, []).extend(samples)


def _weft_command(settings: Settings) -> list[str]:
    if find_spec("mpi4py") is None:
        raise RuntimeError("needs mpi4py: pip install 'weft[mpi]'")
    from weft.parallel.launch import find_launcher

    return [*find_launcher().command(2), settings.python("weft"), "-m", "bench.ranks_program"]


def _torch_command(settings: Settings) -> list[str]:
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return [settings.python(PEER), *start, "-m", "bench.ranks_torch"]


def _run(label: str, what: str, settings: Settings) -> Samples:
    """The samples of one turn of a program."""
    command = _weft_command(settings) if label == "weft" else _torch_command(settings)
    rounds = max(1, settings.rounds // _TURNS)
    given = {**os.environ, **python_settings(label), **_ONE_THREAD, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, str(rounds), what],
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
    return dict(json.loads(lines[-1])["samples"])
