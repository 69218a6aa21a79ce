"""What a compiled function does, and how long its parts take: a build that notes it runs on arrays."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

from weft.backends.backend import Array, Arrays
from weft.backends.llvm.driver import build_executable, compile_program
from weft.backends.llvm.emit.launches import RECORD, recorded_statements
from weft.backends.llvm.run import NativeExecutable
from weft.backends.made_up import NOT_MEASURED, has_effects, made_up
from weft.base.threads import get_num_threads
from weft.errors import WeftError
from weft.ir.graph import Graph
from weft.ir.interpret import solve_sizes
from weft.ir.parse import parse_graph
from weft.loop.ir import Block, If, Loop, Program, Statement, Wave, While
from weft.schedule.explanation import ExplainedStep, Explanation, Limits, Measured, explain_program
from weft.schedule.origins import steps_of

_TIME = 0.2  # seconds that are spent on measuring, about
_MOST_RUNS = 20
# Only how long kernels that run side by side take in relation to each other is estimated by these.
_RATIOS = Limits(memory=20e9, cache=80e9, held=2**23, flops=60e9)
_CACHE, _MEMORY = 2**20, 2**26  # bytes of arrays that caches hold, and that they do not


def explain_executable(run: NativeExecutable, arrays: Arrays | None = None) -> Explanation:
    """What a compiled graph does, with times measured on arrays.

    Without arrays it runs on made-up ones, unless that might never end or have effects.

    >>> import weft
    >>> from weft.backends.llvm import build
    >>> run = build(weft.make_graph(lambda x: weft.tanh(x) * 2.0)(weft.ones((64, 64))))
    >>> [kernel] = run.explain().kernels
    >>> kernel.ops, kernel.bytes, kernel.measured.runs
    ('tanh, mul', 32768, 1)
    """
    sizes = run.known_sizes() if arrays is None else solve_sizes(run.graph, [np.asarray(a) for a in arrays])
    # No two kernels run at the same time, so that each has a time of its own.
    main = dataclasses.replace(run.program.main, body=_without_waves(run.program.main.body))
    program = dataclasses.replace(run.program, main=main)
    note = ""
    if arrays is None:
        arrays, note = made_up(run.graph, sizes)
    if arrays is None:
        return dataclasses.replace(explain_program(run.graph, program, measure_limits(), sizes), note=note)
    try:
        seconds, measured = _measure(run.graph, program, arrays)
    except WeftError:
        if not note:
            raise
        explained = explain_program(run.graph, program, measure_limits(), sizes)
        return dataclasses.replace(explained, note=NOT_MEASURED)
    explained = explain_program(run.graph, program, measure_limits(), sizes, measured)
    return dataclasses.replace(explained, seconds=seconds, note=note)


def recorded_steps(run: NativeExecutable, sizes: Mapping[str, int]) -> list[list[ExplainedStep]]:
    """What each row of records of a program is of; see ``NativeExecutable.recorded_steps``."""
    explained = explain_program(run.graph, run.program, _RATIOS, sizes).steps
    found = zip(steps_of(run.program), explained, strict=True)
    by_statement = {id(s.statement): e for s, e in found if s.number}
    return [
        [by_statement[id(x)] for x in (s.launches if isinstance(s, Wave) else (s,)) if id(x) in by_statement]
        for s in recorded_statements(run.program)
    ]


# Runs


def _measure(graph: Graph, program: Program, arrays: Arrays) -> tuple[float, list[Measured]]:
    """The seconds of a call, and those of each step in it: the least of several runs."""
    profiled = NativeExecutable(graph, program, compile_program(program, profile=True))
    recorded = recorded_statements(program)
    runs: list[tuple[float, Array]] = []
    begin, most = time.perf_counter(), 1 if has_effects(graph) else _MOST_RUNS
    while len(runs) < most and (len(runs) < 2 or time.perf_counter() - begin < _TIME):
        records = np.zeros((len(recorded), len(RECORD)), np.int64)
        start = time.perf_counter()
        profiled.profile(arrays, records)
        runs.append((time.perf_counter() - start, records))
    best = np.min([records[:, 1] for _, records in runs], axis=0)
    counts = runs[0][1][:, 0]
    found = {id(s): Measured(int(n), int(t) * 1e-9) for s, n, t in zip(recorded, counts, best, strict=True)}
    steps = [s for s in steps_of(program) if s.number]
    return min(seconds for seconds, _ in runs), [found.get(id(s.statement), Measured(0, 0.0)) for s in steps]


def _without_waves(block: Block) -> Block:
    out: list[Statement] = []
    for s in block.statements:
        if isinstance(s, Wave):
            out += s.launches
        elif isinstance(s, Loop):
            out.append(dataclasses.replace(s, body=_without_waves(s.body)))
        elif isinstance(s, While):
            parts = _without_waves(s.test), _without_waves(s.body)
            out.append(dataclasses.replace(s, test=parts[0], body=parts[1]))
        elif isinstance(s, If):
            parts = _without_waves(s.then), _without_waves(s.otherwise)
            out.append(dataclasses.replace(s, then=parts[0], otherwise=parts[1]))
        else:
            out.append(s)
    return Block(out)


# The machine

_PRODUCT = """graph limit(%x: f32[512,512]) {
  %0: f32[512,512] = matmul(%x, %x)
  return %0
}
"""


@cache
def measure_limits() -> Limits:
    """What this machine can do at best with the threads that it has: copies, and a matrix product.

    >>> from weft.backends.llvm.explain import measure_limits
    >>> measure_limits().flops > 1e8
    True
    """
    product = build_executable(parse_graph(_PRODUCT))
    arrays = [np.ones((512, 512), np.float32)]
    seconds = _least(lambda: product(arrays))
    return Limits(_copy_rate(_MEMORY), _copy_rate(_CACHE), 8 * _CACHE, 2 * 512**3 / seconds)


def _copy_rate(size: int) -> float:
    """Bytes a second, read and written."""
    threads = get_num_threads()
    pairs = [
        (np.zeros(size // threads, np.uint8), np.zeros(size // threads, np.uint8)) for _ in range(threads)
    ]
    again = max(1, _MEMORY // 4 // size)

    def work(pair: tuple[Array, Array]) -> None:
        for _ in range(again):
            np.copyto(*pair)

    with ThreadPoolExecutor(threads) as pool:
        return 2 * size * again / _least(lambda: list(pool.map(work, pairs)))


def _least(work: Callable[[], object], times: int = 5) -> float:
    """The least time of several runs."""
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best
