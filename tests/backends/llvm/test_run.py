"""Compiled programs as functions of arrays; the machine code here is written by hand."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.llvm.running import F32, Array, arrays, executable
from weft.backends.llvm import buffer_pool
from weft.backends.llvm.buffer_pool import LARGE, drop_pooled, pooled_array, pooled_bytes
from weft.backends.llvm.entry import arrays_look_as_expected, enter_slowly, make_enter
from weft.backends.llvm.run import NativeExecutable
from weft.errors import GraphError, ShapeError
from weft.ir.types import TensorType

pytestmark = pytest.mark.usefixtures("entered")


def test_native_entry_is_used_here() -> None:
    assert arrays_look_as_expected()
    assert make_enter() is not enter_slowly


def test_interpreter_without_the_lock_gets_the_entry_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "abiflags", "t")
    assert not arrays_look_as_expected()


@pytest.mark.parametrize("kind", [list, tuple])
def test_call_gives_the_results_in_fresh_arrays(add: NativeExecutable, kind: Any) -> None:
    x, y = arrays(0, 1)
    (first,) = add(kind([x, y]))
    (second,) = add(kind([y, y]))
    np.testing.assert_array_equal(first, x + y)
    np.testing.assert_array_equal(second, y + y)
    assert type(first) is np.ndarray
    assert first.flags.writeable


def test_other_sequences_of_arrays_are_taken(add: NativeExecutable) -> None:
    x, y = arrays(0, 1)
    (out,) = add(deque([x, y]))
    np.testing.assert_array_equal(out, x + y)


def test_arrays_in_any_order_of_memory_are_taken(add: NativeExecutable) -> None:
    x, y = arrays(0, 1)
    unaligned = np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3)
    unaligned[...] = x
    for form in (np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2], x[::-1][::-1], unaligned, x.tolist()):
        form = np.array(form, np.float32) if isinstance(form, list) else form
        np.testing.assert_array_equal(add([form, y])[0], x + y)
    read_only = x.copy()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(add([read_only, y])[0], x + y)


class Strange(np.ndarray[Any, Any]):
    """A kind of array."""


def test_subclasses_and_other_dtype_objects_are_taken(add: NativeExecutable) -> None:
    x, y = arrays(0, 1)
    same = x.view(np.dtype(np.float32, metadata={"a": 1}))
    assert same.dtype is not x.dtype
    for form in (x.view(Strange), same):
        (out,) = add([form, y])
        np.testing.assert_array_equal(out, x + y)
        assert type(out) is np.ndarray


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros((3, 2), np.float32), r"f: input x must be f32\[2,3\] with these sizes, got \[3, 2\]"),
        (np.zeros((2, 3), np.float64), r"f: input x must be f32\[2,3\], got float64\[2, 3\]"),
        (np.zeros(6, np.float32), r"f: input x must be f32\[2,3\], got float32\[6\]"),
        (np.zeros((2, 3), ">f4"), r"f: input x must be f32\[2,3\], got float32\[2, 3\]"),
        (1.0, r"f: input x must be f32\[2,3\], got float64\[\]"),
    ],
)
def test_array_of_another_type_is_an_error(add: NativeExecutable, wrong: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        add([wrong, arrays(0)[0]])


def test_wrong_number_of_arrays_is_an_error(add: NativeExecutable) -> None:
    for count in (0, 1, 3):
        with pytest.raises(GraphError, match=f"f: takes 2 inputs, got {count}"):
            add(arrays(*range(count)))


# Donation


def test_donated_input_holds_the_result(add: NativeExecutable) -> None:
    x, y = arrays(0, 1)
    expected = x + y
    (out,) = add.donating([x, y], [True, False])
    assert out is x
    np.testing.assert_array_equal(x, expected)


def test_input_without_the_flag_is_left_alone(add: NativeExecutable) -> None:
    x, y = arrays(0, 1)
    before = x.copy()
    (out,) = add.donating([x, y], [False, True])
    np.testing.assert_array_equal(out, before + y)
    np.testing.assert_array_equal(x, before)


def test_donated_input_in_another_order_of_memory_holds_the_result(add: NativeExecutable) -> None:
    x, y = arrays(0, 1)
    for form in (np.asfortranarray(x), np.asfortranarray(x), x.copy()):
        expected = x + y
        form.flags.writeable = False
        (out,) = add.donating([form, y], [True, False])
        assert out is form
        np.testing.assert_array_equal(form, expected)


def test_run_that_does_not_begin_leaves_what_was_given(add: NativeExecutable) -> None:
    x, y = arrays(0, 1)
    before = x.copy()
    with pytest.raises(ShapeError):
        add.donating([x, y[:1]], [True, False])
    np.testing.assert_array_equal(x, before)


# Memory


BIG = 3 * LARGE // 4


@pytest.fixture
def _empty_pool() -> Iterator[None]:
    drop_pooled()
    yield
    drop_pooled()


COPY_BIG = f"""
  call void @llvm.memcpy.p0.p0.i64(ptr %b1, ptr %b0, i64 {4 * BIG}, i1 false)
  ret i64 0
