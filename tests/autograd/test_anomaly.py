"""Anomaly detection names the forward line, the op and the input, and costs nothing while it is off."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft.errors import AnomalyError
from weft.tensor.node import Instrumented


def leaf(*values: float) -> weft.Tensor:
    return weft.tensor(list(values), requires_grad=True)


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return next(first + i for i, line in enumerate(lines) if text in line)


def divide(x: Any) -> Any:
    doubled = x * 2.0
    shifted = doubled - doubled
    ratio = shifted / shifted  # here
    return ratio * 3.0


def test_error_names_the_line_the_op_and_the_input() -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(AnomalyError) as caught, weft.detect_anomaly(forward=False):
        divide(x).sum().backward()
    error = caught.value
    assert (
        str(error).splitlines()[0]
        == "div: the gradient of input 1 (y) must not be NaN, got one at index (0,)"
    )
    assert f"test_anomaly.py:{line_of(divide, '# here')}: ratio = shifted / shifted" in str(error)
    assert "backward began at test_anomaly.py" in str(error)
    assert x.grad is None


def test_backward_without_detection_gives_the_nan() -> None:
    x = leaf(0.0, 1.0)
    (x / x).sum().backward()
    assert weft.isnan(x.grad).tolist() == [True, False]


def test_the_first_op_that_makes_a_nan_is_named_not_those_it_flows_through() -> None:
    x = leaf(0.0)
    with pytest.raises(AnomalyError, match=r"^mul: ") as caught, weft.detect_anomaly():
        tripled = x * 3.0
        square = tripled * tripled
        weft.exp(weft.sqrt(square)).backward()  # the gradient of sqrt is infinite, and times zero is NaN
    assert "square = tripled * tripled" in str(caught.value)


def test_backward_outside_still_checks_what_was_recorded_inside() -> None:
    x = leaf(0.0)
    with weft.detect_anomaly(forward=False):
        y = x / x
    with pytest.raises(AnomalyError, match=r"^div: "):
        y.backward()


def test_backward_inside_checks_what_was_recorded_outside() -> None:
    x = leaf(0.0)
    y = x / x
    with pytest.raises(AnomalyError, match="run the forward inside") as caught, weft.detect_anomaly():
        y.backward()
    assert str(caught.value).startswith("div: the gradient of input 1 (y) must not be NaN")


def test_decorated_function_is_watched() -> None:
    @weft.detect_anomaly()
    def train(x: Any) -> None:
        (x / x).sum().backward()

    with pytest.raises(AnomalyError):
        train(leaf(0.0))
    assert not isinstance((leaf(1.0) * 2.0).grad_fn.rule, Instrumented)


def test_infinite_gradients_are_found_if_asked_for() -> None:
    x = leaf(0.0)
    with weft.detect_anomaly():
        weft.log(x).backward()
    assert x.grad.tolist() == [float("inf")]
    with (
        pytest.raises(AnomalyError, match=r"^log: the gradient of input 0 .* must not be infinite"),
        weft.detect_anomaly(check_inf=True, forward=False),
    ):
        weft.log(x).backward()


def test_check_nan_off_lets_nan_pass_but_errors_name_the_forward_line() -> None:
    class Broken(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            raise KeyError("missing")

    x = leaf(0.0)
    with weft.detect_anomaly(check_nan=False):
        (x / x).backward()
        y = Broken.apply(x)
    with pytest.raises(KeyError) as caught:
        y.backward()
    (note,) = caught.value.__notes__
    assert note.startswith("in the backward of Broken, which stood at test_anomaly.py:")
    assert "y = Broken.apply(x)" in note


def test_seed_that_is_nan_is_blamed_itself() -> None:
    x = leaf(1.0)
    with pytest.raises(AnomalyError, match=r"^backward: the gradient it starts"), weft.detect_anomaly():
        (x * 2.0).backward(weft.tensor([float("nan")]))


def test_hook_that_makes_a_nan_is_blamed_itself() -> None:
    x = leaf(1.0)
    watching = weft.detect_anomaly(forward=False)
    with pytest.raises(AnomalyError, match=r"^mul: the gradient of the output"), watching:
        y = x * 2.0
        y.register_hook(lambda g: g * float("nan"))
        y.backward()


def test_nan_in_the_gradient_of_a_gradient_names_the_forward_line() -> None:
    x = leaf(0.0)
    with weft.detect_anomaly():
        y = weft.sqrt(x * x * x)
        with pytest.raises(AnomalyError) as caught:
            (first,) = weft.autograd.grad(y, x, create_graph=True)
            weft.autograd.grad(first, x)
    assert "y = weft.sqrt(x * x * x)" in str(caught.value)


def test_second_order_node_tells_in_which_backward_it_was_recorded() -> None:
    x = leaf(2.0)
    with weft.detect_anomaly():
        y = weft.log(x)
        (first,) = weft.autograd.grad(y, x, create_graph=True)
    watch = first.grad_fn.rule.watch
    assert watch.within == "log"
    assert watch.location[1] == line_of(
        test_second_order_node_tells_in_which_backward_it_was_recorded, "y = weft.log(x)"
    )


def test_anomaly_inside_grad_transform_is_found() -> None:
    with pytest.raises(AnomalyError, match=r"^div"), weft.detect_anomaly():
        weft.grad(lambda x: (x / x).sum())(weft.tensor([0.0, 1.0]))


def test_nested_detection_ends_with_the_outer_block() -> None:
    x = leaf(1.0)
    with weft.detect_anomaly():
        with weft.detect_anomaly(check_nan=False):
            pass
        assert isinstance((x * 2.0).grad_fn.rule, Instrumented)
    assert not isinstance((x * 2.0).grad_fn.rule, Instrumented)


def test_values_are_the_same_while_watched() -> None:
    def run() -> list[float]:
        x = leaf(0.5, 1.5)
        (weft.tanh(x * 2.0) / x + x.sum()).sum().backward()
        return x.grad.tolist()

    with weft.detect_anomaly(check_inf=True):
        watched = run()
    assert watched == run()


def test_nothing_of_it_runs_while_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(sys.modules["weft.tensor.anomaly"], "_find", lambda *a: called.append("find") or "")
    monkeypatch.setattr(sys.modules["weft.tensor.anomaly"], "_locate", lambda *a: called.append("locate"))
    x = leaf(0.0)
    y = x / x + x
    y.register_hook(lambda g: g)
    y.backward(create_graph=True)
    assert called == []
