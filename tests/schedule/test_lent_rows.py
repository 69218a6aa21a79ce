"""Rows too long for the stack, or of open length: what sweeps share is kept where a result will be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.backends import backend_named
from weft.loop.text import format_program
from weft.schedule.cpu.row_sweeps import LENT, SCRATCH
from weft.schedule.program import lower_graph

Program = Callable[[Any], Any]


def _softmax_and_sum(x: Any) -> Any:
    e = weft.exp(x - x.max(axis=-1, keepdims=True))
    y = e / e.sum(axis=-1, keepdims=True)
    return y, (y * e).sum(axis=-1)  # reads the exponential after the result is written


def _sum_before_result(x: Any) -> Any:
    e = weft.exp(x - x.max(axis=-1, keepdims=True))
    total = e.sum(axis=-1, keepdims=True)
    return (e / total).sum(axis=-1), e / total


def _two_results(x: Any) -> Any:
    e = weft.exp(x * 0.5)
    s = weft.tanh(x)
    total = (e + s).sum(axis=-1, keepdims=True)
    return e / total, s - total


def _three_sweeps(x: Any) -> Any:
    e = weft.exp(x)
    y = e / e.sum(axis=-1, keepdims=True)
    return y * (y * e).sum(axis=-1, keepdims=True), e - y


def _used_in_later_sweep(x: Any) -> Any:
    e = weft.exp(x)
    y = e / e.sum(axis=-1, keepdims=True)
    z = (y * y).sum(axis=-1, keepdims=True)
    return y, e * z  # the exponential is needed after the first result


PROGRAMS: dict[str, Program] = {
    "softmax": lambda x: weft.softmax(x, axis=-1),
    "log_softmax": lambda x: weft.log_softmax(x, axis=-1),
    "softmax and a sum": _softmax_and_sum,
    "sum first": _sum_before_result,
    "two results": _two_results,
    "three sweeps": _three_sweeps,
    "later sweep": _used_in_later_sweep,
    "gradient": weft.grad(lambda x: (weft.softmax(x, axis=-1) * weft.cos(x)).sum()),
    "truth values": lambda x: weft.exp(x) > weft.exp(x).mean(axis=-1, keepdims=True),
    "changed in place": lambda x: x.add_(weft.softmax(x, axis=-1)),
}


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def check(name: str, shape: Any, x: np.ndarray) -> None:
    graph = weft.make_graph(PROGRAMS[name])(weft.TensorType(shape, weft.float32)).optimize()
    given = [x.copy()] * len(graph.inputs)
    expected = backend_named("interpret")(graph)(given)
    found = backend_named("llvm")(graph)([x.copy()] * len(graph.inputs))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [("n", "m"), (5, "m"), ("n", 37)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_of_open_length(name: str, shape: Any) -> None:
    check(name, shape, numbers(5, 37))


@pytest.mark.parametrize("name", PROGRAMS)
def test_long_rows(name: str) -> None:
    check(name, (2, SCRATCH + 3), numbers(2, SCRATCH + 3))


@pytest.mark.parametrize("m", [0, 1, 3])
def test_short_rows_of_open_length(m: int) -> None:
    graph = weft.make_graph(lambda x: weft.exp(x) / weft.exp(x).sum(axis=-1, keepdims=True))
    run = backend_named("llvm")(graph(weft.TensorType(("n", "m"), weft.float64)).optimize())
    x = np.linspace(-1.0, 1.0, 4 * m).reshape(4, m)
    np.testing.assert_allclose(run([x])[0], np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize(("columns", "times"), [(64, 1), ("m", 1), (SCRATCH + 1, 1), (LENT + 1, 2)])
def test_exponential_is_computed_once(columns: Any, times: int) -> None:
    graph = weft.make_graph(PROGRAMS["softmax"])(weft.TensorType((8, columns), weft.float32))
    text = format_program(lower_graph(weft.passes.lower(graph.optimize())))
    assert text.count("= exp(") == times


def test_special_values() -> None:
    x = numbers(6, 11)
    x[0, 3], x[1, 4], x[2, :], x[3, :] = np.inf, np.nan, -np.inf, -0.0
    graph = weft.make_graph(PROGRAMS["softmax"])(weft.TensorType(("n", "m"), weft.float32)).optimize()
    expected, found = (backend_named(name)(graph)([x])[0] for name in ("interpret", "llvm"))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
