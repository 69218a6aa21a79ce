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


def _steps_where_there_is_one(p: Any, opt: Any, c: Any) -> None:
    if c > 0:
        opt.zero_grad()
    opt.step()


def _zeroes_where_there_is_one(p: Any, opt: Any, c: Any) -> None:
    if c > 1:
        p.grad = None
    if c > 0:
        opt.zero_grad(set_to_none=False)
    opt.step()


def _asks_for_it(p: Any, opt: Any, c: Any) -> None:
    if c > 0:
        p.grad = None
    with weft.no_grad():
        if p.grad is None:
            p.add_(1.0)
        else:
            p.sub_(p.grad)
        if p.grad is not None and c > -1:
            p.grad.mul_(0.5)


def _clips_where_there_is_one(p: Any, opt: Any, c: Any) -> None:
    if c > 0:
        p.grad = None
    weft.nn.utils.clip_grad_norm_([p], 0.5)
    weft.nn.utils.clip_grad_value_([p], 0.2)


def _changes_one_on_a_way(p: Any, opt: Any, c: Any) -> None:
    (p * p).sum().backward()
    if c > 0:
        p.grad.mul_(0.5)
    else:
        p.grad = None


def _changes_one_in_two_ways(p: Any, opt: Any, c: Any) -> None:
    p.grad = None
    for _ in range(3):
        (p * p).sum().backward()
        if c > 0:
            p.grad *= 0.5
        else:
            p.grad = p.grad * 0.25


def _adds_what_changed_before(p: Any, opt: Any, c: Any) -> None:
    (p * p).sum().backward()
    if c > 0:
        with weft.no_grad():
            p.sub_(0.5)
        p.grad += p.detach()


def _holds_the_one_of_before(p: Any, opt: Any, c: Any) -> None:
    (p * p).sum().backward()
    held = p.grad
    if c > 0:
        p.grad = None
    held.mul_(0.5)
    p.data.add_(held)


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
    _steps_where_there_is_one,
    _zeroes_where_there_is_one,
    _asks_for_it,
    _clips_where_there_is_one,
    _changes_one_on_a_way,
    _changes_one_in_two_ways,
    _adds_what_changed_before,
    _holds_the_one_of_before,
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


def test_a_gradient_that_may_be_another_tensor_is_that_one() -> None:
    p, kept = weft.tensor([1.0, 2.0], requires_grad=True), weft.tensor([4.0, 8.0])

    @weft.compile
    def step(c: Any) -> None:
        p.grad = None
        (p * p).sum().backward()
        if c > 0:
            p.grad = kept
        p.grad.mul_(0.5)

    step(weft.tensor(1.0))
    assert p.grad is kept
    assert kept.tolist() == [2.0, 4.0]
    step(weft.tensor(-1.0))
    assert p.grad.tolist() == [1.0, 2.0]
    assert kept.tolist() == [2.0, 4.0]


def test_counts_of_steps_part_where_a_run_tells_who_steps() -> None:
    def run(compiled: bool) -> list[Any]:
        ps = [weft.tensor([1.0, 2.0], requires_grad=True) for _ in range(3)]
        opt = weft.optim.Adam(ps, lr=0.1)

        def step(c: Any) -> None:
            sum((p * p).sum() for p in ps).backward()  # type: ignore[union-attr]
            opt.step()
            if c > 0:
                ps[1].grad = None
            opt.step()
            opt.zero_grad()

        function = weft.compile(step) if compiled else step
        for number in (1.0, -1.0, 1.0):
            function(weft.tensor(number))
        return [[p.tolist(), float(opt.state[p]["step"])] for p in ps]

    for (p, count), (q, expected) in zip(run(True), run(False), strict=True):
        assert p == pytest.approx(q)
        assert count == expected


def _reads(p: Any, opt: Any, c: Any) -> Any:
    if c > 0:
        p.grad = None
    return p.grad * 2.0


def _adds_to(p: Any, opt: Any, c: Any) -> Any:
    if c > 0:
        opt.zero_grad()
    p.grad += 1.0


@pytest.mark.parametrize("step", [_reads, _adds_to])
def test_reading_one_that_is_not_there_is_an_error_of_that_call(step: Step) -> None:
    p = weft.tensor([1.0, -2.0], requires_grad=True)
    opt = weft.optim.SGD([p], lr=0.1, weight_decay=0.5)
    f = weft.compile(lambda c: step(p, opt, c), backend="interpret")
    p.grad = weft.ones(2)
    f(weft.tensor(-1.0))
    before, gradient = p.tolist(), p.grad.tolist()
    with pytest.raises(CheckError, match=r"a gradient that is read must be there(.|\n)*test_gradient"):
        f(weft.tensor(1.0))
    assert p.tolist() == before
    assert p.grad.tolist() == gradient  # a call that fails changes nothing
