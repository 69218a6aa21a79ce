"""``for`` loops that a tensor may end: what their turns assign is there after them, as in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft.errors import CaptureError


def last_product(x: Any) -> Any:
    for i in range(5):
        y = x * i
        if y.sum() > 3:
            break
    return y


def counted(x: Any) -> Any:
    for i in range(5):  # noqa: B007 - how far it came is what is asked
        x = x * 2
        if x.sum() > 3:
            break
    return x, i


def ended_before_the_change(x: Any) -> Any:
    for i in range(5):  # noqa: B007
        if x.sum() > 3:
            break
        x = x * 2
    return x, i


def row_found(x: Any) -> Any:
    for k, row in enumerate(weft.stack([x, x * 2, x * 3])):  # noqa: B007
        if row.sum() > 3:
            break
    return row, k


def with_else(x: Any) -> Any:
    for i in range(5):  # noqa: B007
        d = x * 0.5
        x = x - d
        if d.sum() < 1:
            break
    else:
        i = 99
    return x, i, d


def two_loops(x: Any) -> Any:
    for i in range(3):  # noqa: B007
        for j in range(4):  # noqa: B007
            x = x + 1
            if x.sum() > 5:
                break
        if x.sum() > 9:
            break
    return x, i, j


def with_state(x: Any) -> Any:
    kept = weft.zeros(5)
    for i in range(5):
        kept[i] = x.sum() + i
        if kept.sum() > 6:
            break
        kept[i] *= 2
    else:
        kept.neg_()
    return kept, i


FUNCTIONS = [last_product, counted, ended_before_the_change, row_found, with_else, two_loops, with_state]


@pytest.mark.rotating(3)
@pytest.mark.parametrize("start", [4.0, 1.5, 0.1, -1.0])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_turns_assign_is_there_after_a_break(function: Callable[..., Any], start: float) -> None:
    def plain(out: Any) -> Any:
        return [
            t.tolist() if isinstance(t, weft.Tensor) else t for t in (out if type(out) is tuple else (out,))
        ]

    x = weft.tensor([start, 0.1])
    assert plain(weft.compile(function)(x)) == plain(function(x))


def test_what_a_loop_assigns_that_may_not_run_is_still_unknown() -> None:
    def unsure(x: Any, n: Any) -> Any:
        for i in range(n):
            y = x * i
            if y.sum() > 3:
                break
        return y

    with pytest.raises(CaptureError, match=r"y is assigned only inside .* may run no iteration"):
        weft.compile(unsure)(weft.ones(2), weft.tensor(3))
