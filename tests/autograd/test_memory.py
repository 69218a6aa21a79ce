"""What backward keeps and frees: measured in bytes, in references, and without the garbage collector."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import weft

SIZE = 1 << 18  # elements; a float32 array of them is 1 MiB
MIB = 1 << 20


def data(value: float = 0.5) -> Any:
    return np.full(SIZE, value, np.float32)


def leaf(value: float = 0.5) -> weft.Tensor:
    return weft.tensor(data(value), requires_grad=True)


@contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.fixture(autouse=True)
def reference_kernels() -> Iterator[None]:
    """Arrays of compiled kernels come from memory of weft's own, which tracemalloc does not see."""
    weft.set_eager_kernels(False)
    yield
    weft.set_eager_kernels(True)


@pytest.fixture
def traced() -> Iterator[Callable[[], float]]:
    """A function that tells the memory in use, in MiB, since the test began."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    yield lambda: (tracemalloc.get_traced_memory()[0] - before) / MIB
    tracemalloc.stop()


def peak(work: Callable[[], Any]) -> float:
    """The most memory that work needs beyond what was in use, in MiB."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    work()
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (highest - before) / MIB


def tanh_chain(x: Any, length: int) -> Any:
    for _ in range(length):
        x = weft.tanh(x)
    return x


def test_saved_values_are_released_while_backward_goes_on(traced: Callable[[], float]) -> None:
    x = leaf()
    y = tanh_chain(x, 20)
    held: list[float] = [traced()]
    z = y
    while (node := z.grad_fn if isinstance(z, weft.Tensor) else z) is not None and node.topological_nr > 0:
        node.register_hook(lambda ins, outs: held.append(traced()))
        z = node.next_functions[0][0]
    y.backward(weft.tensor(data()))
    assert held[0] > 20  # x and all twenty results
    assert held[-1] < 8  # x, y, the seed and the gradient that flows
    drops = sum(a > b for a, b in itertools.pairwise(held))
    assert drops >= 16  # all along the way, not at the end


def test_backward_needs_little_beyond_what_forward_kept() -> None:
    x = leaf()
    y = tanh_chain(x, 20)
    seed = weft.tensor(data())
    assert peak(lambda: y.backward(seed)) < 6


def test_retained_graph_keeps_what_it_saved_and_the_last_backward_frees_it(
    traced: Callable[[], float],
) -> None:
    x = leaf()
    y = tanh_chain(x, 20)
    y.backward(weft.tensor(data()), retain_graph=True)
    assert traced() > 20
    y.backward(weft.tensor(data()))
    assert traced() < 6


def test_gradients_of_the_middle_are_not_kept(traced: Callable[[], float]) -> None:
    x = leaf()
    y = x
    for _ in range(20):
        y = y + 1.0  # saves nothing
    y.backward(weft.tensor(data()))
    assert traced() < 5


def test_saved_array_dies_with_its_node() -> None:
    with no_collector():
        x = weft.tensor(data(), requires_grad=True)
        middle = weft.exp(x)
        saved = weakref.ref(middle._data)
        y = (middle * 2.0).sum()
        del middle
        assert saved() is not None
        y.backward()
        assert saved() is None


def test_only_what_a_gradient_needs_is_saved() -> None:
    with no_collector():
        x = weft.tensor(data(), requires_grad=True)
        middle = x * 1.0
        unneeded = weakref.ref(middle._data)
        y = middle + 1.0  # the gradient of add needs no data
        del middle
        assert unneeded() is None
        assert y.requires_grad


def test_graph_dies_with_its_last_tensor() -> None:
    with no_collector():
        x = leaf()
        y = tanh_chain(x, 3)
        arrays = [weakref.ref(n.saved[1]) for n in (y.grad_fn, y.grad_fn.next_functions[0][0])]
        assert all(a() is not None for a in arrays)
        del y
        assert all(a() is None for a in arrays)


def step() -> None:
    x = weft.tensor(np.ones((64, 64)), requires_grad=True)
    w = weft.tensor(np.ones((64, 64)), requires_grad=True)
    h = weft.tanh(x @ w)
    h.retain_grad()
    h.register_hook(lambda g: g * 2.0)
    (h * h).sum().backward(create_graph=True)
    (w.grad * w.grad).sum().backward()
    weft.autograd.grad((weft.exp(x) * x).sum(), x, create_graph=True)
    weft.checkpoint(lambda t: weft.tanh(t * w), x).sum().backward()
    Identity.apply(x).sum().backward(create_graph=True)


class Identity(weft.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        out = x * 1.0
        ctx.save_for_backward(out)
        ctx.also = out
        return out

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * ctx.saved_tensors[0] / ctx.also


def test_everything_dies_without_the_garbage_collector() -> None:
    step()
    with no_collector():
        before = len(gc.get_objects())
        for _ in range(20):
            step()
        grown = len(gc.get_objects()) - before
    assert grown < 40, f"{grown} objects are left"


def test_gradient_with_a_graph_makes_no_cycle_with_its_leaf() -> None:
    with no_collector():
        x = leaf()
        (x * x * x).sum().backward(create_graph=True)
        tensor, array = weakref.ref(x), weakref.ref(x._data)
        del x
        assert tensor() is None
        assert array() is None


def test_failed_backward_leaves_nothing_alive() -> None:
    with no_collector():
        x = leaf()
        y = weft.tanh(x)
        y.register_hook(_fail)
        with pytest.raises(ZeroDivisionError):
            y.sum().backward()
        saved = weakref.ref(y._data)
        del y
        gc.collect()  # the traceback of pytest.raises is a cycle
        assert saved() is None


def _fail(g: Any) -> None:
    raise ZeroDivisionError
