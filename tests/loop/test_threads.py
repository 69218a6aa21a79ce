"""Threads of a block, barriers and shared memory: how they print, what is checked, how they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from weft.backends.llvm.driver import compile_program
from weft.base.dtypes import float32, int64
from weft.errors import GraphError
from weft.loop import ir
from weft.loop.builder import Builder
from weft.loop.capabilities import check_supported
from weft.loop.index import Index
from weft.loop.interpret import run_function
from weft.loop.ir import Buffer, Function, Program
from weft.loop.text import code_key, format_function, function_key
from weft.loop.verify import verify_function

BLOCKS, THREADS = 3, 8
ZERO = Index.of(0)


def tree_sum(*, barriers: bool = True, space: ir.Space = "shared", threads: int = THREADS) -> Function:
    """The sum of each row of x by a tree: half of the threads add what the other half has."""
    b = Builder()
    x, y = b.buffer("x", float32, BLOCKS * threads), b.buffer("y", float32, BLOCKS)
    part = b.scratch("part", float32, threads, space)
    with b.parallel(BLOCKS) as block:
        row = block * threads
        with b.threads(threads) as t:
            b.store(part, t, b.load(x, row + t))
            half = threads // 2
            while half:
                if barriers:
                    b.barrier()
                with b.if_(b.lt(t, half)):
                    b.store(part, t, b.add(b.load(part, t), b.load(part, t + half)))
                half //= 2
            with b.if_(b.eq(t, 0)):
                b.store(y, block, b.load(part, 0))
    return b.function("tree_sum", written=[y])


def halving_sum() -> Function:
    """The same with a loop at run time around the barrier, which all threads go through alike."""
    b = Builder()
    x, y = b.buffer("x", float32, BLOCKS * THREADS), b.buffer("y", float32, BLOCKS)
    part = b.scratch("part", float32, THREADS, "shared")
    with b.parallel(BLOCKS) as block, b.threads(THREADS) as t:
        b.store(part, t, b.load(x, block * THREADS + t))
        half = b.local(THREADS // 2, int64)
        with b.while_(lambda: b.lt(0, b.get(half))):
            b.barrier()
            width = b.term(b.get(half), THREADS)
            with b.if_(b.lt(t, width)):
                b.store(part, t, b.add(b.load(part, t), b.load(part, t + width)))
            b.set(half, b.div(b.get(half), 2))
        b.barrier()
        with b.loop(2):
            b.barrier()
        with b.if_(b.eq(b.get(half), 0)):
            b.barrier()
        b.store(y, block, b.load(part, 0), b.eq(t, 0))
    return b.function("halving_sum", written=[y])


def run(function: Function, seed: int = 0) -> tuple[Any, Any]:
    x = np.random.default_rng(1).integers(0, 9, BLOCKS * THREADS).astype("f4")
    y = np.zeros(BLOCKS, "f4")
    run_function(function, [x, y], seed=seed)
    return y, x.reshape(BLOCKS, THREADS).sum(1)


def test_text_shows_threads_barriers_and_shared_memory() -> None:
    text = format_function(tree_sum(threads=2))
    assert (
        text
        == """\
