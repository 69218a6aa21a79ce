"""Hooks on tensors and nodes, retained gradients, and what a hook may do to a gradient."""

from __future__ import annotations

from typing import Any

import pytest

import weft
from weft.errors import ArgumentError, GradientError, ShapeError


def leaf(*values: float) -> weft.Tensor:
    return weft.tensor(list(values), requires_grad=True)


def test_hook_on_a_leaf_replaces_what_accumulates() -> None:
    x = leaf(1.0, 2.0)
    x.register_hook(lambda g: g * 10.0)
    (x * x).sum().backward()
    assert x.grad.tolist() == [20.0, 40.0]


def test_hook_sees_the_complete_gradient_once() -> None:
    seen: list[Any] = []
    x = leaf(2.0)
    y = x * 1.0
    for t in (x, y):
        t.register_hook(lambda g: seen.append(g.tolist()))
    (y * y + weft.exp(y) * 0.0 + y + x).sum().backward()
    assert seen == [[5.0], [6.0]]  # y before x


def test_hook_on_a_non_leaf_changes_what_flows_on() -> None:
    x = leaf(2.0)
    y = x * 3.0
    y.register_hook(lambda g: g * 0.0 + 1.0)
    (y * y).sum().backward()
    assert x.grad.tolist() == [3.0]


def test_hooks_run_in_the_order_they_were_added_each_on_the_result_of_the_last() -> None:
    x = leaf(2.0)
    x.register_hook(lambda g: g + 1.0)
    x.register_hook(lambda g: g * 10.0)
    (x * 3.0).sum().backward()
    assert x.grad.tolist() == [40.0]


