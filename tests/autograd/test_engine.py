"""The engine: no recursion, no work that nobody asked for, the same sums in each run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft

MANY = 200_000  # what goes along them by calling itself ends a small stack after a few thousand


def leaf(*values: float) -> weft.Tensor:
    return weft.tensor(list(values), requires_grad=True)


@pytest.fixture
def counted() -> Iterator[tuple[Callable[[Any], Any], list[str]]]:
    """An op that doubles, and a list that grows by one word each time its gradient is computed."""
    calls: list[str] = []

    def gradient(g: Any, label: str) -> Any:
        calls.append(label)
        return g * 2.0

    @weft.custom_op("test::double", type_rule=lambda x, *, label: x, gradient=gradient, replace=True)
    def double(x: Any, *, label: str) -> Any:
        return x * 2.0

    yield double, calls
    weft.remove_custom_op("test::double")


# Depth and width


def run_in_small_stack(work: Callable[[], None]) -> None:
    """Run in a thread with so little stack that recursion over a long chain would crash."""
    errors: list[BaseException] = []

    def target() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    # From 3.12 on CPython itself nests up to 10,000 calls in C to free a chain, whatever its length.
    small, usual = 256 * 1024, 8 * 1024 * 1024
    before = threading.stack_size(small if sys.version_info < (3, 12) else usual)
    try:
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    if errors:
        raise errors[0]


def chain(x: weft.Tensor, length: int) -> weft.Tensor:
    y = x
    for _ in range(length):
        y = y * 1.0
    return y


def test_chain_of_many_nodes_runs_and_is_freed() -> None:
    def work() -> None:
        x = weft.tensor(2.0, requires_grad=True)
        y = chain(x, MANY)
        assert y.grad_fn.topological_nr == MANY
        y.backward()
        assert x.grad.item() == 1.0
        del y

    run_in_small_stack(work)


def test_long_chain_is_freed_without_backward() -> None:
    run_in_small_stack(lambda: chain(weft.tensor(2.0, requires_grad=True), MANY) and None)


def test_long_chain_runs_for_a_target_and_to_second_order() -> None:
    def work() -> None:
        x = weft.tensor(2.0, requires_grad=True)
        y = chain(x * x, 20_000)
        (first,) = weft.autograd.grad(y, x, create_graph=True)
        (second,) = weft.autograd.grad(first, x)
        assert (first.item(), second.item()) == (4.0, 2.0)

    run_in_small_stack(work)


def test_wide_graph_sums_all_branches() -> None:
    x = weft.tensor([1.0, 2.0], dtype=weft.float64, requires_grad=True)
    branches = [x * float(k) for k in range(10_000)]
    total = branches[0]
    for b in branches[1:]:
        total = total + b
    total.sum().backward()
    assert x.grad.tolist() == [sum(range(10_000))] * 2


def test_graph_with_exponentially_many_paths_takes_linear_time(counted: Any) -> None:
    double, calls = counted
    x = weft.tensor(1.0, dtype=weft.float64, requires_grad=True)
    y = x
    for _ in range(60):  # 2 ** 60 paths
        y = double(y, label="") * 0.25 + y * 0.5
    y.backward()
    assert len(calls) == 60
    assert x.grad.item() == 1.0


# What runs


def test_only_nodes_that_lead_to_a_requested_gradient_run(counted: Any) -> None:
    double, calls = counted
    x, w = leaf(1.0), leaf(1.0)
    y = double(x, label="x") * double(double(w, label="w"), label="w")
    weft.autograd.grad(y, x)
    assert calls == ["x"]


def test_nodes_below_the_requested_tensor_do_not_run(counted: Any) -> None:
    double, calls = counted
    x = leaf(1.0)
    middle = double(double(x, label="below"), label="below")
    weft.autograd.grad(double(middle, label="above"), middle)
    assert calls == ["above"]


def test_backward_into_inputs_runs_only_what_leads_there(counted: Any) -> None:
    double, calls = counted
    x, w = leaf(1.0), leaf(1.0)
    (double(x, label="x") * double(w, label="w")).backward(inputs=[w])
    assert calls == ["w"]


def test_branches_of_constants_do_not_run(counted: Any) -> None:
    double, calls = counted
    x, c = leaf(1.0), weft.tensor([1.0])
    (double(x, label="x") * double(c, label="c")).backward()
    assert calls == ["x"]


def test_detached_branches_do_not_run(counted: Any) -> None:
    double, calls = counted
    x = leaf(1.0)
    (double(x, label="kept") * double(x, label="cut").detach()).backward()
    assert calls == ["kept"]


def test_gradient_of_an_input_without_edge_is_not_computed() -> None:
    asked: list[tuple[bool, ...]] = []

    class Product(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            asked.append(ctx.needs_input_grad)
            return g, g

    x, y = leaf(1.0), leaf(2.0)
    weft.autograd.grad(Product.apply(x, y), y)
    Product.apply(x, weft.tensor([1.0])).backward()
    assert asked == [(False, True), (True, False)]


def test_each_node_runs_once_after_all_gradients_it_waits_for(counted: Any) -> None:
    double, calls = counted
    x = leaf(1.0)
    shared = double(x, label="shared")
    deep = shared
    for _ in range(5):
        deep = double(deep, label="deep")
    (deep + shared + double(shared, label="short")).backward()
    assert calls.count("shared") == 1
    assert calls[-1] == "shared"
    assert x.grad.tolist() == [2.0 * (32 + 1 + 2)]


# Sums


def test_gradients_are_the_same_bits_in_each_run() -> None:
    rng = np.random.default_rng(0)
    start, weights = rng.normal(size=(64,)), rng.normal(size=(40, 64))

    def gradient() -> bytes:
        x = weft.tensor(start, dtype=weft.float32, requires_grad=True)
        terms = [weft.tanh(x * weft.tensor(w, dtype=weft.float32)) for w in weights]
        for k in range(3):
            terms = [a * b for a, b in zip(terms, terms[k + 1 :] + terms[: k + 1], strict=True)]
        total = terms[0]
        for t in terms[1:]:
            total = total + t
        total.sum().backward()
        return x.grad.numpy().tobytes()

    assert len({gradient() for _ in range(5)}) == 1


def test_sum_in_place_reaches_no_gradient_that_someone_holds() -> None:
    x = leaf(1.0, 2.0)
    seen: list[Any] = []
    y = x * 1.0
    y.register_hook(seen.append)
    total = (y + y) + (y + y) + (y + x) + (x + x)
    total.register_hook(seen.append)
    total.backward(weft.ones(2))
    assert [g.tolist() for g in seen] == [[1.0, 1.0], [5.0, 5.0]]
    assert x.grad.tolist() == [8.0, 8.0]


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16, weft.float32, weft.float64, weft.complex64])
def test_many_contributions_to_one_tensor_add_up_in_its_dtype(dtype: Any) -> None:
    x = weft.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
    total = x * 1.0
    for _ in range(9):
        total = total + x
    total.backward(weft.ones(2, dtype=dtype))
    assert x.grad.dtype == dtype
    assert x.grad.tolist() == [10.0, 10.0]


def test_integer_and_bool_results_have_no_graph() -> None:
    x = leaf(1.0, 3.0, 2.0)
    assert not (x > 1.0).requires_grad
    assert not weft.argmax(x).requires_grad
    assert not x.astype(weft.int32).requires_grad


def test_recursion_limit_does_not_matter() -> None:
    x = weft.tensor(2.0, requires_grad=True)
    y = chain(x, 5000)
    before = sys.getrecursionlimit()
    depth = len(list(iter_frames()))
    sys.setrecursionlimit(depth + 60)
    try:
        y.backward()
        del y
    finally:
        sys.setrecursionlimit(before)
    assert x.grad.item() == 1.0


def iter_frames() -> Iterator[Any]:
    frame: Any = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back
