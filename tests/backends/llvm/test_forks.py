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


BUSY = """
import os, threading, time
import weft

busy = True
def compute():
    n = 0
    while busy:
        n += 1

for _ in range(2):
    threading.Thread(target=compute, daemon=True).start()
start = time.monotonic()
for _ in range(5):
    child = os.fork()
    if child == 0:
        os._exit(0 if weft.ones(3).sum().item() == 3.0 else 1)
    assert os.waitpid(child, 0)[1] == 0
print(time.monotonic() - start)
"""


def test_a_fork_beside_threads_that_only_compute_takes_no_time() -> None:
    """They never wait for anything, so nobody gets a turn but after an interval of turns."""
    root = Path(__file__).parents[3]
    command = [sys.executable, "-W", "ignore", "-c", BUSY]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=True)
    assert float(done.stdout) < 20.0


@pytest.mark.rotating(2)
def test_the_child_imports_anew_what_another_thread_was_importing(tmp_path: Path) -> None:
    (tmp_path / "slowly.py").write_text("import time\ntime.sleep(1.0)\nvalue = 3\n")
    code = """
import os, sys, threading, time
from weft.base import forks
forks._IMPORTING = 0.1  # seconds: it forks in the middle
threading.Thread(target=__import__, args=("slowly",)).start()
time.sleep(0.3)
child = os.fork()
if child == 0:
    import slowly
    os._exit(slowly.value)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    environment = {**os.environ, "PYTHONPATH": f"{Path(__file__).parents[3]}{os.pathsep}{tmp_path}"}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "3\n"


COMPUTING = """
import os, threading, time
import weft

tracing = threading.Event()

@weft.passes.rewrite
def slow(x):
    tracing.set()
    time.sleep(1.0)
    return x * 1.0, x

@weft.passes.rewrite
def quick(x):
    return x + 0.0, x

graph = weft.make_graph(lambda x: x * 1.0 + 0.0)(weft.ones(3))
threading.Thread(target=slow, args=(graph,)).start()
tracing.wait()
child = os.fork()
if child == 0:
    os._exit(len(quick(graph).nodes))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_the_child_computes_what_another_thread_was_computing_for_all() -> None:
    """Attributes that are computed once have no lock that the child would wait for."""
    root = Path(__file__).parents[3]
    command = [sys.executable, "-W", "ignore", "-c", COMPUTING]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n"
