"""Options of backends: what is passed on, what is refused, and what the reference backend does with them."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import weft
from weft import backends
from weft.errors import ArgumentError, DomainError


def test_options_that_are_on_reach_the_backend() -> None:
    seen: list[dict[str, bool]] = []

    def mine(graph: Any, **options: bool) -> Any:
        seen.append(options)
        return backends.backend_named("interpret")(graph)

    weft.compile(lambda x: x + 1.0, backend=mine)(weft.ones(1))
    weft.compile(lambda x: x + 1.0, backend=mine, debug=True, check_nan=True)(weft.ones(1))
    weft.compile(debug=True, backend=mine)(lambda x: x + 1.0)(weft.ones(1))
    assert seen == [{}, {"debug": True, "check_nan": True}, {"debug": True}]


def test_option_that_a_backend_does_not_take_is_refused() -> None:
    def mine(graph: Any) -> Any:
        return backends.backend_named("interpret")(graph)

    assert weft.compile(lambda x: x + 1.0, backend=mine)(weft.ones(1)).item() == 2.0
    with pytest.raises(
        ArgumentError, match="compile: the backend must take check_nan, got mine, which does not"
    ):
        weft.compile(lambda x: x, backend=mine, check_nan=True)


def test_unknown_backend_is_an_error() -> None:
    with pytest.raises(DomainError, match=r"must be one of .*interpret, llvm.*, got 'nothing'"):
        weft.compile(lambda x: x, backend="nothing")
    with weft.Graph("f") as g:
        weft.placeholder("x", (2,))
    with pytest.raises(DomainError, match="got 'nothing'"):
        weft.Session(g, backend="nothing")


def test_default_is_interpreted_where_its_packages_are_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backends, "DEFAULT_BACKEND", "llvm")
    monkeypatch.setattr(backends.backend_named("llvm"), "needs", ("a_package_that_nobody_has",))
    backends._missing.cache_clear()
    with caplog.at_level(logging.WARNING, logger="weft.compile"):
        assert [backends.default_backend() for _ in range(3)] == ["interpret"] * 3
    backends._missing.cache_clear()
    (record,) = caplog.records
    assert "the llvm backend needs a_package_that_nobody_has" in record.getMessage()


# NaN


def logarithm(x: Any) -> Any:
    y = x * 2.0
    return weft.log(y).sum()


def test_nan_is_an_error_that_names_op_line_and_ranges() -> None:
    f = weft.compile(logarithm, backend="interpret", check_nan=True)
    assert f(weft.ones(3)).item() == pytest.approx(3 * np.log(2.0), rel=1e-6)
    with pytest.raises(DomainError) as caught:
        f(weft.tensor([1.0, -1.0, 2.0]))
    text = str(caught.value)
    assert text.startswith("log: results must not be NaN, got 1 in f32[3], from f32[3] in -2..4")
    assert "test_options.py" in text
    assert "return weft.log(y).sum()" in text


def test_nan_among_the_inputs_is_told_apart_from_numbers() -> None:
    f = weft.compile(lambda x, y: x + y, backend="interpret", check_nan=True)
    with pytest.raises(DomainError, match=r"from f32\[2\] in 1..1 and 1 NaN, f32\[2\] of NaN"):
        f(weft.tensor([1.0, float("nan")]), weft.tensor([float("nan")] * 2))


def test_nan_in_a_loop_is_found_at_its_node() -> None:
    def f(x: Any) -> Any:
        while x.sum() > -10.0:
            x = weft.sqrt(x - 1.0)
        return x

    with pytest.raises(DomainError, match="sqrt: results must not be NaN"):
        weft.compile(f, backend="interpret", check_nan=True)(weft.tensor([4.0]))


def test_nan_in_a_backward_graph_is_an_error() -> None:
    f = weft.compile(lambda x: weft.sqrt(x), backend="interpret", check_nan=True)
    y = f(weft.tensor([2.0], requires_grad=True))
    with pytest.raises(DomainError, match="results must not be NaN"):
        y.backward(weft.tensor([float("nan")]))


def test_failing_check_changes_nothing() -> None:
    count = weft.zeros(())

    @weft.compile(backend="interpret", check_nan=True)
    def f(x: Any) -> Any:
        nonlocal count
        count += 1.0
        return weft.log(x)

    f(weft.ones(1))
    with pytest.raises(DomainError):
        f(-weft.ones(1))
    assert count.item() == 1.0


def test_session_checks_too() -> None:
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n",))
        y = weft.log(x)
    session = weft.Session(g, backend="interpret", check_nan=True, debug=True)
    assert session.run(y, {x: [1.0]}).tolist() == [0.0]
    with pytest.raises(DomainError, match="log: results must not be NaN"):
        session.run(y, {x: [1.0, -1.0]})


# Explaining


def test_explain_prints_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    f = weft.compile(lambda x: weft.tanh(x) * 1.0, backend="interpret")
    with pytest.raises(weft.errors.CaptureError, match="has a graph from its first call on"):
        f.explain()
    f(weft.ones(2))
    f.explain()
    text = capsys.readouterr().out
    assert text.startswith("interpreted, node by node:\ngraph")
    assert "tanh" in text
    assert "mul" not in text  # the optimised graph


def test_explain_asks_the_backend(capsys: pytest.CaptureFixture[str]) -> None:
    class Mine:
        def __init__(self, graph: Any) -> None:
            self.run = backends.backend_named("interpret")(graph)
            self.count = len(graph.nodes)

        def __call__(self, arrays: Any) -> Any:
            return self.run(arrays)

        def explain(self) -> str:
            return f"{self.count} nodes"

    f = weft.compile(lambda x: weft.tanh(x).sum(), backend=Mine)
    f(weft.ones(2, requires_grad=True)).backward()
    f.explain()
    first, _, second = capsys.readouterr().out.splitlines()
    assert first.endswith("nodes")
    assert second.endswith("nodes")
    plain = weft.compile(
        lambda x: x + 1.0, backend=lambda graph: backends.backend_named("interpret")(graph).__call__
    )
    plain(weft.ones(1))
    plain.explain()
    assert "add" in capsys.readouterr().out


# Sizes that a call tells


def test_graph_with_named_sizes_is_prepared_for_shapes_that_come_again() -> None:
    graph = weft.make_graph(lambda x: weft.softmax(x, axis=0) * x.shape[0])(
        weft.TensorType(("n",), weft.float32)
    )
    run = backends.backend_named("interpret")(graph)
    for n in (2, 3, 2, 2, 3, 3, 4, 2):
        x = np.arange(n, dtype=np.float32)
        expected = np.exp(x) / np.exp(x).sum() * n
        np.testing.assert_allclose(run([x])[0], expected, rtol=1e-6)
