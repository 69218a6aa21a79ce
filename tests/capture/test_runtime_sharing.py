"""One tensor in several variables: a change in place inside a branch or loop is seen by all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.capture.agree import check_agrees, row


@pytest.mark.parametrize("compiled", [False, True])
def test_loop_that_adds_to_an_argument_changes_it_for_the_caller(compiled: bool) -> None:
    def f(x: Any) -> Any:
        for _ in range(3):
            x += 1
        return x * 2

    x = weft.tensor([1.0, 2.0])
    out = (weft.compile(f) if compiled else f)(x)
    np.testing.assert_array_equal(out.numpy(), [8.0, 10.0])
    np.testing.assert_array_equal(x.numpy(), [4.0, 5.0])


def _for(x: Any, c: Any) -> Any:
    y = x * 1
    z = y
    for _ in range(3):
        y += z.sum() * c
    return z * y


def _while(x: Any, c: Any) -> Any:
    y = x * 1
    z = y
    while c > 0:
        y += x * c
        c = c - 1
    return z * c


def _one_is_assigned(x: Any, c: Any) -> Any:
    y = x * 1
    z = y
    for _ in range(4):
        y += x * c
        z = z * 1.5
    return z + y


def _one_is_read(x: Any, c: Any) -> Any:
    y = x * 1
    z = y
    for _ in range(4):
        y += x * c
        y = weft.tanh(z) * y
    return z + y


def _branch(x: Any, c: Any) -> Any:
    y = x * 1
    z = y
    if c > 0:
        y += x
    else:
        z = weft.sin(z)
    return y * z


def _dictionary(x: Any, c: Any) -> Any:
    y = x * 1
    held = {"a": y}
    if c > 0:
        y += x
    else:
        held["a"] = y * 3
    return held["a"] + y


@pytest.mark.rotating(3)
@pytest.mark.parametrize("function", [_for, _while, _one_is_assigned, _one_is_read, _branch, _dictionary])
def test_change_is_seen_through_the_other_variable(function: Callable[..., Any]) -> None:
    check_agrees(function, (row(1, 2), np.float32(2)), (row(0.5, -1), np.float32(-1)))


def test_tensor_shared_by_an_assigned_variable_of_a_while() -> None:
    def f(x: Any, c: Any) -> Any:
        y = x * 1
        z = y
        while c > 0:
            y += x
            z = z * 1.5
            c = c - 1
        return z + y

    check_agrees(f, (row(1, 1), np.int64(2)), (row(1, 2), np.int64(-2)))


def test_plain_number_that_meets_a_number_of_the_graph_settles() -> None:
    def f(x: Any, k: Any, n: int) -> Any:
        count = 2
        while k < 3 and n < 2:
            k = k + 1
            count = (n + 1) % 7
        return x * count

    compiled = weft.compile(f)
    for n in (1, 2, 0):
        x = weft.ones(2)
        np.testing.assert_array_equal(compiled(x, weft.tensor(1), n).numpy(), f(x, weft.tensor(1), n).numpy())


def test_rows_without_gradient_of_a_loop_give_none() -> None:
    def f(x: Any, m: Any) -> Any:
        rows = [x * 1.0]
        for _ in m:
            kept = x.detach()
            rows.append(kept)
        return weft.stack(rows).sum(0)

    check_agrees(f, (row(1, 2), np.ones((3, 2), np.float32)))


def _grown(x: Any, k: Any) -> Any:
    rows = [x]
    while k < 3:
        k = k + 1
        rows.append(x * 2)
    return weft.stack(rows).sum(0)


def _grown_without_gradient(x: Any, k: Any) -> Any:
    rows = [x]
    while k < 3:
        k = k + 1
        rows.append(x.detach())
    return weft.stack(rows).sum(0)


def _grown_in_branch(x: Any, k: Any) -> Any:
    return _grown(x, k) if x[0] > 0 else x


@pytest.mark.parametrize("function", [_grown, _grown_without_gradient, _grown_in_branch])
def test_gradient_that_needs_the_number_of_iterations_is_told_it(function: Callable[..., Any]) -> None:
    check_agrees(function, (row(1, 2), np.int64(0)), (row(-1, 2), np.int64(2)))


def _copied_on_one_way(x: Any) -> Any:
    a = x * 1
    b = a
    for i in range(3):
        a += 1
        if a.sum() > 3 + i:
            b = b.clone()
    return a, b


def _assigned_on_one_way(x: Any) -> Any:
    a = x * 1
    b = a
    if x.sum() > 0:
        b = b * 2
    a += 1
    return a, b


def _assigned_in_a_loop_that_may_not_run(x: Any) -> Any:
    a = x * 1
    b = a
    while 0 < b.sum() < 5:
        b = b * 2
    a += 1
    return a, b


def _chosen_and_changed(x: Any) -> Any:
    a, b = x * 1, x * 2
    c = a if x.sum() > 0 else b
    c += 1
    return a + b


@pytest.mark.parametrize(
    "function",
    [_copied_on_one_way, _assigned_on_one_way, _chosen_and_changed, _assigned_in_a_loop_that_may_not_run],
)
def test_change_that_another_variable_sees_on_one_way_only(function: Callable[..., Any]) -> None:
    check_agrees(function, (row(1, 2),), (row(-1, -2),), (row(3, -1),))


def _assigned_always(x: Any) -> Any:
    a = x * 1
    b = a
    for _ in range(3):
        b = b * 2
    a += 1
    return a, b


def _not_read_again(x: Any) -> Any:
    a = x * 1
    b = a
    if x.sum() > 0:
        b = b * 2
    c = b + a
    a += 1
    return a, c


@pytest.mark.parametrize("function", [_assigned_always, _not_read_again])
def test_change_that_nobody_else_sees_is_kept(function: Callable[..., Any]) -> None:
    check_agrees(function, (row(1, 2),), (row(-1, 2),))


def _newton(x: Any) -> Any:
    y = x * 1
    while (y * y).sum() > 1:
        y = y * 0.5
    return y


def test_tensor_that_nothing_else_holds_is_one_result() -> None:
    """Whether a loop ran cannot be seen in its result, so no call has to pick one of two tensors."""
    compiled = weft.compile(_newton)
    for values in ((4.0, 8.0), (0.1, 0.2)):
        x = weft.tensor(values)
        np.testing.assert_array_equal(compiled(x).numpy(), _newton(x).numpy())
    assert len(compiled.graph.outputs) == 1


def _with_what_it_began_with(x: Any) -> Any:
    y = x * 1
    z = y
    while (y * y).sum() > 1:
        y = y * 0.5
    return y, z


def test_tensor_that_is_returned_twice_is_one_object() -> None:
    compiled = weft.compile(_with_what_it_began_with)
    for values, same in (((0.1, 0.2), True), ((4.0, 8.0), False)):
        for function in (_with_what_it_began_with, compiled):
            y, z = function(weft.tensor(values))
            assert (y is z) is same


def test_views_that_come_and_go_between_calls_see_the_changes_of_states() -> None:
    """A small state is put back tensor by tensor, a large one is written in place; views see both alike."""
    for size in (3, 3000):
        state, other = weft.ones(2, size), weft.ones(size)

        @weft.compile
        def step(state: Any = state, other: Any = other) -> Any:
            state += 1
            other *= 2
            return state.sum()

        for call in range(1, 4):
            step()
            view, turned = state[1], other.reshape(size, 1)
            step()
            np.testing.assert_array_equal(view.numpy(), state.numpy()[1])
            np.testing.assert_array_equal(view.numpy(), np.full(size, 1.0 + 2 * call))
            np.testing.assert_array_equal(turned.numpy()[:, 0], np.full(size, 4.0**call))
            del view, turned
