"""The native thread pool: every piece of work is done once, whatever happens around it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.backends.llvm.compiler import Source
from weft.backends.llvm.engine import default_engine
from weft.backends.llvm.pool import FUNCTIONS, default_pool, pool_address

ROOT = Path(__file__).parents[3]

# Python warns of forks while there are threads; that these work is what is tested.
FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

# A kernel that adds 1 to the words of its iterations, one that launches a wave in each of its iterations, and
# a function that runs a wave many times and gives the nanoseconds that took.
TEXT = """
declare void @weft_wave(ptr, i64)
declare i64 @weft_now()

define void @count(ptr %args, i64 %begin, i64 %end) {
entry:
  %words = load ptr, ptr %args
  br label %next
next:
  %i = phi i64 [%begin, %entry], [%i1, %do]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %do, label %done
do:
  %place = getelementptr i64, ptr %words, i64 %i
  %old = load i64, ptr %place
  %new = add i64 %old, 1
  store i64 %new, ptr %place
  %i1 = add i64 %i, 1
  br label %next
done:
  ret void
}

define void @nest(ptr %args, i64 %begin, i64 %end) {
entry:
  %launches = load ptr, ptr %args
  br label %next
next:
  %i = phi i64 [%begin, %entry], [%i1, %do]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %do, label %done
do:
  %launch = getelementptr [4 x i64], ptr %launches, i64 %i
  call void @weft_wave(ptr %launch, i64 1)
  %i1 = add i64 %i, 1
  br label %next
done:
  ret void
}

define i64 @repeat(ptr %launches, i64 %count, i64 %times) {
entry:
  %t0 = call i64 @weft_now()
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %next]
  call void @weft_wave(ptr %launches, i64 %count)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %times
  br i1 %more, label %next, label %done
