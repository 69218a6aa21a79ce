"""Small ops and their gradients by the short way: few launches, and right where it cannot be taken."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.standin import StandIn
from tests.backends.cuda.test_together import EmulatedDriver, card  # noqa: F401 - a fixture


def launches(card: StandIn) -> int:  # noqa: F811
    return card.names().count("cuLaunchKernel")


def leaves(count: int, device: str, size: int = 8) -> list[Any]:
    rng = np.random.default_rng(count)
    arrays = [rng.uniform(0.5, 1.5, size).astype(np.float32) for _ in range(count)]
    return [weft.tensor(a, device=device).requires_grad_() for a in arrays]


def gradients(function: Any, device: str, count: int = 2, size: int = 8) -> list[Any]:
    given = leaves(count, device, size)
    out = function(*given)
    out.backward(weft.arange(float(out.numel()), device=device).reshape(out.shape) + 1.0)
    return [None if x.grad is None else x.grad.cpu().numpy() for x in given]


def both_ways(function: Any, count: int = 2, size: int = 8) -> None:
    for there, here in zip(*[gradients(function, d, count, size) for d in ("cuda", "cpu")], strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-5)


def test_a_rule_takes_arrays_and_numbers_by_turns(card: EmulatedDriver) -> None:  # noqa: F811
    for _ in range(3):
        both_ways(lambda x, w: x * w)
        both_ways(lambda x, w: x * 3.0 * w)
        both_ways(lambda x, w: (x / 2.0) / w - w / x)
    x, w = leaves(2, "cuda")
    for y, seed in ((x * 2.0, w.detach()), (x * w.detach(), w.detach()), (w.detach() * x, w.detach())):
        before = launches(card)
        y.backward(seed)
        assert launches(card) - before <= 2  # the rule, and adding to x.grad
    assert not card.errors


def test_gradient_that_lies_in_the_middle_of_another(card: EmulatedDriver) -> None:  # noqa: F811
    def parts(x: Any, w: Any, start: Any) -> Any:
        return weft.concat([start[:3] * 2.0, x * w, weft.tanh(x) / w])

    both_ways(lambda x, w: weft.tanh(x * w) / w, size=29)  # the same shape, at the beginning of its memory
    for _ in range(2):
        both_ways(parts, count=3, size=29)
    x, w = leaves(2, "cuda", 64)
    seed = weft.arange(70.0, device="cuda")[3:67]  # a view
    for g in (seed + 0.0, seed):
        x.grad = None
        (x * w).backward(g)
        np.testing.assert_allclose(
            x.grad.cpu().numpy(), np.arange(3.0, 67.0) * w.detach().cpu().numpy(), rtol=1e-6
        )
    assert not card.errors


def test_only_some_gradients_are_asked_for_first(card: EmulatedDriver) -> None:  # noqa: F811
    x, w = leaves(2, "cuda")
    seed = weft.ones(8, device="cuda")
    values = [t.detach().cpu().numpy() for t in (x, w)]
    (gx,) = weft.autograd.grad(x * w, [x], seed)
    np.testing.assert_array_equal(gx.cpu().numpy(), values[1])
    (gw,) = weft.autograd.grad(x * w, [w], seed)
    np.testing.assert_array_equal(gw.cpu().numpy(), values[0])
    (x * w).backward(seed)
    np.testing.assert_array_equal(x.grad.cpu().numpy(), values[1])
    np.testing.assert_array_equal(w.grad.cpu().numpy(), values[0])


def test_special_values_are_those_of_the_host(card: EmulatedDriver) -> None:  # noqa: F811
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 3e38], np.float32)
    found = []
    for device in ("cpu", "cuda"):
        x, w, seed = (
            weft.tensor(a, device=device) for a in (special, special[::-1].copy(), np.roll(special, 1))
        )
        x.requires_grad_()
        w.requires_grad_()
        (x * w - x).backward(seed)
        (x * -0.0).backward(seed)
        found.append([t.grad.cpu().numpy() for t in (x, w)])
    for here, there in zip(*found, strict=True):
        np.testing.assert_array_equal(there, here)
        np.testing.assert_array_equal(np.signbit(there)[here == 0], np.signbit(here)[here == 0])


def test_hooks_add_no_launches(card: EmulatedDriver) -> None:  # noqa: F811
    x, w = leaves(2, "cuda")
    seed = weft.ones(8, device="cuda")
    seen: list[Any] = []
    counts = []
    for hooked in (False, False, True, True):
        x.grad = w.grad = None
        y = x * w
        if hooked:
            y.register_hook(lambda g: seen.append(g.device))
        before = launches(card)
        y.backward(seed)
        counts.append(launches(card) - before)
    assert counts[1:] == [1, 1, 1]  # the first one may fill something in
    assert seen == ["cuda:0", "cuda:0"]


@pytest.mark.parametrize("where", ["stream", "thread", "graph of the gradient"])
def test_what_is_unusual_is_right(where: str, card: EmulatedDriver) -> None:  # noqa: F811
    x, w = leaves(2, "cuda")
    seed = weft.ones(8, device="cuda")
    values = [t.detach().cpu().numpy() for t in (x, w)]
    (x * w * w).backward(seed)  # the short way is known
    y = x * w * w

    def again() -> None:
        x.grad = None
        y.backward(seed, create_graph=where.startswith("graph"))

    if where == "stream":
        with weft.cuda.Stream():
            again()
            (x * w).detach()
    elif where == "thread":
        thread = threading.Thread(target=again)
        thread.start()
        thread.join()
    else:
        again()
    np.testing.assert_allclose(x.grad.detach().cpu().numpy(), values[1] ** 2, rtol=1e-6)
    before = launches(card)
    (x * w).detach()
    assert launches(card) - before == 1
    assert not card.errors


def test_memory_of_a_chain_comes_back_and_is_used_again(card: EmulatedDriver) -> None:  # noqa: F811
    x, w = leaves(2, "cuda")
    seed = weft.ones(8, device="cuda")

    def run() -> None:
        x.grad = w.grad = None
        y = x
        for _ in range(5):
            y = weft.tanh(y * w) + w
        y.backward(seed)
        x.grad = w.grad = None

    run()
    held, asked = weft.cuda.memory_allocated(), card.names().count("cuMemAllocAsync")
    for _ in range(3):
        run()
    assert weft.cuda.memory_allocated() == held
    assert card.names().count("cuMemAllocAsync") == asked
    weft.cuda.empty_cache()
    run()
    assert weft.cuda.memory_allocated() == held
    assert not card.errors


def test_a_stream_that_was_left_is_not_used(card: EmulatedDriver) -> None:  # noqa: F811
    x, w = (t.detach() for t in leaves(2, "cuda"))
    expected = (x * w).cpu().numpy()
    first, second = weft.cuda.Stream(), weft.cuda.Stream()
    used = []
    for scopes in ((), (first,), (first, second), (first, second, first), ()):
        for stream in scopes:
            stream.__enter__()
        y = x * w
        used.append(y._data.block.writer)
        for stream in reversed(scopes):
            stream.__exit__(None, None, None)
        np.testing.assert_array_equal(y.cpu().numpy(), expected)
    assert used == [used[0], first, second, first, used[0]]
    assert used[0] not in (first, second)
    assert not card.errors
