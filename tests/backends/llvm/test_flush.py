"""Numbers below the normal ones: kept by default, and taken for zero by compiled code with ``fast_math``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft

TINY = 1e-38  # a normal number of float32, a quarter of which is not


def quarter(x: Any) -> Any:
    return x * 0.25


def numbers(size: int) -> Any:
    return weft.tensor(np.full(size, TINY, np.float32))


def processor_keeps_subnormals() -> bool:
    return bool((np.full(64, TINY, np.float32) * np.float32(0.25) > 0).all())


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> Any:
    before = weft.get_num_threads()
    weft.set_num_threads(request.param)
    yield request.param
    weft.set_num_threads(before)


@pytest.mark.parametrize("size", [1, 100, 2_000_000])
def test_small_results_are_zero_with_fast_math_alone(size: int, threads: int) -> None:
    x = numbers(size)
    flushed, kept = weft.compile(quarter, fast_math=True)(x), weft.compile(quarter)(x)
    assert (flushed.numpy() == 0).all()
    np.testing.assert_array_equal(kept.numpy(), np.full(size, TINY, np.float32) * np.float32(0.25))
    assert processor_keeps_subnormals()


def test_small_inputs_are_zero_with_fast_math(threads: int) -> None:
    x = weft.tensor(np.full(1_000_000, 1e-40, np.float32))
    assert (weft.compile(lambda x: x * 1e10, fast_math=True)(x).numpy() == 0).all()
    assert (weft.compile(lambda x: x * 1e10)(x).numpy() > 0).all()


def test_numbers_of_double_precision_too() -> None:
    x = weft.tensor(np.full(10, 1e-308))
    assert (weft.compile(quarter, fast_math=True)(x).numpy() == 0).all()


def test_loops_of_scalars_in_the_main_function() -> None:
    def halve(x: Any) -> Any:
        for _ in range(140):
            x = x * 0.5
        return x

    x = weft.tensor(1.0)
    assert float(weft.compile(halve, fast_math=True)(x)) == 0
    assert float(weft.compile(halve)(x)) == 2.0**-140


def test_mode_is_restored_after_an_error() -> None:
    taken = weft.compile(lambda x, i: quarter(x)[i], fast_math=True)
    with pytest.raises(IndexError):
        taken(numbers(10), weft.tensor(10))
    assert processor_keeps_subnormals()


def test_calls_back_into_python_are_made_in_its_own_mode() -> None:
    seen = []

    @weft.custom_op("test::watch", type_rule=lambda x: x, gradient=lambda g: g * 2)
    def watch(x: Any) -> Any:
        seen.append(processor_keeps_subnormals())
        return x * 2

    try:
        found = weft.compile(lambda x: quarter(watch(quarter(x) + TINY)), fast_math=True)(numbers(100))
    finally:
        weft.remove_custom_op("test::watch")
    assert seen
    assert all(seen)
    assert (found.numpy() == 0).all(), "after the call the mode is on again"


def test_other_backends_do_without() -> None:
    x = numbers(3)
    np.testing.assert_array_equal(weft.compile(quarter, backend="interpret", fast_math=True)(x), quarter(x))
