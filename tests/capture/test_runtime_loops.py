"""Loops in captured code: ``while`` and ``for`` become one node, or are run as Python where they must be."""

# ruff: noqa: PERF401, SIM114 - the programs are written as users write them

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import weft
from tests.capture.agree import check_agrees, compiled, loops_of, ops_of, row
from weft.base.sizes import named_size
from weft.errors import CaptureError
from weft.ir.interpret import interpret

UP, DOWN, MIXED = (row(4, 2, 3),), (row(-4, -2, -3),), (row(-4, 2, 0.5),)


@dataclass
class Box:
    value: Any
    count: int


def test_range_loop_is_one_node_whatever_its_length() -> None:
    def short(x: Any) -> Any:
        for i in range(10):
            x = weft.sin(x) + i * 0.01
        return x

    def long(x: Any) -> Any:
        for i in range(1000):
            x = weft.sin(x) + i * 0.01
        return x

    check_agrees(short, UP)
    assert loops_of(long, *UP) == ["scan"]
    assert ops_of(long, *UP) == ops_of(short, *UP)


def test_loop_without_tensors_is_run_by_python() -> None:
    def f(x: Any) -> Any:
        n = 0
        for i in range(100):
            if i % 3 == 0:
                n += i
        return x * n

    check_agrees(f, UP)
    assert ops_of(f, *UP) == ["mul"]


@pytest.mark.parametrize("count", [0, 1])
def test_loop_of_no_or_one_iteration_is_run_by_python(count: int) -> None:
    def f(x: Any) -> Any:
        for i in range(count):
            x = x * 2 + i
        return x

    check_agrees(f, UP)
    assert loops_of(f, *UP) == []


def test_number_before_the_loop_takes_the_type_the_body_gives() -> None:
    def f(x: Any) -> Any:
        s, k = 0, 0.0
        for i in range(5):
            s = s + (x * i).sum()
            k = k + x.sum()
        return s * k

    check_agrees(f, UP)


def test_type_that_settles_after_one_iteration_is_peeled() -> None:
    def f(x: Any) -> Any:
        s: Any = 0.0
        best: Any = None
        for i in range(20):
            s = s + x * i
            if best is None:
                best = s
            elif s.sum() > best.sum():
                best = s
        return s + best

    check_agrees(f, UP, DOWN)
    assert loops_of(f, *UP) == ["scan"]


def test_type_that_never_settles_is_unrolled_up_to_a_limit() -> None:
    def growing(x: Any) -> Any:
        y = x
        for _ in range(3):
            y = weft.concat([y, x])
        return y

    def endless(x: Any) -> Any:
        for _ in range(1000):
            x = weft.concat([x, x[:1]])
        return x

    check_agrees(growing, UP)
    with pytest.raises(
        CaptureError, match=r"x must stay what it is .* got f32\[3\] before and f32\[4\] after"
    ):
        compiled(endless)(weft.tensor(UP[0]))


def test_body_that_needs_python_numbers_is_unrolled() -> None:
    functions = [weft.sin, weft.cos, weft.tanh]
    table = {0: 1.5, 1: 2.5, 2: 3.5}

    def f(x: Any) -> Any:
        for i in range(3):
            x = functions[i](x) * table[i] + weft.zeros(i + 1).sum()
        return x

    check_agrees(f, UP)
    assert loops_of(f, *UP) == []


def test_ways_that_python_would_not_take_do_no_harm() -> None:
    def first_by_index(x: Any) -> Any:
        for i in range(5):
            if i == 0:
                h = x
            else:
                h = weft.sin(h) + i
        return h

    def previous(x: Any) -> Any:
        last: Any = None
        for i in range(5):
            x = x * 2 + last if i > 0 else x
            last = x
        return x

    check_agrees(first_by_index, UP)
    check_agrees(previous, UP)


