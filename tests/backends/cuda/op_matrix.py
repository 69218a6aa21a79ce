"""Every op with its gradient for a GPU, without one: on the grid interpreter, and through the assembler.

    python -m tests.backends.cuda.op_matrix [--jobs 2] [--part 0/1] [--first]

Blocks and threads run in random order between barriers, and a race is an error that names its line. All
samples of all ops, or the first of each; PTX is assembled for every architecture where ptxas is there. The
tests take a part of it, another one whenever weft's code is another.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.backends.agreement import assert_agree, interpreted
from tests.backends.cuda.ptxas import assemble, find_ptxas
from tests.backends.llvm.matrix import arrays_of, cases, graph_of, rows
from tests.schedule.lowered import shaped
from weft.backends.cuda.build import build_program, loops_of
from weft.loop.verify import verify_program
from weft.schedule.gpu.machine import Gpu as Machine

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
SMALL = Machine(threads=32, most_threads=64, blocks=3, row_elements=8)  # so that few elements fill it
# Whose samples take longer than a few seconds on the interpreter, because they have many elements.
LONG = frozenset({"conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d", "adaptive_max_pool3d"})
_SECONDS = 1200  # for one op


def part_of(names: Sequence[str], number: int, parts: int) -> list[str]:
    """Every n-th of some names."""
    return list(names)[number % parts :: parts]


def check_on_grid(name: str, *, first: bool, machine: Machine | None = SMALL) -> None:
    """Samples of an op agree with the reference, or the first one does."""
    for case in cases(name):
        graph, arrays = graph_of([case]), arrays_of([case])
        program = verify_program(loops_of(graph.optimize(), machine))
        with np.errstate(all="ignore"):
            assert_agree(shaped(program, graph, arrays, {}), interpreted(graph, arrays))
        if first:
            return


def check_assembled(names: Sequence[str], architecture: str, folder: Path) -> int:
    """PTX of the first samples of ops is taken by the assembler; gives how many kernels there are."""
    found = [next(iter(cases(name))) for name in names]
    ptx = build_program(graph_of(found).optimize(), architecture).ptx
    if ptx:
        assemble(ptx, architecture, folder, "-O0")
    return ptx.count(".entry")


# The whole of it


def _judged(task: tuple[str, bool]) -> tuple[str, str]:
    """The name of an op, and what is wrong with it."""
    name, first = task

    def late(*_: Any) -> None:
        raise TimeoutError(f"longer than {_SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(_SECONDS)
    try:
        check_on_grid(name, first=first)
        if find_ptxas() is not None:
            with tempfile.TemporaryDirectory() as folder:
                for architecture in ARCHITECTURES:
                    check_assembled([name], architecture, Path(folder))
    except Exception as error:
        return name, f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        signal.alarm(0)
    return name, ""


def main() -> int:
    """Run the ops that are asked for, and say which are wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--part", default="0/1", help="which part of how many")
    parser.add_argument("--first", action="store_true", help="the first sample of each op alone")
    given = parser.parse_args()
    number, parts = map(int, given.part.split("/"))
    names = part_of(list(rows()), number, parts)
    if find_ptxas() is None:
        told = "ptxas is not here (pip install nvidia-cuda-nvcc has it): nothing is assembled"
        print(told, flush=True)  # noqa: T201
    begin, wrong = time.perf_counter(), 0
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for name, told in pool.imap_unordered(_judged, [(name, given.first) for name in names]):
            if told:
                wrong += 1
                print(f"{name}: {told}", flush=True)  # noqa: T201
    took = time.perf_counter() - begin
    print(f"{len(names) - wrong} of {len(names)} ops agree, in {took:.0f} s")  # noqa: T201
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