done:
  %t1 = call i64 @weft_now()
  %time = sub i64 %t1, %t0
  ret i64 %time
}
"""


class Waves:
    """Runs waves of the kernels above."""

    def __init__(self) -> None:
        default_engine().provide(FUNCTIONS, pool_address)
        self.codes = default_engine().load([Source(TEXT)])
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.repeat = kind(self.codes["repeat"].address)

    def launches(self, kernel: str, specs: Sequence[tuple[Any, int, int]]) -> tuple[Any, list[Any]]:
        """A table of launches: arrays for the arguments, iterations, grains; and what it points to."""
        args = [np.array([array.ctypes.data], np.int64) for array, _, _ in specs]
        address = self.codes[kernel].address
        rows = [[address, a.ctypes.data, n, g] for a, (_, n, g) in zip(args, specs, strict=True)]
        return np.array(rows, np.int64).reshape(-1, 4), args

    def run(self, kernel: str, specs: Sequence[tuple[Any, int, int]], times: int = 1) -> int:
        """Run one wave so many times; gives nanoseconds."""
        table, _kept = self.launches(kernel, specs)
        return int(self.repeat(table.ctypes.data, len(table), times))


@pytest.fixture(scope="module")
def waves() -> Waves:
    return Waves()


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = weft.get_num_threads()
    yield
    weft.set_num_threads(before)


@settings(max_examples=60, deadline=None)
@given(
    specs=st.lists(st.tuples(st.integers(0, 300), st.integers(-1, 50)), max_size=6),
    threads=st.sampled_from([1, 2, 3, 8]),
    times=st.integers(1, 20),
)
def test_each_iteration_runs_once_in_each_wave(
    specs: list[tuple[int, int]], threads: int, times: int
) -> None:
    weft.set_num_threads(threads)
    arrays = [np.zeros(n, np.int64) for n, _ in specs]
    Waves().run("count", [(a, n, g) for a, (n, g) in zip(arrays, specs, strict=True)], times)
    for array in arrays:
        assert (array == times).all()


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_wave_inside_a_wave_runs(waves: Waves, threads: int) -> None:
    weft.set_num_threads(threads)
    counts = np.zeros((20, 30), np.int64)
    inner, _kept = waves.launches("count", [(row, 30, 4) for row in counts])
    waves.run("nest", [(inner, 20, 1)], times=50)
    assert (counts == 50).all()


def test_python_threads_run_waves_at_the_same_time(waves: Waves) -> None:
    weft.set_num_threads(2)
    arrays = [np.zeros(100, np.int64) for _ in range(4)]

    def work(array: Any) -> None:
        for _ in range(50):
            waves.run("count", [(array, 100, 7)], times=200)

    threads = [threading.Thread(target=work, args=(a,)) for a in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((a == 10_000).all() for a in arrays)


def test_number_of_threads_changes_while_waves_run(waves: Waves) -> None:
    done = threading.Event()

    def change() -> None:
        numbers = [1, 2, 8, 3]
        while not done.is_set():
            numbers.append(numbers.pop(0))
            weft.set_num_threads(numbers[0])
            time.sleep(0.0005)

    changer = threading.Thread(target=change)
    changer.start()
    array = np.zeros(64, np.int64)
    for _ in range(100):
        waves.run("count", [(array, 64, 5)], times=200)
    done.set()
    changer.join()
    assert (array == 20_000).all()


def test_half_a_million_waves(waves: Waves) -> None:
    weft.set_num_threads(2)
    array = np.zeros(8, np.int64)
    waves.run("count", [(array, 8, 2)], times=500_000)
    assert (array == 500_000).all()


def test_waves_after_pauses_find_the_sleeping_workers(waves: Waves) -> None:
    weft.set_num_threads(3)
    array = np.zeros(64, np.int64)
    for i in range(40):
        time.sleep(0.0001 * (i % 5))
        waves.run("count", [(array, 64, 1)])
    assert (array == 40).all()


@FORKS
def test_child_of_a_fork_has_workers_of_its_own(waves: Waves) -> None:
    weft.set_num_threads(2)
    waves.run("count", [(np.zeros(64, np.int64), 64, 1)], times=100)
    for _ in range(10):
        child = os.fork()
        if child == 0:
            array = np.zeros(100, np.int64)
            fresh = default_pool().started == 0
            waves.run("count", [(array, 100, 3)], times=500)
            os._exit(0 if fresh and (array == 500).all() and default_pool().started == 1 else 1)
        array = np.zeros(100, np.int64)
        waves.run("count", [(array, 100, 3)], times=500)
        assert (array == 500).all()
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.rotating(2)
@FORKS
def test_fork_while_another_thread_runs_waves(waves: Waves) -> None:
    weft.set_num_threads(2)
    done = threading.Event()
    array = np.zeros(100, np.int64)

    def work() -> None:
        while not done.is_set():
            waves.run("count", [(array, 100, 3)], times=100)

    worker = threading.Thread(target=work)
    worker.start()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            own = np.zeros(100, np.int64)
            waves.run("count", [(own, 100, 3)], times=100)
            os._exit(0 if (own == 100).all() else 1)
        assert os.waitpid(child, 0)[1] == 0
    done.set()
    worker.join()
    assert len(set(array.tolist())) == 1


def test_more_threads_than_processors_do_not_get_in_each_others_way(waves: Waves) -> None:
    array = np.zeros(64, np.int64)
    weft.set_num_threads(32)
    time_taken = waves.run("count", [(array, 64, 1)], times=2000)
    assert (array == 2000).all()
    assert time_taken < 2e9, f"{time_taken / 2000 / 1000:.0f} us a wave"


def run_python(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}"}
    command = [sys.executable, "-c", f"from tests.backends.llvm.test_pool import *\n{code}"]
    result = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return result.stdout


TASKS = 'os.listdir("/proc/self/task")' if sys.platform == "linux" else "[]"


def test_one_thread_starts_no_other() -> None:
    out = run_python(
        f"weft.set_num_threads(1); w = Waves(); before = len({TASKS})\n"
        "array = np.zeros(100, np.int64); w.run('count', [(array, 100, 1)], 100)\n"
        f"print(default_pool().started, len({TASKS}) - before, (array == 100).all())"
    )
    assert out.split() == ["0", "0", "True"]


@pytest.mark.rotating(2)
def test_no_thread_starts_before_the_first_wave_with_work_to_share() -> None:
    out = run_python(
        "weft.set_num_threads(4); w = Waves(); array = np.zeros(100, np.int64)\n"
        "w.run('count', [(array, 100, 100)]); print(default_pool().started)\n"
        "w.run('count', [(array, 100, 1)]); print(default_pool().started, (array == 2).all())"
    )
    assert out.split() == ["0", "3", "True"]


@pytest.mark.rotating(2)
@pytest.mark.parametrize("pause", ["0", "0.001", "0.01"])
def test_process_ends_while_workers_spin_or_sleep(pause: str) -> None:
    out = run_python(
        "weft.set_num_threads(4); w = Waves(); array = np.zeros(100, np.int64)\n"
        f"w.run('count', [(array, 100, 1)], 100); print('done', flush=True); time.sleep({pause})"
    )
    assert out == "done\n"


def test_workers_leave_signals_to_the_threads_of_python() -> None:
    out = run_python(
        f"before = {{*{TASKS}}}; weft.set_num_threads(3); w = Waves()\n"
        "w.run('count', [(np.zeros(100, np.int64), 100, 1)])\n"
        f"new = {{*{TASKS}}} - before\n"
        "import threading; new -= {str(t.native_id) for t in threading.enumerate()}\n"  # as one that compiles
        "lines = [l for t in new for l in open(f'/proc/self/task/{t}/status') if l.startswith('SigBlk')]\n"
        "print(*[bool(int(l.split()[1], 16) >> 1 & 1) for l in lines])"  # SIGINT is number 2
    )
    assert out.split() == (["True"] * 2 if sys.platform == "linux" else [])
