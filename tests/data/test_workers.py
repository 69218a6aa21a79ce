"""Workers that fail, are killed or no longer wanted: nothing is lost, nothing hangs, nothing is left."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import data
from weft.errors import ArgumentError, PipelineError, ShapeError, WorkerError

ROOT = Path(__file__).parent.parent.parent
MODES = ["thread", "process"]


def files_open() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0


def shared_maps() -> int:
    """Pieces of shared memory that this process has."""
    maps = Path("/proc/self/maps")
    return maps.read_text().count("weft-data") if maps.exists() else 0


def left_behind() -> tuple[int, int, int, int]:
    """Threads, child processes, open files and shared memory of this process."""
    gc.collect()
    return threading.active_count(), len(multiprocessing.active_children()), files_open(), shared_maps()


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = left_behind()
    yield
    assert left_behind() == before


def numbers(count: int, function: Callable[..., Any], mode: str | None, workers: int = 2) -> data.Pipeline:
    pipeline = data.from_arrays(np.arange(count)).map(function).batch(2)
    return pipeline if mode is None else pipeline.prefetch(4, workers=workers, mode=mode)


def fail_at_five(x: Any) -> Any:
    if x == 5:
        raise ValueError("five is not wanted")
    return x


# Errors


@pytest.mark.parametrize("mode", [None, *MODES])
def test_error_names_stage_and_element_and_shows_its_own_traceback(mode: str | None) -> None:
    seen: list[Any] = []
    with pytest.raises(PipelineError) as caught:
        seen.extend(batch.tolist() for batch in numbers(20, fail_at_five, mode))
    assert seen == [[0, 1], [2, 3]]  # all that comes before it
    text = str(caught.value)
    assert text.startswith(
        "map: fail_at_five (stage %1) failed on element 5 of epoch 0: ValueError: five is not wanted"
    )
    assert "at test_workers.py" in text  # where the stage was made
    assert isinstance(caught.value.__cause__, ValueError)
    shown = "".join(traceback.format_exception(caught.value))
    assert 'raise ValueError("five is not wanted")' in shown
    caught.value.__traceback__ = None


@pytest.mark.parametrize("mode", [None, *MODES])
def test_pipeline_goes_on_at_the_failed_element_once_that_is_mended(mode: str | None) -> None:
    broken = [True]

    def sometimes(x: Any) -> Any:
        return fail_at_five(x) if broken[0] else x

    pipeline = numbers(10, sometimes, mode)
    with pytest.raises(PipelineError):
        list(pipeline)
    broken[0] = False
    pipeline.load_state_dict(pipeline.state_dict())
    assert [b.tolist() for b in pipeline] == [[4, 5], [6, 7], [8, 9]]


class UnpicklableError(Exception):
    def __init__(self, lock: Any, what: str) -> None:
        super().__init__(what)
        self.lock = lock


def test_error_that_cannot_be_pickled_is_shown_as_text() -> None:
    def fail(x: Any) -> Any:
        raise UnpicklableError(threading.Lock(), "held")

    with pytest.raises(PipelineError, match="UnpicklableError: held") as caught:
        list(numbers(4, fail, "process"))
    assert "raise UnpicklableError" in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("mode", [None, *MODES])
def test_error_of_weft_itself_comes_through_as_it_is(mode: str | None) -> None:
    pipeline = data.from_dataset([[1, 2], [3]]).batch(2)
    if mode:
        pipeline = pipeline.prefetch(2, mode=mode)
    with pytest.raises(ShapeError, match=r"batch: elements must have one shape, got \(2,\) and \(1,\)"):
        list(pipeline)


@pytest.mark.parametrize("mode", [None, "thread"])
def test_stop_iteration_of_a_function_is_an_error_and_not_an_end(mode: str | None) -> None:
    with pytest.raises(PipelineError, match="StopIteration"):
        list(numbers(4, lambda x: next(iter(())), mode))


def test_error_in_a_generator_comes_after_what_it_gave() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("disk is gone")

    epoch = iter(data.from_generator(broken).prefetch(4))
    assert next(epoch) == 1
    with pytest.raises(
        PipelineError, match=r"generator: broken \(stage %0\) failed on element 1.*disk is gone"
    ):
        next(epoch)
    with pytest.raises(StopIteration):
        next(epoch)


# Workers that are killed


def test_killed_worker_is_reported_with_what_it_was_doing() -> None:
    def kill(x: Any) -> Any:
        if x == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    seen: list[Any] = []
    with pytest.raises(WorkerError) as caught:
        seen.extend(batch.tolist() for batch in numbers(20, kill, "process"))
    assert seen == [[0, 1], [2, 3]]
    text = str(caught.value)
    assert "was killed by SIGKILL while stage %1, map(kill), worked on its element 5" in text
    assert "hint: Linux kills processes when memory runs out" in text


def test_worker_killed_from_outside_while_it_works_does_not_hang() -> None:
    epoch = iter(numbers(20, lambda x: time.sleep(0.5) or x, "process"))
    for child in multiprocessing.active_children():
        os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match="killed by SIGKILL"):
        next(epoch)


def test_idle_worker_that_was_killed_is_reported_when_it_is_needed() -> None:
    epoch = iter(numbers(40, lambda x: x, "process"))
    next(epoch)
    time.sleep(0.05)
    for child in multiprocessing.active_children():
        os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match="killed by SIGKILL while"):
        list(epoch)


# Leaving early


@pytest.mark.parametrize("mode", MODES)
def test_break_leaves_nothing_behind(mode: str) -> None:
    for _ in range(3):
        for _ in numbers(100, lambda x: x, mode):
            break


@pytest.mark.parametrize("mode", MODES)
def test_exception_in_the_loop_leaves_nothing_behind(mode: str) -> None:
    with pytest.raises(KeyError):
        for _ in numbers(100, lambda x: x, mode):
            raise KeyError


@pytest.mark.parametrize("mode", MODES)
def test_forgotten_iterator_leaves_nothing_behind(mode: str) -> None:
    before = left_behind()
    epoch = iter(numbers(100, lambda x: x, mode))
    next(epoch)
    during = left_behind()
    assert during[0] == before[0] + 2
    assert (during[1], during[3]) == ((before[1] + 2, before[3] + 2) if mode == "process" else (before[1], 0))
    del epoch


@pytest.mark.parametrize("mode", MODES)
def test_closing_ends_the_epoch(mode: str) -> None:
    with iter(numbers(100, lambda x: x, mode)) as epoch:
        next(epoch)
    assert list(epoch) == []


def test_process_in_a_long_call_is_ended_at_once() -> None:
    epoch = iter(numbers(100, lambda x: time.sleep(60), "process"))
    time.sleep(0.1)
    start = time.perf_counter()
    epoch.close()
    assert time.perf_counter() - start < 5


def test_thread_that_does_not_come_back_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.data.ahead._PATIENCE", 0.05)
    free = threading.Event()

    def stuck() -> Iterator[int]:
        yield 1
        free.wait(30)
        yield 2

    epoch = iter(data.from_generator(stuck).prefetch(2))
    assert next(epoch) == 1
    start = time.perf_counter()
    epoch.close()
    assert time.perf_counter() - start < 5
    free.set()
    for thread in threading.enumerate():
        if thread.name == "weft-data":
            thread.join(10)


def test_failing_start_leaves_nothing_behind() -> None:
    def broken() -> Any:
        raise OSError("no such host")

    with pytest.raises(PipelineError, match="no such host"):
        iter(data.from_generator(broken).map(lambda x: x).prefetch(2, workers=2, mode="process"))


def test_queue_is_bounded() -> None:
    made: list[int] = []
    epoch = iter(data.from_arrays(np.arange(100)).map(lambda x: made.append(x) or x).prefetch(3, workers=2))
    next(epoch)
    end = time.monotonic() + 10
    while len(made) < 4 and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(made) == 4  # one given, three ahead
    epoch.close()


# Other programs: Ctrl-C, a parent that is killed, an end without an end of the loop, spawned processes

PROGRAM = """
import os, sys, time
import numpy as np
from weft import data

