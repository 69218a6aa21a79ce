"""Graphs run by the interpreter and as machine code, and how far the results may be apart.

Integers, truth values and what is only moved are equal. Floats differ by what the contraction of products and
sums, another order of a reduction and another polynomial explain: a few units in the last place, of 1 or of
the largest element, because what is left where large numbers cancel is not known any better.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from weft.backends.interpret import build as build_interpreted
from weft.backends.llvm import driver
from weft.backends.llvm.driver import build_executable
from weft.base.dtypes import bfloat16, float16, kind
from weft.ir.graph import Graph

ULPS = 16
_WIDE = {"f": np.float64, "c": np.complex128}


def interpreted(graph: Graph, arrays: Sequence[Any]) -> list[Any]:
    """The results of a graph by the interpreter."""
    with np.errstate(all="ignore"):
        return [np.asarray(a) for a in build_interpreted(graph)(arrays)]


def compiled(graph: Graph, arrays: Sequence[Any]) -> list[Any]:
    """The results of a graph by machine code."""
    return build_executable(graph)(arrays)


def build_quickly(graph: Graph) -> Any:
    """A graph with indices and memory checked, by the code that LLVM finds soonest: it checks the same."""
    with patch.object(driver, "Source", partial(driver.Source, quick=True)):  # type: ignore[attr-defined]
        return build_executable(graph, debug=True)


def checked(graph: Graph, arrays: Sequence[Any]) -> list[Any]:
    """The results of a graph by machine code with checks."""
    return list(build_quickly(graph)(arrays))


def epsilon(dtype: Any) -> float:
    """The distance of 1 to the next number of a dtype."""
    if dtype == bfloat16:
        return 2.0**-7
    return 2.0**-10 if dtype == float16 else float(np.finfo(dtype).eps)


def assert_agree(actual: Sequence[Any], expected: Sequence[Any], ulps: float = ULPS) -> None:
    """Equal types, and equal values but for rounding; NaN and infinities in the same places."""
    assert len(actual) == len(expected)
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert (a.shape, a.dtype) == (e.shape, e.dtype), f"result {i}"
        if kind(e.dtype) not in "fc":
            np.testing.assert_array_equal(a, e, err_msg=f"result {i}")
            continue
        near = ulps * epsilon(e.dtype)
        a, e = a.astype(_WIDE[kind(e.dtype)]), e.astype(_WIDE[kind(e.dtype)])
        largest = np.abs(e, where=np.isfinite(e), out=np.zeros(e.shape)).max(initial=1.0)
        np.testing.assert_allclose(a, e, rtol=near, atol=near * largest, err_msg=f"result {i}")


def same_bits(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether arrays are equal in every bit."""
    return [a.tobytes() for a in some] == [a.tobytes() for a in others]
