"""Gradients of loops that keep less: ``checkpoint`` in a body, ``checkpoint_every``, and a budget of memory.

Without any of these the same programs are the oracle. The interpreter runs op by op, so bits must be equal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.errors import ArgumentError, DomainError

WIDTH = 16
STATE = 4 * WIDTH * WIDTH  # bytes of one


def matrix(seed: int) -> Any:
    values = np.random.default_rng(seed).normal(size=(WIDTH, WIDTH)) * 0.2
    return weft.tensor(values.astype(np.float32))


X, W, V = matrix(0), matrix(1), matrix(2)


def cell(x: Any, w: Any) -> Any:
    return weft.tanh(weft.tanh(weft.tanh(x @ w) @ w) @ w)


def by_for(x: Any, w: Any, n: int, k: int | None) -> Any:
    for _ in range(n) if k is None else weft.checkpointed(range(n), every=k):
        x = cell(x, w)
    return x.sum()


def by_rows(x: Any, w: Any, n: int, k: int | None) -> Any:
    rows = weft.arange(n) * 0.1
    for row in rows if k is None else weft.checkpointed(rows, every=k):
        x = cell(x, w) * weft.exp(row)
    return x.sum()


def by_fori(x: Any, w: Any, n: int, k: int | None) -> Any:
    return weft.fori_loop(0, n, lambda i, x: cell(x, w) * weft.cos(i * 1.0), x, checkpoint_every=k).sum()


def by_scan(x: Any, w: Any, n: int, k: int | None) -> Any:
    rows = x[0, :1] * weft.arange(n)
    after, ys = weft.scan(lambda x, row: (cell(x, w) * row, x.sum() * row), x, rows, checkpoint_every=k)
    return after.sum() + ys.sum()


def by_reverse_scan(x: Any, w: Any, n: int, k: int | None) -> Any:
    rows = x[0, :1] * weft.arange(n)
    step = lambda x, row: (cell(x, w) * row, x.sum() * row)  # noqa: E731
    after, ys = weft.scan(step, x, rows, reverse=True, checkpoint_every=k)
    return after.sum() + (ys * rows).sum()


def by_while(x: Any, w: Any, n: int, k: int | None) -> Any:
    step = lambda s: (s[0] + 1, cell(s[1], w))  # noqa: E731
    return weft.while_loop(lambda s: s[0] < n, step, (weft.tensor(0), x), checkpoint_every=k)[1].sum()


LOOPS = {f.__name__: f for f in (by_for, by_rows, by_fori, by_scan, by_reverse_scan, by_while)}


def gradients(loss: Callable[..., Any], n: int, k: int | None) -> Callable[..., Any]:
    return weft.value_and_grad(lambda x, w: loss(x, w, n, k), argnums=(0, 1))


def bits(found: Any) -> list[bytes]:
    return [leaf.numpy().tobytes() for leaf in weft.tree_leaves(found)]


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize(("n", "k"), [(0, 3), (7, 1), (7, 3), (6, 3), (5, 8)])
def test_segments_have_the_bits_of_the_plain_gradient(name: str, n: int, k: int) -> None:
    found = [weft.compile(gradients(LOOPS[name], n, i), backend="interpret")(X, W) for i in (None, k)]
    assert bits(found[0]) == bits(found[1])


@pytest.mark.parametrize("name", LOOPS)
def test_segments_in_compiled_and_in_eager_code(name: str) -> None:
    eager = bits(gradients(LOOPS[name], 7, None)(X, W))
    assert bits(gradients(LOOPS[name], 7, 3)(X, W)) == eager
    found = weft.compile(gradients(LOOPS[name], 7, 3))(X, W)
    for a, b in zip(weft.tree_leaves(found), eager, strict=True):
        wanted = np.frombuffer(b, np.float32).reshape(a.shape)
        np.testing.assert_allclose(a.numpy(), wanted, rtol=1e-4, atol=1e-6)


def peak(f: Any, *args: Any) -> int:
    compiled = weft.compile(f)
    compiled(*args)
    found: int = compiled.lowered.memory().peak
    return found


@pytest.mark.parametrize("name", ["by_for", "by_fori", "by_reverse_scan"])
def test_segments_take_less_memory(name: str) -> None:
    n, k = 100, 10
    plain, saved = (peak(gradients(LOOPS[name], n, i), X, W) for i in (None, k))
    assert plain > 3 * n * STATE  # three residuals of each turn
    assert saved < (n // k + 1 + 6 * k) * STATE


def test_memory_grows_as_the_root_of_the_number_of_turns() -> None:
    short, long = (peak(gradients(by_for, n, k), X, W) for n, k in ((100, 10), (400, 20)))
    assert long < 2.2 * short


def test_the_forward_loop_runs_once() -> None:
    f = weft.compile(gradients(by_for, 20, 5))
    f(X, W)
    loops = [node for node in f.lowered.nodes if node.op.name == "scan"]
    assert len(loops) == 2


def with_checkpoint(step: Callable[..., Any], save: bool) -> Callable[..., Any]:
    return (lambda *args: weft.checkpoint(step, *args)) if save else step


def in_for(step: Callable[..., Any], x: Any, w: Any, n: Any) -> Any:
    for _ in range(n):
        x = step(x, w)
    return x.sum()


def in_scan(step: Callable[..., Any], x: Any, w: Any, n: Any) -> Any:
    return weft.scan(lambda x, _: (step(x, w), ()), x, length=n)[0].sum()


def in_while(step: Callable[..., Any], x: Any, w: Any, n: Any) -> Any:
    i = weft.tensor(0)
    while i < n:
        x = step(x, w)
        i = i + 1
    return x.sum()


BODIES = {f.__name__: f for f in (in_for, in_scan, in_while)}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("n", [0, 1, 6])
def test_checkpoint_in_a_body_has_the_same_bits(name: str, n: int) -> None:
    def run(save: bool) -> Any:
        loss = lambda x, w: BODIES[name](with_checkpoint(cell, save), x, w, n)  # noqa: E731
        return bits(weft.compile(weft.value_and_grad(loss, argnums=(0, 1)), backend="interpret")(X, W))

    assert run(True) == run(False)


@pytest.mark.parametrize("name", ["in_for", "in_scan"])
def test_checkpoint_in_a_body_keeps_its_inputs_alone(name: str) -> None:
    def needed(save: bool) -> int:
        loss = lambda x, w: BODIES[name](with_checkpoint(cell, save), x, w, 50)  # noqa: E731
        return peak(weft.grad(loss, argnums=1), X, W)

    assert needed(False) > 3 * 50 * STATE
    assert needed(True) < 60 * STATE


def test_checkpoint_in_a_while_loop_keeps_its_inputs_alone() -> None:
    def grown(save: bool) -> int:
        loss = lambda x, w: in_while(with_checkpoint(cell, save), x, w, 5)  # noqa: E731
        f = weft.compile(weft.grad(loss, argnums=1))
        f(X, W)
        return sum(",16,16]" in text for text in f.lowered.memory().heap)

    assert grown(False) >= 3
    assert grown(True) == 1


def test_a_gradient_from_outside_keeps_the_inputs_alone() -> None:
    @weft.compile
    def loss(x: Any, w: Any) -> Any:
        for _ in range(50):
            x = weft.checkpoint(cell, x, w)
        return x.sum()

    w = W.clone().requires_grad_()
    loss(X, w).backward()
    wanted = weft.grad(lambda w: in_for(cell, X, w, 50))(W)
    np.testing.assert_allclose(w.grad.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-7)
    assert loss.lowered.memory().outputs < 60 * STATE


def test_a_loop_in_a_checkpoint_is_run_again() -> None:
    def step(x: Any, w: Any) -> Any:
        for _ in range(20):
            x = weft.tanh(x @ w)
        return x

    def needed(save: bool) -> int:
        loss = lambda x, w: in_for(with_checkpoint(step, save), x, w, 20)  # noqa: E731
        return peak(weft.grad(loss, argnums=1), X, W)

    assert needed(False) > 400 * STATE
    assert needed(True) < 80 * STATE


@pytest.mark.parametrize("k", [None, 3])
def test_dropout_draws_the_same_numbers_again(k: int | None) -> None:
    drop = nn.Dropout(0.5)

    def step(x: Any, w: Any) -> Any:
        return drop(weft.tanh(drop(x @ w) @ w))

    def loss(x: Any, w: Any, save: bool) -> Any:
        chosen = with_checkpoint(step, save and k is None)
        for _ in weft.checkpointed(range(7), every=k) if save and k else range(7):
            x = chosen(x, w)
        return x.sum()

    found = []
    for save in (False, True):
        weft.manual_seed(3)
        f = weft.compile(weft.value_and_grad(lambda w, save=save: loss(X, w, save)), backend="interpret")
        found.append([*bits(f(W)), *bits(f(W)), *bits(weft.rand(3))])
    assert found[0] == found[1]
    assert found[0][:2] != found[0][2:4]


def test_state_that_the_body_changes() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen = weft.zeros(WIDTH, WIDTH)

        def forward(self, x: Any, w: Any) -> Any:
            y = weft.tanh(x @ w)
            self.seen = self.seen + y.detach()
            return y * self.seen

    def run(save: bool, k: int | None) -> list[bytes]:
        module = Counting()
        step = with_checkpoint(module, save)

        def loss(x: Any, w: Any) -> Any:
            for _ in range(7) if k is None else weft.checkpointed(range(7), every=k):
                x = step(x, w)
            return x.sum()

        f = weft.compile(weft.value_and_grad(loss, argnums=(0, 1)), backend="interpret")
        return [*bits(f(X, W)), *bits(module.seen)]

    plain = run(False, None)
    assert run(True, None) == plain
    assert run(False, 3) == plain
    assert run(True, 2) == plain  # each turn changes it once, though the way back runs the turns again


@pytest.mark.parametrize("name", ["by_for", "by_scan", "by_while"])
def test_second_derivatives(name: str) -> None:
    def second(k: int | None) -> Any:
        slope = weft.grad(lambda w: LOOPS[name](X, w, 5, k))
        f = weft.compile(weft.grad(lambda w: (slope(w) * V).sum()), backend="interpret")
        return f(W).numpy()

    np.testing.assert_allclose(second(2), second(None), rtol=2e-4, atol=1e-6)


def test_second_derivatives_of_a_checkpoint_in_a_body() -> None:
    def second(save: bool) -> Any:
        slope = weft.grad(lambda w: in_for(with_checkpoint(cell, save), X, w, 5))
        return weft.compile(weft.grad(lambda w: (slope(w) * V).sum()))(W).numpy()

    np.testing.assert_allclose(second(True), second(False), rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["by_for", "by_reverse_scan", "by_while"])
def test_vmap_and_jvp(name: str) -> None:
    many = weft.stack([matrix(i) for i in range(3)])
    loss = lambda k: lambda x: LOOPS[name](x, W, 5, k)  # noqa: E731
    batched = [weft.compile(weft.vmap(weft.grad(loss(k))))(many).numpy() for k in (None, 2)]
    np.testing.assert_allclose(batched[1], batched[0], rtol=2e-4, atol=1e-6)
    pushed = [weft.compile(lambda x, k=k: weft.jvp(loss(k), (x,), (x,)))(X) for k in (None, 2)]
    np.testing.assert_allclose(*[p[1].numpy() for p in pushed], rtol=2e-4, atol=1e-6)


def test_lengths_that_calls_choose() -> None:
    def loss(xs: Any, w: Any, k: int | None) -> Any:
        return weft.scan(lambda c, x: (weft.tanh((c + x) @ w), c.sum()), xs[0], xs, checkpoint_every=k)[
            0
        ].sum()

    saved, plain = (
        weft.compile(weft.grad(lambda xs, w, k=k: loss(xs, w, k), argnums=(0, 1))) for k in (3, None)
    )
    for n in (4, 5, 6, 11):
        xs = weft.stack([matrix(i) for i in range(n)])
        for a, b in zip(saved(xs, W), plain(xs, W), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-4, atol=1e-6)
    assert len(saved.versions) == 2


def test_a_budget_of_memory(caplog: Any) -> None:
    plain = gradients(by_for, 100, None)
    free, bound, small = (weft.compile(plain, memory=m) for m in ("10 MB", "100 kB", 1000))
    with caplog.at_level(logging.WARNING, logger="weft.compile"):
        wanted = bits(free(X, W))
        assert bits(bound(X, W)) == wanted
        assert not caplog.records
        small(X, W)
    assert "the plan needs" in caplog.text
    assert free.lowered.memory().arena > 300 * STATE
    assert bound.lowered.memory().arena <= 100_000


def test_a_budget_of_memory_for_gradients_from_outside() -> None:
    found = []
    for budget in (None, "100 kB"):
        loss = weft.compile(lambda x, w: by_for(x, w, 100, None), memory=budget)
        w = W.clone().requires_grad_()
        loss(X, w).backward()
        found.append(w.grad.numpy())
    np.testing.assert_array_equal(*found)


def test_a_budget_for_a_program_that_it_does_for_changes_nothing() -> None:
    f = weft.compile(lambda x: x * 2.0, memory="1 MiB")
    assert f(weft.ones(3)).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("memory", [0, -5, True, 1.5, "much", "3 XB", ""])
def test_a_budget_must_be_bytes(memory: Any) -> None:
    with pytest.raises(DomainError, match="memory must be a positive number of bytes"):
        weft.compile(lambda x: x, memory=memory)


@pytest.mark.parametrize("every", [0, -1, 1.5, True, None])
def test_every_must_be_a_count(every: Any) -> None:
    with pytest.raises(DomainError, match="every must be a positive int"):
        weft.checkpointed(range(3), every=every)


def test_what_is_checkpointed_must_be_iterable() -> None:
    with pytest.raises(ArgumentError, match="items must be iterable"):
        weft.checkpointed(3, every=2)  # type: ignore[arg-type]


@pytest.mark.parametrize("every", [0, -1, "2"])
def test_checkpoint_every_must_be_a_count(every: Any) -> None:
    for loop in (by_fori, by_scan):
        with pytest.raises(weft.errors.WeftError, match="checkpoint_every"):
            loop(X, W, 3, every)


def test_checkpointed_items_are_the_items() -> None:
    assert list(weft.checkpointed(range(4), every=2)) == [0, 1, 2, 3]
    assert list(weft.checkpointed("ab", every=2)) == ["a", "b"]
