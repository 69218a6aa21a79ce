"""Kernels as machine code: loops in lanes, accesses, masks, accumulation, failures and checks of bounds."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.llvm.harness import Kernel
from tests.loop.random_functions import functions, sized_functions
from tests.of_code import examples, turn_of
from weft.backends.llvm.emit.kernel import emit_kernel
from weft.backends.llvm.target import Target, host_target
from weft.base.dtypes import (
    DTYPES,
    DType,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int32,
    int64,
    kind,
    uint8,
)
from weft.base.sizes import named_size
from weft.loop.builder import Builder
from weft.loop.interpret import run_function
from weft.loop.ir import Function

Array = np.ndarray[Any, Any]
WIDTHS = [width for width in (16, 32, 64) if width <= host_target().vector_bytes]
WAYS = [(host_target(), True), *[(host_target(width), False) for width in WIDTHS]]
EXTENTS = [1, 2, 3, 7, 19, 33, 64, 130]
ARM = Target("aarch64-unknown-linux-gnu", "neoverse-n1", "", vector_bytes=16, registers=32)
PARTS = 3


def numbers(dtype: DType, n: int, seed: int = 0) -> Array:
    """Small whole numbers, of which all sums are exact."""
    rng = np.random.default_rng(seed)
    if dtype == bool_:
        return rng.random(n) < 0.5
    low = 0 if kind(dtype) == "u" else -4
    out = rng.integers(low, 5, n).astype(np.float64)
    return (out + 1j * rng.integers(-4, 5, n) if kind(dtype) == "c" else out).astype(dtype)


def comparable(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype in (float16, bfloat16) else x


def check(
    function: Function, arrays: list[Array], sizes: dict[str, int] | None = None, parts: int = 1
) -> None:
    """The machine code does what the interpreter does, for wide and narrow vectors, and with checks."""
    want = [a.copy() for a in arrays]
    run_function(function, want, sizes)
    for target, debug in WAYS:
        got = [a.copy() for a in arrays]
        context = Kernel(function, target, debug=debug)(got, sizes, parts)
        for x, y in zip(got, want, strict=True):
            np.testing.assert_array_equal(comparable(x), comparable(y))
        assert not context[0]


# Random functions


@examples(25, 8)
@given(functions(), st.integers(1, 3))
def test_random_function_is_as_interpreted(drawn: tuple[Function, list[Array]], parts: int) -> None:
    check(*drawn, parts=parts)


@examples(25, 8)
@given(sized_functions())
def test_random_function_with_named_sizes_is_as_interpreted(
    drawn: tuple[Function, list[Array], dict[str, int]],
) -> None:
    check(*drawn)


# Vector loops


@pytest.mark.rotating(4)
@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("lanes", [0, 1, 5])
def test_vector_loop_covers_every_extent(extent: int, lanes: int) -> None:
    b = Builder()
    x, y, total = b.buffer("x", float32, extent), b.buffer("y", float32, extent), b.buffer("t", float32, 1)
    sum_ = b.local(3.0, float32)
    with b.vector(extent, lanes=lanes) as i:
        value = b.add(b.mul(b.load(x, i), 2.0), 1.0)
        b.store(y, i, value)
        b.accumulate(sum_, "add", value)
    b.store(total, 0, b.get(sum_))
    check(b.function("f", written=[y, total]), [numbers(float32, n) for n in (extent, extent, 1)])


@pytest.mark.parametrize("n", [0, *EXTENTS])
def test_vector_loop_covers_every_named_extent(n: int) -> None:
    size = named_size("n")
    b = Builder()
    x, y, total = b.buffer("x", float32, size), b.buffer("y", float32, size), b.buffer("t", float32, 1)
    sum_ = b.local(3.0, float32)
    with b.vector(size) as i:
        value = b.add(b.mul(b.load(x, i), 2.0), 1.0)
        b.store(y, i, value)
        b.accumulate(sum_, "add", value)
    b.store(total, 0, b.get(sum_))
    function = b.function("f", written=[y, total], sizes=["n"])
    check(function, [numbers(float32, m) for m in (n, n, 1)], {"n": n})


@pytest.mark.rotating(4)
@pytest.mark.parametrize(
    ("stride", "dtype"),
    [(s, d) for s in (1, 2, -1, -2) for d in turn_of(DTYPES, PARTS, name=lambda d, s=s: f"{s} {d}")],
)
def test_elements_are_read_and_written_at_any_stride(dtype: DType, stride: int) -> None:
    """A run takes a third of the dtypes, others whenever weft's code is another; all with WEFT_ALL=1."""
    n, span = 37, 37 * 3
    b = Builder()
    x, y = b.buffer("x", dtype, span), b.buffer("y", dtype, span)
    with b.vector(n) as i:
        at = i * stride + (0 if stride > 0 else span - 1)
        b.store(y, at, b.load(x, at))
        b.store(y, span - 1 - at, b.load(x, span - 1 - at), b.lt(i, 5))
    check(b.function("f", written=[y]), [numbers(dtype, span, seed) for seed in (0, 1)])


