"""Printing, assertions and other effects in captured code."""

# ruff: noqa: T201 - printing is what is tested

from __future__ import annotations

import functools
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.capture.agree import compiled, row
from weft.errors import CaptureError, CheckError
from weft.ir.interpret import interpret

UP, DOWN = row(4, 2, 3), row(-4, -2, -3)


def printed(function: Any, *runs: Any, capsys: Any) -> tuple[str, str]:
    """What a function prints on several inputs, captured and eager."""
    captured = compiled(function)
    capsys.readouterr()
    for run in runs:
        captured(weft.tensor(run))
    found = capsys.readouterr().out
    for run in runs:
        function(weft.tensor(run))
    return found, capsys.readouterr().out


def test_print_writes_at_each_call_what_eager_writes(capsys: Any) -> None:
    def f(x: Any) -> Any:
        print("start", x, x.sum(), sep=" | ", end="!\n")
        print({"x": x, "parts": [x[0], (1, None)]}, "plain", 3)
        print()
        return x

    found, expected = printed(f, UP, DOWN, UP, capsys=capsys)
    assert found == expected


def test_print_in_loops_and_branches(capsys: Any) -> None:
    def f(x: Any) -> Any:
        n = 0
        for i in range(3):
            print("step", i)
            if x[i] > 2:
                print("large", x[i], [i])
        while x.sum() > 1:
            x, n = x * 0.5, n + 1
            print(n, x)
        return x

    found, expected = printed(f, UP, DOWN, capsys=capsys)
    assert found == expected


def test_formatted_text(capsys: Any) -> None:
    def f(x: Any) -> Any:
        for i in range(2):
            print(f"step {i:03d}: {x.sum():.2f} {x[i]!s} {x}")
            print("loss {:>8.1f}".format(x[0]), "%s" % (i,), str(x[0]))  # noqa: UP031, UP032
        return x

    found, expected = printed(f, UP, capsys=capsys)
    assert found == expected


def test_print_of_tensors_that_require_grad(capsys: Any) -> None:
    w = weft.tensor(UP, requires_grad=True)

    def f(x: Any) -> Any:
        print(w)
        print((x * w).sum())
        return x

    found, expected = printed(f, UP, capsys=capsys)
    assert found == expected


def test_print_survives_optimisation_and_text(capsys: Any) -> None:
    def f(x: Any) -> Any:
        if x.sum() > 0:
            print("positive", x[0])
        return x * 2

    graph = weft.make_graph(f)(weft.tensor(UP))
    parsed = weft.parse_graph(graph.to_text(), graph.constant_data())
    for g in (graph, graph.optimize(), parsed):
        capsys.readouterr()
        interpret(g, [UP])
        interpret(g, [DOWN])
        assert capsys.readouterr().out == "positive tensor(4.)\n"


def test_assert_is_checked_by_the_run() -> None:
    def f(x: Any) -> Any:
        assert x.shape == (3,)
        assert x.sum() > 0, f"the sum must be positive, not {x.sum():.1f}"
        for i in range(3):
            assert x[i] < 5, ("too large", i)
        return x * 2

    captured = compiled(f)
    np.testing.assert_array_equal(captured(weft.tensor(UP)).numpy(), UP * 2)
    with pytest.raises(AssertionError, match=r"the sum must be positive, not -9\.0") as caught:
        captured(weft.tensor(DOWN))
    assert isinstance(caught.value, CheckError)
    assert "test_runtime_effects.py" in str(caught.value)
    assert 'assert x.sum() > 0, f"the sum must be positive' in str(caught.value)
    with pytest.raises(AssertionError, match=r"\('too large', 1\)"):
        captured(weft.tensor(row(1, 9, 1)))


def test_assert_on_plain_values_is_pythons() -> None:
    def f(x: Any) -> Any:
        assert x.ndim == 2, "a matrix"
        return x

    with pytest.raises(AssertionError, match=r"^a matrix"):
        compiled(f)(weft.tensor(UP))


def test_assert_in_a_branch_is_checked_only_there() -> None:
    def f(x: Any) -> Any:
        if x[0] > 0:
            assert x[1] > 0
        return x

    captured = compiled(f)
    captured(weft.tensor(DOWN))
    with pytest.raises(CheckError, match="the condition must hold"):
        captured(weft.tensor(row(1, -1, 1)))


def test_print_to_a_file_is_an_error() -> None:
    def f(x: Any) -> Any:
        print(x, file=sys.stderr)
        return x

    with pytest.raises(CaptureError, match="must print to standard output") as caught:
        compiled(f)(weft.tensor(UP))
    assert "print(x, file=sys.stderr)" in str(caught.value)


def test_writing_a_file_warns_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"

    def f(x: Any) -> Any:
        with open(path, "w") as file:
            file.write("text")
        return x * 2

    with pytest.warns(
        RuntimeWarning, match="captured code (opens a file to write|writes to a file)"
    ) as caught:
        compiled(f)(weft.tensor(UP))
    assert {w.lineno - f.__code__.co_firstlineno for w in caught} == {1, 2}


@pytest.mark.parametrize(
    "draw",
    [np.random.rand, random.random, functools.partial(random.randint, 0, 9), input],
    ids=["numpy", "random", "randint", "input"],
)
def test_results_that_change_at_each_call_are_an_error(draw: Any) -> None:
    def f(x: Any) -> Any:
        return x * draw()

    with pytest.raises(CaptureError, match="must give the same at each call") as caught:
        compiled(f)(weft.tensor(UP))
    assert "return x * draw()" in str(caught.value)


def test_reading_a_clock_warns() -> None:
    def f(x: Any) -> Any:
        return x * (time.time() > 0)

    with pytest.warns(RuntimeWarning, match="captured code reads a clock"):
        compiled(f)(weft.tensor(UP))