def test_names_made_from_the_index_are_pythons() -> None:
    table = {"w0": 1.5, "w1": 2.5, "w2": 3.5}
    box = Box(1.0, 0)
    box.__dict__.update(table)

    def f(x: Any) -> Any:
        for i in range(3):
            x = weft.sin(x) * table[f"w{i}"] + getattr(box, f"w{i}")
            x = x + table.get("w{}".format(i), 0.0) + len(f"{i}")  # noqa: UP032
        return x

    check_agrees(f, UP)
    check_agrees(lambda x: x * table[f"w{int(x[0]) % 3}"], UP, DOWN, MIXED)
    assert loops_of(f, *UP) == []


def test_iteration_over_rows_enumerate_zip_and_reversed() -> None:
    def f(x: Any) -> Any:
        m, h = weft.outer(x, x), x * 0
        for r in m:
            h = weft.tanh(h * 0.5 + r)
        for i, (r, v) in enumerate(zip(m, x, strict=True)):
            h = h + r * v * i
        for i, v in enumerate(reversed(x), 2):
            h = h * 0.5 + v * i
        for a, b, i in zip(m, reversed(m), range(2), strict=False):
            h = h + a * b * i
        for i in reversed(range(3)):
            h = h * 2 + x[i]
        return h

    check_agrees(f, UP)
    assert loops_of(f, *UP) == ["scan"] * 5


def test_range_whose_bounds_a_run_tells() -> None:
    def f(x: Any) -> Any:
        s = x * 0
        for i in range(int(x[0])):
            s = s + x * i
        for j in range(2, int(x[0]) + 2, 2):
            s = s - j
        return s

    check_agrees(f, UP, DOWN, (row(7, 1, 1),))
    assert loops_of(f, *UP) == ["while_loop", "while_loop"]


def test_triangular_loops() -> None:
    def f(x: Any) -> Any:
        s = 0.0
        for i in range(3):
            for j in range(i, 3):
                s = s + x[i] * x[j] / (j - i + 1)
        return s

    check_agrees(f, UP)


def test_matrix_product_by_scalars() -> None:
    def f(x: Any) -> Any:
        a = weft.outer(x, x) + weft.eye(3)
        out = weft.zeros((3, 3))
        for i in range(3):
            for j in range(3):
                s = 0.0
                for k in range(3):
                    s = s + a[i, k] * a[k, j]  # type: ignore[assignment]
                out[i, j] = s
        return out

    check_agrees(f, UP)
    assert loops_of(f, *UP) == ["scan"] * 3


@pytest.mark.rotating(3)
@pytest.mark.parametrize("limit", [5.0, 20.0, 1000.0])
def test_break_continue_else_and_return(limit: float) -> None:
    def leaves(x: Any) -> Any:
        s = x * 0.0
        for i in range(6):
            if (x * i).sum() > 20:
                continue
            s = s + x
            if s.sum() > limit:
                break
        else:
            s = s * 100
        return s

    def returns(x: Any) -> Any:
        for i in range(4):
            for j in range(4):
                if (x * (i + j)).sum() > limit:
                    return x * i - j
        return x

    check_agrees(leaves, UP, DOWN, MIXED)
    check_agrees(returns, UP, DOWN, MIXED)


def test_break_out_of_a_python_list() -> None:
    def f(x: Any) -> Any:
        for act in (weft.sin, weft.exp, weft.tanh):
            x = act(x)
            if x.sum() > 5:
                break
        return x

    check_agrees(f, UP, DOWN)


def test_variable_of_the_loop_after_it() -> None:
    def f(x: Any) -> Any:
        for i in range(4):
            t = x * i
        return t + i

    check_agrees(f, UP)


def test_in_place_changes_in_loops() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        for i in range(3):
            y[i] = y[i] * i
            y += x
        while y.sum() < 100:
            y += 2
            y[0] += 1
        return y

    check_agrees(f, UP)