class Multiples(weft.Function):
    """A node with three outputs."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1.0, x * 2.0, x * 3.0

    @staticmethod
    def backward(ctx: Any, a: Any, b: Any, c: Any) -> Any:
        return a + 2.0 * b + 3.0 * c


def test_hook_on_one_of_several_outputs_sees_its_own_gradient() -> None:
    seen: list[Any] = []
    x = leaf(1.0)
    a, b, c = Multiples.apply(x)
    assert a.grad_fn is b.grad_fn is c.grad_fn
    b.register_hook(lambda g: seen.append(g.item()))
    c.register_hook(lambda g: seen.append("never: no gradient arrives"))
    (a * 5.0 + b * 7.0).backward()
    assert seen == [7.0]
    assert x.grad.tolist() == [19.0]


def test_hook_may_replace_the_gradient_of_one_of_several_outputs() -> None:
    x = leaf(1.0)
    a, b, _ = Multiples.apply(x)
    a.register_hook(lambda g: g * 100.0)
    (a * 5.0 + b * 7.0).backward()
    assert x.grad.tolist() == [514.0]


def test_hook_on_the_root_sees_the_seed() -> None:
    seen: list[Any] = []
    x = leaf(2.0)
    y = x * x
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.backward(weft.tensor([3.0]))
    assert seen == [[3.0]]


def test_removed_hook_does_not_run() -> None:
    x = leaf(2.0)
    handle = x.register_hook(lambda g: g * 10.0)
    handle.remove()
    handle.remove()
    with x.register_hook(lambda g: g * 100.0):
        pass
    (x * 3.0).sum().backward()
    assert x.grad.tolist() == [3.0]


def test_hook_that_removes_itself_runs_once() -> None:
    x = leaf(2.0)
    calls: list[int] = []

    def once(g: Any) -> None:
        calls.append(1)
        handle.remove()

    handle = x.register_hook(once)
    for _ in range(2):
        (x * 3.0).sum().backward()
    assert len(calls) == 1


def test_hook_stays_on_a_leaf_over_backward_calls_and_updates() -> None:
    x = leaf(2.0)
    x.register_hook(lambda g: g * 10.0)
    (x * 3.0).sum().backward()
    with weft.no_grad():
        x -= x.grad
    x.grad = None
    (x * 3.0).sum().backward()
    assert x.grad.tolist() == [30.0]  # type: ignore[attr-defined]


def test_hook_runs_for_grad_too() -> None:
    x = leaf(2.0)
    y = x * x
    x.register_hook(lambda g: g * 10.0)
    y.register_hook(lambda g: g * 2.0)
    by_x, by_y = weft.autograd.grad(y.sum(), [x, y])
    assert (by_x.tolist(), by_y.tolist()) == ([80.0], [2.0])


@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        (weft.ones(2), ShapeError, r"of type f32\[1\], got f32\[2\]"),
        (weft.ones(1, dtype=weft.float64), ShapeError, r"got f64\[1\]"),
        (1.0, ArgumentError, "got float"),
    ],
)
@pytest.mark.parametrize("on_leaf", [True, False])
def test_hook_that_returns_something_else_is_an_error(
    result: Any, error: type[Exception], words: str, on_leaf: bool
) -> None:
    x = leaf(2.0)
    y = x * x
    (x if on_leaf else y).register_hook(lambda g: result)
    with pytest.raises(error, match=words):
        y.backward()
    assert x.grad is None


def test_hook_must_be_callable_and_the_tensor_must_require_grad() -> None:
    with pytest.raises(ArgumentError, match="must be callable"):
        leaf(1.0).register_hook(3)  # type: ignore[arg-type]
    with pytest.raises(GradientError, match="must require grad"):
        weft.ones(2).register_hook(print)


def test_hook_in_a_backward_with_graph_is_differentiated() -> None:
    x = leaf(2.0)
    y = x * x * x
    y.register_hook(lambda g: g * g * 3.0)
    y.backward(create_graph=True)  # 3 * 3 x**2
    first, x.grad = x.grad, None
    first.sum().backward()
    assert x.grad.tolist() == [36.0]  # type: ignore[attr-defined]


def test_hook_does_not_record_unless_a_graph_is_wanted() -> None:
    x, w = leaf(2.0), leaf(3.0)
    modes: list[bool] = []

    def scale(g: Any) -> Any:
        modes.append(weft.is_grad_enabled())
        return g * w

    x.register_hook(scale)
    (x * x).sum().backward()
    assert modes == [False]
    assert weft.is_grad_enabled()
    assert not x.grad.requires_grad


# Nodes


def test_node_hook_sees_gradients_of_inputs_and_outputs() -> None:
    seen: list[Any] = []
    x, y = leaf(2.0), leaf(3.0)
    z = x * y
    z.grad_fn.register_hook(
        lambda ins, outs: seen.append(([g.item() for g in ins], [g.item() for g in outs]))
    )
    z.backward(weft.tensor([10.0]))
    assert seen == [([30.0, 20.0], [10.0])]


def test_node_hook_replaces_gradients_of_inputs() -> None:
    x, y = leaf(2.0), leaf(3.0)
    z = x * y
    z.grad_fn.register_hook(lambda ins, outs: (ins[0] * 0.0, ins[1]))
    z.backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([0.0], [2.0])


def test_node_hook_gets_none_for_an_input_without_gradient() -> None:
    seen: list[Any] = []
    z = leaf(2.0) * weft.tensor([3.0])
    z.grad_fn.register_hook(lambda ins, outs: seen.append([g is None for g in ins]))
    z.backward()
    assert seen == [[False, True]]


def test_node_prehook_replaces_gradients_of_outputs() -> None:
    x = leaf(2.0)
    z = x * x
    z.grad_fn.register_prehook(lambda outs: (outs[0] * 5.0,))
    z.backward()
    assert x.grad.tolist() == [20.0]


def test_tensor_hooks_then_retained_gradient_then_prehooks() -> None:
    x = leaf(2.0)
    z = x * 1.0
    order: list[str] = []
    z.grad_fn.register_prehook(lambda outs: order.append("prehook") or (outs[0] * 100.0,))
    z.retain_grad()
    z.register_hook(lambda g: order.append("hook") or g * 10.0)
    z.grad_fn.register_hook(lambda ins, outs: order.append("node hook"))
    z.backward()
    assert order == ["hook", "prehook", "node hook"]
    assert (z.grad.tolist(), x.grad.tolist()) == ([10.0], [1000.0])


@pytest.mark.parametrize("result", [(weft.ones(1),), [weft.ones(1)] * 3, "xy", (weft.ones(2), None)])
def test_node_hook_that_returns_something_else_is_an_error(result: Any) -> None:
    x, y = leaf(2.0), leaf(3.0)
    z = x * y
    z.grad_fn.register_hook(lambda ins, outs: result)
    with pytest.raises((ArgumentError, ShapeError)):
        z.backward()
    assert (x.grad, y.grad) == (None, None)


def test_removed_node_hook_does_not_run() -> None:
    x = leaf(2.0)
    z = x * x
    z.grad_fn.register_hook(lambda ins, outs: (ins[0] * 0.0, ins[1] * 0.0)).remove()
    z.backward()
    assert x.grad.tolist() == [4.0]


# After accumulation


def test_post_accumulate_hook_sees_the_tensor_with_its_grad() -> None:
    x = leaf(2.0)
    seen: list[Any] = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append((t is x, t.grad.tolist())))
    (x * x).sum().backward()
    (x * x).sum().backward()
    assert seen == [(True, [4.0]), (True, [8.0])]


def test_post_accumulate_hook_may_take_the_step() -> None:
    x = leaf(2.0)

    def step(t: Any) -> None:
        t -= 0.5 * t.grad
        t.grad = None

    x.register_post_accumulate_grad_hook(step)
    (x * x).sum().backward()
    assert (x.tolist(), x.grad, x.is_leaf) == ([0.0], None, True)


def test_post_accumulate_hook_runs_after_backward_into_inputs_but_not_after_grad() -> None:
    x = leaf(2.0)
    calls: list[int] = []
    x.register_post_accumulate_grad_hook(lambda t: calls.append(1))
    weft.autograd.grad((x * x).sum(), x)
    assert calls == []
    (x * x).sum().backward(inputs=[x])
    assert calls == [1]


def test_post_accumulate_hook_is_for_leaves() -> None:
    with pytest.raises(GradientError, match="must be a leaf"):
        (leaf(2.0) * 2.0).register_post_accumulate_grad_hook(print)


# Retained gradients


def test_retained_gradient_accumulates_like_that_of_a_leaf() -> None:
    x = leaf(2.0)
    y = x * x
    y.retain_grad()
    z = (y * 3.0).sum()
    z.backward(retain_graph=True)
    z.backward()
    assert y.retains_grad
    assert y.grad.tolist() == [6.0]
    y.grad = None
    assert y.grad is None


def test_retained_gradient_of_one_output_of_several() -> None:
    a, b, _ = Multiples.apply(leaf(1.0))
    a.retain_grad()
    (a * 5.0 + b * 7.0).backward()
    assert (a.grad.item(), b.grad, a.retains_grad, b.retains_grad) == (5.0, None, True, False)


def test_retain_grad_follows_an_in_place_change() -> None:
    x = leaf(2.0)
    y = x * x
    y.retain_grad()
    y *= 10.0
    (y * 3.0).sum().backward()
    assert (y.grad.tolist(), x.grad.tolist()) == ([3.0], [120.0])


def test_retain_grad_of_a_leaf_changes_nothing_and_of_a_constant_is_an_error() -> None:
    x = leaf(2.0)
    x.retain_grad()
    assert not x.retains_grad
    with pytest.raises(GradientError, match="must require grad"):
        weft.ones(2).retain_grad()
