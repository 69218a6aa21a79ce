"""Choices in captured code: ``if``, ternaries, ``and``, ``or``, ``not``, chained comparisons."""

from __future__ import annotations

import linecache
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from tests.capture.agree import check_agrees, compiled, ops_of, row
from weft.errors import CaptureError, ShapeError

UP, DOWN, MIXED = (row(4, 2, 3),), (row(-4, -2, -3),), (row(-4, 2, 0.5),)


class Pair(NamedTuple):
    first: Any
    second: Any


def test_both_ways_are_in_the_graph() -> None:
    def f(x: Any) -> Any:
        if x.sum() > 0:
            y = x * 2
        else:
            y = x - 1
        return y

    check_agrees(f, UP, DOWN)
    assert ops_of(f, *UP).count("cond") == 1


def test_plain_conditions_leave_no_trace() -> None:
    def f(x: Any, flag: bool = True) -> Any:
        if flag and x.ndim == 1:
            return x * 2
        return x

    assert ops_of(f, *UP) == ["mul"]


def test_elif_chain_with_returns() -> None:
    def f(x: Any) -> Any:
        s = x.sum()
        if s > 5:
            return x * 2
        elif s > 0:
            return x * 3
        elif s > -3:
            return x * 4
        return x * 5

    check_agrees(f, UP, DOWN, MIXED, (row(1, 0, 0),))


@pytest.mark.rotating(2)
def test_long_elif_chain_is_captured_at_once() -> None:
    lines = ["def f(x):", "    s = x.sum()"]
    lines += [f"    {'if' if i == 0 else 'elif'} s > {20 - i}: y = x * {i}" for i in range(20)]
    scope: dict[str, Any] = {}
    text = "\n".join([*lines, "    else: y = x", "    return y"])
    linecache.cache["<chain>"] = (len(text), None, text.splitlines(True), "<chain>")
    exec(compile(text, "<chain>", "exec"), scope)  # noqa: S102
    check_agrees(scope["f"], UP, DOWN)
    assert ops_of(scope["f"], *UP).count("cond") == 20


def test_numbers_that_differ_become_values_of_the_graph() -> None:
    def f(x: Any) -> Any:
        n, rate, flag = 1, 0.5, True
        if x[0] > 0:
            n, rate, flag = 3, 0.25, False
        return x * n + rate, n, rate, flag

    check_agrees(f, UP, DOWN)


def test_number_and_tensor_become_a_tensor() -> None:
    def f(x: Any) -> Any:
        y = 0
        if x[0] > 0:
            y = x.sum()
        return y * x

    check_agrees(f, UP, DOWN)


def test_int_and_float_become_a_float() -> None:
    def f(x: Any) -> Any:
        k = 2 if x[0] > 0 else 0.5
        return x * k

    check_agrees(f, UP, DOWN)


def test_trees_are_joined_leaf_by_leaf() -> None:
    def f(x: Any) -> Any:
        pair, items, named = Pair(x, 1), {"a": [x, None], "b": "same"}, (x, x)
        if x[0] > 0:
            pair = Pair(x * 2, 2)
            items = {"a": [x + 1, None], "b": "same"}
        assert items["b"] == "same"
        return pair.first * pair.second + items["a"][0], named[0] is named[1]

    check_agrees(f, UP, DOWN)


def test_in_place_changes_on_one_way() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        if x[0] > 0:
            y[0] = 10.0
        else:
            y *= 2
        return y * x

    check_agrees(f, UP, DOWN)


def test_dict_changed_on_one_way() -> None:
    def f(x: Any) -> Any:
        d = {"a": x, "n": 1}
        if x[0] > 0:
            d["a"] = x * 2
            d["n"] = 3
        return d["a"] * d["n"]

    check_agrees(f, UP, DOWN)


def test_ternary_and_nested_ternary() -> None:
    def f(x: Any) -> Any:
        return x * 2 if x[0] > 0 else (x * 3 if x[1] > 0 else -x)

    check_agrees(f, UP, DOWN, MIXED)


def test_and_or_not_and_chains() -> None:
    def f(x: Any) -> Any:
        y = x
        if x[0] > 0 and x[1] > 0:
            y = y * 2
        if x[0] < 0 or x[1] < 0:
            y = y * 3
        if not x[0] > 0:
            y = y + 1
        if 0 < x[0] < 5 and not (x[1] > 1 > x[2]):
            y = y + 2
        return y

    check_agrees(f, UP, DOWN, MIXED)


def test_and_of_truths_is_one_op_where_both_sides_may_run() -> None:
    def f(x: Any) -> Any:
        return x if x[0] > 0 and x[1] > 0 else -x

    ops = ops_of(f, *UP)
    assert "logical_and" in ops
    assert ops.count("cond") == 1


def test_right_side_runs_only_if_the_left_side_asks_for_it() -> None:
    def f(x: Any) -> Any:
        i = x[0].astype(weft.int64)
        if i < 3 and x[i] > 0:
            return x * 2
        return x

    check_agrees(f, (row(2, 1, 1),), (row(7, 1, 1),), (row(1, -1, 1),))