def slow(x):
    time.sleep(0.02)
    return x

def pids():
    import multiprocessing
    return [child.pid for child in multiprocessing.active_children()]

if __name__ == "__main__":
    pipeline = data.from_arrays(np.arange(10000)).map(slow).batch(2).prefetch(4, workers=2, **SETTINGS)
    epoch = iter(pipeline)
    first = next(epoch)
    print(first.tolist(), *pids(), flush=True)
    ACTION
"""


def started(tmp_path: Path, action: str, **settings: Any) -> subprocess.Popen[str]:
    source = PROGRAM.replace("SETTINGS", repr(settings)).replace("ACTION", action)
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(source))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, str(path)], env=environment, start_new_session=True, **pipes)


def workers_of(program: subprocess.Popen[str]) -> list[int]:
    assert program.stdout is not None
    words = program.stdout.readline().split()
    assert words[:2] == ["[0,", "1]"]
    return [int(word) for word in words[2:]]


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pids: list[int]) -> None:
    end = time.monotonic() + 10
    while any(map(is_alive, pids)):
        assert time.monotonic() < end, "workers are still there"
        time.sleep(0.02)


@pytest.mark.parametrize("mode", MODES)
def test_ctrl_c_ends_the_program_and_its_workers(tmp_path: Path, mode: str) -> None:
    program = started(tmp_path, "list(epoch)", mode=mode)
    pids = workers_of(program)
    assert len(pids) == (2 if mode == "process" else 0)
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, errors = program.communicate(timeout=20)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1  # the workers say nothing
    wait_until_gone(pids)


INTERRUPTED = """
import gc, multiprocessing, os, signal, threading, time
import numpy as np
from weft import data

def state():
    gc.collect()
    files = os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd") else []
    return threading.active_count(), len(multiprocessing.active_children()), len(files)

def train(mode):
    for _ in data.from_arrays(np.arange(400)).map(lambda x: x).batch(4).prefetch(3, workers=2, mode=mode):
        time.sleep(0.001)

