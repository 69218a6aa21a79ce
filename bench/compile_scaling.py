"""How the time of a first call grows with the program: layers of a transformer, nodes of a chain.

    python -m bench.compile_scaling                    # a table: seconds by phase, and how they grow
    python -m bench.compile_scaling layers 48          # one program here, as JSON; by phase: phases

Each program is compiled in a process of its own, without caches. Phases are by the time that the processor
spends on the thread that compiles, so that other programs on the machine disturb them little; ``llvm`` is
what the other threads spend, which is LLVM's work on kernels. The growth of a phase is the exponent of a
power of the size: 1 is linear.
"""

from __future__ import annotations

import functools
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench import frameworks
from bench.line import Line, Settings
from bench.process import ROOT, python_settings

LAYERS = (4, 12, 24, 48, 96)
NODES = (1_000, 4_000, 16_000, 64_000)
MOST = {"layers 48": 3.0, "layers 96": 6.0, "gradient 100000": 20.0}  # seconds
ROW = "compile_scaling"
SIZES = {"layers": LAYERS, "chain": NODES, "gradient": NODES}
_WIDTH = 64

# where phases begin: what is called there, and its name in the table
_PHASES = (
    ("weft.capture.call.function:capture_call", "capture"),
    ("weft.tensor.engine:_Sweep.run", "backward"),
    ("weft.schedule.program:UseDef", "uses"),
    ("weft.schedule.fusion:Grouping.run", "fusion"),
    ("weft.schedule.cpu.target:Cpu.plan", "epilogues"),
    ("weft.schedule.program:order_units", "order"),
    ("weft.schedule.program:lower_scope", "kernels"),
    ("weft.schedule.program:elide_copies", "copies"),
    ("weft.schedule.program:form_waves", "waves"),
    ("weft.schedule.program:find_donated", "donation"),
    ("weft.schedule.program:plan_arena", "memory"),
    ("weft.backends.llvm.driver:emit_kernel", "text"),
    ("weft.backends.llvm.driver:emit_main", "main text"),
    ("weft.backends.llvm.engine:Engine.link", "link"),
    ("weft.capture.call.version:compile_run", "call"),
    ("weft.capture.call.version:compile_check", "guards"),
)


