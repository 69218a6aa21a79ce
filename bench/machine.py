"""The machine: its names, and what it can do at most, measured in the run that the figures belong to."""

from __future__ import annotations

import os
import platform
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.frameworks import THREADS


def describe() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def limits() -> dict[str, float]:
    """What it can do at most, on 2 threads."""
    return {"flops": peak_flops(), "bandwidth": copy_bandwidth()}


def processor() -> str:
    """The name of the processor, where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def peak_flops(size: int = 2048, repeats: int = 10) -> float:
    """Operations in a second of the best of some f32 matrix products by NumPy's BLAS, on 2 threads."""
    a, b = (np.random.default_rng(0).standard_normal((size, size), dtype=np.float32) for _ in range(2))
    return 2.0 * size**3 / min(_seconds(lambda: a @ b) for _ in range(repeats))


def copy_bandwidth(megabytes: int = 256, repeats: int = 10) -> float:
    """Bytes read and written in a second by two threads that copy at once; NumPy copies without the lock."""
    count = megabytes * 2**20 // 4 // THREADS
    pairs = [(np.ones(count, np.float32), np.zeros(count, np.float32)) for _ in range(THREADS)]

    def copy() -> None:
        threads = [threading.Thread(target=np.copyto, args=(to, of)) for of, to in pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return 2.0 * 4 * count * THREADS / min(_seconds(copy) for _ in range(repeats))


def _seconds(function: Any) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
