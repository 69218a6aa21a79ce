"""Compiled programs that fail, that call back into Python, and that run in several threads."""

from __future__ import annotations

import gc
import threading
import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.llvm.running import F32, Array, executable
from weft.backends.llvm.run import NativeExecutable
from weft.errors import BoundsError, DomainError
from weft.ir.types import TensorType

pytestmark = pytest.mark.usefixtures("entered")


# Failures

FAIL = """
  %number = load i64, ptr %b0
  store i64 %number, ptr %context
  %v1 = getelementptr i64, ptr %context, i64 1
  store i64 11, ptr %v1
  %v2 = getelementptr i64, ptr %context, i64 2
  store i64 12, ptr %v2
  %v3 = getelementptr i64, ptr %context, i64 3
  store i64 13, ptr %v3
  %v4 = getelementptr i64, ptr %context, i64 4
  store i64 -14, ptr %v4
  ret i64 %number
"""


class Failure:
    def error(self, values: Sequence[int]) -> Exception:
        return BoundsError("index", f"values {values}")


@pytest.mark.parametrize(
    ("word", "kind", "message"),
    [
        (1, BoundsError, r"index: values \[11, 12, 13, -14\]"),
        (-3, MemoryError, "f: 11 bytes for a list that grows"),
    ],
)
def test_failure_is_raised_as_its_error(word: int, kind: type[Exception], message: str) -> None:
    graph = "graph f(%x: i64[]) {\n  %0: i64[] = neg(%x)\n  return %0\n}"
    run = executable(graph, FAIL, failures=[Failure()])
    for _ in range(2):
        with pytest.raises(kind, match=message):
            run([np.array(word)])
        assert run([np.array(0)])[0].shape == ()


# Calls back into Python

CALL = """
  %in = alloca [1 x ptr]
  store ptr %b0, ptr %in
  %out = alloca [1 x ptr]
  store ptr %b1, ptr %out
  %f_place = getelementptr i64, ptr %context, i64 5
  %f = load ptr, ptr %f_place
  %program_place = getelementptr i64, ptr %context, i64 6
  %program = load i64, ptr %program_place
  call void %f(i64 %program, i64 0, ptr %in, ptr %out, ptr %sizes)
  %failed = load i64, ptr %context
  ret i64 %failed
"""


def host(kernel: Any, *, shape: tuple[Any, ...] = (4,), sizes: Sequence[Any] = (), **attrs: Any) -> Any:
    """An entry of the table of host calls."""
    type_ = TensorType(shape, F32)
    op = types.SimpleNamespace(name="kernel", eval=kernel, into=None, outputs=1)
    node = types.SimpleNamespace(location=None, op=op)
    return types.SimpleNamespace(
        op=op, attrs=attrs, inputs=(type_,), outputs=(type_,), sizes=sizes, node=node
    )


HOST_GRAPH = "graph f(%x: f32[4]) {\n  %0: f32[4] = neg(%x)\n  return %0\n}"


def test_host_runs_the_kernel_of_an_op() -> None:
    run = executable(HOST_GRAPH, CALL, hosts=[host(lambda x, power: x**power, power=3)])
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(run([x])[0], x**3)


def test_host_gives_attributes_the_sizes_of_the_call() -> None:
    n = weft.base.sizes.named_size("n")
    entry = host(lambda x, count: x + count, shape=(n,), sizes=(n,), count=n * 2)
    graph = "graph f(%x: f32[n]) {\n  %0: f32[n] = neg(%x)\n  return %0\n}"
    run = executable(graph, CALL, hosts=[entry], sizes=["n"])
    for count in (3, 5, 0):
        np.testing.assert_array_equal(run([np.ones(count, np.float32)])[0], np.full(count, 1.0 + 2 * count))


def test_error_in_the_host_is_raised_after_the_call() -> None:
    def kernel(x: Array) -> Array:
        if x[0] < 0:
            raise DomainError("kernel", "must not be negative")
        if x[0] == 1:
            raise KeyboardInterrupt
        return x

    run = executable(HOST_GRAPH, CALL, hosts=[host(kernel)])
    with pytest.raises(DomainError, match="kernel: must not be negative"):
        run([np.full(4, -1.0, np.float32)])
    with pytest.raises(KeyboardInterrupt):
        run([np.ones(4, np.float32)])
    np.testing.assert_array_equal(run([np.zeros(4, np.float32)])[0], np.zeros(4))


def test_host_may_call_a_compiled_function_itself(add: NativeExecutable) -> None:
    def kernel(x: Array) -> Array:
        half = x.reshape(2, 2)
        wide = np.concatenate([half, half[:, :1]], axis=1)
        return np.ascontiguousarray(add([wide, wide])[0][:, :2]).ravel()

    run = executable(HOST_GRAPH, CALL, hosts=[host(kernel)])
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(run([x])[0], x + x)


def test_array_that_the_host_keeps_stays_as_it_is() -> None:
    kept: list[Array] = []

    def kernel(x: Array) -> Array:
        kept.append(x)
        return x

    run = executable(HOST_GRAPH, CALL, hosts=[host(kernel)])
    (first,) = run([np.arange(4, dtype=np.float32)])
    run([np.zeros(4, np.float32)])
    first[...] = 9.0
    gc.collect()
    np.testing.assert_array_equal(kept[0], np.arange(4))


# Threads


def test_threads_call_the_same_function_at_the_same_time() -> None:
    def kernel(x: Array) -> Array:
        barrier.wait(timeout=30)  # all threads are inside at once
        return x * 2

    barrier = threading.Barrier(4)
    run = executable(HOST_GRAPH, CALL, hosts=[host(kernel)])
    found: dict[int, list[float]] = {}

    def work(number: int) -> None:
        found[number] = run([np.full(4, number, np.float32)])[0].tolist()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [2.0 * n] * 4 for n in range(4)}


SLEEP = """
  %code = call i32 @usleep(i32 200000)
  store i64 0, ptr %b1
  ret i64 0
"""


def test_other_threads_run_during_a_call() -> None:
    graph = "graph f(%x: i64[]) {\n  %0: i64[] = neg(%x)\n  return %0\n}"
    run = executable(graph, SLEEP, declarations="declare i32 @usleep(i32)")
    thread = threading.Thread(target=run, args=([np.array(0)],))
    thread.start()
    turns = 0
    while thread.is_alive():
        turns += 1
    assert turns > 100


def test_record_of_a_profile_is_written_where_it_was_asked_for() -> None:
    body = """
  %place = getelementptr i64, ptr %context, i64 7
  %records = load ptr, ptr %place
  store i64 42, ptr %records
  store i64 0, ptr %b1
  ret i64 0
"""
    run = executable("graph f(%x: i64[]) {\n  %0: i64[] = neg(%x)\n  return %0\n}", body, records=1)
    records = np.zeros(4, np.int64)
    run.profile([np.array(0)], records)
    assert records[0] == 42
    records[0] = 0
    run([np.array(0)])
    assert records[0] == 0
