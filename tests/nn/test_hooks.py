"""Hooks around calls of modules and around their gradients."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn.hooks import NO_HOOKS


def test_hooks_run_in_order_and_may_go_first() -> None:
    seen: list[str] = []
    layer = nn.Identity()
    layer.register_forward_hook(lambda m, args, out: seen.append("b"))
    layer.register_forward_hook(lambda m, args, out: seen.append("c"))
    layer.register_forward_hook(lambda m, args, out: seen.append("a"), prepend=True)
    layer.register_forward_pre_hook(lambda m, args: seen.append("before"))
    layer(1)
    assert seen == ["before", "a", "b", "c"]


def test_hooks_are_given_keywords_if_they_ask() -> None:
    class Scale(nn.Module):
        def forward(self, x: Any, by: float = 1.0) -> Any:
            return x * by

    layer = Scale()
    layer.register_forward_pre_hook(
        lambda m, args, kwargs: (args, {"by": kwargs["by"] + 1}), with_kwargs=True
    )
    layer.register_forward_hook(lambda m, args, kwargs, out: out + kwargs["by"], with_kwargs=True)
    assert layer(10.0, by=2.0) == 33.0


def test_backward_hook_sees_gradients_of_inputs_and_outputs() -> None:
    layer = nn.Linear(2, 3, bias=False)
    seen: list[Any] = []
    layer.register_full_backward_hook(lambda m, into, out: seen.append((m, into, out)))
    x = weft.randn(4, 2).requires_grad_()
    layer(x).sum().backward()
    [(module, (into,), (out,))] = seen
    assert module is layer
    np.testing.assert_array_equal(out.numpy(), np.ones((4, 3)))
    np.testing.assert_array_equal(into.numpy(), x.grad.numpy())
    layer(x.detach()).sum().backward()
    assert seen[1][1] == (None,)
    with weft.no_grad():
        layer(x)
    assert len(seen) == 2


def test_backward_hooks_change_gradients() -> None:
    layer = nn.Identity()
    before = layer.register_full_backward_pre_hook(lambda m, out: (out[0] * 10.0,))
    layer.register_full_backward_hook(lambda m, into, out: (into[0] + out[0],))
    x = weft.ones(2, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.tolist() == [20.0, 20.0]
    before.remove()
    x.grad = None
    layer(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]  # type: ignore[attr-defined]


def test_backward_hook_of_several_inputs_and_outputs() -> None:
    class Swap(nn.Module):
        def forward(self, x: Any, scale: float, y: Any) -> Any:
            return {"sum": x + y, "others": (scale * x, 3)}

    layer, seen = Swap(), []
    layer.register_full_backward_hook(lambda m, into, out: seen.append((into, out)))
    x, y = weft.ones(1, requires_grad=True), weft.ones(1, requires_grad=True)
    out = layer(x, 2.0, y)
    assert out["others"][1] == 3
    (out["sum"] * 5.0 + out["others"][0]).sum().backward()
    [(into, grads)] = seen
    assert into[1] is None
    assert (into[0].item(), into[2].item()) == (7.0, 5.0)
    assert [g.item() for g in grads] == [5.0, 1.0]
    assert (x.grad.item(), y.grad.item()) == (7.0, 5.0)


def test_backward_hooks_work_in_a_compiled_step() -> None:
    layer = nn.Linear(2, 2)
    layer.register_full_backward_hook(lambda m, into, out: (into[0] * 2.0,))
    x = weft.randn(3, 2).requires_grad_()

    @weft.compile(backend="interpret")
    def gradient(x: Any) -> Any:
        return weft.autograd.grad(layer(x).square().sum(), x)[0]

    layer(x).square().sum().backward()
    np.testing.assert_allclose(gradient(x).numpy(), x.grad.numpy(), rtol=1e-5)


def twice(module: Any, args: Any, out: Any) -> Any:
    return out * 2.0


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])  # noqa: S301 - our own bytes
def test_copies_keep_hooks_or_have_none(duplicate: Any) -> None:
    layer = nn.Identity()
    assert duplicate(layer)._hooks is NO_HOOKS
    layer.register_forward_hook(twice)
    twin = duplicate(layer)
    assert twin(1.0) == 2.0
    twin.register_forward_hook(twice)
    assert (twin(1.0), layer(1.0)) == (4.0, 2.0)  # type: ignore[comparison-overlap]


def test_removed_hooks_leave_nothing() -> None:
    layer = nn.ReLU()
    handles = [layer.register_forward_hook(print), layer.register_full_backward_hook(print)]
    for handle in handles:
        handle.remove()
        handle.remove()
    assert layer._hooks is NO_HOOKS
    with pytest.raises(weft.errors.ArgumentError, match="a hook must be callable, got int"):
        layer.register_full_backward_hook(3)
