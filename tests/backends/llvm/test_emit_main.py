"""Main functions as machine code: launches, control flow, the heap, matrix products, calls back."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.backends.llvm.harness import Main
from weft.backends.llvm.emit.launches import RECORD, recorded_statements
from weft.backends.llvm.emit.places import OUT_OF_MEMORY
from weft.base.dtypes import DType, complex64, complex128, float16, float32, float64, int64
from weft.base.sizes import named_size
from weft.errors import DtypeError
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.interpret import FailureError, run_program
from weft.loop.ir import Allocate, Bind, Buffer, Free, Function, Host, Launch, Leave, Matmul, Program, Wave

Array = np.ndarray[Any, Any]
ZERO = Index.of(0)
N = named_size("n")


def scaled(size: Any, factor: float) -> Function:
    """A kernel: y = factor * x, row by row."""
    b = Builder()
    x, y = b.buffer("x", float32, size * 8), b.buffer("y", float32, size * 8)
    with b.parallel(size) as i, b.vector(8) as j:
        b.store(y, i * 8 + j, b.mul(b.load(x, i * 8 + j), factor))
    return b.function("scaled", written=[y], sizes=["n"] if size is N else [])


def program(
    b: Builder,
    inputs: int,
    outputs: int,
    *,
    arena: dict[Buffer, Any] | None = None,
    heap: tuple[Buffer, ...] = (),
    sizes: tuple[str, ...] = (),
    donated: tuple[tuple[int, int], ...] = (),
    scratch: Any = 0,
) -> Program:
    """What a builder wrote, as a program."""
    main = b.function("main", written=b.buffers[inputs:], sizes=sizes)
    return Program(main, inputs, outputs, (), arena or {}, scratch, heap, ("a", "b"), (), donated)


def check(p: Program, inputs: list[Array], sizes: dict[str, int] | None = None) -> Main:
    """The machine code does what the interpreter does, optimised and not, and with checks."""
    want = run_program(p, inputs, sizes=sizes)
    for optimise, debug in ((True, False), (False, False), (False, True)):
        main = Main(p, optimise=optimise, debug=debug)
        for x, y in zip(main([a.copy() for a in inputs], sizes), want, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6)
        assert not main.context[0]
    return main


# Launches


@pytest.mark.rotating(3)
@pytest.mark.parametrize("cost", [0.0, 1.0, 5000.0])
@pytest.mark.parametrize("size", [1, 7, 40])
def test_kernels_run_alone_and_on_the_pool(size: int, cost: float) -> None:
    b = Builder()
    x, y, t = (
        b.buffer("x", float32, size * 8),
        b.buffer("y", float32, size * 8),
        Buffer("t", float32, size * 8),
    )
    b.add_statement(Launch(scaled(size, 2.0), ((x, ZERO), (t, ZERO)), cost))
    b.add_statement(Launch(scaled(size, 3.0), ((t, ZERO), (y, ZERO)), cost))
    p = program(b, 1, 1, arena={t: 64}, scratch=64 + size * 32)
    main = check(p, [np.arange(size * 8, dtype=np.float32)])
    assert ("@weft_wave" in main.text) == (cost * size >= 20_000)


@pytest.mark.parametrize("n", [0, 1, 3, 50])
def test_number_of_iterations_decides_about_the_pool(n: int) -> None:
    b = Builder()
    x, y = b.buffer("x", float32, N * 8), b.buffer("y", float32, N * 8)
    b.add_statement(Launch(scaled(N, 2.0), ((x, ZERO), (y, ZERO)), 900.0))
    check(program(b, 1, 1, sizes=("n",)), [np.arange(n * 8, dtype=np.float32)], {"n": n})


@pytest.mark.parametrize("cost", [1.0, 9000.0])
def test_launches_of_a_wave_all_run(cost: float) -> None:
    b = Builder()
    x, y = b.buffer("x", float32, 24), b.buffer("y", float32, 48)
    launches = [
        Launch(scaled(3, f), ((x, ZERO), (y, Index.of(24 * i))), cost) for i, f in enumerate((2.0, 5.0))
    ]
    b.add_statement(Wave(tuple(launches)))
    check(program(b, 1, 1), [np.arange(24, dtype=np.float32)])


def test_launch_begins_where_its_index_says() -> None:
    b = Builder()
    x, y = b.buffer("x", float32, 64), b.buffer("y", float32, 32)
    with b.loop(4) as i:
        b.add_statement(Launch(scaled(1, 2.0), ((x, i * 16 + 3), (y, i * 8))))
    check(program(b, 1, 1), [np.arange(64, dtype=np.float32)])


def test_donated_input_is_updated_in_place() -> None:
    b = Builder()
    x, y = b.buffer("x", float32, 100), b.buffer("y", float32, 100)
    with b.loop(99) as i:
        b.store(y, i, b.add(b.load(x, i), b.load(x, i + 1)))
    b.store(y, 99, b.load(x, 99))
    p = program(b, 1, 1, donated=((0, 0),))
    main = Main(p)
    data = np.arange(100, dtype=np.float32)
    memory = data.copy()
    main.buffers = np.array([memory.ctypes.data] * 2, np.int64)
    main.native(*[a.ctypes.data for a in (np.zeros(16, np.int64), main.buffers, memory, main.sizes)])
    np.testing.assert_array_equal(memory, np.append(data[:-1] + data[1:], 99))


# Control flow and scalars


def test_while_and_if_on_scalars_and_memory() -> None:
    b = Builder()
    x, y = b.buffer("x", float64, 10), b.buffer("y", float64, 10)
    a, steps = b.local(1.0, float64), b.local(0, int64)
    with b.while_(lambda: b.lt(b.get(a), 1000.0)):
        with b.if_(b.lt(b.get(a), 100.0)) as otherwise:
            b.set(a, b.mul(b.get(a), 3.0))
        with b.inside(otherwise):
            b.set(a, b.add(b.get(a), b.load(x, b.term(b.rem(b.get(steps), 10), 10))))
        b.set(steps, b.add(b.get(steps), 1))
    b.store(y, 0, b.get(a))
    b.store(y, 1, b.cast(b.get(steps), float64))
    with b.loop(8) as i:
        b.store(y, i + 2, b.load(y, i))
    check(program(b, 1, 1), [np.arange(50.0, 60.0)])


def test_named_size_that_the_run_tells_is_handed_over_with_its_output() -> None:
    b = Builder()
    x = b.buffer("x", float32, 5)
    y = b.buffer("y", float32, named_size("m"))
    count = b.local(0, int64)
    with b.loop(5) as i, b.if_(b.lt(b.constant(0, float32), b.load(x, i))):
        b.add_statement(Allocate(y, b.term(b.get(count)) + 1))
        b.store(y, b.term(b.get(count)), b.load(x, i))
        b.set(count, b.add(b.get(count), 1))
    b.add_statement(Bind("m", b.get(count)))
    p = program(b, 1, 1, heap=(y,), sizes=("m",))
    for optimise in (True, False):
        main = Main(p, optimise=optimise)
        main([np.array([1, -1, 2, 0, 3], np.float32)])
        assert main.sizes[0] == 3
        address = int(main.buffers[1])
        found = np.ctypeslib.as_array((ctypes.c_float * 3).from_address(address)).copy()
        ctypes.CDLL(None).free(ctypes.c_void_p(address))
        np.testing.assert_array_equal(found, [1, 2, 3])


def test_list_on_the_heap_grows_and_keeps_what_it_held() -> None:
    b = Builder()
    x, y = b.buffer("x", float32, 1), b.buffer("y", float32, 100)
    grown = Buffer("grown", float32, named_size("m"))
    with b.loop(100) as i:
        b.add_statement(Allocate(grown, i + 1))
        b.store(grown, i, b.add(b.cast(i, float32), b.load(x, 0)))
    b.add_statement(Bind("m", Index.of(100)))
    b.copy(y, 0, grown, 0, 100)
    b.add_statement(Free(grown))
    check(program(b, 1, 1, heap=(grown,), sizes=("m",)), [np.array([0.5], np.float32)], {"m": 100})


def test_allocation_that_the_system_refuses_is_a_failure() -> None:
    b = Builder()
    x, y = b.buffer("x", int64, 1), b.buffer("y", float64, 1)
    huge = Buffer("huge", float64, named_size("m"))
    b.add_statement(Allocate(huge, b.term(b.load(x, 0))))
    b.store(huge, 0, 1.0)
    b.store(y, 0, b.load(huge, 0))
    main = Main(program(b, 1, 1, heap=(huge,), sizes=("m",)), optimise=False)  # LLVM needs no memory for it
    assert main([np.array([3])])[0] == [1.0]
    assert main([np.array([2**58])])[0] == [0.0]
    np.testing.assert_array_equal(main.context[:2], [OUT_OF_MEMORY + 1, 2**61])


def test_failure_ends_the_program_at_the_next_leave() -> None:
    b = Builder()
    x, y = b.buffer("x", int64, 1), b.buffer("y", int64, 2)
    value = b.load(x, 0)
    b.fail(b.lt(value, 0), 0, value)
    b.fail(b.lt(value, -5), 1)
    b.store(y, 0, b.constant(1, int64))
    b.add_statement(Leave())
    b.store(y, 1, b.constant(1, int64))
    p = program(b, 1, 1)
    check(p, [np.array([3])])
    main = Main(p)
    np.testing.assert_array_equal(main([np.array([-7])])[0], [1, 0])
    np.testing.assert_array_equal(main.context[:2], [1, -7])
    with pytest.raises(FailureError, match="failure 0"):
        run_program(p, [np.array([-7])])


# Matrix products


@pytest.mark.rotating(4)
@pytest.mark.parametrize("dtype", [float32, float64, complex64, complex128])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("add", [False, True])
def test_matrix_product_is_numpys(dtype: DType, transposed: tuple[bool, bool], add: bool) -> None:
    m, n, k = 3, 4, 5
    rng = np.random.default_rng(0)
    a, b_, c = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((m, k), (k, n), (m, n)))
    if dtype in (complex64, complex128):
        a = a * (1 + 2j)
    b = Builder()
    buffers = [b.buffer(name, dtype, x.size) for name, x in (("a", a), ("b", b_), ("c", c), ("y", c))]
    b.copy(buffers[3], 0, buffers[2], 0, c.size)
    rows = [Index.of(r) for r in (m if transposed[0] else k, k if transposed[1] else n, n)]
    places = [(buffer, ZERO) for buffer in (*buffers[:2], buffers[3])]
    sizes = [Index.of(s) for s in (m, n, k)]
    b.add_statement(Matmul(*places, *sizes, tuple(rows), transposed, add))  # type: ignore[arg-type]
    stored = [np.ascontiguousarray(x.T if t else x).ravel() for x, t in zip((a, b_), transposed, strict=True)]
    main = check(program(b, 3, 1), [*[s.astype(dtype) for s in stored], c.ravel()])
    want = a @ b_ + (c if add else 0)
    np.testing.assert_allclose(main([*[s.astype(dtype) for s in stored], c.ravel()])[0], want.ravel())


def test_matrix_product_without_a_sum_is_zero() -> None:
    b = Builder()
    x, y = b.buffer("x", float32, 4), b.buffer("y", float32, 4)
    sizes, rows = [Index.of(s) for s in (2, 2, 0)], (ZERO, Index.of(2), Index.of(2))
    b.add_statement(Matmul((x, ZERO), (x, ZERO), (y, ZERO), *sizes, rows, (False, False)))
    for debug in (False, True):
        np.testing.assert_array_equal(
            Main(program(b, 1, 1), debug=debug)([np.ones(4, np.float32)])[0], np.zeros(4)
        )


def test_matrix_product_of_half_precision_is_refused() -> None:
    b = Builder()
    x, y = b.buffer("x", float16, 1), b.buffer("y", float16, 1)
    one = Index.of(1)
    b.add_statement(Matmul((x, ZERO), (x, ZERO), (y, ZERO), one, one, one, (one, one, one), (False, False)))
    with pytest.raises(DtypeError, match="must be of floats of 4 or 8 bytes, got float16"):
        Main(program(b, 1, 1))


# Checks, calls back, times


def test_checks_find_a_launch_out_of_bounds() -> None:
    b = Builder()
    x, y = b.buffer("x", float32, 8), b.buffer("y", float32, 8)
    b.add_statement(Launch(scaled(1, 2.0), ((x, Index.of(1)), (y, ZERO))))
    main = Main(program(b, 1, 1), debug=True)
    main([np.ones(9, np.float32)])
    np.testing.assert_array_equal(main.context[:4], [-1, -1, 1, 8])  # buffers of main count down from -1


def test_checks_find_a_matrix_out_of_bounds_and_do_no_harm() -> None:
    b = Builder()
    x, y = b.buffer("x", float32, 4), b.buffer("y", float32, 4)
    sizes, two = [Index.of(s) for s in (2, 2, 3)], Index.of(2)
    b.add_statement(Matmul((x, ZERO), (x, ZERO), (y, ZERO), *sizes, (Index.of(3), two, two), (False, False)))
    main = Main(program(b, 1, 1), debug=True)
    np.testing.assert_array_equal(main([np.ones(8, np.float32)])[0], np.zeros(4))
    np.testing.assert_array_equal(main.context[:4], [-1, -1, 5, 4])


def test_host_is_called_with_addresses_and_sizes() -> None:
    seen = []

    def host(frame: int, number: int, inputs: int, outputs: int, sizes: int) -> None:
        (source,) = ctypes.cast(inputs, ctypes.POINTER(ctypes.c_int64 * 1)).contents
        (target,) = ctypes.cast(outputs, ctypes.POINTER(ctypes.c_int64 * 1)).contents
        n = ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64))[0]
        seen.append((frame, number, n))
        ctypes.memmove(target, source, n * 4)

    b = Builder()
    x, y = b.buffer("x", float32, N + 2), b.buffer("y", float32, N)
    b.add_statement(Host(6, ((x, Index.of(2)),), ((y, ZERO),), (Index.of(N),)))
    main = Main(program(b, 1, 1, sizes=("n",)), host=host)
    np.testing.assert_array_equal(main([np.arange(5, dtype=np.float32)], {"n": 3})[0], [2, 3, 4])
    assert seen == [(77, 6, 3)]


def test_profile_tells_how_often_and_how_long_each_statement_runs() -> None:
    b = Builder()
    x, y = b.buffer("x", float32, 8000), b.buffer("y", float32, 8000)
    with b.loop(5):
        b.add_statement(Launch(scaled(1000, 2.0), ((x, ZERO), (y, ZERO)), 100.0))
    b.add_statement(Host(0, (), ()))
    p = program(b, 1, 1)
    statements = recorded_statements(p)
    assert [type(s) for s in statements] == [Launch, Host]
    records = np.zeros((2, len(RECORD)), np.int64)
    Main(p, profile=True)([np.ones(8000, np.float32)], records=records)
    np.testing.assert_array_equal(records[:, 0], [5, 1])
    assert (records[:, 1] > 0).all()
    assert (records[:, 3] - records[:, 2] >= records[:, 1]).all()
