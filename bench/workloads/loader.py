"""Loaders: shuffled batches of images in memory, and loading that hides behind training.

`loader` goes through one epoch of 28×28 images in batches of 128, in each framework by its own loader.
`loader overlap` trains on elements that take 5 ms to load and 5 ms to preprocess, 10 ms a step; the peer is
the same training with data that is there already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from bench.case import Arrays, Case, Run

IMAGES = 12_800
BATCH = 128
STEPS = 100
LOAD = 0.005  # seconds of waiting
WORK = 128  # rounds of elementwise work that take about 5 ms on one thread
SIZE = 160  # small enough that memory is used again, in every process alike


def arrays(rng: np.random.Generator) -> Arrays:
    return {
        "images": rng.random((IMAGES, 28, 28), dtype=np.float32),
        "labels": rng.integers(0, 10, IMAGES),
    }


def _epoch(loader: Iterable[Any]) -> tuple[int, int]:
    """How many images an epoch has, and the sum of their labels: the same in any order."""
    count = total = 0
    for images, labels in loader:
        count += len(images)
        total += int(labels.sum())
    return count, total


def in_weft(arrays: Arrays, workers: int) -> Run:
    from weft import data

    pair = (arrays["images"], arrays["labels"])
    loader = data.Loader(pair, batch_size=BATCH, shuffle=True, num_workers=workers)
    return Run(lambda: np.array(_epoch(loader)))


def in_torch(arrays: Arrays, workers: int) -> Run:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    pair = TensorDataset(torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"]))
    loader = DataLoader(pair, batch_size=BATCH, shuffle=True, num_workers=workers)
    return Run(lambda: np.array(_epoch(loader)))


# Overlap


def overlap_arrays(rng: np.random.Generator) -> Arrays:
    return {"weights": rng.random((SIZE, SIZE), dtype=np.float32)}


def _compute(x: np.ndarray, weights: np.ndarray, times: int) -> np.ndarray:
    """Work on one thread, outside of Python's lock for most of the time."""
    for _ in range(times):
        x = np.sqrt(np.abs(np.sin(x) * weights + x))
    return x


def _load(i: int, weights: np.ndarray) -> np.ndarray:
    time.sleep(LOAD)
    return _compute(weights + np.float32(i), weights, WORK)


class _Elements:
    """A dataset whose items take 10 ms: 5 to load, 5 to preprocess."""

    def __init__(self, weights: np.ndarray) -> None:
        self._weights = weights

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, i: int) -> np.ndarray:
        return _load(i, self._weights)


def _train(elements: Iterable[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Training for an epoch, 10 ms a step."""
    return np.array([_compute(x, weights, 2 * WORK).mean() for x in elements])


def overlapped(arrays: Arrays, mode: str) -> Run:
    from weft import data

    weights = arrays["weights"]
    pipeline = data.from_dataset(_Elements(weights)).prefetch(4, workers=2, mode=mode).numpy()
    return Run(lambda: _train(pipeline, weights))


def alone(arrays: Arrays) -> Run:
    weights = arrays["weights"]
    ready = [_load(i, weights) for i in range(STEPS)]
    return Run(lambda: _train(ready, weights))


def _case(name: str, workers: int) -> Case:
    builders: dict[str, Callable[[Arrays], Run]] = {
        "weft": partial(in_weft, workers=workers),
        "torch": partial(in_torch, workers=workers),
    }
    return Case(name, arrays, builders, goal=3.0, bytes=2.0 * IMAGES * 28 * 28 * 4)


CASES = [
    _case("loader", 0),
    _case("loader 2 workers", 2),
    Case(
        "loader overlap",
        overlap_arrays,
        {
            "weft": partial(overlapped, mode="process"),
            "weft threads": partial(overlapped, mode="thread"),
            "numpy alone": alone,
        },
        goal=0.91,
    ),
]
