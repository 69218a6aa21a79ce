"""Explanations of compiled functions, with measured times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.backends.llvm import build
from weft.backends.llvm.explain import measure_limits


def network(x: Any, w: Any) -> Any:
    h = weft.tanh(x @ w)
    return weft.softmax(h, axis=1)


def test_explain_prints_kernels_lines_bytes_and_times(capsys: pytest.CaptureFixture[str]) -> None:
    f = weft.compile(network, backend="llvm")
    x, w = weft.ones((128, 64)), weft.ones((64, 32))
    f(x, w)
    (found,) = f.explain(x, w)
    text = capsys.readouterr().out
    assert text == f"{found}\n"
    assert text.startswith("network: ")
    assert "a call" in text
    assert "matmul" in text
    assert "test_debug_explain.py" in text
    assert "h = weft.tanh(x @ w)" in text
    for step in found.kernels:
        assert step.measured is not None
        assert step.measured.runs == 1
        assert step.measured.seconds > 0.0
        assert step.estimated > 0.0
        assert step.bytes > 0
    assert found.seconds >= sum(s.measured.seconds for s in found.kernels) * 0.5


def test_without_arguments_numbers_are_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    f = weft.compile(lambda x, i: weft.exp(x)[i].sum(), backend="llvm")
    f(weft.ones(100), weft.tensor([0, 99]))
    (found,) = f.explain()
    assert "measured on made-up numbers" in capsys.readouterr().out
    assert all(s.measured is not None for s in found.kernels)


@pytest.mark.parametrize("kind", ["while", "print", "assert"])
def test_what_may_not_end_or_has_effects_is_not_run_on_made_up_numbers(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def f(x: Any) -> Any:
        if kind == "while":
            while x.sum() > 1.0:
                x = x / 2.0
        elif kind == "print":
            print("the sum is", x.sum())  # noqa: T201 - what is tested
        else:
            assert x.sum() > 1.0
        return weft.tanh(x)

    compiled = weft.compile(f, backend="llvm")
    compiled(weft.ones(100))
    capsys.readouterr()
    (found,) = compiled.explain()
    text = capsys.readouterr().out
    assert "not measured: give explain the arguments" in text
    assert "the sum is tensor" not in text
    assert found.seconds is None
    (found,) = compiled.explain(weft.ones(100))
    assert found.seconds is not None
    assert capsys.readouterr().out.count("the sum is tensor") == (kind == "print")


def test_loops_count_their_runs() -> None:
    def f(x: Any) -> Any:
        for _ in range(10):
            x = weft.tanh(x @ x)
        return x

    compiled = weft.compile(f, backend="llvm")
    x = weft.ones((64, 64))
    compiled(x)
    (found,) = compiled.explain(x)
    inside = [s for s in found.kernels if s.depth == 1]
    assert inside
    assert {s.measured.runs for s in inside} == {10}


def test_explaining_changes_nothing() -> None:
    weight = weft.nn.Parameter(weft.ones((32, 32)))
    optimizer = weft.optim.SGD([weight], lr=0.1)

    @weft.compile(backend="llvm")
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (x @ weight).sum()
        loss.backward()
        optimizer.step()
        return loss

    x = weft.ones((8, 32))
    step(x)
    before = weight.detach().numpy().copy()
    (found,) = step.explain(x)
    np.testing.assert_array_equal(weight.detach().numpy(), before)
    assert "weight" in found.donated
    step(x)
    assert not np.array_equal(weight.detach().numpy(), before)


def test_call_that_was_not_made_yet_is_captured_and_explained() -> None:
    f = weft.compile(lambda x: weft.exp(x) * 2.0, backend="llvm")
    (found,) = f.explain(weft.ones(5000))
    assert [s.ops for s in found.kernels] == ["exp, mul"]
    assert len(f.versions) == 1


def test_named_sizes_are_those_of_the_arguments() -> None:
    f = weft.compile(lambda x: weft.exp(x) * 2.0, backend="llvm")
    for n in (100, 200, 300):
        f(weft.ones(n))
    (found,) = f.explain(weft.ones(1000))
    assert found.kernels[0].bytes == 8000
    (found,) = f.explain()  # of the last new shape
    assert found.kernels[0].bytes in (8 * 200, 8 * 300, 8000)


def test_backward_graph_is_explained_too(capsys: pytest.CaptureFixture[str]) -> None:
    f = weft.compile(lambda x: weft.exp(x).sum(), backend="llvm")
    f(weft.ones(1000, requires_grad=True)).backward()
    forward, backward = f.explain(weft.ones(1000, requires_grad=True))
    assert forward.kernels
    assert backward.kernels
    assert capsys.readouterr().out.count(" us a call\n") == 2


def test_function_without_arguments_runs_on_what_it_holds() -> None:
    table = weft.arange(100.0)
    f = weft.compile(lambda: (table * 2.0).sum(), backend="llvm")
    f()
    (found,) = f.explain()
    assert found.seconds is not None
    assert found.note == ""


def test_python_calls_are_told() -> None:
    run = build(weft.make_graph(lambda x: weft.linalg.inv(x) * 2.0)(weft.eye(65)))
    found: Any = run.explain([np.eye(65, dtype=np.float32)])
    assert found.hosts == ("inv",)
    (step,) = [s for s in found.kernels if s.ops == "inv (by Python)"]
    assert step.measured is not None
    assert step.measured.seconds > 0.0


def test_errors_of_the_run_are_raised() -> None:
    f = weft.compile(lambda x, i: x[i] * 2.0, backend="llvm")
    f(weft.ones(3), weft.tensor([0]))
    with pytest.raises(IndexError, match="got 5"):
        f.explain(weft.ones(3), weft.tensor([5]))


def test_limits_of_the_machine_are_plausible() -> None:
    limits = measure_limits()
    assert 1e8 < limits.memory < 1e13
    assert limits.cache > 0.5 * limits.memory
    assert 1e8 < limits.flops < 1e14
