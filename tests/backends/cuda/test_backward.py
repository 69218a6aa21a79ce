"""Gradients on a device: rules as programs of one launch, on the emulator, against those of the host."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.standin import StandIn
from tests.backends.cuda.test_together import EmulatedDriver, card  # noqa: F401 - a fixture
from weft.nn import functional as F


class Cubed(weft.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 3.0 * x * x


FUNCTIONS: list[Any] = [
    lambda t: t * t,
    lambda t: t * 2.0 + t,
    lambda t: weft.tanh(t) / (t + 2.0) - t,
    lambda t: t.exp() ** 2,
    lambda t: t + t[0],
    lambda t: t * t.sum(axis=1, keepdims=True),
    lambda t: t @ t.T,
    lambda t: t.reshape(2, 6).T[1:3],
    lambda t: weft.softmax(t, axis=1) * t,
    lambda t: weft.maximum(t, 0.5) * weft.minimum(t, 0.7),
    lambda t: weft.where(t > 0.5, t * 2.0, weft.sqrt(t)),
    lambda t: weft.concat([t, t[:1] * 3.0]),
    lambda t: weft.stack(weft.split(t, 2, axis=1)[:1]),
    lambda t: t[[0, 2, 0]],
    lambda t: t.max(axis=1) + t.mean(axis=1),
    lambda t: F.relu(t - 0.5).sum(),
    lambda t: t.astype(weft.float64) * 2.0,
    lambda t: weft.checkpoint(lambda s: weft.tanh(s * s), t),
    Cubed.apply,
    lambda t: weft.compile(lambda s: weft.tanh(s) * s)(t),
    lambda t: (t.cpu() * 2.0).to(t.device) * t,
    lambda t: t.detach() * t,
]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_gradients_are_those_of_the_host(number: int, card: EmulatedDriver) -> None:  # noqa: F811
    function = FUNCTIONS[number]
    x: Any = (weft.rand(3, 4, generator=weft.Generator().manual_seed(3)) + 0.1).requires_grad_()
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for t in (x, x.detach().cuda().requires_grad_()):
            for _ in range(2):  # the second time adds to what is there
                out = function(t)
                seed = weft.arange(float(out.numel())).reshape(out.shape).astype(out.dtype) + 1.0
                out.backward(seed.to(t.device))
            assert t.grad.device == t.device
            found.append(t.grad.cpu().numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=5e-5, atol=1e-5)
    assert not card.errors


def launches(card: StandIn) -> int:  # noqa: F811
    return card.names().count("cuLaunchKernel")


def test_small_op_with_gradient_is_three_launches(card: EmulatedDriver) -> None:  # noqa: F811
    x: Any = weft.ones(8, device="cuda").requires_grad_()
    seed = weft.ones(8, device="cuda") * 2.0
    for _ in range(2):
        (x * x).backward(seed)
    before = launches(card)
    (x * x).backward(seed)
    assert launches(card) - before == 3  # forward, both gradients with their sum, and adding to x.grad
    np.testing.assert_array_equal(x.grad.cpu().numpy(), np.full(8, 12.0))
    x.grad = None
    before = launches(card)
    (x + x).backward(seed)  # gradients that are passed on cost nothing but their sum
    assert launches(card) - before == 2
    np.testing.assert_array_equal(x.grad.cpu().numpy(), np.full(8, 4.0))
    before = launches(card)
    x.reshape(2, 4).T.backward(weft.ones(4, 2, device="cuda"))  # views are none, but the sum with x.grad is
    assert launches(card) - before <= 2


def test_hooks_and_kept_gradients_see_tensors_of_the_device(card: EmulatedDriver) -> None:  # noqa: F811
    seen = []
    x: Any = weft.ones(3, device="cuda").requires_grad_()
    y = x * 3.0
    y.retain_grad()
    y.register_hook(lambda g: seen.append(g.device) or g * 2.0)
    x.register_hook(lambda g: seen.append(g.device))
    (y * y).sum().backward()
    assert seen == ["cuda:0", "cuda:0"]
    np.testing.assert_array_equal(y.grad.cpu().numpy(), np.full(3, 12.0))
    np.testing.assert_array_equal(x.grad.cpu().numpy(), np.full(3, 36.0))
    (first,) = weft.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = weft.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(second.cpu().numpy(), np.full(3, 6.0))


def test_watch_finds_values_of_the_device(card: EmulatedDriver) -> None:  # noqa: F811
    x: Any = weft.zeros(3, device="cuda").requires_grad_()
    with weft.autograd.detect_anomaly():
        (x * 2.0).sum().backward()
        with pytest.raises(weft.errors.AnomalyError, match="log"):
            weft.log(x - 1.0)
        y = x * 1.0
        y.register_hook(lambda g: g * float("nan"))
        with pytest.raises(weft.errors.AnomalyError, match="mul"):
            y.sum().backward()
    np.testing.assert_array_equal(x.grad.cpu().numpy(), np.full(3, 2.0))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_watch_finds_what_rules_make_in_a_process_with_a_device(card: EmulatedDriver, device: str) -> None:  # noqa: F811
    weft.ones(2, device="cuda")  # from here on gradients may be arrays of devices
    x: Any = weft.tensor([0.0, 4.0], device=device).requires_grad_()
    with weft.autograd.detect_anomaly():
        with pytest.raises(weft.errors.AnomalyError, match=r"mul: the gradient of input 0 \(x\)"):
            weft.sqrt(x * x).sum().backward()
        recorded = weft.sqrt(x * x).sum()
    with pytest.raises(weft.errors.AnomalyError, match=r"mul: the gradient of input 0 \(x\)"):
        recorded.backward()
    assert x.grad is None


def test_what_users_write_runs_once_for_each_backward(card: EmulatedDriver) -> None:  # noqa: F811
    kept: list[Any] = []

    class Tripled(weft.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 3.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            kept.append(g)
            return g * 3.0

    layer = weft.nn.Linear(2, 2, bias=False).to("cuda")
    layer.register_full_backward_hook(lambda module, into, out: kept.append(out[0]))
    for turn in range(3):
        x: Any = weft.ones(1, 2, device="cuda").requires_grad_()
        Tripled.apply(layer(x)).sum().backward()
        assert len(kept) == 2 * (turn + 1)
    for k, g in enumerate(kept):  # they hold values, also later
        np.testing.assert_array_equal(g.cpu().numpy(), np.full((1, 2), 3.0 if k % 2 else 1.0))
