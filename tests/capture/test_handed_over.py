"""What only a capture would do is refused: work for threads, steps of generators, elements of pipelines."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import weft
from weft import data
from weft.errors import CaptureError

KEPT: Any = type("Kept", (), {})()
EXECUTOR = ThreadPoolExecutor(1)


def keep(x: Any) -> None:
    KEPT.x = x


def in_a_thread(x: Any) -> Any:
    thread = threading.Thread(target=keep, args=(x,))
    thread.start()
    thread.join()
    return KEPT.x


def in_a_thread_of_the_user(x: Any) -> Any:
    class Own(threading.Thread):
        def run(self) -> None:
            keep(x)

    Own().start()
    return x


def in_an_executor(x: Any) -> Any:
    return EXECUTOR.submit(lambda: x * 2).result()


def mapped_by_an_executor(x: Any) -> Any:
    with ThreadPoolExecutor(1) as executor:
        return sum(executor.map(lambda v: v * 2, [x, x + 1]))


QUEUE: queue.Queue[Any] = queue.Queue()


def from_a_queue(x: Any) -> Any:
    return QUEUE.get() * x


EVENT = threading.Event()


def waiting(x: Any) -> Any:
    EVENT.wait()
    return x


@pytest.mark.parametrize(
    "f",
    [
        in_a_thread,
        in_a_thread_of_the_user,
        in_an_executor,
        mapped_by_an_executor,
        from_a_queue,
        waiting,
    ],
    ids=lambda f: f.__name__,
)
def test_work_is_not_handed_to_threads_nor_waited_for(f: Callable[[Any], Any]) -> None:
    with pytest.raises(CaptureError, match=r"other threads or processes[^$]*test_handed_over.py"):
        weft.compile(f)(weft.tensor(1.0))


def test_a_queue_of_the_function_itself_and_locks_are_plain_objects() -> None:
    lock = threading.Lock()

    @weft.compile
    def f(x: Any) -> Any:
        own: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with lock:
            own.put(x)
            own.put(x * 2)
        return own.get() + own.get() * 3

    assert [float(f(weft.tensor(v))) for v in (1.0, 2.0)] == [7.0, 14.0]


def test_programs_are_warned_of() -> None:
    def f(x: Any) -> Any:
        return x * subprocess.run([sys.executable, "-c", ""], check=False).returncode

    with pytest.warns(RuntimeWarning, match="runs a program"):
        weft.compile(f)(weft.tensor(1.0))


def live() -> Any:
    """A generator that adds up what is sent to it, and has begun."""

    def totals() -> Any:
        total = weft.tensor(0.0)
        while True:
            total = total + (yield total)

    out = totals()
    next(out)
    return out


@pytest.mark.parametrize("step", [lambda g, x: g.send(x), lambda g, x: g.__next__(), lambda g, x: g.close()])
def test_a_live_generator_is_not_moved_on(step: Callable[[Any, Any], Any]) -> None:
    generator = live()
    with pytest.raises(CaptureError, match="iterator from outside"):
        weft.compile(lambda x: step(generator, x))(weft.tensor(1.0))
    assert float(generator.send(weft.tensor(2.0))) == 2.0  # as nothing was sent before


@pytest.mark.parametrize(
    "change",
    [lambda p: p, lambda p: p.shuffle(seed=0), lambda p: p.prefetch(2), lambda p: p.repeat(2)],
    ids=("plain", "shuffled", "ahead", "repeated"),
)
def test_captured_code_does_not_go_along_a_pipeline(change: Callable[[Any], Any]) -> None:
    pipeline = change(data.from_arrays(np.arange(6, dtype=np.float32)).batch(2))

    def total(x: Any) -> Any:
        for batch in pipeline:
            x = x + batch.sum()
        return x

    with pytest.raises(CaptureError, match=r"must not go along a pipeline[^$]*test_handed_over.py"):
        weft.compile(total)(weft.tensor(0.0))
    assert float(total(weft.tensor(0.0))) in (15.0, 30.0)


def test_loaders_are_pipelines() -> None:
    loader = data.DataLoader(data.TensorDataset(weft.arange(6)), batch_size=2, shuffle=True)
    with pytest.raises(CaptureError, match="must not go along a pipeline"):
        weft.compile(lambda x: [x + a for (a,) in loader])(weft.tensor(0))
