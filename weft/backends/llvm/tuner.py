"""Measures what pays on this processor, for ``weft tune``: products compiled by one tuning and by another.

Two programs are run in turns, so that they meet the same machine, and the least times are compared: of one
thread by the clock of that thread, which stands while other programs run. First a program is compared with
itself. A figure is changed only where that gains clearly more than what chance does: noise stays outside.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from math import exp, log
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from weft.backends.backend import Executable
from weft.backends.capabilities import Measurement, Told
from weft.backends.llvm.driver import build_executable
from weft.backends.llvm.emit.instructions import instruction_set
from weft.backends.llvm.target import host_target
from weft.backends.llvm.trust import make_private
from weft.backends.llvm.tuned import measured, text_of, trying, tuning_of
from weft.backends.llvm.tuning_file import tuning_file
from weft.base.threads import get_num_threads, set_num_threads
from weft.errors import DomainError
from weft.ir.parse import parse_graph
from weft.loop.dots import DOTS
from weft.schedule.cpu.tuning import LIMITS, Tuning

_GAIN = 0.03  # the least that is worth another figure
_TURNS = 3  # in which two programs are run, at least

_Graph = tuple[str, tuple[tuple[int, ...], ...], str]  # its text, the shapes of its inputs, their dtype


class ProcessorTuner:
    """The tuning of this machine: what is in force, and the search for a better one.

    >>> from weft.backends.llvm.tuner import ProcessorTuner
    >>> ProcessorTuner().told.tuning.near_bytes > 0
    True
    """

    def __init__(self) -> None:
        self.processor = host_target().cpu

    @property
    def told(self) -> Told:
        """The tuning in force, and where it comes from."""
        return tuning_of(self.processor)

    @property
    def units(self) -> tuple[str, ...]:
        """What the processor has units for, in words."""
        machine = instruction_set(host_target())
        forms = {name: machine.form_of(name) for name in machine.dots}
        return tuple(f"{DOTS[name].right.name} by {f.feature}" for name, f in forms.items() if f is not None)

    def writable(self) -> str:
        """The file in which measured tunings are kept, or an error where none can be."""
        path = tuning_file()
        if path is None:
            hint = "name one by WEFT_TUNING"
            raise DomainError("tune", "there must be a file for what is measured, got none", hint=hint)
        directory = os.path.dirname(path)
        if not os.path.isdir(directory):
            make_private(directory)
        if not os.access(path if os.path.exists(path) else directory, os.W_OK):
            hint = "name another by WEFT_TUNING"
            raise DomainError("tune", f"{path} must be a file that may be written", hint=hint)
        return path

    def write(self, tuning: Tuning | None) -> str:
        """Keep a tuning for this processor, or forget the one that was kept; gives the file."""
        path = self.writable()
        tunings = dict(measured(path))
        if tuning is None:
            tunings.pop(self.processor, None)
        else:
            tunings[self.processor] = tuning
        beside = f"{path}.{os.getpid()}.new"
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text_of(tunings))
        os.replace(beside, path)
        return path

    def search(self, seconds: float, tell: Callable[[Measurement], None] = lambda m: None) -> Tuning:
        """The best tuning that was found in about so many seconds.

        Args:
            seconds: that it may take. Fewer are spent by comparing in fewer turns.
            tell: is told of each figure when it is known.
        """
        threads = get_num_threads()
        set_num_threads(1)
        try:
            search = _Search(self.told.tuning, seconds, tell)
            self._search_in_one_thread(search)
        finally:
            set_num_threads(threads)
        if threads > 1:
            search.clock = perf_counter
            search.measure_noise()
            search.choose("blas_task", (75_000_000, 150_000_000, 600_000_000), _LARGE)
        return search.tuning

    @staticmethod
    def _search_in_one_thread(search: _Search) -> None:
        search.measure_noise()
        search.choose_tile()
        search.choose("near_bytes", (24 << 10, 32 << 10, 64 << 10, 96 << 10), _LONG_SUMS)
        search.choose("panel_bytes", (1 << 17, 1 << 19), _PANELS)
        search.choose_from("blas_single", _SIZES, lambda size: _library("f32", size))
        search.choose_from("blas_double", _SIZES, lambda size: _library("f64", size))
        search.choose_from("stream_bytes", _STREAMS, _stream)


def _product(m: int, n: int, k: int, dtype: str = "f32", turned: str = "") -> _Graph:
    """A product of matrices; ``turned`` names the sides ("x", "y") that lie in memory as their transposes."""
    shapes = ((k, m) if "x" in turned else (m, k), (n, k) if "y" in turned else (k, n))
    lines, sides = [], []
    for name, shape in zip("xy", shapes, strict=True):
        if name in turned:
            lines.append(f"%{name}t: {dtype}[{shape[1]}, {shape[0]}] = permute(%{name}, axes=(1, 0))")
        sides.append(f"%{name}t" if name in turned else f"%{name}")
    lines.append(f"%z: {dtype}[{m}, {n}] = matmul({sides[0]}, {sides[1]})")
    inputs = ", ".join(f"%{n}: {dtype}[{s[0]}, {s[1]}]" for n, s in zip("xy", shapes, strict=True))
    return "\n".join([f"graph f({inputs}) {{", *lines, "return %z", "}"]), shapes, dtype


# Steps of models as people train them: a layer, its gradients, and what is between.
_TILES = (
    _product(128, 512, 784, turned="y"), _product(512, 784, 128, turned="x"), _product(64, 256, 256),
    _product(512, 128, 384), _product(96, 96, 96, "f64"),
)  # fmt: skip
_LONG_SUMS = (_product(128, 256, 2048), _product(128, 128, 1500, "f64"))
_PANELS = (_product(384, 1024, 384, turned="y"), _product(256, 500, 700))
_LARGE = (_product(1024, 1024, 1024), _product(800, 900, 950, "f64"))
_SIZES = (64, 96, 128, 192, 256, 384, 512, 768)
_STREAMS = (1 << 20, 1 << 21, 1 << 22, 1 << 23, 1 << 24)


def _library(dtype: str, size: int) -> list[_Graph]:
    """Products of which the least size is given, as a layer has them forwards and backwards."""
    sides = (2 * size, min(4 * size, 2048), size)
    return [_product(size, size, size, dtype), _product(*sides, dtype, turned="y"),
            _product(sides[1], sides[2], sides[0], dtype, turned="x")]  # fmt: skip


def _stream(size: int) -> list[_Graph]:
    """Few rows times a matrix of so many bytes."""
    return [_product(8, 1024, size // 4096), _product(3, size // 4096, 1024)]


class _Search:
    """One search: the best tuning so far, and what is left of the time."""

    def __init__(self, start: Tuning, seconds: float, tell: Callable[[Measurement], None]) -> None:
        self.tuning, self._tell = start, tell
        self._each = seconds / _PARTS
        self._better = 1 - _GAIN  # of the time before
        self.clock = thread_time
        self._programs: dict[tuple[_Graph, Tuning], tuple[Executable, list[Any]]] = {}

    def measure_noise(self) -> None:
        """How far equal programs seem to differ: a gain must be twice as much."""
        ratios = [self._ratio(self.tuning, self.tuning, _TILES, self._each / 4) for _ in range(4)]
        self._better = 1 - max(_GAIN, 2 * max(abs(log(r)) for r in ratios))

    def choose(self, name: str, values: Sequence[int], graphs: Sequence[_Graph]) -> None:
        """Try values of a figure, and keep the best."""
        self._choose(name, [{name: v} for v in values], graphs)

    def choose_tile(self) -> None:
        """Try shapes of tiles."""
        sums = (16, 20, 24) if host_target().registers >= 32 else (8, 10, 12)
        tiles = [{"tile_vectors": v, "tile_sums": s} for v in (1, 2, 4) for s in sums]
        self._choose("tile_sums", tiles, _TILES)

    def _choose(self, name: str, changes: Sequence[dict[str, int]], graphs: Sequence[_Graph]) -> None:
        before, best, gain = self.tuning, self.tuning, 1.0
        tries = [t for c in changes if (t := before._replace(**c)) != before]
        for tried in tries:
            ratio = self._ratio(tried, best, graphs, self._each / len(tries))
            if ratio < self._better:
                best, gain = tried, gain / ratio
        self._keep(name, best, gain)

    def choose_from(self, name: str, sizes: Sequence[int], graphs: Callable[[int], Sequence[_Graph]]) -> None:
        """Choose the size from which on something is done that a figure says the least size of."""
        least, most = LIMITS[name]
        always, never = self.tuning._replace(**{name: least}), self.tuning._replace(**{name: most})
        seconds = self._each / len(sizes)
        lost = {size: log(self._ratio(always, never, graphs(size), seconds)) for size in sizes}
        now = getattr(self.tuning, name)
        best = min((*sizes, 2 * sizes[-1]), key=lambda n: sum(lost[size] for size in sizes if size >= n))
        changed = [size for size in sizes if min(best, now) <= size < max(best, now)]
        gain = exp(abs(sum(lost[size] for size in changed)) / max(1, len(changed)))
        if 1 / gain < self._better:
            self._keep(name, self.tuning._replace(**{name: best}), gain)
        else:
            self._keep(name, self.tuning, 1.0)

    def _keep(self, name: str, best: Tuning, gain: float) -> None:
        before, self.tuning = self.tuning, best
        self._programs.clear()
        both = zip(best._fields, before, best, strict=True)
        self._tell(Measurement(name, tuple(c for c in both if c[1] != c[2]), gain))

    def _ratio(self, one: Tuning, other: Tuning, graphs: Sequence[_Graph], seconds: float) -> float:
        """The time that graphs take by one tuning over that by the other; the mean of ratios."""
        logs = []
        for graph in graphs:
            runs = [self._program(graph, t) for t in (one, other)]
            times = [float("inf"), float("inf")]
            end, turns = perf_counter() + seconds / len(graphs), 0
            while turns < _TURNS or perf_counter() < end:
                for i, (run, arrays) in enumerate(runs):
                    start = self.clock()
                    run(arrays)
                    times[i] = min(times[i], self.clock() - start)
                turns += 1
            logs.append(log(times[0] / times[1]))
        return exp(sum(logs) / len(logs))

    def _program(self, graph: _Graph, tuning: Tuning) -> tuple[Executable, list[Any]]:
        if (graph, tuning) not in self._programs:
            text, shapes, dtype = graph
            with trying(tuning):
                run = build_executable(parse_graph(text))
            rng = np.random.default_rng(0)
            arrays = [rng.standard_normal(s).astype(f"f{int(dtype[1:]) // 8}") for s in shapes]
            run(arrays)  # starts threads
            self._programs[graph, tuning] = run, arrays
        return self._programs[graph, tuning]


_PARTS = 9
