"""The eager benchmark: weft beside PyTorch and NumPy, one process each, in turns, medians.

python -m bench.eager [--rounds 40] [--venv torch=PATH] [--output bench/results/eager.json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.environments import pythons
from bench.machine import processor

HERE = Path(__file__).parent
ROOT = HERE.parent

SMALL_CASES = [
    f"{chain} {what}" for chain in ("add_mul", "mixed") for what in ("forward", "backward", "no grad")
]
LARGE_CASES = [f"{op} 1e6" for op in ("add", "mul", "div", "sqrt", "exp", "log", "tanh", "sin", "sum")]
LARGE_CASES.append("matmul 1024")
THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

PAUSE = 0.05  # seconds; the threads of the framework that ran before spin for a while, and take a core

FRAMEWORKS = ("weft", "torch", "numpy")

Times = dict[str, dict[str, float | None]]  # case -> framework -> seconds
Pythons = dict[str, str]  # framework -> interpreter


class Worker:
    """A process that runs the cases of one framework."""

    def __init__(self, framework: str, python: str, threads: int) -> None:
        self.process = subprocess.Popen(
            [python, str(HERE / "eager_worker.py"), framework],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(threads),
        )

    def run(self, case: str) -> float | None:
        """Seconds that the case took, or None if the framework does not have it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer:
            raise RuntimeError(f"the worker ended while it ran {case!r}")
        return None if answer == "none" else float(answer)

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


def environment(threads: int) -> dict[str, str]:
    """Settings of a worker: its number of threads, and weft from this tree."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    settings.pop("PYTHONDONTWRITEBYTECODE", None)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        settings[name] = str(threads)
    return settings


def measure(found: Pythons, cases: list[str], threads: int, rounds: int) -> Times:
    """Medians over rounds; in each round every framework runs every case, in an order of its own."""
    shuffle = random.Random(0).sample
    frameworks = list(found)
    workers = {name: Worker(name, python, threads) for name, python in found.items()}
    samples: dict[str, dict[str, list[float]]] = {case: {name: [] for name in frameworks} for case in cases}
    for case in cases:  # the first run of each warms caches up and is not counted
        for worker in workers.values():
            worker.run(case)
    for _ in range(rounds):
        for case in cases:
            for name in shuffle(frameworks, len(frameworks)):
                if threads > 1:
                    time.sleep(PAUSE)
                seconds = workers[name].run(case)
                if seconds is not None:
                    samples[case][name].append(seconds)
    for worker in workers.values():
        worker.close()
    return {c: {n: median(s) if s else None for n, s in by.items()} for c, by in samples.items()}


def measure_imports(found: Pythons, rounds: int) -> Times:
    """Medians of the time that ``import`` takes in a new process, the interpreter's own start not counted."""
    code = "import time; s = time.perf_counter(); import {}; print(time.perf_counter() - s)"
    samples: dict[str, list[float]] = {name: [] for name in found}
    for turn in range(rounds + 1):
        for name, python in found.items():
            command = [python, "-c", code.format(name)]
            output = subprocess.run(
                command, check=True, capture_output=True, text=True, env=environment(THREADS)
            )
            if turn:  # the first writes bytecode and warms the disk cache up
                samples[name].append(float(output.stdout))
    return {"import": {name: median(times) for name, times in samples.items()}}


def machine(found: Pythons) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "processor": processor(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "threads": THREADS,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version(name, python) for name, python in found.items()},
    }


def version(framework: str, python: str) -> str:
    """The version that an interpreter imports."""
    code = f"import {framework}; print({framework}.__version__)"
    command = [python, "-c", code]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment(THREADS)
    ).stdout.strip()


def table(times: Times, frameworks: list[str], unit: str) -> str:
    """A table in Markdown: the time of each framework, and that of each peer divided by weft's."""
    scale = {"µs": 1e6, "ms": 1e3}[unit]
    peers = [name for name in frameworks if name != "weft"]
    head = ["case", *[f"{name} ({unit})" for name in frameworks], *[f"{p} / weft" for p in peers]]
    lines = [" | ".join(head), "|".join(["---"] + ["---:"] * (len(head) - 1))]
    for case, by in times.items():
        own = by["weft"]
        cells = [case]
        cells += ["" if by[n] is None else f"{by[n] * scale:.2f}" for n in frameworks]  # type: ignore[operator]
        cells += ["" if by[p] is None or not own else f"{by[p] / own:.2f}" for p in peers]  # type: ignore[operator]
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)


def report(about: dict[str, Any], results: dict[str, Times], frameworks: list[str]) -> str:
    """All results as a page in Markdown."""
    packages = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    return "\n".join(
        [
            "# Eager: weft beside its peers",
            "",
            "Written by `make bench`. A ratio above 1 means that weft is faster, by that factor.",
            f"Machine: {about['processor']}, {about['threads']} threads, {about['system']}, "
            f"Python {about['python']}, {packages}; load before the run {about['load']}.",
            "",
            "## One operation in a chain of 1,000 on 8 floats, 1 thread",
            "",
            table(results["small"], frameworks, "µs"),
            "",
            f"## Large operations, {THREADS} threads",
            "",
            table(results["large"], frameworks, "ms"),
            "",
            "## Import",
            "",
            table(results["import"], frameworks, "ms"),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--venv", action="append", default=[], metavar="NAME=PATH", help="an environment")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "eager.json")
    options = parser.parse_args()

    made = pythons(dict(text.split("=", 1) for text in options.venv), {"torch"})
    found = {name: made.get(name, sys.executable) for name in FRAMEWORKS}
    about = machine(found)  # before the benchmark makes a load of its own
    if (about["load"] or 0) > 0.5:
        print(f"The machine is busy (load {about['load']}): the figures will be too.\n", file=sys.stderr)
    results = {
        "small": measure(found, SMALL_CASES, threads=1, rounds=options.rounds),
        "large": measure(found, LARGE_CASES, threads=THREADS, rounds=max(1, options.rounds // 2)),
        "import": measure_imports(found, rounds=max(1, options.rounds // 4)),
    }
    text = report(about, results, list(found))
    print(text)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    record = {"machine": about, "seconds": results}
    options.output.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    options.output.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
