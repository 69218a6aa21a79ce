"""Which tensor a variable refers to after turns of a loop: changes in place go where eager code makes them.

Each program is run eagerly and compiled, with several numbers of turns; all that it returns, its arguments,
and what each of these shows after all others were changed must be the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

Program = Callable[[Any, Any, Any], tuple[Any, ...]]
PROGRAMS: list[Program] = []


def program(function: Program) -> Program:
    PROGRAMS.append(function)
    return function


@program
def changed_then_assigned(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    i = 0
    while i < n:
        a += 1.0
        a = a * 2.0
        i += 1
    return (a,)


@program
def swapped_and_changed(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    for _ in range(n):
        a, b = b, a
        a += 1
    return a, b


@program
def fibonacci_then_changed(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    for _ in range(n):
        a, b = b, a + b
    a += 10
    return a, b


@program
def fibonacci(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    for _ in range(n):
        a, b = b, a + b
    return a, b


@program
def picked_by_a_branch(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    i, c = 0, a
    while i < n:
        c = b if b.sum() > 8 * i else c * 2
        c += 1
        i += 1
    return (c,)


@program
def best_so_far(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    best = a
    for i in range(n):
        tried = b * i
        if tried.sum() > best.sum():
            best = tried
    return (best,)


@program
def view_in_a_branch_of_what_a_loop_assigns(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    held = {"v": a * 3}
    v = a
    if n > 1:
        for i in range(n):
            if b.sum() > i:
                v = b
        held["v"] = v.view(4)
    return (held["v"],)


@program
def view_of_what_is_assigned(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    v = a[0:1]
    for _ in range(n):
        v = a[1:2]
        v += 1
        a = a * 2
    v += 100
    return a, v


@program
def row_by_number(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    v = a[0]
    for i in range(n):
        v += 1
        v = a[i]
    v += 100
    return (v,)


@program
def older_and_newer(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    new, old = a, a * 1
    for _ in range(n):
        old = new
        new = new + 1
        old += 5
    new += 1
    old += 2
    return new, old


@program
def one_fresh_tensor_in_two_variables(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    x = y = a
    for _ in range(n):
        x = x * 2
        y = x
        y += 1
    x += 3
    return x, y


@program
def detached_again_and_again(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    v = a
    for _ in range(n):
        v = v.detach()
        v *= 2
    return (v,)


@program
def turned_again_and_again(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    v = a.view(1, 4)
    for _ in range(n):
        v = v.view(4, 1).T
        v[0, 1] += 1
    return (v,)


@program
def items_that_change_places(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    held = [a, b]
    for _ in range(n):
        held[0], held[1] = held[1], held[0]
        held[0] += 1
    return tuple(held)


@program
def dictionary_gets_another_tensor(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    held = {"x": a}
    for _ in range(n):
        held["x"] = b
        held["x"].view(2, 2)[0] = 7
    held["x"] += 1
    return (held["x"],)


@program
def loop_in_a_loop(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    x = a
    for _ in range(n):
        for _ in range(n):
            x, b = b, x
        x += 1
        b = b * 2
    return x, b


@program
def loop_in_a_branch(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    v = a
    if b.sum() > 0:
        for _ in range(n):
            v = b[:]
    v += 1
    return (v,)


@program
def view_met_inside(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    row = a[:2]
    a += 1
    for _ in range(n):
        row *= 2
        b = a
    return row, b


@program
def one_view_in_two_variables(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    y, z = a[0], b[0]
    for i in range(n):
        y = b[1] if b.sum() > i + 8 else a[i % 2]
        z = y
    return y, z


@program
def views_that_stay_on_some_turns(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    x, y, z = a[:3], b[:3], a[1:]
    for i in range(n):
        if i % 2 == 0:
            z = y
            y = x
        if i % 3 == 0:
            x = b[1:]
        z += 0.5
    return x, y, z


@program
def view_of_an_item_by_position(a: Any, b: Any, n: Any) -> tuple[Any, ...]:
    rows, y = [a, b], b[1]
    for i in range(n):
        y = rows[i % 2][0]
        b *= 0.5
    y -= 1.0
    return y, b


def _run(function: Program, compiled: bool, turns: int) -> list[Any]:
    a, b = weft.tensor([1.0, 2.0, 3.0, 4.0]), weft.tensor([0.5, -1.0, 2.0, 8.0])
    called = weft.compile(function) if compiled else function
    log = []
    for _ in range(2):
        reached = [*called(a, b, weft.tensor(turns)), a, b]
        log += [x.detach().numpy().copy() for x in reached]
        log += [np.asarray([[x is y for y in reached].index(True) for x in reached])]  # which are one
        for k, x in enumerate(reached):  # who sees the change of whom
            x.mul_(0.5).add_(k)
        log += [x.detach().numpy().copy() for x in reached]
    return log


@pytest.mark.rotating(3)
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_changes_reach_what_they_reach_in_eager_code(function: Program) -> None:
    for turns in (0, 1, 2, 3):
        eager, compiled = (_run(function, way, turns) for way in (False, True))
        assert len(eager) == len(compiled)
        for x, y in zip(eager, compiled, strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-5, err_msg=f"{turns} turns")


def test_a_loop_without_changes_carries_values_alone() -> None:
    graph = weft.make_graph(lambda a, b, n: fibonacci(a, b, n)[0].sum())(
        weft.ones(4), weft.ones(4), weft.tensor(3)
    )
    (loop,) = [node for node in graph.nodes if node.op.name == "while_loop"]
    assert [str(v.type) for v in loop.outputs] == ["i64[]", "f32[4]", "f32[4]"]


def test_gradient_flows_by_way_of_the_tensor_that_was_changed() -> None:
    def f(x: Any, n: Any) -> Any:
        a, b = x * 1.0, x * x
        for _ in range(n):
            a, b = b, a
            a *= x
        return (a * 2.0 + b).sum()

    for turns in range(4):
        grads = []
        for function in (f, weft.compile(f)):
            x = weft.tensor([0.5, -1.5, 2.0], requires_grad=True)
            function(x, weft.tensor(turns)).backward()
            grads.append(x.grad.numpy())
        np.testing.assert_allclose(grads[1], grads[0], rtol=1e-5)


def test_an_appended_tensor_that_is_changed_later_is_refused() -> None:
    def f(x: Any, n: Any) -> Any:
        out, h = [], x * 1.0
        for _ in range(n):
            h += 1.0
            out.append(h)
        return weft.stack(out)

    with pytest.raises(weft.errors.CaptureError, match="a tensor that a loop appends to a list must not"):
        weft.compile(f)(weft.ones(2), weft.tensor(3))


def test_an_appended_tensor_that_is_changed_after_the_loop_is_refused() -> None:
    def f(x: Any, n: Any) -> Any:
        out, h = [], x * 1.0
        for _ in range(n):
            h = h + 1.0
            out.append(h)
        h *= 2.0
        return weft.stack(out)

    with pytest.raises(weft.errors.CaptureError, match="must be one that nothing else refers to"):
        weft.compile(f)(weft.ones(2), weft.tensor(3))
