"""Forks beside threads that compile and that change tensors: no child finds a lock that nobody gives back."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from weft.base import forks
from weft.base.forks import Level, lock_of

FORKS = int(os.environ.get("WEFT_FORKS", "10"))


def test_children_of_a_fork_can_do_everything() -> None:
    """In a process of its own, so that one that hangs is ended."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.backends.llvm.forking", str(FORKS)]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == [str(FORKS)], done.stderr[-2000:]


def test_locks_are_taken_in_one_order_whatever_the_order_they_are_made_in() -> None:
    made = {level: lock_of(level) for level in reversed(Level)}
    known = {id(lock): level for level, lock in made.items()}
    order = [known[id(lock)] for lock in forks._in_order() if id(lock) in known]
    assert order == sorted(Level)


def test_a_lock_that_is_held_for_long_is_waited_for_without_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread takes two locks in the wrong order: whoever forks gives back the one it waits for."""
    outer, inner = lock_of(Level.CAPTURE), lock_of(Level.GENERATOR)
    monkeypatch.setattr(forks, "_SOON", 0.05)
    has_inner, done = threading.Event(), threading.Event()

    def wrong() -> None:
        with inner:
            has_inner.set()
            assert outer.acquire(timeout=10)
            outer.release()
        done.set()

    thread = threading.Thread(target=wrong)
    with outer:
        thread.start()
        has_inner.wait()
    forks._take_all()
    forks._give_back()
    assert done.wait(10)
    thread.join()
