from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.loop.everything import HostCall, program
from weft.base.dtypes import (
    DTYPES,
    DType,
    bfloat16,
    bool_,
    complex64,
    float16,
    float32,
    float64,
    int16,
    int32,
    int64,
    kind,
)
from weft.base.sizes import named_size
from weft.errors import ArgumentError, BoundsError
from weft.ir.types import TensorType
from weft.loop import ir
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.interpret import FailureError, run_function, run_program
from weft.loop.ir import Buffer, Function, Program
from weft.ops.table import find_op

Array = np.ndarray[Any, Any]
ZERO = Index.of(0)


def elementwise(dtypes: list[DType], out: DType, code: Any, *arrays: Any) -> Array:
    """What scalar code gives on each element of arrays."""
    b = Builder()
    n = len(arrays[0])
    inputs = [b.buffer(f"x{i}", dtype, n) for i, dtype in enumerate(dtypes)]
    y = b.buffer("y", out, n)
    with b.vector(n) as i:
        b.store(y, i, code(b, *[b.load(x, i) for x in inputs]))
    result = np.zeros(n, out)
    run_function(
        b.function("f", written=[y]),
        [*[np.asarray(a, d) for a, d in zip(arrays, dtypes, strict=True)], result],
    )
    return result


# Scalars


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_of_every_dtype_are_loaded_and_stored(dtype: DType) -> None:
    x = np.array([0, 1, 1, 0, 1]).astype(dtype)
    np.testing.assert_array_equal(elementwise([dtype], dtype, lambda b, x: x, x), x)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if kind(d) != "b"])
def test_sums_and_products_agree_with_numpy(dtype: DType) -> None:
    x, y = np.array([3, 0, 7, 100]).astype(dtype), np.array([2, 5, 1, 100]).astype(dtype)
    out = elementwise([dtype] * 2, dtype, lambda b, x, y: b.add(b.mul(x, y), x), x, y)
    np.testing.assert_array_equal(out, x * y + x)


@pytest.mark.parametrize(("half", "name"), [(float16, "float16"), (bfloat16, "bfloat16")])
def test_half_precision_is_computed_in_float32_and_rounded_when_stored(half: DType, name: str) -> None:
    x = np.array([1.0, 300.0]).astype(half)
    tiny = float(np.finfo(np.float16).eps) / 8
    out = elementwise([half], half, lambda b, x: b.mul(b.sub(b.add(x, tiny), x), 1024.0), x)
    expected = (x.astype("f4") + np.float32(np.asarray(tiny, half)) - x.astype("f4")) * np.float32(1024)
    np.testing.assert_array_equal(out, expected.astype(half))
    assert out[0] != 0


def test_half_precision_is_rounded_when_cast() -> None:
    x = np.array([1.0], bfloat16)
    out = elementwise([bfloat16], float32, lambda b, x: b.cast(b.add(x, 2**-12), float32), x)
    assert out[0] == 1.0


def test_bits_of_half_precision() -> None:
    x = np.array([1.5, -2.0], bfloat16)
    out = elementwise([bfloat16], int16, lambda b, x: b.bitcast(x, int16), x)
    np.testing.assert_array_equal(out, x.view(int16))
    np.testing.assert_array_equal(elementwise([int16], bfloat16, lambda b, x: b.bitcast(x, bfloat16), out), x)


def test_integers_divide_towards_zero_and_by_zero_without_error() -> None:
    x, y = [7, -7, 7, -7, 5, -(2**31)], [2, 2, -2, -2, 0, -1]
    out = elementwise([int32] * 2, int32, lambda b, x, y: b.div(x, y), x, y)
    np.testing.assert_array_equal(out, [3, -3, -3, 3, 0, -(2**31)])


def test_complex_numbers_have_parts() -> None:
    x = np.array([1 + 2j, -3j], complex64)
    out = elementwise([complex64], complex64, lambda b, x: b.complex(b.imag(x), b.real(x)), x)
    np.testing.assert_array_equal(out, [2 + 1j, -3])
    assert elementwise([complex64], float32, lambda b, x: b.abs(x), np.array([3 + 4j]))[0] == 5


