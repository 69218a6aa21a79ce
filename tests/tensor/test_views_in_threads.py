"""Views that several threads take of one tensor at once: none of them is forgotten."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import weft


@pytest.fixture
def _hurried() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_hurried")
def test_views_taken_at_once_all_see_a_change() -> None:
    for _ in range(20):
        x = weft.zeros(4, 3)
        kept: list[list[Any]] = [[], [], [], []]
        start = threading.Barrier(4)

        def take(k: int, x: Any = x, kept: list[list[Any]] = kept, start: Any = start) -> None:
            start.wait()
            for i in range(130):  # enough that those which are gone are forgotten on the way
                view = x[k]
                if i % 7 == 0:
                    kept[k].append(view)

        threads = [threading.Thread(target=take, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        x.add_(1.0)
        assert all(view.numpy().tolist() == [1.0] * 3 for views in kept for view in views)
