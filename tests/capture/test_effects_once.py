"""Effects of loops whose gradient runs them again: each happens once, as in eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft


def printing(v: Any, s: Any) -> Any:
    s, i = s * 0.5, 0
    if v.sum() > 0:
        while i < 2 and v.mean() < 2.0:
            s = s * v[0]
            print("turn", s.item())  # noqa: T201 - what is tested
            i = i + 1
    return v * s


def printing_in_rows(v: Any, s: Any) -> Any:
    if v.sum() > 0:
        for x in weft.stack([v, v * 2.0, v * 3.0]):
            s = s * x[0]
            print("row", s.item())  # noqa: T201
    return v * s


def counting(v: Any, s: Any) -> Any:
    """Ints that a run tells are checked for overflow."""
    s, n, k, c = s * 0.5, 1, 2, weft.tensor(0)
    if v.sum() > 0:
        while c < 3 and v.mean() < 2.0:
            s = s * 1.5
            k = (k - n) % 7
            n += 2
            c = c + 1
    return v * s + v * (n + k)


def results(function: Callable[..., Any], capsys: pytest.CaptureFixture[str], start: float) -> list[Any]:
    v = weft.tensor([0.5, -0.25, start], requires_grad=True)
    s = weft.tensor(0.5, requires_grad=True)
    out = function(v, s)
    out.sum().backward()
    return [capsys.readouterr().out, *[x.tolist() for x in (out, v.grad, s.grad)]]


@pytest.mark.rotating(3)
@pytest.mark.parametrize("start", [1.0, -2.0])
@pytest.mark.parametrize("backend", ["interpret", None])
@pytest.mark.parametrize("function", [printing, printing_in_rows, counting])
def test_effects_happen_once(
    function: Callable[..., Any], backend: str | None, start: float, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = results(function, capsys, start)
    assert results(weft.compile(function, backend=backend), capsys, start) == expected
