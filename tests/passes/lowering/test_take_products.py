"""Products of loops taken at once: values and gradients stay the same, and it is done where it pays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.passes import take_products
from weft.passes.lowering.take_products import take_wide_products


def random(*shape: int, seed: int = 0) -> Any:
    return weft.tensor(np.random.default_rng(seed).standard_normal(shape))


def leaves(tree: Any) -> list[Any]:
    return [leaf for item in tree for leaf in leaves(item)] if isinstance(tree, tuple | list) else [tree]


def check(function: Callable[..., Any], *args: Any) -> None:
    """Compiled code gives what the interpreter gives."""
    found = leaves(weft.compile(function)(*args))
    expected = leaves(weft.compile(function, backend="interpret")(*args))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-11, atol=1e-11)


def taken(function: Callable[..., Any], *args: Any) -> Graph:
    return take_products(weft.make_graph(function)(*args).optimize())


def ops_in(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def ops_in_loops(graph: Graph) -> list[str]:
    return [n.op.name for node in graph.nodes for region in node.regions for n in region.nodes]


# Networks over time


def cell(wx: Any, wh: Any, b: Any, xs: Any) -> Any:
    h = weft.zeros((xs.shape[1], wh.shape[0]), dtype=xs.dtype)
    for t in range(len(xs)):
        h = weft.tanh(xs[t] @ wx + h @ wh + b)
    return (h * h).sum()


def cell_arguments(times: int, batch: int, inputs: int, hidden: int) -> list[Any]:
    return [
        random(inputs, hidden, seed=1) * 0.2,
        random(hidden, hidden, seed=2) * 0.2,
        random(hidden, seed=3),
        random(times, batch, inputs, seed=4),
    ]


@pytest.mark.rotating(3)
@pytest.mark.parametrize("times", [1, 2, 3, 4, 7, 20])
def test_gradients_of_a_network_are_those_of_the_interpreter(times: int) -> None:
    check(weft.value_and_grad(cell, argnums=(0, 1, 2, 3)), *cell_arguments(times, 4, 24, 40))


def test_gradients_of_a_network_are_those_of_finite_differences() -> None:
    args = cell_arguments(8, 3, 16, 64)
    gradients = weft.compile(weft.grad(cell, argnums=(0, 1, 2)))(*args)
    for k, gradient in enumerate(gradients):
        v = random(*args[k].shape, seed=9)
        moved = [[a + s * 1e-5 * v if i == k else a for i, a in enumerate(args)] for s in (1, -1)]
        slope = (float(cell(*moved[0])) - float(cell(*moved[1]))) / 2e-5
        assert float((gradient * v).sum()) == pytest.approx(slope, rel=1e-6)


def test_network_has_one_product_before_and_one_after_each_loop() -> None:
    args = [a.astype(weft.float32) for a in cell_arguments(20, 16, 64, 64)]
    graph = taken(weft.value_and_grad(cell, argnums=(0, 1)), *args)
    assert ops_in_loops(graph).count("matmul") == 2, "h @ wh, and the gradient of h"
    assert ops_in(graph).count("matmul") == 3, "x @ wx, and the gradients of both weights"
    assert "gather" not in ops_in_loops(graph)


def test_gradient_keeps_gates_instead_of_computing_them_again() -> None:
    def loss(w: Any, xs: Any) -> Any:
        c = weft.zeros((xs.shape[1], 8), dtype=xs.dtype)
        for x in xs:
            i, f, g = (x @ w).chunk(3, 1)
            c = weft.sigmoid(f) * c + weft.sigmoid(i) * weft.tanh(g)
        return (c * c).sum()

    args = random(5, 24), random(6, 2, 5, seed=1)
    check(weft.value_and_grad(loss), *args)
    graph = weft.make_graph(weft.grad(loss))(*args).optimize()
    *_, backward = [node for node in graph.nodes if node.op.name == "scan"]
    assert not {"sigmoid", "tanh"} & {node.op.name for node in backward.attrs["body"].nodes}


@examples(15, 5)
@given(
    times=st.integers(0, 9),
    rows=st.integers(1, 5),
    left=st.sampled_from([1, 40, 64]),
    right=st.sampled_from([33, 64]),
    reverse=st.booleans(),
)
def test_sums_of_products_along_a_scan(times: int, rows: int, left: int, right: int, reverse: bool) -> None:
    def total(init: Any, x: Any, y: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            s, h = carry
            return (s + row[0].T @ weft.sin(row[1] + h), h + row[1]), h

        return weft.scan(step, (init, weft.zeros_like(y[0]) if times else y.sum(0)), (x, y), reverse=reverse)

    check(total, random(left, right), random(times, rows, left, seed=1), random(times, rows, right, seed=2))


# What is added


def outer_column(x: Any, y: Any) -> Any:
    return x.reshape((-1, 1)) * y


def outer_row(x: Any, y: Any) -> Any:
    return y * x.reshape((-1, 1))


def outer_product(x: Any, y: Any) -> Any:
    return weft.outer(x, y)


def turned(x: Any, y: Any) -> Any:
    return (y.reshape((-1, 1)) @ x.reshape((1, -1))).T


@pytest.mark.parametrize("product", [outer_column, outer_row, outer_product, turned])
def test_sum_of_outer_products_is_one_product(product: Callable[[Any, Any], Any]) -> None:
    def total(x: Any, y: Any) -> Any:
        s = weft.ones((40, 50), dtype=x.dtype)
        for t in range(len(x)):
            s = s + product(x[t], weft.cos(y[t]))
        return s

    args = random(12, 40), random(12, 50, seed=1)
    check(total, *args)
    assert ops_in(taken(total, *args)).count("matmul") == 1


def test_several_parts_of_a_sum() -> None:
    def total(x: Any, y: Any) -> Any:
        s = weft.zeros((40, 40), dtype=x.dtype)
        for t in range(len(x)):
            s = s + x[t].T @ y[t]
            s = weft.exp(x[t].sum()) + s
            s = s + (y[t] @ y[t].T).sum() * weft.ones((40, 40), dtype=x.dtype)
            s = (y[t].T @ x[t]) + s
        return s

    args = random(6, 2, 40) * 0.1, random(6, 2, 40, seed=1)
    check(total, *args)
    assert ops_in(taken(total, *args)).count("matmul") == 2


def test_product_with_both_sides_the_same() -> None:
    def covariance(x: Any) -> Any:
        s = weft.zeros((48, 48), dtype=x.dtype)
        for row in x:
            s = s + row.T @ row
        return s

    check(covariance, random(9, 3, 48))
    assert "scan" not in ops_in(taken(covariance, random(9, 3, 48)))


@pytest.mark.parametrize("dtype", [weft.float32, weft.complex128, weft.bfloat16])
def test_sums_of_other_dtypes(dtype: Any) -> None:
    def total(x: Any) -> Any:
        s = weft.zeros((64, 64), dtype=x.dtype)
        for row in x:
            s = s + row.T @ row
        return s

    x = random(8, 2, 64).astype(dtype)
    found = weft.compile(total)(x).astype(weft.complex128).numpy()
    wide = x.astype(weft.complex128).numpy()
    tolerance = 0.05 if dtype is weft.bfloat16 else 1e-5
    np.testing.assert_allclose(found, np.einsum("tki,tkj->ij", wide, wide), rtol=tolerance, atol=tolerance)


# What stays in the loop


def test_sum_that_the_loop_reads_stays() -> None:
    def total(x: Any) -> Any:
        s = weft.zeros((40, 40), dtype=x.dtype)
        m = weft.zeros((), dtype=x.dtype)
        for row in x:
            m = m + s.sum()
            s = s + row.T @ row
        return s, m

    check(total, random(9, 2, 40))
    assert "matmul" in ops_in_loops(taken(total, random(9, 2, 40)))


def test_sum_that_is_collected_stays() -> None:
    def total(x: Any) -> Any:
        return weft.scan(lambda s, row: (s + row.T @ row, s), weft.zeros((40, 40), dtype=x.dtype), x)

    check(total, random(6, 2, 40))
    assert "matmul" in ops_in_loops(taken(total, random(6, 2, 40)))


def test_small_sums_stay() -> None:
    def total(x: Any) -> Any:
        return weft.scan(lambda s, row: (s + row.T @ row, None), weft.zeros((3, 3), dtype=x.dtype), x)[0]

    check(total, random(50, 2, 3))
    assert "matmul" in ops_in_loops(taken(total, random(50, 2, 3)))


def test_what_would_take_more_memory_than_it_saves_stays() -> None:
    def total(x: Any) -> Any:
        s = weft.zeros((40, 40), dtype=x.dtype)
        for row in x:
            s = s + weft.sin(row).T @ weft.cos(row)
        return s

    check(total, random(9, 100, 40))
    assert "matmul" in ops_in_loops(taken(total, random(9, 100, 40)))


def test_stacks_beyond_the_bound_stay_in_the_loop() -> None:
    def total(x: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            s, h = carry
            h = weft.sin(h + row)
            return (s + h.T @ h, h), None

        return weft.scan(step, (weft.zeros((2048, 2048)), weft.zeros((64, 2048))), x)[0]

    few, many = weft.zeros(8), weft.zeros(1000)  # rows of one number; stacks of 4 MB, and of 500 MB
    assert "matmul" not in ops_in_loops(taken(total, few))
    assert "matmul" in ops_in_loops(taken(total, many))


def test_products_with_what_stays_the_same_are_not_sums_of_stacks() -> None:
    def total(w: Any, x: Any) -> Any:
        return weft.scan(lambda s, row: (s + w @ row, None), weft.zeros((40, 40), dtype=x.dtype), x)[0]

    check(total, random(40, 30), random(9, 30, 40, seed=1))


# Rows


def test_look_ups_by_the_number_of_the_iteration_are_rows() -> None:
    def total(x: Any) -> Any:
        s = weft.zeros_like(x[0])
        for t in range(1, 9, 2):
            s = s * 0.5 + x[t]
        return s

    check(total, random(9, 5))
    assert "gather" not in ops_in_loops(taken(total, random(9, 5)))


def test_look_ups_from_the_end_and_outside_stay_checked() -> None:
    def back(x: Any) -> Any:
        s = weft.zeros_like(x[0])
        for t in range(6):
            s = s * 0.5 + x[5 - t]
        return s

    def beyond(x: Any) -> Any:
        s = weft.zeros_like(x[0])
        for t in range(6):
            s = s + x[t]
        return s

    check(back, random(6, 5))
    with pytest.raises(IndexError):
        weft.compile(beyond)(random(5, 5))


def test_products_with_a_vector_are_one_product() -> None:
    def walk(w: Any, u: Any, x: Any) -> Any:
        h = weft.zeros(60, dtype=x.dtype)
        for row in x:
            h = weft.tanh(w @ row + u @ h)
        return h.sum()

    args = random(60, 600) * 0.05, random(60, 60, seed=1) * 0.1, random(10, 600, seed=2)
    check(weft.value_and_grad(walk, argnums=(0, 1)), *args)


def test_collected_rows_are_what_the_loop_went_along() -> None:
    def f(x: Any) -> Any:
        return weft.scan(lambda s, row: (s + row, (row, s)), weft.zeros_like(x[0]), x)

    check(f, random(7, 80))
    loop = next(node for node in taken(f, random(7, 80)).nodes if node.op.name == "scan")
    assert len(loop.outputs) == 2


# Loops of other kinds


def test_loops_whose_length_only_the_run_tells() -> None:
    def total(w: Any, x: Any) -> Any:
        h, s = x, weft.zeros((), dtype=x.dtype)
        while (h * h).sum() > 1.0:
            h = weft.tanh(h @ w)
            s = s + h.sum()
        return (h * h).sum() + s

    check(weft.value_and_grad(total, argnums=(0, 1)), random(48, 48) * 0.1, random(2, 48, seed=1))


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_loops_with_a_number_of_steps_from_outside(steps: int) -> None:
    def total(w: Any, n: Any, x: Any) -> Any:
        h = x
        for _ in range(n):
            h = weft.tanh(h @ w)
        return (h * h).sum()

    check(weft.value_and_grad(total), random(48, 48) * 0.2, weft.tensor(steps), random(2, 48, seed=1))


@pytest.mark.rotating(2)
@pytest.mark.parametrize("times", [0, 1, 4, 5])
def test_lengths_that_vary_from_call_to_call(times: int) -> None:
    def total(w: Any, xs: Any) -> Any:
        h = weft.zeros((4, 40), dtype=xs.dtype)
        for x in xs:
            h = weft.tanh(x @ w + h)
        return (h * h).sum()

    both = [weft.compile(weft.value_and_grad(total), backend=b) for b in ("llvm", "interpret")]
    for n in (7, 9, times):
        args = random(90, 40) * 0.2, random(n, 4, 90, seed=1)
        found, expected = (leaves(f(*args)) for f in both)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-11, atol=1e-11)


def test_loops_in_loops() -> None:
    def total(w: Any, xs: Any) -> Any:
        s = weft.zeros((), dtype=xs.dtype)
        for t in range(len(xs)):
            h = xs[t, 0]
            for k in range(5):
                h = weft.tanh(h @ w + xs[t, k])
            s = s + (h * h).sum()
        return s

    check(weft.value_and_grad(total, argnums=(0, 1)), random(40, 40) * 0.2, random(6, 5, 2, 40, seed=1))


def test_second_gradients() -> None:
    def slope(w: Any, xs: Any) -> Any:
        def loss(w: Any) -> Any:
            h = weft.zeros((2, 36), dtype=w.dtype)
            for x in xs:
                h = weft.tanh(x @ w + h)
            return (h * h).sum()

        g = weft.grad(loss)(w)
        return (g * g).sum()

    check(weft.value_and_grad(slope), random(72, 36) * 0.2, random(5, 2, 72, seed=1))


def test_carries_that_are_collected_and_exchanged() -> None:
    def swap(a: Any, b: Any, x: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            a, b, c = carry
            return (b, weft.sin(a + row), a), (a, b, c)

        return weft.scan(step, (a, b, a), x), weft.scan(step, (a, b, b), x, reverse=True)

    args = random(10, 12), random(10, 12, seed=1)
    for times in (0, 1, 2, 6):
        check(swap, *args, random(times, 10, 12, seed=2))


def test_machines_that_many_rows_keep_busy_take_wider_products() -> None:
    def f(x: Any, w: Any) -> Any:
        return weft.scan(lambda s, row: (weft.tanh(s + row @ w), s.sum()), weft.zeros(80, 64), x)

    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype("f4") * 0.1 for s in ((5, 80, 256), (256, 64)))
    graph = weft.make_graph(f)(weft.tensor(x), weft.tensor(w)).optimize()
    wide = take_wide_products(graph)
    assert "matmul" not in [node.op.name for node in weft.passes.take_products(graph).nodes]
    assert "matmul" in [node.op.name for node in wide.nodes]
    for ours, theirs in zip(interpret(wide, [x, w]), interpret(graph, [x, w]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_products_that_a_loop_only_collects_are_taken_after_it() -> None:
    def f(x: Any, w: Any, v: Any) -> Any:
        def body(s: Any, row: Any) -> Any:
            s = weft.tanh(s + row)
            return s, (s @ w.T, s * 2.0, (s + row) @ v, s)

        return weft.scan(body, weft.zeros(6, 8), x)

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype("f4") * 0.3 for s in ((5, 6, 8), (4, 8), (8, 3))]
    graph = weft.make_graph(f)(*map(weft.tensor, arrays)).optimize()
    wide = take_wide_products(graph)
    assert ops_in(wide).count("matmul") == 2
    (loop,) = [node for node in wide.nodes if node.op.name == "scan"]
    assert "matmul" not in ops_in(loop.attrs["body"])
    for ours, theirs in zip(interpret(wide, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_gradients_of_a_network_over_time_stay_the_same() -> None:
    def loss(x: Any, w: Any, u: Any) -> Any:
        h = weft.zeros(6, 8)
        for row in x:
            h = weft.tanh(row @ w + h @ u)
        return (h * h).sum()

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype("f4") * 0.3 for s in ((7, 6, 5), (5, 8), (8, 8))]
    compiled = weft.compile(weft.grad(loss, (0, 1, 2)))
    compiled(*map(weft.tensor, arrays))
    graph = compiled.graph.optimize()
    for ours, theirs in zip(
        interpret(take_wide_products(graph), arrays), interpret(graph, arrays), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def summed(x: Any, y: Any) -> Any:
    """A product and a sum of what the loop goes along, as gradients by weights and by a bias are."""

    def step(sums: Any, row: Any) -> Any:
        w, b = sums
        return (w + row[0].T @ row[1], b + row[1].sum(0)), None

    start = weft.zeros(64, 520, dtype=x.dtype), weft.zeros(520, dtype=x.dtype)
    return weft.scan(step, start, (x, y))[0]


def test_sums_of_what_is_kept_are_taken_after_the_loop_on_wide_machines() -> None:
    x, y = random(6, 3, 64), random(6, 3, 520, seed=1)
    graph = weft.make_graph(summed)(x, y).optimize()
    assert ops_in_loops(take_products(graph)) == ["sum", "add"]
    wide = take_wide_products(graph)
    assert ops_in_loops(wide) == []
    assert ops_in(wide).count("sum") == 1
    arrays = [x.numpy(), y.numpy()]
    for found, wanted in zip(interpret(wide, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("axes", [(0,), (0, 1), (1, 2), (2,)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_sums_along_any_axes(axes: Any, keepdims: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # The pass of that name is in the way of the module in a path.
    monkeypatch.setattr(sys.modules[take_wide_products.__module__], "SMALL", 8)
    x = random(5, 2, 3, 4)

    def f(x: Any) -> Any:
        like = x[0].sum(axis=axes, keepdims=keepdims)
        return weft.scan(lambda s, row: (s + row.sum(axis=axes, keepdims=keepdims), None), like, x)[0]

    graph = weft.make_graph(f)(x).optimize()
    wide = take_wide_products(graph)
    assert "sum" not in ops_in_loops(wide)
    (found,), (wanted,) = interpret(wide, [x.numpy()]), interpret(graph, [x.numpy()])
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_sums_of_what_only_an_iteration_knows_stay() -> None:
    x = random(6, 3, 520)

    def f(x: Any) -> Any:
        return weft.scan(lambda s, row: (s + weft.tanh(row).sum(0), None), weft.zeros(520, dtype=x.dtype), x)[
            0
        ]

    graph = take_wide_products(weft.make_graph(f)(x).optimize())
    assert "sum" in ops_in_loops(graph)
