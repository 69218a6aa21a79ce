"""Compiled functions called at the same time: by several threads, across forks, by any number of workers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import weft

# Python warns of forks while there are threads; that these work is what is tested.
FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

ROUNDS, CALLERS = 20, 4


def _random(*shape: int, seed: int = 0) -> weft.Tensor:
    return weft.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def newton(x: Any) -> Any:
    """A loop whose end the values decide."""
    y = x * 0.5 + 1.0
    while weft.abs(y * y - weft.abs(x)).max() > 1e-3:
        y = 0.5 * (y + weft.abs(x) / y)
    return y


def normalised(x: Any) -> Any:
    return weft.softmax(x, 1), (x - x.mean(1, keepdims=True)).sum(0)


def slope(x: Any) -> Any:
    return weft.grad(lambda z: (weft.tanh(z @ z.T) * 0.1).sum())(x)


def to_machine_code(function: Callable[..., Any]) -> Any:
    return weft.compile(function, backend="llvm")


Call = tuple[Callable[..., Any], weft.Tensor]


@pytest.fixture
def calls() -> Iterator[list[Call]]:
    """Functions with arguments; long enough that work is shared among threads."""
    before = weft.get_num_threads()
    yield [
        (to_machine_code(lambda x: (weft.exp(weft.tanh(x)) * x).sum()), _random(300_000)),
        (to_machine_code(normalised), _random(300, 513)),
        (to_machine_code(newton), _random(2_000)),
        (to_machine_code(slope), _random(90, 65)),
        (to_machine_code(lambda x: x * 2.0 + 1.0), _random(3)),
    ]
    weft.set_num_threads(before)


def results(call: Call) -> list[Any]:
    function, x = call
    return [leaf.numpy() for leaf in weft.tree_leaves(function(x))]


def bits(arrays: list[Any]) -> list[bytes]:
    return [a.tobytes() for a in arrays]


def test_threads_call_compiled_functions_at_the_same_time(calls: list[Call]) -> None:
    expected = [bits(results(call)) for call in calls]
    together = threading.Barrier(CALLERS)

    def work(number: int) -> list[tuple[int, list[Any]]]:
        together.wait()
        order = [(number + k) % len(calls) for k in range(ROUNDS)]
        return [(k, results(calls[k])) for k in order]  # all are kept: none may overwrite another

    with ThreadPoolExecutor(CALLERS) as pool:
        for made in pool.map(work, range(CALLERS)):
            assert all(bits(found) == expected[k] for k, found in made)


def test_threads_compile_at_the_same_time() -> None:
    x = _random(40, 30)

    def work(number: int) -> list[Any]:
        function = to_machine_code(lambda x: weft.tanh(x * (number % 3 + 1.5)).sum(number % 2))
        return results((function, x))

    with ThreadPoolExecutor(CALLERS) as pool:
        made = list(pool.map(work, range(24)))
    for number, found in enumerate(made):
        assert bits(found) == bits(made[number % 6])


def test_threads_that_call_for_the_first_time_at_once_share_one_version() -> None:
    function = to_machine_code(lambda x: weft.sin(x).sum() + 1.0)
    together, x = threading.Barrier(CALLERS), _random(100)

    def work(_: int) -> list[bytes]:
        together.wait()
        return bits(results((function, x)))

    with ThreadPoolExecutor(CALLERS) as pool:
        assert len({tuple(found) for found in pool.map(work, range(CALLERS))}) == 1
    assert len(function.versions) == 1


@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_results_do_not_depend_on_the_number_of_threads(calls: list[Call], number: int) -> None:
    weft.set_num_threads(2)
    expected = [bits(results(call)) for call in calls]
    weft.set_num_threads(number)
    for _ in range(3):
        assert [bits(results(call)) for call in calls] == expected


def test_later_call_leaves_earlier_results_alone(calls: list[Call]) -> None:
    for function, x in calls:
        first = results((function, x))
        copies = [a.copy() for a in first]
        for k in range(4):
            results((function, x * (k + 2.0)))
        assert bits(first) == bits(copies)


@pytest.mark.rotating(2)
@FORKS
def test_forks_while_threads_call(calls: list[Call]) -> None:
    expected = [bits(results(call)) for call in calls]
    done = threading.Event()
    wrong: list[int] = []

    def work(number: int) -> None:
        while not done.is_set():
            k = number % len(calls)
            if bits(results(calls[k])) != expected[k]:
                wrong.append(k)
            number += 1

    workers = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for worker in workers:
        worker.start()
    try:
        codes = [_run_in_child(lambda: _works(calls, expected)) for _ in range(5)]
    finally:
        done.set()
        for worker in workers:
            worker.join()
    assert codes == [0] * 5
    assert wrong == []


def _works(calls: list[Call], expected: list[list[bytes]]) -> bool:
    """Whether known functions give what they gave, and new ones can be compiled."""
    fresh = results((to_machine_code(lambda x: x * 5.0 - 2.0), weft.ones(9)))
    return [bits(results(call)) for call in calls] == expected and fresh[0].tolist() == [3.0] * 9


def _run_in_child(check: Callable[[], bool]) -> int:
    """How the child of a fork ends that checks something: 0 if it holds."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if check() else 2
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]
