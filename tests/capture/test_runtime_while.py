"""``while`` in captured code becomes one node, or is run as Python where it must be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.capture.agree import check_agrees, loops_of, ops_of, row

UP, DOWN, MIXED = (row(4, 2, 3),), (row(-4, -2, -3),), (row(-4, 2, 0.5),)


@dataclass
class Box:
    value: Any
    count: int


def test_while_on_a_tensor_counts_and_has_gradients() -> None:
    def f(x: Any) -> Any:
        n = 0
        while x.sum() > 1:
            x = x * 0.5
            n += 1
        return x * n, n

    check_agrees(f, UP, DOWN)
    assert loops_of(f, *UP) == ["while_loop"]


def test_while_on_plain_numbers_is_run_by_python() -> None:
    def f(x: Any) -> Any:
        i = 0
        while i < 3:
            x = x * 2
            i += 1
        return x * i

    check_agrees(f, UP)
    assert ops_of(f, *UP) == ["mul"] * 4


def test_while_true_with_break_is_one_loop() -> None:
    def f(x: Any) -> Any:
        n = 0
        while True:
            x = abs(x) * 1.5 + 1
            n = n + 1
            if x.sum() > 50:
                break
        return x + n

    check_agrees(f, UP, DOWN)
    assert loops_of(f, *UP) == ["while_loop"]


def test_while_with_continue_break_and_else() -> None:
    def f(x: Any) -> Any:
        s, n = x * 0, 0
        while n < 10:
            n += 1
            if (x * n).sum() < 4:
                continue
            s = s + x
            if s.sum() > 12:
                break
        else:
            s = s - 100
        return s + n

    check_agrees(f, UP, DOWN, MIXED)


def test_truth_kept_in_a_variable_ends_a_loop() -> None:
    def f(x: Any) -> Any:
        done = False
        while not done:
            x = x + 1
            done = x.sum() > 20
        return x

    check_agrees(f, UP, DOWN)


def test_while_that_only_return_ends() -> None:
    def f(x: Any) -> Any:
        n = 0
        while True:
            x, n = x + 1, n + 1
            if x.sum() > 20:
                return x * n
            if n > 3:
                return x - n

    check_agrees(f, UP, DOWN)


def test_collatz() -> None:
    def f(x: Any) -> Any:
        n, steps = int(x[0]), 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps

    check_agrees(f, (row(7),), (row(27),), (row(1),), grad=False)


def test_newton_iteration_has_its_gradient() -> None:
    def f(x: Any) -> Any:
        y = x
        while abs(y * y - x).sum() > 1e-4:
            y = 0.5 * (y + x / y)
        return y

    check_agrees(f, UP)


def test_state_of_dataclasses_and_attributes() -> None:
    def f(x: Any) -> Any:
        box = Box(x, 0)
        while box.value.sum() < 30:
            box = Box(box.value + 3, box.count + 1)
        for i in range(3):
            box.value = box.value + i
            box.count += 1
        return box.value * box.count

    check_agrees(f, UP, DOWN)
