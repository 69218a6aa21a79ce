"""Groups that differ in nothing but their arrays have one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.schedule.lowered import program_of
from weft.backends.interpret import build as interpreted
from weft.backends.llvm import build
from weft.backends.llvm.driver import kernel_symbol
from weft.errors import BoundsError
from weft.loop.walk import launched_functions

ROWS, COLUMNS = 40, 96


def arrays(count: int, shape: tuple[int, ...] = (ROWS, COLUMNS)) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, dtype=np.float32) for _ in range(count)]


def kernels(f: Callable[..., Any], *inputs: Any) -> tuple[int, int]:
    """How many kernels are launched, and how many of them are written."""
    graph = weft.make_graph(f)(*[weft.tensor(x) for x in inputs]).optimize()
    launched = list(launched_functions(program_of(graph).main.body))
    expected = interpreted(graph)(inputs)
    for found, right in zip(build(graph)(inputs), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
    return len(launched), len({id(function.body) for function in launched})


def test_equal_groups_have_one_kernel() -> None:
    assert kernels(lambda x, y: (weft.softmax(x, -1), weft.softmax(y, -1)), *arrays(2)) == (2, 1)


def test_what_is_read_through_views_is_compared_by_its_strides() -> None:
    def f(x: Any, y: Any, z: Any) -> Any:
        return weft.tanh(x[:, :48]) * 2.0, weft.tanh(y[:, 48:]) * 2.0, weft.tanh(z[:, ::2]) * 2.0

    assert kernels(f, *arrays(3)) == (3, 2)


DIFFERENT: list[Callable[[Any, Any], Any]] = [
    lambda x, y: (weft.tanh(x) * 2.0, weft.tanh(y) * 3.0),
    lambda x, y: (weft.tanh(x) + 0.0, weft.tanh(y) - 0.0),
    lambda x, y: (x - y.sum(), y - x.sum() * 2.0),
    lambda x, y: (x.clamp(0.0, 1.0) * x, y.clamp(0.0, 2.0) * y),
    lambda x, y: (weft.exp(x) - x, weft.exp(y).T - y.T),
    lambda x, y: (x - x.max(-1, keepdims=True), y - y.min(-1, keepdims=True)),
    lambda x, y: ((x * x).sum(0), (y * y).sum(1)),
]


@pytest.mark.parametrize("f", DIFFERENT)
def test_groups_that_differ_have_kernels_of_their_own(f: Callable[[Any, Any], Any]) -> None:
    launched, written = kernels(f, *arrays(2))
    assert launched == written


def test_the_order_of_operands_matters() -> None:
    def f(x: Any, y: Any, u: Any, v: Any, p: Any, q: Any) -> Any:
        return weft.exp(x) - y * x, weft.exp(v) - u * v, weft.exp(p) - p * q

    assert kernels(f, *arrays(6)) == (3, 2)


def test_each_group_that_can_fail_says_its_own_line() -> None:
    def f(x: Any, i: Any, j: Any) -> Any:
        first = weft.exp(x[i]) * 2.0
        return first, weft.exp(x[j]) * 2.0  # the second one

    table, (i, j) = arrays(1)[0], np.array([[1, 2], [3, 5000]])
    graph = weft.make_graph(f)(*[weft.tensor(a) for a in (table, i, j)]).optimize()
    with pytest.raises(BoundsError, match="the second one"):
        build(graph)([table, i, j])


def test_arrays_of_different_length_have_one_code() -> None:
    lengths = (512, 2560, 512 * 36)
    inputs = [np.linspace(-1.0, 1.0, n, dtype=np.float32) for n in lengths]
    graph = weft.make_graph(lambda x, y, z: [weft.tanh(v) * 2.0 + v for v in (x, y, z)])(*inputs)
    launched = list(launched_functions(program_of(graph).main.body))
    assert len(launched) == 3
    assert len({kernel_symbol(function) for function in launched}) == 1
    assert len({kernel_symbol(function, debug=True) for function in launched}) == 3
    for found, x in zip(build(graph)(inputs), inputs, strict=True):
        np.testing.assert_allclose(found, np.tanh(x) * 2.0 + x, rtol=1e-5)
