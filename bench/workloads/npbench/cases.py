"""The kernels as cases of the benchmark: ``npbench NAME`` at preset S, ``npbench_m NAME`` at preset M."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.case import Arrays, Build, Case, Run
from bench.frameworks import weft_compile
from bench.workloads.npbench.kernel import Kernel, Sizes
from bench.workloads.npbench.table import KERNELS

LIMIT = 45.0  # seconds that a first call may take
GOAL = 1.0


def _nothing(rng: np.random.Generator) -> Arrays:
    """Every process makes the data itself: some are too large to be handed over."""
    return {}


def _run(kernel: Kernel, sizes: Sizes, function: Any, convert: Callable[[np.ndarray], Any]) -> Run:
    data = kernel.data(sizes)
    arguments = [convert(part) if isinstance(part, np.ndarray) else part for part in data]

    def before() -> None:
        for place in kernel.changes:
            arguments[place] = convert(data[place])

    def step() -> list[Any]:
        returned = function(*arguments)
        parts = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
        return [*parts, *(arguments[place] for place in kernel.changes)]

    return Run(step, before=before)


def _in_numpy(kernel: Kernel, sizes: Sizes) -> Build:
    return lambda _: _run(kernel, sizes, kernel.function(np), np.copy)


def _in_weft(kernel: Kernel, sizes: Sizes) -> Build:
    def build(_: Arrays) -> Run:
        import weft

        weft.set_default_dtype(weft.float64)  # NumPy's: numbers of the programs are computed in it
        return _run(kernel, sizes, weft_compile(kernel.function(weft)), weft.tensor)

    return build


def _in_numba(kernel: Kernel, sizes: Sizes) -> Build:
    def build(_: Arrays) -> Run:
        import numba

        return _run(kernel, sizes, kernel.function(np, numba.njit), np.copy)

    return build


def _case(row: str, kernel: Kernel, sizes: Sizes) -> Case:
    builders = {
        "numpy": _in_numpy(kernel, sizes),
        "weft": _in_weft(kernel, sizes),
        "numba": _in_numba(kernel, sizes),
    }
    return Case(
        f"{row} {kernel.name}",
        _nothing,
        builders,
        goal=GOAL,
        beside=("numba",),
        limit=LIMIT,
        tolerance=kernel.tolerance,
        on_request=row != "npbench",
    )


CASES = [
    *(_case("npbench", kernel, kernel.small) for kernel in KERNELS),
    *(_case("npbench_m", kernel, kernel.medium) for kernel in KERNELS),
]