train("process")
before = state()
for i in range(24):
    timer = threading.Timer(0.001 + 0.001 * i, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        train("process" if i % 3 else "thread")
        time.sleep(1)
    except KeyboardInterrupt:
        pass
    timer.join()
    assert state() == before, (i, state(), before)
print("nothing left")
"""


def test_ctrl_c_at_any_moment_leaves_nothing_behind() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", INTERRUPTED]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (found.stdout, found.stderr) == ("nothing left\n", "")


def test_workers_end_when_the_program_is_killed(tmp_path: Path) -> None:
    program = started(tmp_path, "time.sleep(60)", mode="process")
    pids = workers_of(program)
    program.kill()
    program.communicate(timeout=20)
    wait_until_gone(pids)


@pytest.mark.parametrize("mode", MODES)
def test_program_ends_while_workers_work(tmp_path: Path, mode: str) -> None:
    program = started(tmp_path, "pass", mode=mode)
    pids = workers_of(program)
    _, errors = program.communicate(timeout=20)
    assert (program.returncode, errors) == (0, "")
    wait_until_gone(pids)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_processes_started_anew_give_the_same(tmp_path: Path, start: str) -> None:
    action = "print([next(epoch).tolist() for _ in range(3)]); epoch.close()"
    program = started(tmp_path, action, mode="process", start=start)
    workers_of(program)
    assert program.stdout is not None
    out = program.stdout.read()  # by the reader that read the first line, and may have more in store
    _, errors = program.communicate(timeout=60)
    assert (out, errors) == ("[[2, 3], [4, 5], [6, 7]]\n", "")


MAPPED = """
import sys
import numpy as np
from weft import data

if __name__ == "__main__":
    np.save(sys.argv[1], np.asfortranarray(np.arange(60.0).reshape(20, 3)))
    pair = data.from_npy(sys.argv[1]).zip(data.from_arrays(np.arange(20)))
    batches = list(pair.shuffle().batch(20).prefetch(1, mode="process", start="spawn").numpy())
    x, i = batches[0]
    print((x == np.arange(60.0).reshape(20, 3)[i]).all(), sorted(i) == list(range(20)))
"""


def test_mapped_files_and_arrays_reach_processes_started_anew(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(MAPPED)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "x.npy")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (found.stdout, found.stderr) == ("True True\n", "")


def test_functions_that_cannot_be_sent_to_a_new_process_are_refused() -> None:
    pipeline = data.from_arrays(np.arange(4)).map(lambda x: x).prefetch(2, mode="process", start="spawn")
    with pytest.raises(ArgumentError, match="must be picklable") as caught:
        iter(pipeline)
    assert "start='fork'" in str(caught.value)


# What goes between processes


def test_elements_that_cannot_leave_a_process_are_refused() -> None:
    pipeline = data.from_dataset([1]).map(lambda x: (x, lambda: x)).prefetch(1, mode="process")
    with pytest.raises(ArgumentError, match="from one process to another must be picklable"):
        list(pipeline)


@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    "element",
    [
        np.zeros((0, 3), np.float32),
        np.arange(6, dtype=np.int16).reshape(2, 3).T,
        np.array(["a", "bcd"]),
        np.asarray(weft.ones(3, dtype=weft.bfloat16).numpy()),
        np.random.default_rng(0).random((700, 900)),
        np.float32(1.5),
        {"a": (np.arange(3), "text"), "b": 7},
        (None, 2.5, True),
    ],
    ids=str,
)
def test_elements_come_through_processes_as_they_are(element: Any) -> None:
    (found,) = data.from_dataset([element]).prefetch(1, mode="process").numpy()
    assert str(found) == str(element)
    leaves, expected = weft.tree_leaves(found), weft.tree_leaves(element)
    for a, b in zip(leaves, expected, strict=True):
        assert type(a) is type(b)
        np.testing.assert_array_equal(a, b)
        assert not isinstance(b, np.ndarray) or a.dtype == b.dtype


def test_ragged_batches_come_through_processes() -> None:
    rows = [[1, 2, 3], [4], [], [5, 6]]
    pipeline = data.from_dataset([np.array(r, np.int64) for r in rows]).batch(2, ragged=True)
    found = list(pipeline.prefetch(2, mode="process"))
    assert [batch.tolist() for batch in found] == [rows[:2], rows[2:]]


def test_streams_are_read_here_and_worked_on_in_processes() -> None:
    here = os.getpid()

    def read() -> Iterator[tuple[int, int]]:
        for i in range(6):
            yield i, os.getpid()

    pipeline = data.from_generator(read).map(lambda i, pid: (i, pid, os.getpid())).batch(2)
    batches = list(pipeline.prefetch(2, workers=2, mode="process").numpy())
    assert np.concatenate([b[0] for b in batches]).tolist() == list(range(6))
    assert {int(x) for b in batches for x in b[1]} == {here}
    assert here not in {int(x) for b in batches for x in b[2]}


def test_batches_of_processes_do_not_share_memory() -> None:
    pipeline = data.from_arrays(np.arange(40)).batch(4).prefetch(2, workers=2, mode="process").numpy()
    batches = list(pipeline)
    assert np.concatenate(batches).tolist() == list(range(40))
    assert all(b.flags.writeable for b in batches)