def test_select_compares_and_converts() -> None:
    x = [1.5, np.nan, -2.5]
    out = elementwise(
        [float64], int64, lambda b, x: b.select(b.lt(x, 0.0), b.cast(x, int64), b.constant(9, int64)), x
    )
    np.testing.assert_array_equal(out, [9, 9, -2])
    np.testing.assert_array_equal(
        elementwise([float64], bool_, lambda b, x: b.eq(x, x), x), [True, False, True]
    )


def test_index_is_a_scalar() -> None:
    b = Builder()
    y = b.buffer("y", int64, 6)
    with b.loop(2) as i, b.loop(3) as j:
        b.store(y, i * 3 + j, b.mul(i * 10 + j, b.add(j, 1)))
    out = np.zeros(6, int64)
    run_function(b.function("f", written=[y]), [out])
    np.testing.assert_array_equal(out, [0, 2, 6, 10, 22, 36])


# Loops, locals and masks


def test_transposed_copy_with_strides() -> None:
    b = Builder()
    x, y = b.buffer("x", float32, 12), b.buffer("y", float32, 12)
    with b.parallel(3) as i, b.vector(4) as j:
        b.store(y, j * 3 + i, b.load(x, i * 4 + j))
    given, out = np.arange(12, dtype="f4"), np.zeros(12, "f4")
    run_function(b.function("f", written=[y]), [given, out])
    np.testing.assert_array_equal(out.reshape(4, 3), given.reshape(3, 4).T)


def test_sum_over_rows_with_a_mask() -> None:
    b = Builder()
    x, y = b.buffer("x", float64, 20), b.buffer("y", float64, 4)
    with b.loop(4) as i:
        total = b.local(0.0, float64)
        with b.vector(8, 1) as j:
            b.accumulate(total, "add", b.load(x, i * 5 + j, b.lt(j, 5)))
        b.store(y, i, b.get(total), b.lt(i, 3))
    given, out = np.arange(20.0), np.full(4, -1.0)
    run_function(b.function("f", written=[y]), [given, out])
    np.testing.assert_array_equal(out, [*given.reshape(4, 5)[:3, 1:].sum(1), -1])


def test_branches_and_while_loops() -> None:
    b = Builder()
    x, y = b.buffer("x", int64, 4), b.buffer("y", int64, 4)
    with b.loop(4) as i:
        n, steps = b.local(b.load(x, i)), b.local(0, int64)
        with b.while_(lambda: b.lt(1, b.get(n))):
            now = b.get(n)
            with b.if_(b.eq(b.rem(now, 2), 0)) as otherwise:
                b.set(n, b.div(now, 2))
            with b.inside(otherwise):
                b.set(n, b.add(b.mul(now, 3), 1))
            b.set(steps, b.add(b.get(steps), 1))
        b.store(y, i, b.get(steps))
    out = np.zeros(4, int64)
    run_function(b.function("f", written=[y]), [np.array([1, 2, 3, 27]), out])
    np.testing.assert_array_equal(out, [0, 1, 7, 111])


