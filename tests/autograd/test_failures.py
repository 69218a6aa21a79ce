"""After an error tensors, gradients and modes are as they were, and the graph says what became of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import weft
from weft.base.switch import switch
from weft.errors import FreedGraphError, GradientError
from weft.tensor.mode import thread


class Stop(BaseException):
    """Stands for KeyboardInterrupt, which pytest would take for its own."""


@pytest.fixture(autouse=True)
def _modes_are_as_they_were() -> Iterator[None]:
    yield
    assert weft.is_grad_enabled()
    assert thread.observer is None
    assert threading.get_ident() not in switch.off


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any) -> None:
        raise error

    return fail


def model() -> tuple[weft.Tensor, weft.Tensor, weft.Tensor, weft.Tensor]:
    """Two leaves with gradients from before, a tensor in the middle that retains its own, and a result."""
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    w = weft.tensor([3.0, 4.0], requires_grad=True)
    (x * w).sum().backward()
    h = x * w
    h.retain_grad()
    return x, w, h, (weft.tanh(h) * w + x).sum()


def place_hook(where: str, fail: Callable[..., Any], x: Any, w: Any, h: Any, y: Any) -> None:
    if where == "root":
        y.register_hook(fail)
    elif where == "node":
        h.grad_fn.register_hook(fail)
    elif where == "prehook":
        h.grad_fn.register_prehook(fail)
    elif where == "middle":
        h.register_hook(fail)
    elif where == "first leaf":
        x.register_hook(fail)
    else:
        w.register_hook(fail)


PLACES = ["root", "node", "prehook", "middle", "first leaf", "last leaf"]


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("error", [ZeroDivisionError("in a hook"), Stop()], ids=["error", "interrupt"])
@pytest.mark.parametrize("where", PLACES)
def test_error_in_a_hook_accumulates_nothing(where: str, error: BaseException, create_graph: bool) -> None:
    x, w, h, y = model()
    before = x.grad, w.grad
    values = x.tolist(), w.tolist(), h.tolist(), y.item()
    place_hook(where, raising(error), x, w, h, y)
    with pytest.raises(type(error)):
        y.backward(create_graph=create_graph)
    assert x.grad is before[0]
    assert w.grad is before[1]
    assert h.grad is None
    assert (x.tolist(), w.tolist(), h.tolist(), y.item()) == values
    assert x.is_leaf
    assert x.requires_grad
    assert h.grad_fn is not None


@pytest.mark.parametrize("where", PLACES)
def test_backward_with_retained_graph_works_once_the_hook_is_gone(where: str) -> None:
    x, w, h, y = model()
    x.grad = w.grad = None
    fail = True
    place_hook(where, lambda *_: raising(ZeroDivisionError())() if fail else None, x, w, h, y)
    with pytest.raises(ZeroDivisionError):
        y.backward(retain_graph=True)
    fail = False
    y.backward()
    fresh_x, fresh_w, fresh_h, fresh_y = model()
    fresh_x.grad = fresh_w.grad = None
    fresh_y.backward()
    assert x.grad.tolist() == fresh_x.grad.tolist()  # type: ignore[attr-defined]
    assert w.grad.tolist() == fresh_w.grad.tolist()  # type: ignore[attr-defined]
    assert h.grad.tolist() == fresh_h.grad.tolist()


def test_graph_that_failed_half_way_counts_as_used() -> None:
    x, _, h, y = model()
    before = x.grad.tolist()
    h.register_hook(raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        y.backward()
    with pytest.raises(FreedGraphError):
        y.backward()
    assert x.grad.tolist() == before


def test_error_in_a_rule_names_the_op_and_accumulates_nothing() -> None:
    class Broken(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            raise KeyError("missing")

    x = weft.tensor([1.0, 2.0], requires_grad=True)
    y = (Broken.apply(x) + x).sum()
    with pytest.raises(KeyError) as caught:
        y.backward()
    assert "in the backward of Broken" in caught.value.__notes__
    assert x.grad is None


def test_error_in_a_post_hook_comes_after_everything_accumulated() -> None:
    x = weft.tensor(2.0, requires_grad=True)
    w = weft.tensor(3.0, requires_grad=True)
    x.register_post_accumulate_grad_hook(raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        (x * w).backward()
    assert (x.grad.item(), w.grad.item()) == (3.0, 2.0)


def test_freed_part_shared_with_another_graph_leaves_gradients_alone() -> None:
    x = weft.tensor(2.0, requires_grad=True)
    shared = x * x
    first, second = shared * 2.0, shared * 3.0
    first.backward()
    with pytest.raises(FreedGraphError):
        second.backward()
    assert x.grad.item() == 8.0


def test_error_inside_checkpoint_and_anomaly_scopes_leaves_no_observer() -> None:
    x = weft.tensor(2.0, requires_grad=True)
    with pytest.raises(ZeroDivisionError), weft.detect_anomaly():
        weft.checkpoint(raising(ZeroDivisionError()), x)


def test_error_while_a_checkpoint_runs_again_accumulates_nothing() -> None:
    x = weft.tensor(2.0, requires_grad=True)
    runs: list[int] = []

    def function(t: Any) -> Any:
        runs.append(1)
        if len(runs) > 1:
            raise ZeroDivisionError
        return t * t

    y = weft.checkpoint(function, x) + x
    with pytest.raises(ZeroDivisionError):
        y.backward()
    assert x.grad is None


def test_failed_seed_frees_nothing() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    with pytest.raises(GradientError):
        y.backward()
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_backward_inside_a_hook_works() -> None:
    x = weft.tensor(2.0, requires_grad=True)
    inner = weft.tensor(5.0, requires_grad=True)

    def run_another(g: Any) -> None:
        with weft.enable_grad():
            (inner * inner).backward()

    y = x * x
    y.register_hook(run_another)
    y.backward()
    assert (x.grad.item(), inner.grad.item()) == (4.0, 10.0)
