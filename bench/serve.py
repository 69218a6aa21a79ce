"""A worker: the process of one framework, which runs what the driver asks for, line by line.

Each line on the standard input is a JSON object; each answer is one, too. What frameworks print goes to the
standard error.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

import numpy as np

from bench import frameworks, machine, memory
from bench.case import Case, Run
from bench.rows import case_named


class Server:
    """What a worker holds: the case that it runs."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.run: Run | None = None
        self.case: Case | None = None

    def start(self) -> dict[str, Any]:
        """Import the framework and limit its threads."""
        frameworks.prepare(self.label)
        return {"version": frameworks.version(self.label)}

    def build(self, case: str, arrays: str) -> dict[str, Any]:
        """Make the case ready, as a user's program does before its first step."""
        self.case = case_named(case)
        with np.load(arrays) as stored:
            self.run = self.case.builders[self.label](dict(stored))
        return {}

    def first(self) -> dict[str, Any]:
        """Seconds of the first step."""
        return {"seconds": self._time(1)}

    def results(self, steps: int, path: str) -> dict[str, Any]:
        """Store the numbers of so many steps, and tell the seconds of the first."""
        assert self.run is not None
        start = time.perf_counter()
        kept = [self.run.step()]
        self.run.wait()
        seconds = time.perf_counter() - start
        found = [all_numbers(kept.pop())] + [all_numbers(self.run.step()) for _ in range(1, steps)]
        np.save(path, np.concatenate(found))
        return {"seconds": seconds}

    def burst(self, steps: int) -> dict[str, Any]:
        """Seconds of one step, over some of them."""
        return {"seconds": self._time(steps) / steps}

    def warm(self) -> dict[str, Any]:
        """Run the smallest program, so that all that is imported late is there."""
        frameworks.warm(self.label)
        return {}

    def limits(self) -> dict[str, Any]:
        """What the machine can do at most."""
        return machine.limits()

    def memory(self, reset: bool = False) -> dict[str, Any]:
        """The memory of this process now and at most, in bytes."""
        if reset:
            gc.collect()
            memory.reset_peak()
        return {"now": memory.now(), "peak": memory.peak()}

    def _time(self, steps: int) -> float:
        assert self.run is not None
        step, wait, before = self.run
        if before is not None:
            return sum(self._time_one(before) for _ in range(steps))
        start = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        return time.perf_counter() - start

    def _time_one(self, before: Callable[[], None]) -> float:
        """Seconds of a step after what it changes was made anew."""
        assert self.run is not None
        before()
        start = time.perf_counter()
        self.run.step()
        self.run.wait()
        return time.perf_counter() - start


def all_numbers(result: Any) -> np.ndarray:
    """All numbers of a result in one row."""
    if isinstance(result, tuple | list):
        return np.concatenate([all_numbers(part) for part in result])
    if hasattr(result, "detach"):
        result = result.detach()
    if hasattr(result, "numpy"):
        result = result.numpy()
    if np.iscomplexobj(result):
        result = np.stack([np.real(result), np.imag(result)])
    return np.asarray(result, dtype=np.float64).reshape(-1)


def serve(server: Server, requests: TextIO, answers: TextIO) -> None:
    """Answer until there are no more requests."""
    for line in requests:
        request = json.loads(line)
        try:
            answer = getattr(server, request.pop("do"))(**request)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {str(error).strip()[:300]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(Server(sys.argv[1]), sys.stdin, answers)
