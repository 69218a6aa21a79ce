"""Programs with control flow: the same values and derivatives run as Python, as a graph, and batched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.base.sizes import named_size
from weft.ir.compare import same
from weft.ir.interpret import interpret
from weft.ir.text import constant_data
from weft.ir.types import TensorType
from weft.ir.verify import verify
from weft.transform.tracing import replay, trace_graph

Array = Any
Program = Callable[..., Any]
X = np.array([0.3, 0.8, 0.5])


def closing_over_a_parameter(x: Any) -> Any:
    w = weft.tensor([1.5, -0.5, 2.0], dtype=weft.float64)
    return weft.cond(x.sum() > 1.0, lambda x: (x * w).sum(), lambda x: (x + w).prod(), x) * x[0]


def branch_without_operands(x: Any) -> Any:
    return weft.cond(x[0] > 0.0, lambda: weft.sin(x).sum(), lambda: weft.cos(x).sum())


def branch_not_taken_is_nan(x: Any) -> Any:
    return weft.cond(x.sum() > 100.0, lambda x: weft.log(-x), lambda x: x * x, x).sum()


def branches_that_use_different_tensors(x: Any) -> Any:
    a, b = x * 2.0, weft.exp(x)
    return weft.cond(x[0] < x[1], lambda: (a * a * x).sum(), lambda: (weft.sin(b) * b).sum())


def switch_in_the_middle(x: Any) -> Any:
    index = (x[0] * 4.0).astype(weft.int64)
    branches = [weft.sin, lambda x: x * x * x, weft.exp]
    return weft.switch(index, branches, x).sum()


def newton_root(x: Any) -> Any:
    target = x.sum()
    return weft.while_loop(
        lambda r: weft.abs(r * r - target) > 1e-13, lambda r: r - (r * r - target) / (2.0 * r), target
    )


def while_over_a_tree(x: Any) -> Any:
    def body(s: Any) -> Any:
        first, second = s["pair"]
        return {"n": s["n"] + 1, "pair": [first * x, second + weft.sin(first).sum()]}

    state = {"n": 0, "pair": [x, x[0]]}
    out = weft.while_loop(lambda s: s["n"] < 4, body, state)
    return out["pair"][1] + out["pair"][0].sum()


def loop_that_does_not_run(x: Any) -> Any:
    return weft.while_loop(lambda c: c.sum() < -5.0, lambda c: weft.log(c), x).sum() * x[0]


def loop_with_a_linear_body(x: Any) -> Any:
    return weft.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2.0), (0, x))[1].sum() * x[0]


def integer_carry_alone(x: Any) -> Any:
    count = weft.while_loop(lambda n: n < 3, lambda n: n + 1, 0)
    return count.astype(weft.float64) * (x * x).sum()


def checkpointed_loop(x: Any) -> Any:
    out = weft.while_loop(
        lambda c: c[0] < 7, lambda c: (c[0] + 1, weft.sin(c[1]) * x + c[1]), (0, x), checkpoint_every=3
    )
    return out[1].sum()


def bounded_loop(x: Any) -> Any:
    return weft.while_loop(lambda c: c.sum() < 500.0, lambda c: c * c + x, x, max_iterations=3).sum()


def bounded_checkpointed_loop(x: Any) -> Any:
    out = weft.while_loop(
        lambda c: c.sum() < 500.0, lambda c: c * c * 0.5 + x, x, max_iterations=5, checkpoint_every=2
    )
    return out.sum()


def while_in_while(x: Any) -> Any:
    def outer(state: Any) -> Any:
        i, a = state
        inner = weft.while_loop(
            lambda d: d[0] < i + 1, lambda d: (d[0] + 1, weft.sin(d[1] * x.sum()) + d[1]), (0, a)
        )
        return i + 1, inner[1] * 0.5

    return weft.while_loop(lambda s: s[0] < 3, outer, (0, x[0]))[1]


def everything_nested(x: Any) -> Any:
    def double(c: Any) -> Any:
        return weft.while_loop(lambda d: d < 2.0, lambda d: d * 1.7, c)

    def body(c: Any, r: Any) -> Any:
        low = [lambda c: c * r, lambda c: c + r, lambda c: c * c]
        c = weft.cond(
            c > 0.5,
            lambda c: double(c) * r,
            lambda c: weft.switch((c * 10.0).astype(weft.int64), low, c),
            c,
        )
        return c, weft.fori_loop(0, 3, lambda i, v: v * r + i.astype(weft.float64), c)

    c, ys = weft.scan(body, x[0], x, reverse=True)
    return c + (ys * x).sum()


def scan_with_two_carries(x: Any) -> Any:
    (a, n), ys = weft.scan(lambda c, r: ((c[0] * r + 1.0, c[1] + 1), {"y": weft.sin(c[0]) * r}), (x[0], 0), x)
    return a * n.astype(weft.float64) + (ys["y"] * x).sum()


def reverse_scan(x: Any) -> Any:
    c, ys = weft.scan(lambda c, r: (weft.sin(c) * r, c * c), x[1], x, reverse=True)
    return c * (ys * weft.exp(x)).sum()


def scan_of_no_rows(x: Any) -> Any:
    c, ys = weft.scan(lambda c, r: (c * r, c), x[0], x[:0])
    return c * x[1] + ys.sum()


def scan_without_xs(x: Any) -> Any:
    return weft.scan(lambda c, _: (weft.sin(c) + x, None), x, length=3)[0].sum()


def recurrent_network(x: Any) -> Any:
    w = weft.tensor(np.linspace(-1.0, 1.0, 9).reshape(3, 3))
    rows = x[:, None] * weft.tensor(np.linspace(0.5, 2.0, 3))
    state, states = weft.scan(
        lambda h, r: (weft.tanh(w @ h + r),) * 2, weft.zeros(3, dtype=weft.float64), rows
    )
    return (states * states).sum() + state.sum()


def counted_loop(x: Any) -> Any:
    return weft.fori_loop(1, 4, lambda i, v: weft.sin(v) * x / i.astype(weft.float64), x).sum()


def loop_with_a_bound_that_is_a_tensor(x: Any) -> Any:
    n = (x[1] * 5.5).astype(weft.int64)
    return weft.fori_loop(0, n, lambda i, v: weft.sin(v) * x, x).sum()


def gradient_inside_a_loop(x: Any) -> Any:
    def step(c: Any, r: Any) -> Any:
        return c - 0.1 * weft.grad(lambda c: (weft.sin(c) * r) ** 2)(c), None

    return weft.scan(step, x[0], x)[0]


def detached_in_a_loop(x: Any) -> Any:
    return weft.scan(lambda c, r: (c * r + c.detach() * weft.sin(r), c), x[0], x)[1].sum()


def without_gradients_in_a_loop(x: Any) -> Any:
    def step(c: Any, r: Any) -> Any:
        with weft.no_grad():
            s = weft.sin(c * r)
        return c * r * s, s

    c, ys = weft.scan(step, x[0], x)
    return c + ys.sum()


PROGRAMS = [
    closing_over_a_parameter,
    branch_without_operands,
    branch_not_taken_is_nan,
    branches_that_use_different_tensors,
    switch_in_the_middle,
    newton_root,
    while_over_a_tree,
    loop_that_does_not_run,
    loop_with_a_linear_body,
    integer_carry_alone,
    checkpointed_loop,
    bounded_loop,
    bounded_checkpointed_loop,
    while_in_while,
    everything_nested,
    scan_with_two_carries,
    reverse_scan,
    scan_of_no_rows,
    scan_without_xs,
    recurrent_network,
    counted_loop,
    loop_with_a_bound_that_is_a_tensor,
    gradient_inside_a_loop,
]
CUT = [detached_in_a_loop, without_gradients_in_a_loop]  # what a difference quotient sees is not the gradient
ALL = [*PROGRAMS, *CUT]


def captured(program: Program, *types: TensorType) -> Program:
    """The program as a graph, run on tensors by its ops."""
    graph, imports = trace_graph(program, types or (TensorType((3,), weft.float64),))
    return lambda *xs: replay(graph, [*xs, *imports])[0]


def run_graph(program: Program, *arrays: Array) -> Array:
    """The value of the graph of a program by the interpreter."""
    graph, imports = trace_graph(program, [TensorType(a.shape, a.dtype) for a in arrays])
    return interpret(graph, [*arrays, *[t.detach().numpy() for t in imports]])[0]


def over(programs: list[Program]) -> Any:
    return pytest.mark.parametrize("program", programs, ids=[p.__name__ for p in programs])


def directional(program: Program, x: Any) -> Any:
    """The second derivative along the row numbers: a gradient of a gradient."""
    weights = weft.arange(1.0, 4.0, dtype=weft.float64)
    return weft.grad(lambda x: (weft.grad(program)(x) * weights).sum())(x)


@over(ALL)
def test_graph_equals_python(program: Program) -> None:
    np.testing.assert_allclose(run_graph(program, X), program(weft.tensor(X)).numpy(), rtol=1e-12)


@over(PROGRAMS)
def test_python_derivatives_equal_finite_differences(program: Program) -> None:
    assert weft.testing.gradcheck(program, weft.tensor(X))


@over(PROGRAMS)
def test_graph_derivatives_equal_finite_differences(program: Program) -> None:
    assert weft.testing.gradcheck(captured(program), weft.tensor(X))


@over(ALL)
def test_gradient_in_a_graph_equals_that_of_python(program: Program) -> None:
    expected = weft.grad(program)(weft.tensor(X)).numpy()
    np.testing.assert_allclose(run_graph(weft.grad(program), X), expected, rtol=1e-9, atol=1e-12)
    again = weft.grad(captured(program))(weft.tensor(X)).numpy()
    np.testing.assert_allclose(again, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.rotating(3)
@over(ALL)
def test_second_order_in_both_modes_equals_that_of_python(program: Program) -> None:
    x, f = weft.tensor(X), captured(program)
    expected = directional(program, x).numpy()
    np.testing.assert_allclose(directional(f, x).numpy(), expected, rtol=1e-8, atol=1e-11)
    weights = weft.arange(1.0, 4.0, dtype=weft.float64)
    mixed = weft.jvp(weft.grad(f), (x,), (weights,))[1].numpy()
    if program not in CUT:  # there the matrix of second derivatives is not symmetric
        np.testing.assert_allclose(mixed, expected, rtol=1e-8, atol=1e-11)
    also = weft.jvp(weft.grad(program), (x,), (weights,))[1].numpy()
    np.testing.assert_allclose(mixed, also, rtol=1e-8, atol=1e-11)


ROWS = np.stack([X, -X, X[::-1], 0.5 * X])


def row_by_row(f: Program) -> Array:
    return np.stack([f(weft.tensor(row)).numpy() for row in ROWS])


@pytest.mark.rotating(4)
@over([p for p in ALL if p is not newton_root])
@pytest.mark.parametrize("how", ["python", "graph", "in a graph"])
def test_vmap_equals_a_loop_over_examples(program: Program, how: str) -> None:
    f = captured(program) if how == "graph" else program
    for g in (f, weft.grad(f)):
        expected = row_by_row(weft.grad(program) if g is not f else program)
        mapped = weft.vmap(g)
        found = run_graph(mapped, ROWS) if how == "in a graph" else mapped(weft.tensor(ROWS)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.rotating(4)
@over([p for p in PROGRAMS if p is not newton_root])
def test_transforms_of_vmap_equal_those_of_a_loop(program: Program) -> None:
    x = weft.tensor(ROWS)
    summed = weft.grad(lambda x: weft.vmap(program)(x).sum())(x).numpy()
    np.testing.assert_allclose(summed, row_by_row(weft.grad(program)), rtol=1e-9, atol=1e-12)
    pushed = weft.jvp(weft.vmap(program), (x,), (weft.cos(x),))[1].numpy()
    looped = [weft.jvp(program, (r,), (weft.cos(r),))[1].numpy() for r in x]
    np.testing.assert_allclose(pushed, np.stack(looped), rtol=1e-9, atol=1e-12)
    twice = weft.vmap(weft.vmap(weft.grad(program)))(x.reshape(2, 2, 3)).numpy()
    np.testing.assert_allclose(twice.reshape(4, 3), row_by_row(weft.grad(program)), rtol=1e-9, atol=1e-12)


@pytest.mark.rotating(3)
@over([p for p in PROGRAMS if p is not newton_root])
def test_number_of_examples_may_be_named(program: Program) -> None:
    graph, imports = trace_graph(
        weft.vmap(weft.grad(program)), [TensorType((named_size("batch"), 3), weft.float64)]
    )
    rest = [t.detach().numpy() for t in imports]
    for count in (4, 2, 0):
        found = interpret(graph, [ROWS[:count], *rest])[0]
        expected = row_by_row(weft.grad(program))[:count]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@over(ALL)
def test_text_of_a_graph_gives_the_same_graph(program: Program) -> None:
    graph, _ = trace_graph(weft.grad(program), [TensorType((3,), weft.float64)])
    assert same(graph, weft.parse_graph(str(verify(graph)), constant_data(graph)), locations=False)


def collatz(n: Any) -> Any:
    """How many steps lead to 1."""
    step = lambda n: weft.where(n % 2 == 0, n // 2, 3 * n + 1)  # noqa: E731
    return weft.while_loop(lambda s: s[0] != 1, lambda s: (step(s[0]), s[1] + 1), (n, 0))[1]


def test_collatz_of_a_batch() -> None:
    expected = [0, 1, 7, 2, 5, 8, 16, 3, 19, 6, 111]
    numbers = weft.tensor([*range(1, 11), 27])
    assert [int(collatz(n)) for n in numbers] == expected
    assert weft.vmap(collatz)(numbers).tolist() == expected
    assert run_graph(weft.vmap(collatz), numbers.numpy()).tolist() == expected


def geometric(x: Any) -> Any:
    """A loop whose length and path depend on the example."""
    grow = lambda s: (s[0] * 1.5 + 0.1, s[1] + weft.cond(s[0] > 3.0, weft.log, weft.square, s[0]) * x)  # noqa: E731
    return weft.while_loop(lambda s: s[0] < 10.0, grow, (x, x * 0.0))[1]


@settings(max_examples=12, deadline=None)
@given(st.lists(st.floats(0.05, 15.0), max_size=5))
def test_batches_of_any_mixture_equal_their_examples(values: list[float]) -> None:
    xs = weft.tensor(np.array(values, np.float64))
    for f in (geometric, weft.grad(geometric)):
        found = weft.vmap(f)(xs).numpy()
        np.testing.assert_allclose(found, [float(f(x)) for x in xs], rtol=1e-9)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 9), st.integers(1, 12), st.booleans())
def test_checkpoints_change_no_gradient(trips: int, every: int, captures: bool) -> None:
    def f(x: Any, k: int | None) -> Any:
        step = lambda s: (s[0] + 1, weft.sin(s[1]) * x + s[1])  # noqa: E731
        return weft.while_loop(lambda s: s[0] < trips, step, (0, x), checkpoint_every=k)[1].sum()

    g = weft.grad(lambda x: f(x, every))
    found = run_graph(g, X) if captures else g(weft.tensor(X)).numpy()
    np.testing.assert_allclose(found, weft.grad(lambda x: f(x, None))(weft.tensor(X)).numpy(), rtol=1e-11)


@over(ALL)
def test_optimised_graph_gives_the_same(program: Program) -> None:
    both = weft.value_and_grad(program)
    graph, imports = trace_graph(both, [TensorType((3,), weft.float64)])
    arrays = [X, *[t.detach().numpy() for t in imports]]
    for found, expected in zip(interpret(graph.optimize(), arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_optimised_loop_runs_forward_once() -> None:
    graph, _ = trace_graph(weft.value_and_grad(newton_root), [TensorType((3,), weft.float64)])
    names = [node.op.name for node in graph.optimize().nodes]
    assert names.count("while_loop") == names.count("scan") == 1
