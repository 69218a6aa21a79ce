"""Backward in many threads at once: on shared leaves, on shared graphs, with hooks and checkpoints."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft

THREADS = 8
ROUNDS = 60


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_together(work: Callable[[int], None]) -> None:
    """Run ``work(i)`` in several threads that start at the same time; raises what one raised."""
    barrier, errors = threading.Barrier(THREADS), []

    def target(i: int) -> None:
        try:
            barrier.wait(10)
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=target, args=(i,)) for i in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def test_gradients_of_all_threads_add_up_in_a_shared_leaf() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)

    def work(i: int) -> None:
        for _ in range(ROUNDS):
            (x * float(i)).sum().backward()

    run_together(work)
    assert x.grad.tolist() == [ROUNDS * sum(range(THREADS))] * 2


def test_threads_share_a_retained_graph() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    w = weft.tensor([3.0, 4.0], requires_grad=True)
    y = ((x * w) + x * x).sum()
    run_together(lambda i: [y.backward(retain_graph=True) for _ in range(ROUNDS)] and None)
    n = float(ROUNDS * THREADS)
    assert x.grad.tolist() == [5.0 * n, 8.0 * n]
    assert w.grad.tolist() == [1.0 * n, 2.0 * n]


def test_threads_ask_for_gradients_of_one_graph() -> None:
    x = weft.tensor([2.0, 3.0], requires_grad=True)
    y = (x * x * x).sum()
    found: list[Any] = [None] * THREADS

    def work(i: int) -> None:
        for _ in range(ROUNDS):
            (first,) = weft.autograd.grad(y, x, create_graph=True)
            (found[i],) = weft.autograd.grad(first.sum(), x, retain_graph=True)

    run_together(work)
    assert [f.tolist() for f in found] == [[12.0, 18.0]] * THREADS
    assert x.grad is None


def test_freed_graph_is_an_error_in_all_threads_but_those_that_came_in_time() -> None:
    x = weft.tensor(2.0, requires_grad=True)
    y = x * x
    y.backward()
    failed: list[int] = []

    def work(i: int) -> None:
        try:
            y.backward()
        except weft.errors.FreedGraphError:
            failed.append(i)

    run_together(work)
    assert len(failed) == THREADS
    assert x.grad.item() == 4.0


def test_hooks_run_once_for_each_backward() -> None:
    x = weft.tensor(2.0, requires_grad=True)
    y = x * x
    calls: list[float] = []
    y.register_hook(lambda g: calls.append(g.item()))
    x.register_hook(lambda g: g * 2.0)
    z = y * 3.0
    run_together(lambda i: [z.backward(retain_graph=True) for _ in range(ROUNDS)] and None)
    assert calls == [3.0] * (ROUNDS * THREADS)
    assert x.grad.item() == 24.0 * ROUNDS * THREADS


def test_threads_share_a_checkpointed_graph() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    w = weft.tensor([2.0, 2.0], requires_grad=True)
    y = weft.checkpoint(lambda t: t * t * w, x).sum()
    run_together(lambda i: [y.backward(retain_graph=True) for _ in range(10)] and None)
    n = 10.0 * THREADS
    assert x.grad.tolist() == [4.0 * n, 8.0 * n]
    assert w.grad.tolist() == [1.0 * n, 4.0 * n]


def test_threads_train_parts_of_one_model() -> None:
    rng = np.random.default_rng(0)
    batches = rng.normal(size=(THREADS, 16, 4)).astype(np.float32)
    w = weft.tensor(rng.normal(size=(4, 3)).astype(np.float32), requires_grad=True)
    run_together(lambda i: weft.tanh(weft.tensor(batches[i]) @ w).sum().backward())
    alone = weft.tensor(w.detach().numpy(), requires_grad=True)
    for batch in batches:
        weft.tanh(weft.tensor(batch) @ alone).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), alone.grad.numpy(), rtol=1e-5, atol=1e-5)


def test_anomaly_detection_watches_its_own_thread_only() -> None:
    seen: list[bool] = []

    def work(i: int) -> None:
        x = weft.tensor([0.0, 1.0], requires_grad=True)
        for _ in range(20):
            if i % 2:
                with pytest.raises(weft.errors.AnomalyError), weft.detect_anomaly():
                    (x / x).sum().backward()
            else:
                x.grad = None
                (x / x).sum().backward()
                seen.append(bool(weft.isnan(x.grad[0])))

    run_together(work)
    assert seen == [True] * (20 * THREADS // 2)
