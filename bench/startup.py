"""From the start of a process to the first answer of a saved network, each time in a new process."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from bench import frameworks
from bench.line import Line, Settings
from bench.measure import SEED, disagreeing
from bench.process import ROOT, FailedError, python_settings
from bench.workloads import cnn

LABELS = ("weft", "onnxruntime", "torch")
GOAL = 1.0
_PROGRAM = str(Path(__file__).parent / "first_answer.py")


def measure_startup(settings: Settings) -> list[Line]:
    """Seconds to the first answer; of weft with the programs of earlier processes on disk, and without."""
    lines = [Line("startup", GOAL), Line("startup cold", None)]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        arrays = cnn.arrays(np.random.default_rng(SEED))
        np.savez(f"{folder}/arrays.npz", **arrays)  # type: ignore[arg-type]
        np.save(f"{folder}/x.npy", arrays["x"][:1])
        ready = [label for label in settings.wanted(LABELS) if _make(label, folder, settings, lines[0])]
        order = random.Random(SEED)
        for _ in range(settings.rounds):
            for label in order.sample(ready, len(ready)):
                _measure(label, folder, settings, lines)
    return lines


def _make(label: str, folder: str, settings: Settings, line: Line) -> bool:
    """Write the file of a network, and have it answer once; whether both went well."""
    try:
        _run(label, folder, settings, "make", f"{folder}/arrays.npz", _model(label, folder))
        _, answer = _answer(label, folder, settings, f"{folder}/cache")
    except FailedError as error:
        line.failed[label] = str(error)
        return False
    np.save(f"{folder}/{label}.npy", answer)
    stored = {n: np.load(f"{folder}/{n}.npy") for n in LABELS if os.path.exists(f"{folder}/{n}.npy")}
    line.failed.update(disagreeing(stored))
    return label not in line.failed


def _measure(label: str, folder: str, settings: Settings, lines: list[Line]) -> None:
    warm, cold = lines
    seconds, _ = _answer(label, folder, settings, f"{folder}/cache")
    warm.samples.setdefault(label, []).append(seconds)
    if label == "weft":
        with tempfile.TemporaryDirectory(prefix="bench-") as empty:
            seconds, _ = _answer(label, folder, settings, empty)
    cold.samples.setdefault(label, []).append(seconds)


def _answer(label: str, folder: str, settings: Settings, cache: str) -> tuple[float, np.ndarray]:
    """Seconds from the start of a process to its answer, and the answer."""
    start = time.perf_counter()
    seconds, text = _run(label, cache, settings, "run", _model(label, folder), f"{folder}/x.npy", start=start)
    return seconds, np.array([float(word) for word in text.split()])


def _model(label: str, folder: str) -> str:
    return f"{folder}/model.{ {'weft': 'weft', 'onnxruntime': 'onnx', 'torch': 'pt'}[label] }"


def _run(
    label: str, cache: str, settings: Settings, mode: str, *paths: str, start: float = 0.0
) -> tuple[float, str]:
    """Run the program; when it said its first line, and the line."""
    given = frameworks.settings(label, cache, cached=True) | python_settings(label)
    process = subprocess.Popen(
        [settings.python(label), _PROGRAM, mode, label, *paths],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **given, "PYTHONPATH": str(ROOT)},
        preexec_fn=_before_all if settings.urgent else None,
    )
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    seconds = time.perf_counter() - start
    _, said = process.communicate(timeout=settings.limit)
    if process.returncode:
        words = said.decode().strip().splitlines()
        raise FailedError(f"{mode}: {words[-1][:300] if words else 'it said nothing'}")
    return seconds, line


def _before_all() -> None:
    os.setpriority(os.PRIO_PROCESS, 0, -20)
