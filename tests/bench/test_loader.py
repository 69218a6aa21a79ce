"""The benchmark of the loader in weft, at small sizes: whole epochs, and the same training as without it."""

from __future__ import annotations

import numpy as np
import pytest

from bench.workloads import loader


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_goes_through_all_images(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "IMAGES", 300)
    arrays = loader.arrays(np.random.default_rng(0))
    step = loader.in_weft(arrays, workers).step
    for _ in range(2):
        assert step().tolist() == [300, arrays["labels"].sum()]


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_overlapped_training_is_that_without_loading(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "STEPS", 4)
    monkeypatch.setattr(loader, "WORK", 1)
    arrays = loader.overlap_arrays(np.random.default_rng(0))
    np.testing.assert_array_equal(loader.overlapped(arrays, mode).step(), loader.alone(arrays).step())
