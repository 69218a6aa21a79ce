"""Kernels whose results take the memory of what they read: only where each element is read first."""

from __future__ import annotations

import numpy as np

from weft.loop.builder import Builder
from weft.schedule.arrays import as_progression
from weft.schedule.bodies import find_reuses

F32 = np.dtype(np.float32)


def test_element_that_is_read_where_it_is_written_may_be_overwritten() -> None:
    b = Builder()
    x, y = b.buffer("x", F32, 8), b.buffer("y", F32, 8)
    with b.vector(8) as i:
        b.store(y, i, b.load(x, i))
    assert find_reuses(b, 1) == [(0, 1)]


def test_element_that_is_read_later_is_kept() -> None:
    b = Builder()
    x, z, y, w = (b.buffer(name, F32, 8) for name in "xzyw")
    with b.vector(8) as i:
        b.store(y, i, b.load(x, i))
        b.store(w, i, b.load(z, i))
    assert find_reuses(b, 2) == [(0, 2), (0, 3), (1, 3)]


def test_element_that_the_next_iteration_reads_again_is_kept() -> None:
    b = Builder()
    x, y = b.buffer("x", F32, 8), b.buffer("y", F32, 8)
    with b.loop(3), b.vector(8) as i:
        b.store(y, i, b.load(x, i))
    assert find_reuses(b, 1) == []


def test_keys_of_generators_are_no_progression() -> None:
    assert as_progression(np.array([0, 2**63], np.uint64)) is None
    assert as_progression(np.array([-(2**62), 2**62])) is None
    assert as_progression(np.array([5, 3, 1])) is not None
