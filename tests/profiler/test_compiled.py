"""Profiles of compiled functions: kernels with their lines, modules, bytes and flops."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn, optim

FILE = Path(__file__).name


def line_of(text: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"{FILE}:{next(i for i, line in enumerate(lines, 1) if text in line)}"


def kernels(p: weft.profile) -> list[Any]:
    return [e for e in p.events if e.kind == "kernel"]


@weft.compile
def product_and_sum(x: Any, y: Any) -> Any:
    z = x @ x  # the large product
    return z.sum(), y + 1.0  # the small rest


def test_a_large_product_takes_longer_than_a_small_sum() -> None:
    x, y = weft.ones((512, 512)), weft.ones(100)
    product_and_sum(x, y)
    with weft.profile() as p:
        for _ in range(3):
            product_and_sum(x, y)
    by_line = {row.name: row for row in p.rows("line")}
    product, rest = by_line[line_of("# the large product")], by_line[line_of("# the small rest")]
    assert product.seconds > 2 * rest.seconds > 0
    assert product.text == "z = x @ x  # the large product"
    flops = sum(e.flops for e in kernels(p) if "matmul" in e.name)
    assert 3 * 2 * 512**3 <= flops < 3.1 * 2 * 512**3


def test_kernels_lie_in_their_call() -> None:
    x, y = weft.ones((300, 300)), weft.ones(100)
    with weft.profile() as p:
        product_and_sum(x, y)
    [call] = [e for e in p.events if e.kind == "call"]
    assert call.name == "product_and_sum"
    assert call.line is not None
    assert call.line[0] == __file__
    assert call.shapes == ("f32[300,300]", "f32[100]")
    found = kernels(p)
    assert found
    assert all(call.begin <= k.begin <= k.end <= call.end for k in found)
    inside = [e for e in p.events if e.kind in ("kernel", "wait")]  # another process may make it wait
    assert call.own == call.duration - sum(e.duration for e in inside)


def test_bytes_of_an_elementwise_kernel() -> None:
    f = weft.compile(lambda x: weft.tanh(x) * 2.0)
    x = weft.ones((512, 512))
    with weft.profile() as p:
        f(x)
    [kernel] = kernels(p)
    assert (kernel.name, kernel.bytes, kernel.count) == ("tanh, mul", 2 * 4 * 512 * 512, 1)


def test_the_first_call_shows_what_was_built() -> None:
    f = weft.compile(lambda x: weft.sin(x) + 3.0)
    x = weft.ones(5)
    with weft.profile() as first:
        f(x)
    with weft.profile() as second:
        f(x)
    assert len([e for e in first.events if e.kind == "build"]) == 2
    assert [e.kind for e in second.events if e.kind == "build"] == []


def training() -> tuple[nn.Module, Any, Any]:
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 4))
    optimizer = optim.Adam(model.parameters(), lr=0.01)

    @weft.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step, (weft.randn(16, 32), weft.randint(0, 4, (16,)))


def test_a_training_step_gives_the_same_bits() -> None:
    plain, profiled = training(), training()
    losses: list[list[float]] = [[], []]
    for _ in range(5):
        losses[0].append(plain[1](*plain[2]).item())
    for i in range(5):
        if i % 2:
            losses[1].append(profiled[1](*profiled[2]).item())
        else:
            with weft.profile():
                losses[1].append(profiled[1](*profiled[2]).item())
    assert losses[0] == losses[1]
    for a, b in zip(plain[0].parameters(), profiled[0].parameters(), strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


def test_modules_of_a_training_step() -> None:
    _, step, arguments = training()
    step(*arguments)
    with weft.profile() as p:
        for _ in range(3):
            step(*arguments)
    assert {"0", "2"} <= {row.name for row in p.rows("module")}
    phases = {part.phase for k in kernels(p) for part in k.parts}
    assert phases >= {"", "backward"}


def test_gradients_through_a_compiled_function() -> None:
    f = weft.compile(lambda w: (weft.tanh(w @ w) * 2.0).sum())
    w = weft.ones((64, 64), requires_grad=True)
    with weft.profile() as p:
        f(w).backward()
    calls = [e.name for e in p.events if e.kind == "call"]
    assert len(calls) == 2
    assert calls[1].endswith("backward")
    with weft.no_grad():
        expected = weft.grad(lambda w: (weft.tanh(w @ w) * 2.0).sum())(weft.ones((64, 64)))
    np.testing.assert_allclose(w.grad.numpy(), expected.numpy(), rtol=1e-5)


def test_waiting_for_the_lock_that_another_thread_holds_is_seen() -> None:
    x, y, done = weft.ones((512, 512)), weft.ones(100), threading.Event()

    def hold() -> None:
        while not done.is_set():
            sum(range(1000))

    product_and_sum(x, y)
    with weft.profile():
        product_and_sum(x, y)
    thread = threading.Thread(target=hold)
    thread.start()
    try:
        with weft.profile() as p:
            for _ in range(20):
                product_and_sum(x, y)
    finally:
        done.set()
        thread.join()
    waits = [e for e in p.events if e.kind == "wait"]
    assert {e.name for e in waits} == {"Python's lock"}
    assert all(e.duration > 1e5 for e in waits)


def test_a_profile_costs_little() -> None:
    f = weft.compile(lambda x: weft.tanh(x @ x) @ x)
    x = weft.ones((256, 256))

    def burst() -> float:
        f(x)
        begin = time.perf_counter()
        for _ in range(5):
            f(x)
        return time.perf_counter() - begin

    f(x)
    with weft.profile():
        f(x)
    plain, profiled = [], []
    for turn in range(100):
        plain.append(burst())
        with weft.profile():
            profiled.append(burst())
        if turn >= 15 and min(profiled) < 1.25 * min(plain):
            break
    assert min(profiled) < 1.25 * min(plain)  # docs/profiling.md has what it is on a quiet machine


def test_a_kernel_in_a_loop_is_one_event_that_counts() -> None:
    @weft.compile
    def f(x: Any) -> Any:
        return weft.fori_loop(0, 7, lambda i, x: weft.tanh(x @ x), x)

    x = 0.01 * weft.ones((64, 64))
    f(x)
    with weft.profile() as p:
        f(x)
    assert 7 in {k.count for k in kernels(p)}
    [call] = [e for e in p.events if e.kind == "call"]
    ends = [k.end for k in kernels(p)]
    begins = [k.begin for k in kernels(p)]
    assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False))
    assert max(ends) <= call.end


def test_open_sizes() -> None:
    f = weft.compile(lambda x: weft.exp(x) + 1.0)
    for n in (70_000, 80_000, 90_000):  # from the second on, any size
        with weft.profile() as p:
            f(weft.ones(n))
        [kernel] = kernels(p)
        assert kernel.bytes == 2 * 4 * n


def test_arrays_that_must_be_copied_first() -> None:
    f = weft.compile(lambda x: x * 2.0)
    x = weft.ones((200, 300)).mT
    with weft.profile() as p:
        out = f(x)
    np.testing.assert_array_equal(out.numpy(), 2.0)
    assert kernels(p)


def test_a_call_that_fails_raises_its_own_error() -> None:
    f = weft.compile(lambda x, i: weft.take(x, i, axis=0))
    x = weft.ones(4)
    f(x, weft.tensor([1]))
    with weft.profile() as p, pytest.raises(weft.errors.BoundsError):
        f(x, weft.tensor([9]))
    assert [e.kind for e in p.events].count("call") == 1
    np.testing.assert_array_equal(f(x, weft.tensor([2])).numpy(), [1.0])


def test_a_checked_function_is_seen() -> None:
    f = weft.compile(lambda x: weft.tanh(x @ x), debug=True)
    x = weft.ones((4, 4))
    expected = f(x)
    with weft.profile() as p:
        out = f(x)
    assert out.tolist() == expected.tolist()
    kinds = [e.kind for e in p.events]
    assert kinds.count("call") == 1
    assert kinds.count("kernel") >= 1
    assert f(x).tolist() == expected.tolist()