function tree_sum(x: f32[6], written y: f32[3]) {
  scratch shared part: f32[2]
  for parallel i1 in 0..3 {
    for threads i2 in 0..2 {
      %0: f32 = load x[2*i1 + i2]
      store part[i2] = %0
      barrier
      %1: bool = lt(i2, i64(1))
      if %1 {
        %2: f32 = load part[i2]
        %3: f32 = load part[i2 + 1]
        %4: f32 = add(%2, %3)
        store part[i2] = %4
      }
      %5: bool = eq(i2, i64(0))
      if %5 {
        %6: f32 = load part[0]
        store y[i1] = %6
      }
    }
  }
}"""
    )


@pytest.mark.parametrize("key", [function_key, code_key])
def test_keys_tell_spaces_barriers_and_threads_apart(key: Callable[[Function], str]) -> None:
    kernels = [tree_sum(), tree_sum(barriers=False), tree_sum(space="private"), tree_sum(threads=4)]
    assert len({key(f) for f in kernels}) == len(kernels)
    assert key(tree_sum()) == key(tree_sum())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("make", [tree_sum, halving_sum])
def test_threads_that_meet_at_barriers_sum_in_any_order(make: Callable[[], Function], seed: int) -> None:
    got, expected = run(verify_function(make()), seed)
    np.testing.assert_array_equal(got, expected)


def test_a_missing_barrier_is_a_race_that_names_both_lines() -> None:
    function = verify_function(tree_sum(barriers=False))
    with pytest.raises(
        GraphError, match=r"tree_sum: `.* part\[.*`: part\[\d\] must not be reached by two"
    ) as e:
        run(function)
    assert "without a barrier between them, got block" in e.value.message
    assert "in `store part[i2] = %0`" in e.value.message or "load part[" in e.value.message


def test_private_memory_is_each_threads_own() -> None:
    b = Builder()
    x, y = b.buffer("x", float32, 1), b.buffer("y", float32, BLOCKS * THREADS)
    own = b.scratch("own", float32, 2)
    b.store(own, 0, b.load(x, 0))
    with b.parallel(BLOCKS) as block:
        b.store(own, 1, b.cast(block, float32))
        with b.threads(THREADS) as t:
            b.store(own, 0, b.add(b.load(own, 0), b.cast(t, float32)))
            b.barrier()
            b.store(y, block * THREADS + t, b.add(b.load(own, 0), b.load(own, 1)))
    y_array = np.zeros(BLOCKS * THREADS, "f4")
    run_function(verify_function(b.function("f", written=[y])), [np.full(1, 100, "f4"), y_array])
    expected = 100 + np.arange(THREADS) + np.arange(BLOCKS)[:, None]
    np.testing.assert_array_equal(y_array.reshape(BLOCKS, THREADS), expected)


def test_shared_memory_holds_rubbish_when_a_block_begins() -> None:
    b = Builder()
    y = b.buffer("y", float32, 2)
    part = b.scratch("part", float32, 1, "shared")
    with b.parallel(2) as block, b.threads(1):
        b.store(y, block, b.load(part, 0))
        b.store(part, 0, 1.0)
    out = np.ones(2, "f4")
    run_function(verify_function(b.function("f", written=[y])), [out])
    assert out[0] == out[1] != 1


@contextmanager
def grid() -> Iterator[tuple[Builder, Buffer, Buffer, Index]]:
    b = Builder()
    x, y = b.buffer("x", float32, 4), b.buffer("y", float32, 4)
    with b.parallel(4) as i:
        yield b, x, y, i


def run_grid(b: Builder, arrays: int = 2) -> None:
    verify_function(b.function("f", written=b.buffers))
    run_function(b.function("f", written=b.buffers), [np.zeros(4, "f4") for _ in range(arrays)])


def test_two_blocks_that_write_one_element_are_a_race() -> None:
    with grid() as (b, _x, y, i):
        b.store(y, b.quotient(i, 2), 1.0)
    with pytest.raises(GraphError, match=r"`store y\[%0\] = f32\(1.0\)`: y\[\d\] must not be reached"):
        run_grid(b)


def test_a_block_that_reads_what_another_writes_is_a_race_though_barriers_are_between() -> None:
    with grid() as (b, _x, y, i), b.threads(1):
        b.store(y, i, 1.0)
        b.barrier()
        b.store(y, i, b.load(y, 0))
    with pytest.raises(GraphError, match=r"y\[0\] must not be reached by two threads"):
        run_grid(b)


def test_what_all_threads_read_before_the_grid_must_not_be_written_in_it() -> None:
    b = Builder()
    y = b.buffer("y", float32, 4)
    first = b.load(y, 0)
    with b.parallel(4) as i:
        b.store(y, i, b.add(first, 1.0))
    with pytest.raises(
        GraphError, match=r"got block 0 thread 0 here and all threads in `%0: f32 = load y\[0\]`"
    ):
        run_grid(b, 1)


def test_blocks_that_read_one_element_are_no_race() -> None:
    with grid() as (b, x, y, i):
        b.store(y, i, b.add(b.load(x, 0), b.load(x, i)))
    run_grid(b)


def test_copies_and_products_are_watched_too() -> None:
    with grid() as (b, x, y, _i):
        b.copy(y, 0, x, 0, 4)
    with pytest.raises(GraphError, match=r"`copy y\[0\] = x\[0\] for 4`: y\[0\]"):
        run_grid(b)
    with grid() as (b, x, y, _i):
        b.matmul((x, 0), (x, 0), (y, 0), 2, 2, 2, (2, 2, 2), transposed=(False, False))
    with pytest.raises(GraphError, match=r"`matmul y\[0\]"):
        run_grid(b)


# What is checked


def apart(b: Builder, y: Buffer, i: Index, t: Index) -> None:
    with b.if_(b.lt(t, 2)):
        b.barrier()


def apart_in_a_loop(b: Builder, y: Buffer, i: Index, t: Index) -> None:
    with b.loop(t):
        b.barrier()


def apart_in_a_while(b: Builder, y: Buffer, i: Index, t: Index) -> None:
    count = b.local(0, int64)
    with b.while_(lambda: b.lt(b.get(count), t)):
        b.barrier()
        b.set(count, b.add(b.get(count), 1))


def apart_by_a_local(b: Builder, y: Buffer, i: Index, t: Index) -> None:
    go = b.local(0, int64)
    with b.loop(3):  # what differs comes back to the beginning
        with b.if_(b.lt(b.get(go), 1)):
            b.barrier()
        b.set(go, t)


def apart_by_what_is_set_apart(b: Builder, y: Buffer, i: Index, t: Index) -> None:
    go = b.local(0, int64)
    with b.if_(b.lt(t, 1)):
        b.set(go, 1)
    with b.if_(b.lt(b.get(go), 1)):
        b.barrier()


def apart_by_private_memory(b: Builder, y: Buffer, i: Index, t: Index) -> None:
    with b.if_(b.lt(b.load(b.scratch("own", float32, 1), 0), 1.0)):
        b.barrier()


REACHED = "`barrier`: a barrier must be reached by all threads of a block or by none"


@pytest.mark.parametrize(
    "write",
    [
        apart,
        apart_in_a_loop,
        apart_in_a_while,
        apart_by_a_local,
        apart_by_what_is_set_apart,
        apart_by_private_memory,
    ],
)
def test_a_barrier_that_some_threads_may_miss_is_refused(write: Any) -> None:
    with grid() as (b, _x, y, i), b.threads(4) as t:
        write(b, y, i, t)
    with pytest.raises(GraphError, match=REACHED):
        run_grid(b)


def test_a_barrier_that_some_threads_miss_stops_the_interpreter() -> None:
    with grid() as (b, _x, _y, _i), b.threads(4) as t, b.if_(b.lt(t, 2)):
        b.barrier()
    with pytest.raises(GraphError, match="a barrier must be reached by all"):
        run_function(b.function("f", written=[]), [np.zeros(4, "f4")] * 2)


def barrier_without_threads(b: Builder, y: Buffer, i: Index) -> None:
    b.barrier()


def barrier_in_lanes(b: Builder, y: Buffer, i: Index) -> None:
    with b.threads(2), b.vector(2):
        b.barrier()


def threads_first(b: Builder, y: Buffer, i: Index) -> None:
    with b.threads(2):
        pass
    b.store(y, i, 1.0)


def threads_in_threads(b: Builder, y: Buffer, i: Index) -> None:
    with b.threads(2), b.threads(2):
        pass


def threads_deep_inside(b: Builder, y: Buffer, i: Index) -> None:
    with b.loop(2), b.threads(2):
        pass


def unfixed_threads(b: Builder, y: Buffer, i: Index) -> None:
    with b.threads(i):  # type: ignore[arg-type]
        pass


def no_threads(b: Builder, y: Buffer, i: Index) -> None:
    with b.threads(0):
        pass


def shared_without_threads(b: Builder, y: Buffer, i: Index) -> None:
    b.store(b.scratch("part", float32, 1, "shared"), 0, 1.0)


def write_before_threads(b: Builder, y: Buffer, i: Index) -> None:
    b.store(y, i, 1.0)
    with b.threads(2):
        pass


def set_outer_local(b: Builder, y: Buffer, i: Index) -> None:
    count = b.local(0, int64)
    with b.threads(2):
        b.set(count, 1)


def library_call(b: Builder, y: Buffer, i: Index) -> None:
    with b.threads(2):
        b.matmul((y, 0), (y, 0), (y, 0), 2, 2, 2, (2, 2, 2), transposed=(False, False))


def global_scratch(b: Builder, y: Buffer, i: Index) -> None:
    b.scratch("part", float32, 1, "global")


def shared_parameter(b: Builder, y: Buffer, i: Index) -> None:
    b.buffers.append(Buffer("z", float32, 1, "shared"))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (barrier_without_threads, "`barrier`: a barrier must stand in a threads loop"),
        (barrier_in_lanes, "`barrier`: Barrier must not stand in a vector loop"),
        (threads_first, "a threads loop must be the last statement of a parallel loop"),
        (threads_deep_inside, "a threads loop must be the last statement of a parallel loop"),
        (threads_in_threads, "`for threads i3 in 0..2 {`: a threads loop must not stand in another one"),
        (unfixed_threads, "threads must be numbered from 0 to a fixed number above it, got 0..i1"),
        (no_threads, "threads must be numbered from 0 to a fixed number above it, got 0..0"),
        (shared_without_threads, "shared memory must be used in a threads loop alone, got part"),
        (write_before_threads, "what stands before a parallel loop must not write to memory"),
        (set_outer_local, "must change locals of its own alone"),
        (library_call, "a call of a library must not stand in a threads loop"),
        (global_scratch, "scratch of a kernel must be private or shared, got global part"),
        (shared_parameter, "memory of others must be global, got shared z"),
    ],
)
def test_threads_and_spaces_are_checked(write: Any, message: str) -> None:
    with grid() as (b, _x, y, i):
        write(b, y, i)
    with pytest.raises(GraphError) as caught:
        verify_function(b.function("f", written=[y]))
    assert message in caught.value.message


def test_threads_outside_of_a_grid_are_refused() -> None:
    b = Builder()
    with b.threads(2):
        pass
    with pytest.raises(GraphError, match="must be the last statement of a parallel loop"):
        verify_function(b.function("f", written=[]))


# What a backend has


def launching(function: Function) -> Program:
    main = Builder()
    buffers = [main.buffer(b.name, b.dtype, b.size) for b in function.buffers]
    main.add_statement(ir.Launch(function, tuple((b, ZERO) for b in buffers)))
    return Program(main.function("main", written=[buffers[1]]), 1, 1, (), {}, 0, (), (), ())


def test_the_cpu_refuses_threads_barriers_and_shared_memory_by_name() -> None:
    with pytest.raises(
        GraphError, match=r"llvm: tree_sum: `for threads i2 in 0\.\.8 \{`: the backend has no threads"
    ):
        compile_program(launching(tree_sum()))
    b = Builder()
    b.barrier()
    with pytest.raises(GraphError, match="toy: f: `barrier`: the backend has no barriers"):
        check_supported(b.function("f", written=[]), "toy")
    b = Builder()
    b.scratch("part", float32, 4, "shared")
    with pytest.raises(GraphError, match="toy: f: the backend has no shared memory, got part"):
        check_supported(b.function("f", written=[]), "toy")


def test_a_backend_with_threads_takes_them() -> None:
    check_supported(tree_sum(), "gpu", threads=True)
