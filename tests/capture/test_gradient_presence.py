"""Gradients that are there on one way and not on the other: calls leave what eager code leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft.errors import CheckError

Step = Callable[[Any, Any, Any], Any]  # of a parameter, an optimizer, and what decides


def _forgets(p: Any, opt: Any, c: Any) -> None:
    if c > 0:
        p.grad = None


def _zeroes_by_optimizer(p: Any, opt: Any, c: Any) -> None:
    if c > 0:
        opt.zero_grad()


def _only_one_way_has_one(p: Any, opt: Any, c: Any) -> None:
    if c > 0:
        (p * p).sum().backward()


def _forgets_and_adds(p: Any, opt: Any, c: Any) -> None:
    if c > 0:
        opt.zero_grad()
    (p * c).sum().backward()
    opt.step()


def _steps_now_and_then(p: Any, opt: Any, c: Any) -> None:
    (p * c).sum().backward()
    if c > 0:
        opt.step()
        opt.zero_grad()


def _decides_twice(p: Any, opt: Any, c: Any) -> None:
    if c > 0:
        p.grad = None
    else:
        if c > -1:
            p.grad = None
    if c > 1:
        (p * p).sum().backward()


def _in_a_loop(p: Any, opt: Any, c: Any) -> None:
    k = weft.tensor(0.0)
    while k < c:
        (p * p).sum().backward()
        k = k + 1.0


def _forgets_in_a_loop(p: Any, opt: Any, c: Any) -> None:
    k = weft.tensor(0.0)
    while k < c:
        p.grad = None
        k = k + 1.0


def _now_and_then_in_a_loop(p: Any, opt: Any, c: Any) -> None:
    for i in range(3):
        if c > i:
            p.grad = None
        else:
            (p * c).sum().backward()


def _forgets_at_the_end_of_turns(p: Any, opt: Any, c: Any) -> None:
    for _ in range(3):
        (p * c).sum().backward()
        opt.step()
        opt.zero_grad()


STEPS = [
    _forgets,
    _zeroes_by_optimizer,
    _only_one_way_has_one,
    _forgets_and_adds,
    _steps_now_and_then,
    _decides_twice,
    _in_a_loop,
    _forgets_in_a_loop,
    _now_and_then_in_a_loop,
    _forgets_at_the_end_of_turns,
]


def _leaves(step: Step, compiled: bool, first: bool) -> list[Any]:
    p = weft.tensor([1.0, -2.0, 3.0], requires_grad=True)
    opt = weft.optim.SGD([p], lr=0.1, weight_decay=0.5)
    if first:
        p.grad = weft.ones(3)

    def run(c: Any) -> None:
        step(p, opt, c)

    function = weft.compile(run, backend="interpret") if compiled else run
    left = []
    for number in (2.0, -0.5, -2.0, 0.5, 2.0, -2.0):
        function(weft.tensor(number))
        left.append([p.tolist(), None if p.grad is None else p.grad.tolist()])
    return left


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_call_leaves_a_gradient_or_none(step: Step, first: bool) -> None:
    ours, theirs = _leaves(step, True, first), _leaves(step, False, first)
    assert [g is None for _, g in ours] == [g is None for _, g in theirs]
    for (p, g), (q, h) in zip(ours, theirs, strict=True):
        assert p == pytest.approx(q)
        assert g is None or g == pytest.approx(h)


def _looks(p: Any, opt: Any, c: Any) -> Any:
    if c > 0:
        p.grad = None
    return 1 if p.grad is None else 2


def _steps_without(p: Any, opt: Any, c: Any) -> Any:
    if c > 0:
        opt.zero_grad()
    opt.step()


@pytest.mark.parametrize("step", [_looks, _steps_without])
def test_reading_one_that_is_not_there_is_an_error_of_that_call(step: Step) -> None:
    p = weft.tensor([1.0, -2.0], requires_grad=True)
    opt = weft.optim.SGD([p], lr=0.1, weight_decay=0.5)
    f = weft.compile(lambda c: step(p, opt, c), backend="interpret")
    p.grad = weft.ones(2)
    f(weft.tensor(-1.0))
    before = p.tolist()
    with pytest.raises(CheckError, match=r"a gradient that is read must be there(.|\n)*test_gradient"):
        f(weft.tensor(1.0))
    assert p.tolist() == before
    assert p.grad.tolist() == [1.0, 1.0]  # a call that fails changes nothing