"""


def big() -> NativeExecutable:
    return executable(
        f"graph f(%x: f32[{BIG}]) {{\n  %0: f32[{BIG}] = neg(%x)\n  return %0\n}}",
        COPY_BIG,
        declarations="declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    )


@pytest.mark.usefixtures("_empty_pool")
def test_memory_of_a_large_result_is_used_again_when_nobody_holds_it() -> None:
    run = big()
    x = np.arange(BIG, dtype=np.float32)
    (out,) = run([x])
    place = out.ctypes.data
    assert place % 64 == 0
    part = out[10:20].reshape(2, 5)
    del out
    (other,) = run([x + 1])
    assert other.ctypes.data != place
    np.testing.assert_array_equal(part.ravel(), x[10:20])
    del part
    assert pooled_bytes() >= 4 * BIG
    (again,) = run([x])
    assert again.ctypes.data == place
    np.testing.assert_array_equal(other, x + 1)


@pytest.mark.usefixtures("_empty_pool")
@pytest.mark.parametrize(
    "view", [memoryview, np.asarray, lambda a: a.T, lambda a: a.view(np.int32), np.from_dlpack]
)
def test_every_kind_of_view_keeps_the_memory(view: Any) -> None:
    array = pooled_array((LARGE,), F32)
    array[...] = 5.0
    held = view(array)
    del array
    others = [pooled_array((LARGE,), F32) for _ in range(3)]
    for other in others:
        other[...] = 7.0
    assert (np.asarray(held).view(np.float32) == 5.0).all()


@pytest.mark.usefixtures("_empty_pool")
def test_memory_that_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_pool, "_MOST_BYTES", 10 * LARGE)
    held = [pooled_array((LARGE,), np.dtype(np.uint8)) for _ in range(30)]
    assert pooled_bytes() == 0
    held.clear()
    assert 0 < pooled_bytes() <= 10 * LARGE


@pytest.mark.usefixtures("_empty_pool")
def test_sizes_that_differ_a_little_share_memory() -> None:
    place = pooled_array((LARGE - 5,), np.dtype(np.uint8)).ctypes.data
    assert pooled_array((LARGE - 99,), np.dtype(np.uint8)).ctypes.data == place
    assert pooled_array((3 * LARGE,), np.dtype(np.uint8)).ctypes.data != place


@pytest.mark.usefixtures("_empty_pool")
def test_threads_never_get_the_same_memory_at_the_same_time() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        held: list[Array] = []
        for _ in range(300):
            held.append(pooled_array((int(rng.integers(1, 4)) * LARGE,), np.dtype(np.uint8)))
            held[-1][::4096] = number
            if len(held) > 3:
                array = held.pop(int(rng.integers(0, 4)))
                if not (array[::4096] == number).all():
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_more_memory_than_there_is_is_an_error() -> None:
    with pytest.raises(MemoryError, match="bytes for an array"):
        pooled_array((1 << 60,), F32)


def test_empty_arrays_are_fine() -> None:
    assert pooled_array((0, 3), F32).shape == (0, 3)
    run = executable("graph f(%x: f32[0,3]) {\n  %0: f32[0,3] = neg(%x)\n  return %0\n}", "  ret i64 0")
    assert run([np.zeros((0, 3), np.float32)])[0].shape == (0, 3)


ARENA = """
  %at = ptrtoint ptr %arena to i64
  store i64 %at, ptr %b1
  store i8 1, ptr %arena
  %last = getelementptr i8, ptr %arena, i64 {last}
  store i8 1, ptr %last
  ret i64 0
