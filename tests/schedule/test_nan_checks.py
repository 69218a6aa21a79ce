"""Programs that look for NaN: the same error as the reference backend, in loops and branches too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import weft
from tests.ir.random_graphs import arrays_of, graphs
from weft.backends import backend_named
from weft.errors import DomainError
from weft.ir.graph import Graph


def logarithm(x: Any) -> Any:
    y = x * 2.0
    return weft.log(y).sum()


def in_while(x: Any) -> Any:
    while x.sum() > -10.0:
        x = weft.sqrt(x - 1.0)
    return x


def in_branch(x: Any) -> Any:
    for _ in range(5):
        if x.sum() > 3.0:
            x = weft.softmax(x - 1.0, -1)
        else:
            x = weft.log(x - 1.0)
    return x


def in_scan(x: Any) -> Any:
    total = x
    for k in range(6):
        total = weft.sqrt(total - float(k))
    return total


def composite(x: Any) -> Any:
    return weft.softmax(x / (x - x), axis=0)


def in_library(x: Any) -> Any:
    return weft.linalg.solve(weft.eye(3) * x, x / (x - x) * 0.0)


def in_product(x: Any) -> Any:
    return (x[:, None] / 0.0) @ (x[None] * 0.0)


def scalar(x: Any) -> Any:
    return weft.log(x[0] - 2.0) + x


PROGRAMS = [logarithm, in_while, in_branch, in_scan, composite, in_library, in_product, scalar]


@pytest.mark.parametrize("f", PROGRAMS)
def test_error_is_the_one_of_the_reference(f: Any) -> None:
    x = weft.tensor([1.0, -1.0, 4.0])
    texts = []
    for backend in ("interpret", "llvm"):
        with pytest.raises(DomainError, match="results must not be NaN") as caught:
            weft.compile(f, backend=backend, check_nan=True)(x)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert "test_nan_checks.py" in texts[1]


def test_error_names_op_line_and_ranges() -> None:
    f = weft.compile(logarithm, backend="llvm", check_nan=True)
    assert f(weft.ones(3)).item() == pytest.approx(3 * np.log(2.0), rel=1e-6)
    with pytest.raises(DomainError) as caught:
        f(weft.tensor([1.0, -1.0, 2.0]))
    text = str(caught.value)
    assert text.startswith("log: results must not be NaN, got 1 in f32[3], from f32[3] in -2..4")
    assert "return weft.log(y).sum()" in text
    f(weft.ones(3))


def test_results_are_those_without_the_check() -> None:
    rng = np.random.default_rng(0)
    x = weft.tensor(rng.random((20, 30), np.float32))

    def f(x: Any) -> Any:
        y = weft.softmax(x @ x.T, axis=1)
        for _ in range(3):
            y = weft.tanh(y) @ y
        return y.sum(axis=0), weft.sort(y), weft.cumsum(y, axis=1)

    checked = weft.compile(f, backend="llvm", check_nan=True)(x)
    for a, b in zip(checked, weft.compile(f, backend="interpret")(x), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


def test_infinity_is_no_error() -> None:
    f = weft.compile(lambda x: weft.log(x), backend="llvm", check_nan=True)
    assert f(weft.zeros(2)).tolist() == [-np.inf, -np.inf]


def test_failed_step_changes_nothing() -> None:
    weight = weft.nn.Parameter(weft.ones(3))
    optimizer = weft.optim.SGD([weight], lr=0.5)

    @weft.compile(backend="llvm", check_nan=True)
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = weft.log(x * weight).sum()
        loss.backward()
        optimizer.step()
        return loss

    step(weft.ones(3))
    before = weight.detach().numpy().copy()
    with pytest.raises(DomainError):
        step(-weft.ones(3))
    np.testing.assert_array_equal(weight.detach().numpy(), before)
    step(weft.ones(3))


def test_named_sizes_and_sessions() -> None:
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n",))
        y = weft.log(x)
    session = weft.Session(g, backend="llvm", check_nan=True)
    assert session.run(y, {x: [1.0]}).tolist() == [0.0]
    with pytest.raises(DomainError, match=r"got 1 in f32\[2\]"):
        session.run(y, {x: [1.0, -1.0]})


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16, weft.float64, weft.complex64])
def test_dtypes(dtype: Any) -> None:
    f = weft.compile(lambda x: x / x, backend="llvm", check_nan=True)
    assert f(weft.ones(3, dtype=dtype)).dtype == dtype
    with pytest.raises(DomainError, match="div: results must not be NaN, got 3"):
        f(weft.zeros(3, dtype=dtype))


def outcome(graph: Graph, backend: str, arrays: list[Any]) -> str:
    try:
        backend_named(backend)(graph, check_nan=True)(arrays)
    except DomainError as error:
        return error.message[:24]
    return ""


@settings(max_examples=15, deadline=None)
@given(graph=graphs())
def test_random_graph_fails_where_the_reference_does(graph: Graph) -> None:
    arrays = arrays_of(graph)
    assert outcome(graph, "llvm", arrays) == outcome(graph, "interpret", arrays)
