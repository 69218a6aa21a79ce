"""Lists that captured loops append to: stacked outputs of the loop."""

# ruff: noqa: PERF401 - the programs are written as users write them

from __future__ import annotations

from typing import Any

import pytest

import weft
from tests.capture.agree import check_agrees, compiled, ops_of, row
from weft.errors import CaptureError

UP, DOWN = (row(4, 2, 3),), (row(-4, -2, -3),)
kept: list[Any] = []


def test_append_gives_the_items_of_all_iterations() -> None:
    def f(x: Any) -> Any:
        ys = []
        for i in range(6):
            x = weft.sin(x) + i
            ys.append(x)
        total = x * 0
        for y in ys:
            total = total * 0.5 + y
        return weft.stack(ys), ys[2], ys[-1], len(ys), total, weft.stack(ys, axis=1)

    check_agrees(f, UP)


def test_stack_of_an_appended_list_costs_nothing() -> None:
    def f(x: Any) -> Any:
        ys = []
        for i in range(500):
            x = weft.sin(x) + i
            ys.append(x)
        return weft.stack(ys)

    assert set(ops_of(f, *UP)) == {"scan", "sin", "cast", "add"}


def test_several_appends_and_trees() -> None:
    def f(x: Any) -> Any:
        ys, zs = [x], []
        for i in range(3):
            x = weft.sin(x)
            ys.append(x)
            ys.append(x * 2)
            zs.append((x, i, "k"))
        return weft.stack(ys), zs[2][0] + zs[1][1], zs[0][2], len(ys)

    check_agrees(f, UP)


def test_list_plus_equals_and_extend() -> None:
    def f(x: Any) -> Any:
        ys = []
        for i in range(3):
            ys += [x * i]
            ys.extend([x, x + i])
        return weft.stack(ys)

    check_agrees(f, UP)


def test_nested_lists() -> None:
    def f(x: Any) -> Any:
        out = []
        for i in range(3):
            line = []
            for j in range(2):
                line.append(x * (i + j))
            out.append(weft.stack(line))
        return weft.stack(out)

    check_agrees(f, UP)


def test_comprehensions() -> None:
    def f(x: Any) -> Any:
        a = [x * i for i in range(4)]
        b = {k: x + i for i, k in enumerate("abc")}
        c = weft.stack([v * 2 for v in x if v is not None])
        return sum(a) + b["c"] + c + sum(v for v in x)

    check_agrees(f, UP)


def test_list_that_the_loop_reads_is_run_by_python() -> None:
    def f(x: Any) -> Any:
        hs = [x]
        for _ in range(4):
            hs.append(weft.sin(hs[-1]))
        return hs[-1] + hs[1]

    check_agrees(f, UP)


def test_append_in_a_while() -> None:
    def f(x: Any) -> Any:
        ys = []
        while x.sum() > 1:
            x = x * 0.5
            ys.append(x)
        s = x * 0
        for y in ys:
            s = s * 0.5 + y
        return weft.stack(ys).sum(0) + s + ys[0], len(ys)

    check_agrees(f, UP)


def test_item_of_a_list_of_tensors_or_numbers_by_a_loop_index() -> None:
    def f(x: Any) -> Any:
        weights, factors, s = [x, x * 2, x * 3], (0.5, 1.5, 2.5), x * 0
        for i in range(3):
            s = s + weights[i] * factors[i]
        return s

    check_agrees(f, UP)
    assert ops_of(f, *UP).count("scan") == 1


def test_append_to_a_list_from_outside_is_an_error() -> None:
    def f(x: Any) -> Any:
        kept.append(x)
        return x

    with pytest.raises(CaptureError, match="must not change the length of a list from outside") as caught:
        compiled(f)(weft.tensor(UP[0]))
    assert "kept.append(x)" in str(caught.value)
    assert kept == []


def test_python_use_of_a_list_of_unknown_length() -> None:
    def f(x: Any) -> Any:
        ys = []
        while x.sum() > 1:
            x = x * 0.5
            ys.append(x)
        ys.reverse()
        return ys[0]

    with pytest.raises(CaptureError, match=r"list.reverse needs a list of known length"):
        compiled(f)(weft.tensor(UP[0]))


def test_tuples_appended_in_a_while_are_an_error() -> None:
    def f(x: Any) -> Any:
        ys = []
        while x.sum() > 1:
            x = x * 0.5
            ys.append((x, x))
        return ys

    with pytest.raises(
        CaptureError, match="must be tensors of one shape and dtype, or numbers, got a tuple of 2"
    ):
        compiled(f)(weft.tensor(UP[0]))
