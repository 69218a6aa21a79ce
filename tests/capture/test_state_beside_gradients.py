"""State without gradient that is changed beside something with one: it stays a constant, step after step."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import weft

T = weft.tensor


Made = tuple[Callable[[Any], Any], Any, Callable[[], list[Any]]]


def _weight() -> Any:
    return weft.ones(2, requires_grad=True)


def running_mean() -> Made:
    w, m = _weight(), weft.zeros(2)

    def f(x: Any) -> Any:
        y = w * x
        with weft.no_grad():
            m.mul_(0.9).add_(y * 0.1)
        return (y - m).sum()

    return f, w, lambda: [m]


def loss_scale() -> Made:
    w, o = _weight(), SimpleNamespace()
    o.scale, o.n = T(2.0), T(0)

    def f(x: Any) -> Any:
        loss = (w * x).sum() * o.scale
        if loss.detach() > 5:
            o.scale, o.n = o.scale * 0.5, o.n + 1
        else:
            o.scale = o.scale * 1.5
        return loss

    return f, w, lambda: [o.scale, o.n]


def loss_scale_in_place() -> Made:
    w, scale, n = _weight(), T(2.0), T(0)

    def f(x: Any) -> Any:
        nonlocal scale, n
        loss = (w * x).sum() * scale
        if loss > 5:
            scale *= 0.5
            n += 1
        else:
            scale *= 1.5
        return loss

    return f, w, lambda: [scale, n]


def counter_in_branch() -> Made:
    w, o = _weight(), SimpleNamespace()
    o.c = T(0.0)

    def f(x: Any) -> Any:
        y = w * x
        if x[0] > 2:
            o.c += 1.0
            y = y * 2
        return y.sum()

    return f, w, lambda: [o.c]


def counter_in_loop() -> Made:
    w, o = _weight(), SimpleNamespace()
    o.c = T(0.0)

    def f(x: Any) -> Any:
        y = w * x
        for _ in range(3):
            o.c += 1.0
            y = y * w
        return y.sum()

    return f, w, lambda: [o.c]


def counter_in_while() -> Made:
    w, o = _weight(), SimpleNamespace()
    o.c = T(0.0)

    def f(x: Any) -> Any:
        y = w * x
        while y.sum() < 10:
            o.c += 1.0
            y = y * 2
        return y.sum()

    return f, w, lambda: [o.c]


def counter_in_nested_branch() -> Made:
    w, o = _weight(), SimpleNamespace()
    o.c = T(0.0)

    def f(x: Any) -> Any:
        y = w * x
        for _ in range(2):
            if x[0] > 2:
                o.c = o.c + 1.0
                y = y * w
        return y.sum()

    return f, w, lambda: [o.c]


def best_by_ternary() -> Made:
    w, o = _weight(), SimpleNamespace()
    o.best = T(100.0)

    def f(x: Any) -> Any:
        loss = (w * x).sum()
        o.best = loss.detach() if loss < o.best else o.best
        return loss - o.best

    return f, w, lambda: [o.best]


def state_carried_by_a_loop() -> Made:
    w, o = _weight(), SimpleNamespace()
    o.h = weft.zeros(2)

    def f(x: Any) -> Any:
        s = T(0.0)
        for _ in range(4):
            o.h = o.h * 0.5 + x
            s = s + (o.h * w).sum()
        return s

    return f, w, lambda: [o.h]


def items_in_branch() -> Made:
    w, items = _weight(), [weft.zeros(2), T(0.0)]

    def f(x: Any) -> Any:
        y = w * x
        if x[0] > 2:
            items[0] = items[0] + y.detach()
            items[1] = items[1] + 1
        return (y * items[1]).sum()

    return f, w, lambda: items


def ring_of_rows() -> Made:
    w, rows, o = _weight(), weft.zeros(3, 2), SimpleNamespace()
    o.at = T(0)

    def f(x: Any) -> Any:
        y = w * x
        with weft.no_grad():
            rows[int(o.at) % 3] = y.detach()
            o.at += 1
        return (y @ rows.T).sum()

    return f, w, lambda: [rows, o.at]


def batch_norm_in_branch() -> Made:
    w, norm = _weight(), weft.nn.BatchNorm1d(2)

    def f(x: Any) -> Any:
        h = weft.stack([w * x, x, x * 2])
        if x[0] > 1.5:
            h = norm(h)
        return (h**2).sum()

    return f, w, lambda: [norm.running_mean, norm.running_var]


MAKERS = [
    running_mean,
    loss_scale,
    loss_scale_in_place,
    counter_in_branch,
    counter_in_loop,
    counter_in_while,
    counter_in_nested_branch,
    best_by_ternary,
    state_carried_by_a_loop,
    items_in_branch,
    ring_of_rows,
    batch_norm_in_branch,
]


def _steps(make: Callable[[], Made], how: str) -> list[Any]:
    forward, w, state = make()
    inner = weft.compile(forward) if how == "forward" else forward

    def step(x: Any) -> Any:
        w.grad = None
        loss = inner(x)
        loss.backward()
        return loss.detach()

    run = weft.compile(step, capture=how) if how in ("source", "trace") else step
    found = []
    for i in range(4):
        loss = run(T([1.0 + i, 2.0]))
        held = state()
        assert not any(s.requires_grad for s in held)
        found += [loss.item(), *w.grad.tolist(), *[n for s in held for n in s.reshape(-1).tolist()]]
    return found


@pytest.mark.rotating(4)
@pytest.mark.parametrize("how", ["forward", "source", "trace"])
@pytest.mark.parametrize("make", MAKERS, ids=lambda m: m.__name__)
def test_state_stays_without_gradient(make: Callable[[], Made], how: str) -> None:
    assert _steps(make, how) == pytest.approx(_steps(make, ""), rel=1e-4, abs=1e-5)
