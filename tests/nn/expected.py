"""What PyTorch computed, from tests/data/nn.npz; make_nn.py beside it makes that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


def load() -> dict[str, np.ndarray[Any, Any]]:
    """The arrays by name."""
    with np.load(Path(__file__).parent.parent / "data" / "nn.npz") as stored:
        index, values = json.loads(str(stored["index"])), stored["values"]
    found, start = {}, 0
    for name, (shape, dtype) in index.items():
        stop = start + int(np.prod(shape))
        found[name] = values[start:stop].reshape(shape).astype(dtype)
        start = stop
    return found


EXPECTED = load()


def part(prefix: str) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays whose names begin with a prefix, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in EXPECTED.items() if k.startswith(prefix)}