@pytest.mark.rotating(4)
@pytest.mark.parametrize("dtype", DTYPES)
def test_masks_keep_lanes_from_memory(dtype: DType) -> None:
    n = 53
    b = Builder()
    x, y, m = b.buffer("x", dtype, n), b.buffer("y", dtype, 2 * n), b.buffer("m", bool_, n)
    with b.vector(n) as i:
        mask = b.load(m, i)
        b.store(y, i, b.load(x, i + 7, b.lt(i, n - 7)))
        b.store(y, i + n, b.load(x, i, mask), b.not_(mask))
    check(b.function("f", written=[y]), [numbers(dtype, n), numbers(dtype, 2 * n, 1), numbers(bool_, n, 2)])


@pytest.mark.rotating(4)
@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_are_gathered_and_scattered(dtype: DType) -> None:
    n = 45
    b = Builder()
    x, y, at = b.buffer("x", dtype, n), b.buffer("y", dtype, n), b.buffer("at", int32, n)
    with b.vector(n) as i:
        place = b.term(b.cast(b.load(at, i), int64), n)
        b.store(y, place, b.load(x, place, b.lt(place, n - 3)))
    places = np.random.default_rng(3).permutation(n).astype(np.int32)
    check(b.function("f", written=[y]), [numbers(dtype, n), numbers(dtype, n, 1), places])


INSTRUCTIONS = {"add": "iufc", "mul": "iufc", "min": "biuf", "max": "biuf", "and_": "biu", "or_": "biu"}


def _accumulated() -> list[tuple[str, DType]]:
    """Each instruction with the first dtype that it takes, and a third of the others."""
    taken = {i: [d for d in DTYPES if kind(d) in kinds] for i, kinds in INSTRUCTIONS.items()}
    return [(i, d) for i, ds in taken.items() for d in turn_of(ds, PARTS, name=lambda d, i=i: f"{i} {d}")]


@pytest.mark.rotating(4)
@pytest.mark.parametrize(("instruction", "dtype"), _accumulated())
def test_accumulation_is_as_in_order_where_sums_are_exact(instruction: str, dtype: DType) -> None:
    """A run takes a third of the dtypes, others whenever weft's code is another; all with WEFT_ALL=1."""
    n = 21
    b = Builder()
    x, y = b.buffer("x", dtype, 2 * n), b.buffer("y", dtype, 2)
    total = b.local(1, dtype)
    with b.vector(n) as i:
        b.accumulate(total, instruction, b.load(x, i))
        with b.if_(b.lt(i, 4)):
            b.accumulate(total, instruction, b.load(x, i + n))
    b.store(y, 0, b.get(total))
    data = numbers(dtype, 2 * n)
    if instruction == "mul":
        data = np.where(np.arange(2 * n) % 9 == 0, data, 1).astype(dtype)
    check(b.function("f", written=[y]), [data, numbers(dtype, 2, 1)])


def test_sum_in_lanes_is_the_same_in_every_run_and_as_good_as_numpys() -> None:
    n = 100_003
    b = Builder()
    x, y = b.buffer("x", float32, n), b.buffer("y", float32, 1)
    total = b.local(0.0, float32)
    with b.vector(n) as i:
        b.accumulate(total, "add", b.load(x, i))
    b.store(y, 0, b.get(total))
    data = np.random.default_rng(0).random(n).astype(np.float32)
    kernel = Kernel(b.function("f", written=[y]))
    results = set()
    for _ in range(3):
        out = np.zeros(1, np.float32)
        kernel([data, out])
        results.add(out[0])
    assert len(results) == 1
    assert abs(results.pop() - data.sum(dtype=np.float64)) < 0.1


