"""Forks beside threads that compile, that change rows of one tensor and that run backward, for test_forks.

``python -m tests.backends.llvm.forking 200`` forks so many times, and ends with the number of children that
did what they should.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import weft

ROWS = 6


def compile_functions(stop: threading.Event, number: int) -> None:
    """Compile one function after the other, each with code of its own."""
    k = 0
    while not stop.is_set():
        k += 1
        factor = float(number * 10_000 + k)

        @weft.compile
        def f(x: Any, factor: float = factor) -> Any:
            return weft.tanh(x * factor).sum()

        x = weft.ones(8, requires_grad=True)
        f(x).backward()


def change_rows(stop: threading.Event, table: Any, row: int) -> None:
    """Change one row of a tensor again and again."""
    while not stop.is_set():
        table[row] += 1.0
        table[row].mul_(1.0)
        time.sleep(0.002)


def run_backward(stop: threading.Event, shared: Any) -> None:
    """Sum gradients in a tensor that others know too, and draw numbers."""
    while not stop.is_set():
        (shared * weft.rand(4)).sum().backward()
        time.sleep(0.002)


def child_works(table: Any, shared: Any, compiles: bool) -> bool:
    """Use everything that a lock guards."""
    before = table.numpy().copy()
    table[0] += 1.0
    weft.rand(3)
    (shared * 2.0).sum().backward()
    right = np.array_equal(table.numpy()[1:], before[1:]) and np.array_equal(table.numpy()[0], before[0] + 1)
    if compiles:
        got = weft.compile(lambda x: (x * 3.0 + 1.0).sum())(weft.ones(4)).item()
        right = right and got == 16.0
    return bool(right)


def fork_once(work: Callable[[], bool]) -> bool:
    """Whether a child did its work."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def main(forks: int) -> int:
    """How many children did what they should."""
    stop = threading.Event()
    table, shared = weft.zeros((ROWS, 4)), weft.ones(4, requires_grad=True)
    threads = [threading.Thread(target=compile_functions, args=(stop, i)) for i in range(2)]
    threads += [threading.Thread(target=change_rows, args=(stop, table, i)) for i in range(1, ROWS)]
    threads += [threading.Thread(target=run_backward, args=(stop, shared))]
    for thread in threads:
        thread.start()
    try:
        return sum(fork_once(lambda k=k: child_works(table, shared, k % 20 == 0)) for k in range(forks))  # type: ignore[misc]
    finally:
        stop.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    print(main(int(sys.argv[1])))  # noqa: T201 - what is asked for
