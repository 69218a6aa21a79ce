"""Whole programs in plain Python: captured, they give the values and gradients of eager ones."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, operator, assignment"
# ruff: noqa: RUF005, B023, B905, E731 - programs as users write them

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
from tests.capture.agree import check_agrees, row

RUNS = ((row(4, 2, 3),), (row(1, 2.5, 0.5),), (row(-4, 2, 3),))
PROGRAMS: dict[str, Callable[[Any], Any]] = {}


def program(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
def walrus_while(x: Any) -> Any:
    n = 0
    while (s := x.sum()) < 40:
        x = x + s * 0.1 + 2
        n += 1
    return x * n


@program
def concat_lists(x: Any) -> Any:
    ys: list[Any] = []
    for i in range(5):
        ys = ys + [x * i]
    return weft.stack(ys)


@program
def tryloop(x: Any) -> Any:
    for i in range(3):
        try:
            if x[i] > 0:
                x = x * 2
        except ValueError:
            x = x * 0
        finally:
            x = x + 1
    return x


@program
def closures_in_loop(x: Any) -> Any:
    s = x * 0
    for i in range(3):
        f = lambda t: t * i + i
        s = s + f(x)
    return s


@program
def zip_list_tensor(x: Any) -> Any:
    s = 0.0
    for w, v in zip([1.0, 2.0, 3.0], x):
        s = s + w * v
    return s


@program
def dict_items(x: Any) -> Any:
    d = {"a": x, "b": x * 2}
    s = x * 0
    for k, v in d.items():
        s = s + v * len(k)
    return s


@program
def nested_fn_state(x: Any) -> Any:
    def step(c, v):
        if v > 0:
            return c * 2 + v
        return c - v

    c = 0.0
    for v in x:
        c = step(c, v)
    return c


@program
def two_flags(x: Any) -> Any:
    found = False
    where = -1
    for i in range(3):
        if x[i] < 0 and not found:
            found = True
            where = i
    return x * where, found, where


@program
def fib(x: Any) -> Any:
    a, b = 0, 1
    n = int(x[0])
    for _ in range(n):
        a, b = b, a + b
    return a, x * b


@program
def power_iter(x: Any) -> Any:
    m = weft.outer(x, x) + weft.eye(3)
    v = weft.ones(3)
    prev = weft.tensor(0.0)
    norm = (m @ v).sum()
    while abs(norm - prev) > 1e-3:
        v = m @ v
        v = v / weft.sqrt((v * v).sum())
        prev = norm
        norm = v @ (m @ v)
    return norm


@program
def bubble(x: Any) -> Any:
    y = x * 1
    for i in range(3):
        for j in range(2 - i):
            if y[j] > y[j + 1]:
                t = y[j]
                y[j] = y[j + 1]
                y[j + 1] = t
    return y


@program
def cumulative(x: Any) -> Any:
    out = weft.zeros(3)
    acc = 0.0
    for i, v in enumerate(x):
        acc += v
        out[i] = acc
    return out


@program
def ternary_nested_loop(x: Any) -> Any:
    return [x * i if x[0] > i else x - i for i in range(3)][2]


@program
def rnn(x: Any) -> Any:
    w = weft.outer(x, x) * 0.01
    h = weft.zeros(3)
    seq = weft.outer(x, x) * 0.1
    outs = []
    for t in range(seq.shape[0]):
        h = weft.tanh(seq[t] + w @ h)
        outs.append(h)
    return weft.stack(outs).mean(0) + outs[-1]


@program
def del_var(x: Any) -> Any:
    t = x * 2
    if x[0] > 0:
        y = t
    else:
        y = t + 1
    del t
    return y


@program
def inner_break_outer(x: Any) -> Any:
    s = x * 0
    for _ in range(4):
        for j in range(4):
            if s.sum() > 15:
                break
            s = s + abs(x) * j
        if s.sum() > 30:
            break
    return s


@program
def while_else_ret(x: Any) -> Any:
    n = 0
    while n < 5:
        x = x + 1
        if x.sum() > 12:
            break
        n += 1
    else:
        return x * 100
    return x + n


@program
def any_all_inside(x: Any) -> Any:
    n = 0
    while not (x > 10).all():
        x = x + 3
        n += 1
    return x * n


@program
def second_order(x: Any) -> Any:
    def f(t):
        s = 0.0
        for i in range(3):
            s = s + t[i] ** 3
        return s if s > 0 else s * 2

    return weft.grad(lambda t: weft.grad(f)(t).sum())(x)


@program
def vmap_loop(x: Any) -> Any:
    def f(t):
        for i in range(3):
            t = t * 1.5 + i
        return t

    return weft.vmap(f)(x)


@program
def jac(x: Any) -> Any:
    def f(t):
        for _ in range(2):
            t = weft.sin(t) * t
        return t

    return weft.jacobian(f)(x)


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_captured_program_agrees_with_eager(name: str) -> None:
    check_agrees(PROGRAMS[name], *RUNS)