def test_named_sizes_are_strides_bounds_and_numbers() -> None:
    n, m = named_size("n"), named_size("m")
    b = Builder()
    x, y = b.buffer("x", float32, n * m), b.buffer("y", float32, n * m + 1)
    with b.loop(n) as i, b.vector(m) as j:
        b.store(y, j * n + i, b.load(x, i * m + j))
    b.store(y, n * m, b.cast(b.add_statement(ir.Measure(n // 2)), float32))
    given, out = np.arange(15, dtype="f4"), np.zeros(16, "f4")
    run_function(b.function("f", written=[y], sizes=["n", "m"]), [given, out], {"n": 5, "m": 3})
    np.testing.assert_array_equal(out, [*given.reshape(5, 3).T.ravel(), 2])


def test_copy_and_matrix_product() -> None:
    b = Builder()
    a, c = b.buffer("a", float64, 20), b.buffer("c", float64, 20)
    b.copy(c, 12, a, 3, 4)
    two, three = Index.of(2), Index.of(3)
    rows = (Index.of(4), Index.of(3), Index.of(5))
    b.add_statement(
        ir.Matmul((a, Index.of(1)), (a, ZERO), (c, ZERO), two, two, three, rows, (False, True), True)
    )
    x, out = np.arange(20.0), np.ones(20)
    run_function(b.function("f", written=[c]), [x, out])
    left = np.array([x[1:4], x[5:8]])
    right = x[:6].reshape(2, 3).T
    np.testing.assert_array_equal(out[[0, 1, 5, 6]].reshape(2, 2), left @ right + 1)
    np.testing.assert_array_equal(out[12:16], x[3:7])


# Errors


def test_access_outside_of_a_buffer_names_the_statement() -> None:
    b = Builder()
    x, y = b.buffer("x", float32, 4), b.buffer("y", float32, 8)
    with b.vector(5) as i:
        b.store(y, i, b.load(x, i))
    with pytest.raises(BoundsError) as caught:
        run_function(b.function("f", written=[y]), [np.zeros(4, "f4"), np.zeros(8, "f4")])
    assert (
        caught.value.message
        == "f: `%0: f32 = load x[i1]`: indices must be inside, x has 4 elements, got 4 to 4"
    )


@pytest.mark.parametrize("at", [-1, 4])
def test_store_outside_of_a_buffer_is_an_error(at: int) -> None:
    b = Builder()
    y = b.buffer("y", float32, 4)
    b.store(y, at, 1.0)
    with pytest.raises(BoundsError, match="y has 4 elements"):
        run_function(b.function("f", written=[y]), [np.zeros(4, "f4")])


def test_overlapping_copy_is_an_error() -> None:
    b = Builder()
    y = b.buffer("y", float32, 4)
    b.copy(y, 1, y, 0, 2)
    with pytest.raises(BoundsError, match="the places must not overlap"):
        run_function(b.function("f", written=[y]), [np.zeros(4, "f4")])


def test_arrays_must_fit_the_buffers() -> None:
    b = Builder()
    b.buffer("y", float32, 4)
    function = b.function("f", written=[])
    with pytest.raises(ArgumentError, match="arrays must be 1, got 0"):
        run_function(function, [])
    for wrong in (np.zeros(4), np.zeros(3, "f4"), np.zeros((2, 2), "f4")):
        with pytest.raises(ArgumentError, match="must be given 4 elements of its dtype"):
            run_function(function, [wrong])


def test_first_failure_is_raised_at_the_end() -> None:
    b = Builder()
    y = b.buffer("y", float32, 4)
    with b.loop(4) as i:
        b.fail(b.lt(1, i), 5, i, i * 10)
        b.fail(b.lt(2, i), 6)
        b.store(y, i, 1.0)
    out = np.zeros(4, "f4")
    with pytest.raises(FailureError) as caught:
        run_function(b.function("f", written=[y]), [out])
    assert (caught.value.number, caught.value.values) == (5, (2, 20))
    np.testing.assert_array_equal(out, np.ones(4))


# Programs


def test_program_with_every_statement() -> None:
    x = np.arange(16, dtype="f4")
    y, z = run_program(program(), [x], sizes={"n": 2})
    t = x.reshape(2, 8) * [0, 0, 1, 0, 1, 0, 1, 0] * 2.5
    t[:, :3] = [0, 1, 2]
    t[:, 7] = -1e-9  # in place of what nobody wrote
    expected = np.sort(t.ravel())[::-1]
    np.testing.assert_array_equal(y[1:-2], expected[1:-2])
    assert y[0] == t[0, 1]
    assert z.shape == (4,)
    np.testing.assert_array_equal(x, np.arange(16))


def small(*statements: Any, **changes: Any) -> Program:
    x, y = Buffer("x", float32, 4), Buffer("y", float32, 4)
    body = ir.Block([s(x, y) for s in statements])
    main = Function("main", (x, y), (), body, frozenset({y}))
    return replace(Program(main, 1, 1, (), {}, 0, (), (), ()), **changes)


def copy_all(x: Buffer, y: Buffer) -> ir.Copy:
    return ir.Copy(y, ZERO, x, ZERO, Index.of(4))


def test_leave_ends_a_program_that_failed() -> None:
    fail = ir.Fail(ir.Const(np.bool_(True), bool_), 1)
    wrong = ir.Store
    far = lambda x, y: wrong(y, Index.of(99), ir.Const(np.float32(0), float32))  # noqa: E731
    with pytest.raises(FailureError):
        run_program(small(lambda x, y: fail, lambda x, y: ir.Leave(), far), [np.zeros(4, "f4")])
    with pytest.raises(BoundsError):
        run_program(small(lambda x, y: fail, far), [np.zeros(4, "f4")])


def test_inputs_are_not_changed_and_donated_ones_share_memory() -> None:
    one = ir.Const(np.float32(1), float32)
    store = lambda x, y: ir.Store(y, ZERO, one)  # noqa: E731
    given = np.arange(4, dtype="f4").reshape(2, 2)
    (out,) = run_program(small(store, donated=((0, 0),)), [given])
    np.testing.assert_array_equal(out, [1, 1, 2, 3])
    assert given[0, 0] == 0


def test_buffers_of_the_arena_share_memory_as_planned() -> None:
    a, b = Buffer("a", float32, 4), Buffer("b", float32, 4)

    def through(x: Buffer, y: Buffer) -> ir.Copy:
        return ir.Copy(a, ZERO, x, ZERO, Index.of(4))

    def back(x: Buffer, y: Buffer) -> ir.Copy:
        return ir.Copy(y, ZERO, b, ZERO, Index.of(4))

    given = np.arange(4, dtype="f4")
    (same,) = run_program(small(through, back, arena={a: 0, b: 0}, arena_size=16), [given])
    np.testing.assert_array_equal(same, given)
    (other,) = run_program(small(through, back, arena={a: 0, b: 16}, arena_size=32), [given])
    assert not np.array_equal(other, given)
    with pytest.raises(BoundsError, match="must be inside the arena of 16 bytes"):
        run_program(small(arena={a: 4}, arena_size=16), [given])


def test_heap_buffers_grow_keep_what_they_hold_and_are_gone_when_freed() -> None:
    heap = Buffer("h", float32, named_size("m"))
    steps = [
        lambda x, y: ir.Allocate(heap, Index.of(2)),
        lambda x, y: ir.Copy(heap, ZERO, x, ZERO, Index.of(2)),
        lambda x, y: ir.Allocate(heap, Index.of(4)),
        lambda x, y: ir.Copy(heap, Index.of(2), x, ZERO, Index.of(2)),
        lambda x, y: ir.Copy(y, ZERO, heap, ZERO, Index.of(4)),
        lambda x, y: ir.Free(heap),
    ]
    given = np.arange(4, dtype="f4")
    (out,) = run_program(small(*steps, heap=(heap,)), [given])
    np.testing.assert_array_equal(out, [0, 1, 0, 1])
    with pytest.raises(BoundsError, match="must have memory, got none"):
        run_program(small(*steps, steps[4], heap=(heap,)), [given])


def test_bound_sizes_are_known_to_launches_and_hosts() -> None:
    m = named_size("m")
    b = Builder()
    p, q = b.buffer("p", float32, m), b.buffer("q", float32, m)
    with b.parallel(m) as i:
        b.store(q, i, b.mul(b.load(p, i), 3.0))
    f = b.function("f", written=[q], sizes=["m"])
    type = TensorType((m,), float32)
    entry = HostCall(find_op("sort"), {"axis": 0, "descending": True}, (type,), (type,), (m,))
    (out,) = run_program(
        small(
            lambda x, y: ir.Bind("m", Index.of(2)),
            copy_all,
            lambda x, y: ir.Launch(f, ((x, Index.of(1)), (y, Index.of(2)))),
            lambda x, y: ir.Host(0, ((x, Index.of(2)),), ((y, ZERO),), (Index.of(m),)),
            hosts=(entry,),
        ),
        [np.arange(4, dtype="f4")],
    )
    np.testing.assert_array_equal(out, [3, 2, 3, 6])


def test_launch_beyond_a_buffer_is_an_error() -> None:
    f = Function("f", (Buffer("p", float32, 4),), (), ir.Block())
    with pytest.raises(BoundsError, match=r"main: `launch f\(x\+1\)`: indices must be inside, x has 4"):
        run_program(small(lambda x, y: ir.Launch(f, ((x, Index.of(1)),))), [np.zeros(4, "f4")])


def test_number_of_inputs_is_checked() -> None:
    with pytest.raises(ArgumentError, match="inputs must be 1, got 0"):
        run_program(small(), [])
