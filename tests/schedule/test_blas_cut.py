"""Products by the BLAS library: into which blocks they are cut, and that their values are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.schedule.threads import on_threads
from weft.loop.walk import launched_functions
from weft.passes.pipeline import lower
from weft.schedule.cpu.matmul.blas import BLOCK, cut_of, suits_blas
from weft.schedule.cpu.matmul.plan import Matrices
from weft.schedule.cpu.tuning import Tuning
from weft.schedule.program import lower_graph
from weft.schedule.work import iteration_cost

DOUBLE = np.dtype("f8")


def product(m: int, n: int, k: int, dtype: np.dtype[Any] = DOUBLE) -> Matrices:
    return Matrices(m, n, k, (k, 1), (n, 1), dtype)


@pytest.mark.parametrize("blocks", [1, 2, 4, 8, 64])
@pytest.mark.parametrize("sizes", [(800, 950, 900), (130, 3000, 1000), (3000, 130, 1000), (500, 500, 20000)])
def test_there_are_as_many_blocks_as_asked_for_and_none_is_small(
    sizes: tuple[int, int, int], blocks: int
) -> None:
    rows, columns, chunks = cut_of(product(*sizes), 1, Tuning(blas_blocks=blocks))
    m, n, k = sizes
    assert rows == 1 or m // rows >= BLOCK
    assert columns == 1 or n // columns >= BLOCK
    assert k % chunks == 0
    if blocks <= 2:
        assert rows * columns * chunks == blocks
    if blocks == 1:
        assert (rows, columns, chunks) == (1, 1, 1)


def test_rows_are_cut_first_since_the_left_side_costs_more_to_copy() -> None:
    assert cut_of(product(1000, 1000, 1000), 1, Tuning(blas_blocks=4)) == (4, 1, 1)
    assert cut_of(product(200, 4000, 1000), 1, Tuning(blas_blocks=4)) == (1, 4, 1)


def test_a_batch_is_not_cut_where_it_is_large_enough() -> None:
    assert cut_of(product(600, 600, 600), 8, Tuning(blas_blocks=4)) == (1, 1, 1)


def test_float64_goes_to_the_library_earlier_than_float32() -> None:
    def suits(*sizes: int, dtype: Any = DOUBLE) -> bool:
        return suits_blas(product(*sizes, dtype), Tuning())

    assert suits(128, 1000, 1000)
    assert not suits(128, 1000, 1000, dtype=np.dtype("f4"))
    assert not suits(95, 4000, 4000)
    assert not suits(128, 128, 128)


@pytest.mark.parametrize("sizes", [(113, 1001, 1003), (1001, 112, 1003), (451, 453, 455), (963, 962, 113)])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_values(sizes: tuple[int, int, int], turned: tuple[bool, bool]) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(m)
    a = rng.standard_normal((k, m) if turned[0] else (m, k))
    b = rng.standard_normal((n, k) if turned[1] else (k, n))

    def multiply(a: Any, b: Any) -> Any:
        return (a.T if turned[0] else a) @ (b.T if turned[1] else b) * 2.0 + 1.0

    found = weft.compile(multiply)(weft.tensor(a), weft.tensor(b)).numpy()
    np.testing.assert_allclose(found, multiply(a, b), rtol=0, atol=1e-10)


def test_bits_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(0)
    a, b = (weft.tensor(rng.standard_normal(shape)) for shape in ((501, 503), (503, 505)))
    found = on_threads(lambda: weft.compile(lambda a, b: a @ b)(a, b).numpy())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("size", [768, 777])
def test_a_block_is_known_to_be_work_also_where_the_last_one_is_shorter(size: int) -> None:
    graph = weft.make_graph(lambda x: x @ (x + 1.0))(weft.ones((size, size)))
    program = lower_graph(lower(graph))
    (large,) = [f for f in launched_functions(program.main.body) if f.name.startswith("matmul_large")]
    assert iteration_cost(large) > 1e5  # ns: else one thread would do all of it
