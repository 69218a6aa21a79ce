"""Parts of arrays that loops change: no array is copied in a turn, and nothing is overwritten too early."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.capture import slice_kernels as kernels
from tests.schedule.programs import check, graph_of, statements
from weft.loop.ir import Allocate, Copy, Launch, Program

N = 20  # so that a row is too long to be written into the main function with all its columns
RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((2, N, N)).astype(np.float32)
X = RNG.standard_normal(200).astype(np.float32)


def launches(program: Program) -> list[str]:
    """The kernels that loops launch."""
    return [s.function.name for s in statements(program, Launch, in_loops=True)]


def whole_copies(program: Program, size: int) -> int:
    """How many copies of whole arrays there are in loops."""
    return sum(s.count.key == size for s in statements(program, Copy, in_loops=True))


def columns(y: Any, x: Any) -> Any:
    for j in range(1, y.shape[1]):
        y[:, j] = y[:, j - 1] * 0.5 + x[:, j]
    return y


def rows(y: Any, x: Any) -> Any:
    for j in range(1, y.shape[0]):
        y[j, 1:-1] = y[j - 1, :-2] + x[j, 2:]
    return y


def triangle(a: Any) -> Any:
    for i in range(a.shape[0]):
        a[i + 1 :, i + 1 :] -= a[i + 1 :, i, None] * a[i, i + 1 :]
    return a


def halves(x: Any) -> Any:
    for _ in range(3):
        x[1::2] = x[1::2] + 0.5 * x[::2]
        x[::2] = x[::2] - 0.25 * x[1::2]
    return x


@pytest.mark.rotating(2)
@pytest.mark.parametrize(("function", "arrays"), [
    (columns, (A, B)), (rows, (A, B)), (triangle, (A * np.float32(0.1),)), (halves, (X,)),
    (kernels.jacobi_1d, (X, X, 4)),
])  # fmt: skip
def test_what_makes_a_part_writes_it_where_it_belongs(function: Any, arrays: Any) -> None:
    if function is kernels.jacobi_1d:
        program = check(graph_of(lambda a, b: kernels.jacobi_1d(a, b, 4), *arrays[:2]), *arrays[:2])
    else:
        program = check(graph_of(function, *arrays), *arrays)
    assert whole_copies(program, arrays[0].size) == 0
    assert "copy" not in launches(program)
    assert "update_slice" not in launches(program)
    assert not statements(program, Allocate, in_loops=True)


def shifted(a: Any) -> Any:
    for _ in range(3):
        a[1:] = a[:-1] + 1.0
    return a


def turned(x: Any) -> Any:
    for _ in range(3):
        x[:100] = x[99::-1] * 0.5 + x[100:]
    return x


def summed(a: Any) -> Any:
    for i in range(3):
        a[:, i:] = a[:, i:] - a[:, i:].sum()
    return a


@pytest.mark.rotating(2)
@pytest.mark.parametrize(("function", "array"), [
    (shifted, A), (turned, X), (summed, A), (lambda a: kernels.self_stencil(a, 4), A),
], ids=["shifted", "turned", "summed", "stencil"])  # fmt: skip
def test_what_is_still_to_be_read_is_not_overwritten(function: Any, array: Any) -> None:
    program = check(graph_of(function, array), array)
    assert whole_copies(program, array.size) == 0  # what is made beside it is the part


def kept(a: Any) -> Any:
    total = a * 0.0
    for i in range(a.shape[0]):
        before = a.clone()
        a[i:, 1:] = a[i:, 1:] * 2.0
        total = total + before[:, :1] - a
    return a, total


def seen(a: Any) -> Any:
    found = []
    for i in range(3):
        found.append(a.clone())
        a[i, 1:-1] = a[i + 1, 2:] * 2.0
    return a, weft.stack(found)


def mirrored(a: Any) -> Any:
    for i in range(a.shape[0]):
        a[i:, i] = a[i:, i] * 0.5
        a[i, i:] = a[i:, i]
    return a


def in_a_branch(a: Any, x: Any) -> Any:
    for i in range(a.shape[0]):
        if x[i, i] > 0:
            a[i, 1:] = a[i, 1:] + x[i, 1:]
        else:
            a[:, i] = 0.0
    return a


def nested(a: Any, x: Any) -> Any:
    for i in range(a.shape[0]):
        a[i, :] = a[i, :] * 0.5
        for j in range(i):
            a[i, j:] = a[i, j:] - 0.1 * a[j, j:] * x[i, j]
    return a


def own_sizes(a: Any, x: Any) -> Any:
    n = a.shape[0]
    for i in range(1, n - 1):
        if x[i, i] > 0:
            a[2:, n - i :] = 0.5 * (x[1:-1, 1 : i + 1] + x[2:, :i])  # which makes no use of n - i
    return a


def branches_in_a_row(a: Any, x: Any) -> Any:
    for i in range(1, a.shape[0]):
        for j in range(i):
            if x[i, j] > 0:
                a[i, j] = a[i, j] + a[i - 1, j]
            if x[j, i] > 0:
                if x[i, i] > 0:
                    a[i, j] = a[i, j] * 0.5
                else:
                    a[i, j] = a[j, i]
            if x[i, j] > x[j, i]:
                a[j, i] = a[i, j] - 1.0
    return a


def one_way_reads_the_old(a: Any, x: Any) -> Any:
    b = a * 0.0
    for i in range(1, a.shape[0]):
        old = a.clone()
        if x[i, 0] > 0:
            a[i, 0] = 1.0
        if x[0, i] > 0:
            b = b + old
            a[0, i] = old[i, 0]
    return a, b


@pytest.mark.rotating(2)
@pytest.mark.parametrize("function", [kept, seen, mirrored])
def test_what_others_read_is_what_it_was(function: Any) -> None:
    check(graph_of(function, A), A)


def test_a_branch_that_reads_the_old_array_finds_it() -> None:
    check(graph_of(one_way_reads_the_old, A, B), A, B)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("function", [in_a_branch, nested, own_sizes, branches_in_a_row])
def test_branches_and_inner_loops_change_in_place(function: Any) -> None:
    program = check(graph_of(function, A, B), A, B)
    assert whole_copies(program, A.size) == 0


def test_a_fixed_part_of_another_array_goes_through_no_temporary() -> None:
    program = check(graph_of(lambda a, b: kernels.jacobi_2d(a, b, 4), A, B), A, B)
    assert program.arena_size == 0


@pytest.mark.parametrize("off", ["fusion", "copy_elision", "memory_plan", "vectorisation"])
def test_values_do_not_depend_on_choices(off: str) -> None:
    small = A * np.float32(0.1)
    want = triangle(small.copy())
    got = weft.compile(triangle, disable=[off])(weft.tensor(small))
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)