def test_nan_and_inf_pass_through_min_and_max_in_lanes() -> None:
    for instruction, want in (("min", -np.inf), ("max", np.inf)):
        for extra, result in ((0.0, want), (np.nan, np.nan)):
            b = Builder()
            x, y = b.buffer("x", float32, 40), b.buffer("y", float32, 1)
            best = b.local(0.0, float32)
            with b.vector(40) as i:
                b.accumulate(best, instruction, b.load(x, i))
            b.store(y, 0, b.get(best))
            data, out = np.zeros(40, np.float32), np.zeros(1, np.float32)
            data[[5, 17, 38]] = want, extra, 1.0
            Kernel(b.function("f", written=[y]))([data, out])
            np.testing.assert_array_equal(out, [result])


def test_lanes_part_at_an_if() -> None:
    n = 50
    b = Builder()
    x, y = b.buffer("x", float32, n), b.buffer("y", float32, 2 * n)
    with b.vector(n) as i:
        value = b.load(x, i)
        local = b.local(value)
        with b.if_(b.lt(value, 0.0)) as otherwise:
            b.set(local, b.mul(value, 10.0))
            b.store(y, i, b.get(local))
        with b.inside(otherwise):
            b.set(local, b.add(b.load(x, i), 0.5))
        b.store(y, n + i, b.get(local))
    check(b.function("f", written=[y]), [numbers(float32, n), numbers(float32, 2 * n, 1)])


def test_loops_inside_lanes_keep_locals_in_lanes() -> None:
    m, n = 6, 35
    b = Builder()
    x, y = b.buffer("x", float64, m * n), b.buffer("y", float64, n)
    with b.vector(n) as j:
        total, last = b.local(0.0, float64), b.local(b.load(x, j))
        with b.loop(m) as i:
            value = b.load(x, i * n + j)
            b.set(last, b.select(b.lt(value, 0.0), b.get(last), value))
            b.accumulate(total, "add", value)
        b.store(y, j, b.add(b.get(total), b.mul(b.get(last), 100.0)))
    check(b.function("f", written=[y]), [numbers(float64, m * n), numbers(float64, n, 1)])


def test_loop_whose_lanes_would_end_at_different_times_runs_in_order() -> None:
    n = 20
    b = Builder()
    x, y = b.buffer("x", int64, n), b.buffer("y", int64, n)
    with b.vector(n) as i:
        total = b.local(0, int64)
        with b.loop(b.term(b.max(b.load(x, i), 0))) as k:
            b.accumulate(total, "add", b.add(b.term(b.get(total)), k))
        b.store(y, i, b.get(total))
    check(b.function("f", written=[y]), [numbers(int64, n), numbers(int64, n, 1)])


def test_memory_that_is_reused_is_read_before_it_is_written() -> None:
    n = 1000
    b = Builder()
    x, y, z = b.buffer("x", float32, n), b.buffer("y", float32, n), b.buffer("z", float32, n)
    with b.vector(n) as i:
        b.store(y, i, b.add(b.load(z, i), 1.0))
        b.store(z, i, b.load(x, i))
    data, other = numbers(float32, n), numbers(float32, n, 1)
    want, kernel = other + 1, Kernel(b.function("f", written=[y, z], reuses=[(0, 2)]))
    out = np.zeros(n, np.float32)
    kernel([data, out, data])
    np.testing.assert_array_equal(out, data + 1)
    kernel([data, out, other])
    np.testing.assert_array_equal(out, want)


def test_what_is_before_a_loop_that_does_not_run_is_not_read() -> None:
    size = named_size("n")
    b = Builder()
    x, y = b.buffer("x", float32, size), b.buffer("y", float32, size)
    with b.loop(size) as i, b.vector(8) as j:
        b.store(y, i, b.load(x, 0), b.lt(j, 1))
    kernel = Kernel(b.function("f", written=[y], sizes=["n"]))
    kernel([_nowhere(), _nowhere()], {"n": 0})


class _Nowhere:
    """Stands for an array at an address where nothing is."""

    class ctypes:  # noqa: N801 - as arrays have it
        data = 8