def test_and_gives_a_value_as_in_python() -> None:
    def f(x: Any) -> Any:
        return (x[0] and x[1]) + (x[2] or x[1])

    check_agrees(f, UP, (row(0, 2, 3),), (row(1, 2, 0),))


def test_gradient_of_the_way_not_taken_leaks_no_nan() -> None:
    def f(x: Any) -> Any:
        return weft.sqrt(x.sum()) if x.sum() > 0 else x.sum() * 2

    check_agrees(f, UP, DOWN, (row(0, 0, 0),))


def test_no_grad_and_detach_inside_a_branch() -> None:
    def f(x: Any) -> Any:
        if x[0] > 0:
            with weft.no_grad():
                k = x * 2
            y = k * x
        else:
            y = x.detach() * x
        return y

    check_agrees(f, UP, DOWN)


def test_closure_and_nonlocal() -> None:
    def f(x: Any) -> Any:
        total = x * 0

        def add(t: Any) -> None:
            nonlocal total
            total = total + t

        if x[0] > 0:
            add(x)
        add(x * 2)
        return total

    check_agrees(f, UP, DOWN)


def test_return_inside_try_and_with() -> None:
    def f(x: Any) -> Any:
        try:
            with weft.enable_grad():
                if x.sum() > 0:
                    return x * 2
        finally:
            z = x + 1
        return z

    check_agrees(f, UP, DOWN)


def test_condition_of_one_element_and_of_several() -> None:
    def one(x: Any) -> Any:
        return x if (x[:1] > 0) else -x

    def several(x: Any) -> Any:
        return x if x > 0 else -x

    check_agrees(one, UP, DOWN)
    with pytest.raises(ShapeError, match="the truth of a tensor needs one element"):
        compiled(several)(weft.tensor(UP[0]))


# What cannot be one variable


def test_variable_of_one_way_is_an_error_only_when_read() -> None:
    def read(x: Any) -> Any:
        if x.sum() > 0:
            y = x
        return y

    def unread(x: Any) -> Any:
        if x.sum() > 0:
            y = x
            x = y + 1
        return x

    check_agrees(unread, UP, DOWN)
    with pytest.raises(CaptureError) as caught:
        compiled(read)(weft.tensor(UP[0]))
    line = read.__code__.co_firstlineno
    text = str(caught.value)
    assert f"y is assigned only where the `if` at test_runtime_branches.py:{line + 1} is true" in text
    assert f"test_runtime_branches.py:{line + 3}: return y" in text
    assert "give y a value before the `if`" in text


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda x: x[:2], ["y", "f32[3]", "f32[2]"]),
        (lambda x: x.astype(weft.float64), ["f32[3]", "f64[3]"]),
        (lambda x: (x, x), ["f32[3]", "a tuple of 2"]),
        (lambda x: 1.0, ["f32[3]", "the Python float 1.0"]),
    ],
)
def test_variable_of_two_types_is_an_error_that_names_both(other: Any, words: list[str]) -> None:
    def f(x: Any) -> Any:
        if x.sum() > 0:
            y = x
        else:
            y = other(x)
        return y

    with pytest.raises(CaptureError) as caught:
        weft.make_graph(f)(weft.tensor(UP[0]))
    text = str(caught.value)
    assert all(word in text for word in words)
    assert f"test_runtime_branches.py:{f.__code__.co_firstlineno + 1}: if x.sum() > 0:" in text


def test_function_that_returns_on_one_way_only() -> None:
    def f(x: Any) -> Any:
        if x.sum() > 0:
            return x

    with pytest.raises(CaptureError, match=r"what the function returns .*f32\[3\] .* and None"):
        compiled(f)(weft.tensor(UP[0]))


def test_text_that_differs_is_looked_at_by_python() -> None:
    def used(x: Any) -> Any:
        name = "sin" if x.sum() > 0 else "cos"
        return x * 2 if name == "sin" else x

    def inside(x: Any) -> Any:
        if x.sum() > 0:
            act = weft.sin
            y = act(x)
        else:
            act = weft.cos
            y = act(x)
        return y

    check_agrees(inside, UP, DOWN)
    check_agrees(used, UP, DOWN)
    with pytest.raises(CaptureError, match="the Python str 'sin'"):
        weft.make_graph(used)(weft.TensorType(np.shape(UP[0]), weft.float32))


def test_error_inside_a_branch_shows_the_users_line() -> None:
    def f(x: Any) -> Any:
        if x.sum() > 0:
            return x @ weft.ones((4, 4))
        return x

    with pytest.raises(ShapeError) as caught:
        compiled(f)(weft.tensor(UP[0]))
    assert "return x @ weft.ones((4, 4))" in str(caught.value)


def test_traced_function_asks_for_truth_and_guards_it() -> None:
    def f(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else -x

    traced = weft.jit.trace(f, weft.tensor(UP[0]))
    np.testing.assert_array_equal(traced(weft.tensor(UP[0])).numpy(), UP[0] * 2)
    with pytest.raises(weft.errors.TraceGuardError):
        traced(weft.tensor(DOWN[0]))
