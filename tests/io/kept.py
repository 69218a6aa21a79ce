"""Saved graphs and processes for the tests of what is kept on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft import nn

ROOT = Path(__file__).parents[2]
OPEN = weft.TensorType(("batch", 4), weft.float32)


def model(seed: int = 0) -> nn.Module:
    weft.manual_seed(seed)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    return network.requires_grad_(False).eval()


def saved(path: Path, function: Any = None, *examples: Any) -> str:
    file = str(path / "model.weft")
    weft.compile(function or model()).save(file, *(examples or (weft.ones((2, 4)),)))
    return file


def rows(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(count).standard_normal((count, 4), dtype=np.float32)


def is_kept(loaded: Any) -> bool:
    """Whether a loaded graph has run without its text and without a compiler."""
    return loaded._cached.program is not None and loaded._opened is None


def twice(file: str, *args: Any) -> tuple[Any, Any]:
    """What a first and a second loaded graph give; the second as it was kept."""
    first = weft.load_graph(file)
    expected = first(*args)
    second = weft.load_graph(file)
    found = second(*args)
    assert not is_kept(first)
    assert is_kept(second)
    return expected, found


def run_python(code: str, cache: Path | str, *args: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "WEFT_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
