"""Functions in machine code: the same bits by every way they are computed, and the memory asked for ahead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backends.llvm.harness import Kernel
from tests.loop.math_emitters import units
from weft.backends.llvm.target import host_target
from weft.base.dtypes import DType, float32, float64
from weft.loop.builder import Builder
from weft.loop.ir import Function

WIDTHS = [width for width in (16, 32, 64) if width <= host_target().vector_bytes]
HAS_SCALE = host_target().vector_bytes == 64 and host_target().triple.startswith("x86_64")
COUNT = 4096


def exponentials(dtype: DType, lanes: int, sign: int = 0) -> Function:
    """The exponentials of numbers, or of their sizes with a sign."""
    b = Builder()
    x, y = b.buffer("x", dtype, COUNT), b.buffer("y", dtype, COUNT)
    with b.vector(COUNT, lanes=lanes) as i:
        value = b.load(x, i)
        b.store(y, i, b.exp(b.neg(b.abs(value)) if sign else value))
    return b.function("f", written=[y])


def arguments(dtype: DType) -> Any:
    """Numbers whose exponentials are of every size: 0, subnormal, normal, infinite."""
    end = 120 if dtype == float32 else 800
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1e30, 1e30, -1e5], dtype)
    return np.concatenate([special, np.linspace(-end, end, COUNT - special.size).astype(dtype)])


@pytest.mark.parametrize("sign", [0, -1])
@pytest.mark.parametrize("lanes", [0, 7, 8, 16, 32, 48, 64])
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_exponentials_are_the_same_in_any_number_of_lanes(dtype: DType, lanes: int, sign: int) -> None:
    x, out = arguments(dtype), np.zeros(COUNT, dtype)
    Kernel(exponentials(dtype, lanes, sign))([x, out])
    exact = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        assert units(out, np.exp(-np.abs(exact) if sign else exact)).max() <= (2 if dtype == float32 else 1)
    single = np.zeros(COUNT, dtype)
    Kernel(exponentials(dtype, 1, sign))([x, single])
    np.testing.assert_array_equal(out, single)


@pytest.mark.parametrize("lanes", [8, 16, 32, 64])
def test_full_registers_are_scaled_by_one_instruction_where_there_is_one(lanes: int) -> None:
    text = Kernel(exponentials(float32, lanes)).text
    assert ("scalef.ps.512" in text) == (HAS_SCALE and lanes >= 16)


@pytest.mark.parametrize("width", WIDTHS)
def test_narrower_machines_need_no_instruction_of_wider_ones(width: int) -> None:
    x, out = arguments(float32), np.zeros(COUNT, np.float32)
    kernel = Kernel(exponentials(float32, 0), host_target(width))
    kernel([x, out])
    assert ("scalef" in kernel.text) == (HAS_SCALE and width == 64)
    with np.errstate(all="ignore"):
        assert units(out, np.exp(x.astype(np.float64))).max() <= 2


def rows(columns: int, instruction: str = "exp", *, touched: bool = False, stop: int = 0) -> Function:
    """Rows of functions, kept in scratch memory and then written."""
    b = Builder()
    x, y = b.buffer("x", float32, 4 * columns), b.buffer("y", float32, 4 * columns)
    kept = b.scratch("kept", float32, columns)
    with b.parallel(4) as row:
        with b.vector(columns) as i:
            value = b.add(b.load(x, row * columns + i), b.load(y, row * columns + i) if touched else 0.0)
            b.store(kept, i, getattr(b, instruction)(value))
        with b.vector(stop or columns) as i:
            b.store(y, row * columns + i, b.mul(b.load(kept, i), 2.0))
    return b.function("f", written=[y])


def test_what_is_written_after_functions_is_asked_for_before() -> None:
    kernel = Kernel(rows(512))
    assert "call void @llvm.prefetch.p0(ptr" in kernel.text
    x, out = np.linspace(-2, 2, 2048, dtype=np.float32), np.zeros(2048, np.float32)
    kernel([x, out], parts=2)
    np.testing.assert_allclose(out, 2 * np.exp(x), rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [rows(128), rows(512, "neg"), rows(512, touched=True), rows(512, stop=256)],
    ids=["short rows", "no functions", "memory at hand", "another number of columns"],
)
def test_memory_is_not_asked_for_where_it_gains_nothing(function: Function) -> None:
    assert "prefetch.p0(" not in Kernel(function).text