"""


@pytest.mark.parametrize("size", [100, 10 * LARGE])
def test_arena_is_aligned_and_large_enough(size: int) -> None:
    graph = "graph f(%x: i64[1]) {\n  %0: i64[1] = neg(%x)\n  return %0\n}"
    run = executable(graph, ARENA.format(last=size - 1), arena=size)
    for _ in range(3):
        assert run([np.zeros(1, np.int64)])[0][0] % 64 == 0


def test_constants_are_in_the_table_of_buffers() -> None:
    constant = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    body = "  %v = load <6 x float>, ptr %b2, align 4\n  store <6 x float> %v, ptr %b1, align 4\n  ret i64 0"
    graph = "graph f(%x: f32[2,3]) {\n  %0: f32[2,3] = neg(%x)\n  return %0\n}"
    run = executable(graph, body, constants=[constant])
    np.testing.assert_array_equal(run(arrays(0))[0], constant)


# Named sizes

SIZED = """
  %n = load i64, ptr %sizes
  %m_place = getelementptr i64, ptr %sizes, i64 1
  %m = load i64, ptr %m_place
  %both = mul i64 %n, 1000
  %sum = add i64 %both, %m
  %f = sitofp i64 %sum to float
  store float %f, ptr %b2
  store i8 1, ptr %arena
  ret i64 0
"""


@pytest.fixture
def sized() -> NativeExecutable:
    n, m = (weft.base.sizes.named_size(name) for name in "nm")
    graph = "graph f(%x: f32[n,m], %y: f32[m]) {\n  %0: f32[n,m] = mul(%x, %y)\n  return %0\n}"
    return executable(graph, SIZED, sizes=["n", "m"], arena=n * m * 64 + 64)


def test_named_sizes_come_from_the_shapes(sized: NativeExecutable) -> None:
    for n, m in ((2, 3), (5, 1), (2, 3), (400, 300)):
        (out,) = sized([np.zeros((n, m), np.float32), np.zeros(m, np.float32)])
        assert out.shape == (n, m)
        assert out[0, 0] == 1000 * n + m


def test_sizes_that_contradict_each_other_are_an_error(sized: NativeExecutable) -> None:
    with pytest.raises(ShapeError, match=r"f: input y must be f32\[m\] with n=2, m=3, got \[4\]"):
        sized([np.zeros((2, 3), np.float32), np.zeros(4, np.float32)])


def test_many_shapes_do_not_pile_up(sized: NativeExecutable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.backends.llvm.run._PLANS_KEPT", 10)
    for n in range(1, 40):
        assert sized([np.zeros((n, 2), np.float32), np.zeros(2, np.float32)])[0][0, 0] == 1000 * n + 2
    assert len(sized._plans) <= 10


TOLD = """
  store i64 3, ptr %sizes
  %memory = call ptr @malloc(i64 24)
  store i64 7, ptr %memory
  %second = getelementptr i64, ptr %memory, i64 1
  store i64 8, ptr %second
  %third = getelementptr i64, ptr %memory, i64 2
  store i64 9, ptr %third
  store ptr %memory, ptr %p1
  ret i64 0
"""


def test_size_that_the_run_tells_is_that_of_the_result() -> None:
    graph = weft.parse_graph("graph f(%x: i64[]) {\n  %0: i64[] = neg(%x)\n  return %0\n}")
    trips = weft.base.sizes.named_size("trips")
    object.__setattr__(graph.results[0], "type", TensorType((trips,), np.dtype(np.int64)))
    run = executable(graph, TOLD, sizes=["trips"], declarations="declare ptr @malloc(i64)")
    for _ in range(3):
        assert run([np.array(0)])[0].tolist() == [7, 8, 9]
