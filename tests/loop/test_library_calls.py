"""Products by a library: what is done with each element of them, and rows that are added."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.base.dtypes import float32
from weft.errors import GraphError
from weft.loop import ir
from weft.loop.builder import Builder
from weft.loop.capabilities import check_supported
from weft.loop.index import Index
from weft.loop.interpret import run_function
from weft.loop.ir import Function
from weft.loop.text import format_function, function_key
from weft.loop.verify import verify_function

# A library call with an epilogue


def product() -> Function:
    b = Builder()
    x, w, y = b.buffer("x", float32, 6), b.buffer("w", float32, 6), b.buffer("y", float32, 4)
    bias, before = b.buffer("bias", float32, 2), b.buffer("before", float32, 4)

    def epilogue(value: ir.Value, row: Index, column: Index) -> ir.Value:
        value = b.add(value, b.load(bias, column))
        b.store(before, row * 2 + column, value)
        return b.max(value, 0.0)

    places = ((x, 0), (w, 0), (y, 0))
    b.matmul(*places, 2, 2, 3, (3, 2, 2), transposed=(False, False), epilogue=epilogue)
    return b.function("product", written=[y, before])


def test_an_epilogue_prints_with_the_call() -> None:
    text = format_function(product())
    assert text.endswith("""\
  matmul y[0] = x[0] @ w[0], m=2, n=2, k=3, rows=(3, 2, 2) epilogue v1 at i2, i3 {
    %0: f32 = get v1
    %1: f32 = load bias[i3]
    %2: f32 = add(%0, %1)
    store before[2*i2 + i3] = %2
    %3: f32 = max(%2, f32(0.0))
    set v1 = %3
  }
}""")
    assert function_key(product()) == function_key(product())


def test_an_epilogue_is_done_with_each_element_of_the_product() -> None:
    x, w = np.arange(6, dtype="f4") - 3, np.arange(6, dtype="f4") - 2
    bias, y, before = np.array([1, -20], "f4"), np.zeros(4, "f4"), np.zeros(4, "f4")
    run_function(verify_function(product()), [x, w, y, bias, before])
    expected = x.reshape(2, 3) @ w.reshape(3, 2) + bias
    np.testing.assert_array_equal(before.reshape(2, 2), expected)
    np.testing.assert_array_equal(y.reshape(2, 2), np.maximum(expected, 0))


def test_an_epilogue_is_checked_and_refused_by_name() -> None:
    with pytest.raises(
        GraphError, match=r"llvm: product: `matmul .*`: the backend has no epilogues of library calls"
    ):
        check_supported(product(), "llvm")
    b = Builder()
    y = b.buffer("y", float32, 4)

    def loops(value: ir.Value, row: Index, column: Index) -> ir.Value:
        with b.loop(2):
            pass
        return value

    places = ((y, 0), (y, 0), (y, 0))
    b.matmul(*places, 2, 2, 2, (2, 2, 2), transposed=(False, False), epilogue=loops)
    with pytest.raises(GraphError, match="Loop must not stand in an epilogue"):
        verify_function(b.function("f", written=[y]))


# A library call that adds a row


def biased(dtype: Any = float32) -> Function:
    b = Builder()
    x, w, y = b.buffer("x", float32, 6), b.buffer("w", float32, 6), b.buffer("y", float32, 4)
    row = b.buffer("row", dtype, 5)
    b.matmul((x, 0), (w, 0), (y, 0), 2, 2, 3, (3, 2, 2), transposed=(False, False), bias=(row, 3))
    return b.function("biased", written=[y])


def test_a_row_is_added_to_each_row_of_a_product() -> None:
    assert "  matmul y[0] = x[0] @ w[0] + row[3], m=2, n=2, k=3, rows=(3, 2, 2)\n" in format_function(
        biased()
    )
    x, w, row = (
        np.arange(6, dtype=np.float32),
        np.arange(6, 12, dtype=np.float32),
        np.arange(5.0, dtype=np.float32),
    )
    y = np.empty(4, np.float32)
    run_function(biased(), [x, w, y, row])
    np.testing.assert_array_equal(y.reshape(2, 2), x.reshape(2, 3) @ w.reshape(3, 2) + [3, 4])


def test_a_row_is_checked_and_refused_by_name() -> None:
    with pytest.raises(GraphError, match=r"`matmul .*`: the backend has no biases of library calls"):
        check_supported(biased(), "llvm")
    with pytest.raises(GraphError, match="matrices must be of one dtype"):
        verify_function(biased(np.dtype(np.float64)))