def _nowhere() -> Any:
    return _Nowhere()


# Failures and checks


@pytest.mark.parametrize("extent", [1, 5, 64, 77])
def test_first_lane_that_fails_is_told(extent: int) -> None:
    b = Builder()
    x = b.buffer("x", int64, extent)
    with b.vector(extent) as i:
        value = b.load(x, i)
        b.fail(b.lt(value, 0), 4, value, i)
    kernel = Kernel(b.function("f", written=[]))
    data = np.arange(extent)
    assert not kernel([data]).any()
    data[extent // 2 :] = -1 - data[extent // 2 :]
    np.testing.assert_array_equal(kernel([data])[:3], [5, -1 - extent // 2, extent // 2])


def test_first_failure_stays() -> None:
    b = Builder()
    x = b.buffer("x", int64, 3)
    with b.loop(3) as i:
        b.fail(b.lt(b.load(x, i), 0), 1, i)
    b.fail(b.constant(True, bool_), 2)
    kernel = Kernel(b.function("f", written=[]))
    np.testing.assert_array_equal(kernel([np.array([1, -1, -1])])[:2], [2, 1])
    np.testing.assert_array_equal(kernel([np.array([1, 1, 1])])[:2], [3, 0])


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("dtype", [float32, bool_, complex128, uint8])
def test_checks_find_an_index_out_of_bounds_and_do_no_harm(vector: bool, dtype: DType) -> None:
    n = 20
    b = Builder()
    x, y = b.buffer("x", dtype, n), b.buffer("y", dtype, n)
    with b.vector(n) if vector else b.loop(n) as i:
        b.store(y, i + 2, b.load(x, i))
    memory = np.zeros(n + 64, dtype)
    context = Kernel(b.function("f", written=[y]), debug=True)([np.ones(n, dtype), memory])
    np.testing.assert_array_equal(context[:4], [-1, 1, n, n])
    np.testing.assert_array_equal(memory[:n], [0, 0, *[1] * (n - 2)])
    assert not memory[n:].any()


def test_checks_leave_out_what_a_mask_leaves_out() -> None:
    b = Builder()
    x, y = b.buffer("x", float32, 8), b.buffer("y", float32, 16)
    with b.vector(16) as i:
        b.store(y, i, b.load(x, i, b.lt(i, 8)))
    check(b.function("f", written=[y]), [numbers(float32, 8), numbers(float32, 16)])


def test_checks_find_a_copy_out_of_bounds() -> None:
    b = Builder()
    x, y = b.buffer("x", float32, 8), b.buffer("y", float32, 8)
    b.copy(y, 4, x, 0, 5)
    out = np.zeros(32, np.float32)
    context = Kernel(b.function("f", written=[y]), debug=True)([np.ones(8, np.float32), out])
    np.testing.assert_array_equal(context[:4], [-1, 1, 8, 8])
    assert not out.any()


# Other machines


@pytest.mark.parametrize("dtype", [float32, float16, complex64, bool_, int64])
def test_code_for_arm_is_vector_code(dtype: DType) -> None:
    b = Builder()
    x, y = b.buffer("x", dtype, 130), b.buffer("y", dtype, 130)
    with b.vector(130) as i:
        b.store(y, i, b.add(b.load(x, i), b.load(x, i)))
    text = _arm_code(b.function("f", written=[y]))
    assert "\tbl\t" not in text, "no function is called"
    assert any(f"ld{way}\t" in text or f"ldp\tq{way}" in text or "ldr\tq" in text for way in "012"), text


@pytest.mark.parametrize("extent", [3, 7, 19, 39])
def test_code_for_arm_has_no_three_lanes(extent: int) -> None:
    b = Builder()
    x, y = b.buffer("x", int64, extent), b.buffer("y", uint8, extent)
    with b.vector(extent) as i:
        b.store(y, i, b.cast(b.load(x, i), uint8))
    function = b.function("f", written=[y])
    assert "<3 x" not in emit_kernel(function, "f", ARM)


def _arm_code(function: Function) -> str:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(ARM.triple).create_target_machine(ARM.cpu, opt=2)
    module = llvm.parse_assembly(emit_kernel(function, "f", ARM), llvm.create_context())
    module.verify()
    return str(machine.emit_assembly(module))