class Phases:
    """Seconds of the phases of a compilation; what a phase calls that is one itself does not count for it.

    >>> phases = Phases()
    >>> phases.around("sum", sum)([1, 2])
    3
    >>> list(phases.seconds)
    ['sum']
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._since = time.thread_time()

    def switch(self) -> None:
        """Count the time since the last switch for the phase that is open."""
        now = time.thread_time()
        name = self._open[-1] if self._open else "rest"
        if self._open or name in self.seconds:
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose calls are of a phase."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.switch()
            self._open.append(name)
            try:
                return function(*args, **kwargs)
            finally:
                self.switch()
                self._open.pop()

        return call

    def install(self) -> None:
        """Watch the compiler of this process from now on."""
        from weft.passes.base import Pass

        for place, name in _PHASES:
            module, _, path = place.partition(":")
            owner: Any = __import__(module, fromlist=["_"])
            *outer, last = path.split(".")
            for part in outer:
                owner = getattr(owner, part)
            setattr(owner, last, self.around(name, getattr(owner, last)))
        plain = Pass.__call__

        def run(step: Any, *args: Any, **kwargs: Any) -> Any:
            return self.around(step.name, plain)(step, *args, **kwargs)

        Pass.__call__ = run  # type: ignore[method-assign]
        self.seconds["rest"] = 0.0

    def begin(self) -> None:
        """Count from now on."""
        self.seconds = dict.fromkeys(self.seconds, 0.0)
        self._since = time.thread_time()


def program(kind: str, size: int) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A function, what to call it with, and how to compile it."""
    import weft

    if kind == "layers":
        from bench.transformer import BATCH, CONTEXT, VOCABULARY, make_step

        _, step = make_step(size, _WIDTH)
        return step, tuple(weft.randint(0, VOCABULARY, (BATCH, CONTEXT)) for _ in range(2)), {}

    def value(x: Any, w: Any) -> Any:
        for _ in range(size // 2):
            x = weft.tanh(x) + w
        return x.sum()

    x, w = (weft.tensor(np.full(8, number, np.float32)) for number in (0.5, 0.01))
    function = weft.value_and_grad(value) if kind == "gradient" else value
    return function, (x, w), {"capture": "trace"}


def measure_here(kind: str, size: int, *, phases: bool = False) -> dict[str, Any]:
    """The first call of a program in this process: seconds, nodes and memory; also by phase, if wanted.

    To tell phases apart the compiler is imported before, which else is part of a first call.
    """
    import weft

    function, args, settings = program(kind, size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    watched = Phases()
    if phases:
        watched.install()
    compiled = weft.compile(function, **settings)
    clocks = (time.perf_counter, time.process_time, time.thread_time)
    watched.begin()
    start = [clock() for clock in clocks]
    compiled(*args)
    wall, used, own = (clock() - then for clock, then in zip(clocks, start, strict=True))
    watched.switch()
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    found = {"wall": wall, "processor": used, "memory": memory, "nodes": len(compiled.graph.nodes)}
    return {**found, "phases": {**watched.seconds, "llvm": used - own}}


def measure_apart(
    kind: str, size: int, python: str = sys.executable, limit: float = 600.0, *, phases: bool = False
) -> dict[str, Any]:
    """The same in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        given = frameworks.settings("weft", scratch) | python_settings("weft")
        done = subprocess.run(
            [python, "-m", "bench.compile_scaling", kind, str(size), *(["phases"] if phases else [])],
            env={**os.environ, **given, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            timeout=limit,
            check=True,
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure_scaling(settings: Settings) -> list[Line]:
    """The lines of the row: seconds of each first call, once."""
    lines = []
    chains = [("chain", 100_000), ("gradient", 16_000), ("gradient", 100_000)]
    wanted = [*[("layers", n) for n in LAYERS], *chains] if settings.wanted(["weft"]) else []
    for kind, size in wanted:
        line = Line(f"compile scaling {kind} {size}", None, most=MOST.get(f"{kind} {size}"))
        try:
            found = measure_apart(kind, size, settings.python("weft"), settings.compile_limit)
            line.samples["weft"] = [found["wall"]]
        except (subprocess.SubprocessError, ValueError) as error:
            line.failed["weft"] = str(error)
        lines.append(line)
    return lines


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The power of the size by which time grows between the last two sizes.

    >>> exponent([1, 2, 4], [3.0, 5.0, 20.0])
    2.0
    """
    (a, b), (s, t) = sizes[-2:], seconds[-2:]
    return math.log(t / s) / math.log(b / a)


def table(kind: str, sizes: Sequence[int], found: Sequence[dict[str, Any]]) -> str:
    """Seconds by phase for each size, those that take long first, and how they grow."""
    rows = {"wall": [f["wall"] for f in found], "processor": [f["processor"] for f in found]}
    names = dict.fromkeys(name for f in found for name in f["phases"])
    last = found[-1]["phases"]
    for name in sorted(names, key=lambda name: -last.get(name, 0.0)):
        rows[name] = [f["phases"].get(name, 0.0) for f in found]
    lines = ["| " + " | ".join([kind, *map(str, sizes), "growth"]) + " |", "|---" * (len(sizes) + 2) + "|"]
    for name, seconds in rows.items():
        grows = f"{exponent(sizes, seconds):.2f}" if min(seconds[-2:]) > 0.02 else ""
        lines.append("| " + " | ".join([name, *[f"{s:.2f}" for s in seconds], grows]) + " |")
    lines.append("| " + " | ".join(["nodes", *[str(f["nodes"]) for f in found], ""]) + " |")
    lines.append("| " + " | ".join(["memory, MB", *[f"{f['memory'] / 1e6:.0f}" for f in found], ""]) + " |")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """One program as JSON, or tables of all."""
    if len(arguments) > 1:
        kind, size, *more = arguments
        print(json.dumps(measure_here(kind, int(size), phases=bool(more))))
        return
    for kind in arguments or SIZES:
        found = [measure_apart(kind, n, phases=True) for n in SIZES[kind]]
        print(table(kind, SIZES[kind], found), "\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
