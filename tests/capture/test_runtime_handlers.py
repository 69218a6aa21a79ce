"""Handlers of captured code, which must not swallow what a capture has to see; `and` of two dtypes."""

from __future__ import annotations

from typing import Any

import pytest

import weft
from tests.capture.agree import check_agrees, compiled, row
from weft.errors import CaptureError

UP, DOWN = (row(4, 2, 3),), (row(-4, -2, -3),)


def test_a_handler_does_not_swallow_an_error_of_the_capture() -> None:
    def f(x: Any) -> Any:
        if x.sum() > 0:
            try:
                y = x * int(x.numpy().sum())
            except Exception:
                y = x * 100
        else:
            y = x
        return y

    with pytest.raises(CaptureError, match="needs a value that is known"):
        compiled(f)(weft.tensor(UP[0]))


def test_a_bare_handler_does_not_either() -> None:
    def f(x: Any) -> Any:
        while x.sum() > 1:
            try:
                x = x * 0.5
                x = x + len(x.tolist()) if x.shape == (9,) else x * float(x.numpy().mean() > 0)
            except:  # noqa: E722
                x = x - 1000
        return x

    with pytest.raises(CaptureError, match="needs a value that is known"):
        compiled(f)(weft.tensor(UP[0]))


def test_a_loop_that_falls_back_to_python_does_so_inside_a_handler() -> None:
    names = ("a", "b", "c")

    def f(x: Any) -> Any:
        table = {"a": 1.0, "b": 2.0, "c": 3.0}
        total = x * 0
        for i in range(3):
            try:
                total = total + x * table[names[i]]
            except Exception:
                total = total - 1000
        return total

    check_agrees(f, UP, DOWN)


def test_handlers_of_the_user_work() -> None:
    def f(x: Any) -> Any:
        table = {0: 1.0}
        total = x * 0
        for i in [0, 1]:
            try:
                total = total + x * table[i]
            except KeyError as error:
                total = total + len(error.args)
            else:
                total = total * 2
            finally:
                total = total + 0.5
        try:
            x.reshape(7)
        except weft.errors.ShapeError:
            total = total + 3
        return total

    check_agrees(f, UP, DOWN)


def test_and_of_a_truth_and_a_float() -> None:
    def f(x: Any) -> Any:
        y = (x.sum() > 0) and x[0] * 2
        z = (x.sum() > 0) or x[1] * 3
        return y * 1.0 + z * 1.0

    check_agrees(f, UP, DOWN)


def test_and_of_two_shapes_is_an_error_of_a_graph() -> None:
    def f(x: Any) -> Any:
        return (x.sum() > 0) and x

    with pytest.raises(CaptureError, match=r"must be the same on both ways, got f32\[3\]"):
        weft.make_graph(f)(weft.tensor(UP[0]))
    check_agrees(f, UP, (-UP[0],))  # a compiled function looks at what decides


def test_a_first_turn_that_is_given_up_leaves_nothing() -> None:
    class Box:
        count = 0

    def f(x: Any) -> Any:
        box, table, going = Box(), {"n": 0}, True
        while going:
            box.count += 1
            table["n"] = table["n"] + 2
            x = x * 0.5
            going = x.sum() > 1
        return x, box.count, table["n"]

    check_agrees(f, UP, DOWN)


def test_a_chain_of_comparisons_that_is_evaluated_again() -> None:
    def f(x: Any) -> Any:
        return x * 2 if 0 < x.sum() < x[0] * x[1] else x

    check_agrees(f, UP, DOWN, (row(1, 5, 3),))
