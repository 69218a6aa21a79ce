"""Bursts of steps, every worker in turn, after their results have been compared."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bench.case import Case
from bench.line import Line, Settings, line_of
from bench.process import FailedError, Worker

TOLERANCE = 1e-3  # of compared results, relative
SEED = 0


@contextmanager
def stored_arrays(case: Case) -> Iterator[str]:
    """The data of a case in a file that all workers read."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = str(Path(folder) / "arrays.npz")
        np.savez(path, **case.arrays(np.random.default_rng(SEED)))  # type: ignore[arg-type]
        yield path


def measure_case(case: Case, settings: Settings) -> Line:
    """Medians of bursts, every worker in turn; only workers whose results agree are kept."""
    line = line_of(case)
    workers: dict[str, Worker] = {}
    results: dict[str, np.ndarray] = {}
    try:
        with stored_arrays(case) as arrays:
            for label in settings.wanted(case.builders):
                workers[label] = Worker(label, settings.python(label))
                try:
                    results[label] = _make_ready(workers[label], case, arrays, settings, line)
                except FailedError as error:
                    line.failed[label] = str(error)
                    workers.pop(label).close()
        for label, reason in disagreeing(results, case.tolerance).items():
            line.failed[label] = reason
            workers.pop(label).close()
        _take_turns(workers, settings, line)
    finally:
        for worker in workers.values():
            worker.close()
    return line


def _make_ready(worker: Worker, case: Case, arrays: str, settings: Settings, line: Line) -> np.ndarray:
    """Import, build, run the steps whose results are compared, and keep those."""
    limit = min(settings.compile_limit, case.limit)
    line.versions[worker.label] = worker.ask("start", limit)["version"]
    worker.ask("build", limit, case=case.name, arrays=arrays)
    path = Path(worker.scratch.name) / "results.npy"
    line.first[worker.label] = worker.ask("results", limit, steps=case.steps, path=str(path))["seconds"]
    return np.load(path)


def disagreeing(results: dict[str, np.ndarray], tolerance: float = TOLERANCE) -> dict[str, str]:
    """The labels whose results are not those of the first peer, and by how much."""
    peers = [label for label in results if label != "weft"]
    if not peers:
        return {}
    reference = results[peers[0]]
    return {
        label: f"results differ from those of {peers[0]} by {distance:.1e}"
        for label, found in results.items()
        if not (distance := _distance(found, reference)) <= tolerance
    }


def _distance(found: np.ndarray, reference: np.ndarray) -> float:
    """The largest difference of losses, relative; of many numbers, that of their norms."""
    if found.shape != reference.shape:
        return float("inf")
    if found.size <= 64:
        return float(np.max(np.abs(found - reference) / np.maximum(np.abs(reference), 1e-6)))
    return float(np.linalg.norm(found - reference) / np.linalg.norm(reference))


def _take_turns(workers: dict[str, Worker], settings: Settings, line: Line) -> None:
    steps: dict[str, int] = {}
    for label in list(workers):  # how many steps a burst is; this warms up, too
        seconds = _burst(workers, label, 1, settings, line)
        if seconds is not None:
            more = _burst(workers, label, max(1, min(20, int(settings.burst / seconds))), settings, line)
            steps[label] = max(1, int(settings.burst / (more or seconds)))
    order = random.Random(SEED)
    for _ in range(settings.rounds):
        for label in order.sample(list(workers), len(workers)):
            seconds = _burst(workers, label, steps[label], settings, line)
            if seconds is not None:
                line.samples.setdefault(label, []).append(seconds)


def _burst(
    workers: dict[str, Worker], label: str, steps: int, settings: Settings, line: Line
) -> float | None:
    worker = workers[label]
    try:
        with worker.first_of_all(settings.urgent):
            return float(worker.ask("burst", settings.limit, steps=steps)["seconds"])
    except FailedError as error:
        line.failed[label] = str(error)
        line.samples.pop(label, None)
        workers.pop(label).close()
        return None