def test_training_loop_inside_a_function() -> None:
    def f(x: Any) -> Any:
        w = weft.ones(3, requires_grad=True)
        for _ in range(5):
            loss = ((w * x).sum() - 1) ** 2
            loss.backward()
            with weft.no_grad():
                w -= 0.01 * w.grad
            w.grad = None
        return w.detach()

    check_agrees(f, UP, grad=False)


def test_gradient_of_a_loop_inside_captured_code() -> None:
    def f(x: Any) -> Any:
        def loss(t: Any) -> Any:
            s = 0.0
            for i in range(3):
                s = s + t[i] ** (i + 1)
            return s * s if s > 0 else s

        return weft.grad(loss)(x)

    check_agrees(f, UP, DOWN)


def test_random_numbers_differ_in_each_iteration() -> None:
    def f(x: Any) -> Any:
        out = []
        for _ in range(3):
            out.append(weft.rand(2) + x[0])
        return weft.stack(out)

    captured = compiled(f)
    weft.manual_seed(3)
    expected = f(weft.tensor(UP[0])).numpy()
    weft.manual_seed(3)
    found = captured(weft.tensor(UP[0])).numpy()
    np.testing.assert_array_equal(found, expected)


def test_loops_along_a_named_size() -> None:
    def f(x: Any) -> Any:
        h = x[0] * 0
        for i, r in enumerate(x):
            h = h * 0.5 + r * i
        for i in range(len(x)):
            h = h + x[i] * i / len(x)
        seen = []
        for r in x:
            seen.append(r)
            if r.sum() > 4:
                break
        return h + weft.stack(seen).sum(0), weft.stack([r * 2 for r in x])

    shape: Any = (named_size("batch"), 3)
    graph = weft.make_graph(f)(weft.TensorType(shape, weft.float32))
    for size in (2, 5):
        x = np.arange(size * 3, dtype=np.float32).reshape(size, 3)
        for found, expected in zip(interpret(graph, [x]), f(weft.tensor(x)), strict=True):
            np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6)


# What cannot be a loop


def test_variable_that_changes_type_in_a_while() -> None:
    def f(x: Any) -> Any:
        while x.sum() < 100:
            x = weft.concat([x, x])
        return x

    with pytest.raises(CaptureError) as caught:
        compiled(f)(weft.tensor(UP[0]))
    text, line = str(caught.value), f.__code__.co_firstlineno
    assert f"x must stay what it is in the `while` at test_runtime_loops.py:{line + 1}" in text
    assert "got f32[3] before and f32[6] after an iteration" in text
    assert "hint: give it the type f32[6] before the loop, or another name inside" in text


def test_variable_of_a_loop_that_may_not_run() -> None:
    def f(x: Any) -> Any:
        while x.sum() > 1:
            x = x * 0.5
            y = x
        return y

    with pytest.raises(
        CaptureError, match=r"y is assigned only inside the `while` at .*, which may run no iteration"
    ):
        compiled(f)(weft.tensor(UP[0]))


def test_shape_by_a_number_of_the_graph() -> None:
    def f(x: Any) -> Any:
        k = 0
        while x.sum() < 100:
            x, k = x * 2, k + 1
            x = x + weft.zeros(k).sum()
        return x

    with pytest.raises(CaptureError, match="Python needs the value of an int here") as caught:
        weft.make_graph(f)(weft.tensor(UP[0]))
    assert "x = x + weft.zeros(k).sum()" in str(caught.value)


def test_a_long_range_is_not_made_at_once() -> None:
    @weft.compile
    def first_above(x: Any) -> Any:
        for _ in range(10**12):
            x = x + 1
            if x > 5:
                break
        return x

    @weft.compile
    def total(x: Any) -> Any:
        for i in range(0, -3_000_000, -1):
            x = x + i
        return x

    assert first_above(weft.tensor(0)).item() == 6
    assert total(weft.tensor(0)).item() == sum(range(0, -3_000_000, -1))
