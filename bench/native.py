"""Programs in C: compiled by the machine's own compiler, if it has one, and called through ctypes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bench.case import Run

SOURCES = Path(__file__).parent / "workloads" / "c"
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-std=c11", "-shared", "-fPIC", "-Wall", "-Werror")


def compiler() -> str:
    """The path of a C compiler."""
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        raise RuntimeError("there is no C compiler on this machine")
    return found


def compiler_version() -> str:
    """What the compiler calls itself."""
    text = subprocess.run([compiler(), "--version"], check=True, capture_output=True, text=True).stdout
    return text.splitlines()[0]


@cache
def library(name: str) -> ctypes.CDLL:
    """A source file of ``bench/workloads/c``, compiled and loaded."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    target = folder / f"{name}.so"
    command = [compiler(), *FLAGS, str(SOURCES / f"{name}.c"), "-o", str(target), "-lm"]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(target))
    shutil.rmtree(folder)
    return loaded


def call(name: str, *arguments: Any) -> None:
    """Call the function that a source file is named after, with arrays as pointers."""
    function = getattr(library(name), name)
    function(*[a.ctypes.data_as(ctypes.c_void_p) if isinstance(a, np.ndarray) else a for a in arguments])


def runs(name: str, *arguments: Any, result: Any, start: np.ndarray | None = None) -> Run:
    """A workload of one such call, which writes its result into arrays; it begins from ``start`` if given."""

    def step() -> Any:
        if start is not None:
            result[:] = start
        call(name, *arguments)
        return result

    return Run(step)
