"""Parameters that a loss is computed from on one way alone: on the others they get no gradient, not zeros.

An optimizer with momentum or weight decay changes a parameter whose gradient is zeros, and leaves one that
has none, so each program here is a training step, compared with the eager one over calls on all ways.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft.errors import CaptureError, CheckError, GradientError

CALLS = (0.0, 0.0, 1.0, 0.0, 2.0, 0.0, -2.0, 1.0)
Loss = Callable[[Any, Any, Any, Any], Any]  # of two parameters, a vector, and what decides


def _added(a: Any, b: Any, x: Any, c: Any) -> Any:
    loss = (b * x).sum()
    if c > 0:
        loss = loss + a
    return loss


def _one_or_the_other(a: Any, b: Any, x: Any, c: Any) -> Any:
    return a * x.sum() if c > 0 else b * 1.0


def _detached(a: Any, b: Any, x: Any, c: Any) -> Any:
    y = a * x
    if c > 0:
        y = y.detach()
    return (b * x + y).sum()


def _in_turns_of_a_while(a: Any, b: Any, x: Any, c: Any) -> Any:
    loss, i = (b * x).sum(), weft.tensor(0.0)
    while i < c:
        loss = loss * a
        i = i + 1
    return loss


def _in_turns_of_a_for(a: Any, b: Any, x: Any, c: Any) -> Any:
    loss = b * 1.0
    for i in range(int(c)):
        loss = loss + a * (i + 1)
    return loss


def _in_some_turns(a: Any, b: Any, x: Any, c: Any) -> Any:
    loss = b * 1.0
    for row in x:
        if row * c > 2:
            loss = loss + a * row
    return loss


def _in_the_last_turn(a: Any, b: Any, x: Any, c: Any) -> Any:
    loss = b * 1.0
    for row in x:
        loss = a * row if row * c > 2 else b * row
    return loss


def _exchanged_in_turns(a: Any, b: Any, x: Any, c: Any) -> Any:
    first, second = a * 1.0, b * 1.0
    for _ in range(int(c)):
        first, second = second, first
    return first


def _until_a_break(a: Any, b: Any, x: Any, c: Any) -> Any:
    loss = b * 1.0
    for i in range(5):
        if i >= c:
            break
        loss = loss + a
    return loss


def _in_a_branch_of_a_branch(a: Any, b: Any, x: Any, c: Any) -> Any:
    loss = x.sum() * b
    if c > 0:
        if c > 1:
            loss = loss * a
        else:
            loss = loss + 2
    elif c < -1:
        loss = a * x.sum()
    return loss


def _in_a_loop_of_a_branch(a: Any, b: Any, x: Any, c: Any) -> Any:
    loss = x.sum() * b
    if c > -1:
        i = weft.tensor(0.0)
        while i < c:
            if i > 0:
                loss = loss * a
            i = i + 1
    return loss


def _a_name_of_either(a: Any, b: Any, x: Any, c: Any) -> Any:
    w = a if c > 0 else b
    return (w * x).sum()


def _an_item_by_position(a: Any, b: Any, x: Any, c: Any) -> Any:
    w = [a, b][int(c) % 2]
    return (w * x).sum()


def _an_item_in_a_branch(a: Any, b: Any, x: Any, c: Any) -> Any:
    loss = x.sum() * b
    if c > -1:
        w = [b, a][int(c) % 2]
        loss = loss + w
    return loss


def _items_in_turns(a: Any, b: Any, x: Any, c: Any) -> Any:
    loss = x.sum() * b
    i = 0
    while i < c:
        loss = loss * [b, a][i]
        i = i + 1
    return loss


def _a_change_of_either(a: Any, b: Any, x: Any, c: Any) -> Any:
    one, other = x * 1.0, x * 2.0
    chosen = one if c > 0 else other
    chosen.mul_(a)
    return one.sum() + b


def _a_list_that_turns_fill(a: Any, b: Any, x: Any, c: Any) -> Any:
    items = [b * 1.0]
    for i in range(int(c)):
        items.append(a * (i + 1))  # noqa: PERF401 - the loop is what is tested
    return weft.stack(items).sum()


def _by_cond(a: Any, b: Any, x: Any, c: Any) -> Any:
    return weft.cond(c > 0, lambda: a * x.sum(), lambda: b * 1.0)


def _by_switch(a: Any, b: Any, x: Any, c: Any) -> Any:
    ways = [lambda: b * 2.0, lambda: a * x.sum(), lambda: a * b]
    return weft.switch(c.astype(weft.int64), ways)


def _in_a_checkpoint(a: Any, b: Any, x: Any, c: Any) -> Any:
    def inner(x: Any) -> Any:
        loss = b * x.sum()
        if c > 0:
            loss = loss + a
        return loss

    return weft.checkpoint(inner, x)


def _by_where(a: Any, b: Any, x: Any, c: Any) -> Any:
    return weft.where(c > 0, a, b)  # which has a gradient of zeros, in eager code too


LOSSES = (
    *(_added, _one_or_the_other, _detached, _in_turns_of_a_while, _in_turns_of_a_for, _in_some_turns),
    *(_in_the_last_turn, _exchanged_in_turns, _until_a_break, _in_a_branch_of_a_branch),
    *(_in_a_loop_of_a_branch, _a_name_of_either, _an_item_by_position, _an_item_in_a_branch),
    *(_items_in_turns, _a_change_of_either, _a_list_that_turns_fill, _by_cond, _by_switch),
    *(_in_a_checkpoint, _by_where),
)
OPTIMIZERS = {
    "sgd": lambda ps: weft.optim.SGD(ps, lr=0.05, weight_decay=0.5, momentum=0.9),
    "adam": lambda ps: weft.optim.Adam(ps, lr=0.1, weight_decay=0.1),
}


def _parameters() -> list[Any]:
    return [weft.tensor(v, requires_grad=True) for v in (1.0, 2.0)]


def _left(params: list[Any]) -> list[float]:
    """The values of parameters, each with its gradient; NaN for none."""
    return [math.nan if x is None else float(x) for p in params for x in (p.detach(), p.grad)]


def _about(expected: list[float]) -> Any:
    return pytest.approx(expected, rel=1e-4, nan_ok=True)


def _train(loss_of: Loss, optimizer: str, way: str) -> list[float]:
    a, b = params = _parameters()
    opt = OPTIMIZERS[optimizer](params)

    def step(x: Any, c: Any) -> None:
        opt.zero_grad()
        loss = loss_of(a, b, x, c)
        loss.backward()
        opt.step()

    compiled_loss = weft.compile(loss_of)

    def step_outside(x: Any, c: Any) -> None:
        opt.zero_grad()
        loss = compiled_loss(a, b, x, c)
        loss.backward()
        opt.step()

    run = {"eager": step, "compiled": weft.compile(step), "loss compiled": step_outside}[way]
    left = []
    for c in CALLS:
        run(weft.tensor([3.0, 1.0]), weft.tensor(c))
        left += _left(params)
    return left


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("way", ["compiled", "loss compiled"])
@pytest.mark.parametrize("loss_of", LOSSES, ids=lambda f: f.__name__)
def test_a_parameter_without_a_way_to_it_stays(loss_of: Loss, way: str, optimizer: str) -> None:
    expected = _train(loss_of, optimizer, "eager")
    assert _train(loss_of, optimizer, way) == _about(expected)


def test_gradients_gather_over_calls() -> None:
    def run(compiles: bool) -> list[float]:
        a, b = params = _parameters()
        opt = OPTIMIZERS["sgd"](params)

        def step(c: Any) -> None:
            loss = b * 1.0
            if c > 0:
                loss = loss + a
            loss.backward()
            if c > 1:
                opt.step()
                opt.zero_grad()

        chosen = weft.compile(step) if compiles else step
        left = []
        for c in CALLS:
            chosen(weft.tensor(c))
            left += _left(params)
        return left

    assert run(True) == _about(run(False))


def test_gradients_that_code_changes_where_they_are() -> None:
    def run(compiles: bool) -> list[float]:
        a, b = params = _parameters()

        def step(c: Any) -> None:
            for p in params:
                p.grad = None
            loss = b * b
            if c > 0:
                loss = loss + a * a
            loss.backward()
            weft.nn.utils.clip_grad_norm_(params, 0.5)
            with weft.no_grad():
                for p in params:
                    if p.grad is not None:
                        p.grad.mul_(2.0)
                        p.sub_(0.1 * p.grad + 0.1 * p)

        chosen = weft.compile(step) if compiles else step
        left = []
        for c in CALLS:
            chosen(weft.tensor(c))
            left += _left(params)
        return left

    assert run(True) == _about(run(False))


def test_gradients_of_some_inputs() -> None:
    def run(compiles: bool) -> list[float]:
        a, b = params = _parameters()

        def step(c: Any) -> None:
            a.grad = b.grad = None
            (a * b if c > 0 else b * 3.0).backward(inputs=[a])

        chosen = weft.compile(step) if compiles else step
        left = []
        for c in CALLS:
            chosen(weft.tensor(c))
            left += _left(params)
        return left

    assert run(True) == _about(run(False))


def test_each_result_of_a_compiled_function_has_its_own_ways() -> None:
    def results(a: Any, b: Any, c: Any) -> Any:
        one = a * 2.0 if c > 0 else b * 3.0
        two = b * 4.0
        if c > 1:
            two = two * a
        return one, two

    compiled = weft.compile(results)
    for c in CALLS:
        for picked in ([0], [1], [0, 1]):
            left = []
            for function in (results, compiled):
                params = _parameters()
                outs = function(*params, weft.tensor(c))
                sum((outs[k] for k in picked), weft.tensor(0.0)).backward()
                left.append(_left(params))
            assert left[1] == _about(left[0])


def test_a_result_that_is_left_out_gives_no_gradient() -> None:
    compiled = weft.compile(lambda a, b: (a * 2.0, b * 3.0))
    a, b = _parameters()
    compiled(a, b)[1].backward()
    assert (a.grad, float(b.grad)) == (None, 3.0)


def test_gradients_asked_for_are_there_or_zeros_or_an_error() -> None:
    a, b = _parameters()

    def slopes(c: Any, **options: bool) -> Any:
        loss = b * 3.0
        if c > 0:
            loss = loss + a
        return weft.autograd.grad(loss, [a, b], **options)

    compiled = weft.compile(slopes)
    assert [float(g) for g in compiled(weft.tensor(1.0))] == [1.0, 3.0]
    zeros = compiled(weft.tensor(-1.0), allow_unused=True, materialize_grads=True)
    assert [float(g) for g in zeros] == [0.0, 3.0]
    with pytest.raises(GradientError):
        slopes(weft.tensor(-1.0))
    with pytest.raises(CheckError, match=r"what the outputs depend on.*materialize_grads"):
        compiled(weft.tensor(-1.0))
    with pytest.raises(CheckError, match=r"must be there.*materialize_grads"):
        compiled(weft.tensor(-1.0), allow_unused=True)


def test_backward_from_constants_is_an_error_of_the_run() -> None:
    (a, _) = _parameters()

    def step(c: Any) -> None:
        y = a * 2.0 if c > 0 else c * 2.0
        y.backward()

    compiled = weft.compile(step)
    compiled(weft.tensor(1.0))
    assert float(a.grad) == 2.0
    with pytest.raises(CheckError, match="must start at a tensor with requires_grad"):
        compiled(weft.tensor(-1.0))
    assert float(a.grad) == 2.0


def test_a_gradient_that_is_read_must_be_there() -> None:
    a, b = _parameters()

    def step(c: Any) -> Any:
        a.grad = b.grad = None
        loss = b * 3.0
        if c > 0:
            loss = loss + a
        loss.backward()
        return a.grad * 2.0

    compiled = weft.compile(step)
    assert float(compiled(weft.tensor(1.0))) == 2.0
    with pytest.raises(CheckError, match="a gradient that is read must be there"):
        compiled(weft.tensor(-1.0))


def test_whether_a_tensor_requires_grad() -> None:
    a, _ = _parameters()

    def asks(x: Any, c: Any) -> Any:
        y = a * x if c > 0 else x * 1.0
        if y.requires_grad:
            x = x + 1.0
        return x, bool((y * 2).requires_grad), y.is_leaf, y.detach().requires_grad, a.requires_grad

    compiled = weft.compile(asks)
    for c in (1.0, -1.0):
        expected = asks(weft.tensor(3.0), weft.tensor(c))
        found = compiled(weft.tensor(3.0), weft.tensor(c))
        assert [float(v) for v in found] == [float(v) for v in expected]


def test_whether_what_a_turn_gets_requires_grad_is_refused() -> None:
    a, _ = _parameters()

    def asks(x: Any, c: Any) -> Any:
        h, i = x, weft.tensor(0.0)
        while i < c:
            h = h * a if h.requires_grad else h * 2.0
            i = i + 1
        return h

    with pytest.raises(CaptureError, match="must be known where code asks for it"):
        weft.compile(asks)(weft.tensor(3.0), weft.tensor(2.0))


def test_a_gradient_to_which_nothing_is_added_is_the_tensor_that_it_was() -> None:
    def run(compiles: bool) -> list[float]:
        a, b = params = _parameters()
        kept: dict[str, Any] = {}

        def step(c: Any) -> None:
            a.grad = b.grad = None
            (a * b).backward()
            kept["grad"] = a.grad
            loss = b * 1.0
            if c > 0:
                loss = loss + a
            loss.backward()
            a.grad.mul_(2.0)

        chosen = weft.compile(step) if compiles else step
        left = []
        for c in CALLS:
            chosen(weft.tensor(c))
            left += [*_left(params), float(kept["grad"])]
        return left

    assert run(True) == _about(run(False))


def test_gradients_of_gradients_by_a_compiled_function_follow_its_ways() -> None:
    def loss_of(a: Any, b: Any, x: Any, c: Any) -> Any:
        loss = (b * b * x).sum()
        if c > 0:
            loss = loss * a
        i = weft.tensor(1.0)
        while i < c:
            loss, i = loss + a * b, i + 1
        for row in x:
            loss = loss + row * (a if row * c > 5 else b)
        return loss

    def run(function: Loss) -> list[float]:
        params = _parameters()
        opt = OPTIMIZERS["adam"](params)
        left = []
        for c in CALLS:
            opt.zero_grad()
            loss = function(*params, weft.tensor([3.0, 1.0]), weft.tensor(c))
            (slope,) = weft.autograd.grad(loss, params[1], create_graph=True)
            (slope * slope).backward()
            opt.step()
            left += _left(params)
        return left

    assert run(weft.compile(loss_of)) == _about(run(loss_of))


def test_results_require_grad_where_the_run_computed_them_from_something_that_does() -> None:
    def made() -> tuple[Any, Any]:
        weight = weft.tensor([1.0, 2.0], requires_grad=True)
        kept, buffer = types.SimpleNamespace(row=None), weft.tensor([0.0, 0.0])

        def f(x: Any, n: Any) -> Any:
            y, total = x * 2.0, x * 0.0
            if x.sum() > 0:
                y = x * weight
                kept.row = weight * 2.0
            else:
                kept.row = x
            for i in range(int(n)):
                total = total + weight * i
            if n > 1:
                buffer.add_(total)
            return y, total, y + total, weight * 1.0, kept.row, buffer

        return f, buffer

    def run(way: Any) -> list[Any]:
        log: list[Any] = []
        for x, n in (([1.0, 1.0], 2), ([-1.0, -1.0], 0), ([-1.0, -1.0], 1), ([1.0, 1.0], 0), ([1.0, 1.0], 2)):
            for scale in (None, weft.tensor(1.0, requires_grad=True)):
                f, _ = made()
                f = way(f)
                given = weft.tensor(x) if scale is None else weft.tensor(x) * scale
                found = f(given, weft.tensor(n))
                log.append([(y.requires_grad, y.is_leaf, y.grad_fn is None) for y in found])
                for y in found:
                    try:
                        y.sum().backward(retain_graph=True)
                    except GradientError as error:
                        log.append(str(error).split("\n")[0])
        return log

    assert run(weft.compile) == run(lambda f: f)


def test_a_state_that_one_way_computes_from_a_parameter_requires_grad_on_that_way_alone() -> None:
    def run(way: Any) -> list[Any]:
        weight, state = weft.tensor(2.0, requires_grad=True), types.SimpleNamespace(h=weft.tensor(1.0))

        def step(x: Any) -> None:
            if x > 0:
                state.h = state.h * weight
            elif x < -1:
                state.h = state.h.detach()

        step, log = way(step), []
        for x in (0.0, 1.0, 0.0, -2.0, 0.0, 1.0, 1.0):
            step(weft.tensor(x))
            log.append((float(state.h), state.h.requires_grad))
        state.h.backward()
        return [*log, float(weight.grad)]

    assert run(weft.compile) == run(lambda f: f)
