"""``cond``, ``switch``, ``while_loop``, ``fori_loop`` and ``scan``: what they give, save and refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.base.sizes import named_size
from weft.errors import CaptureError
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.transform.tracing import replay, trace_graph

VECTOR = TensorType((3,), weft.float64)
NUMBER = TensorType((), weft.float64)


def graph_of(f: Callable[..., Any], *types: TensorType) -> Graph:
    graph, imports = trace_graph(f, types)
    assert not imports
    return graph


def only(graph: Graph, name: str) -> Any:
    """The one node of an op, wherever it stands."""
    (found,) = [n for n in graph.walk() if n.op.name == name]
    return found


# Run as Python


def test_cond_runs_one_branch_only() -> None:
    ran: list[str] = []
    out = weft.cond(weft.tensor(True), lambda: ran.append("true") or 1.0, lambda: ran.append("false") or 2.0)
    assert float(out) == 1.0
    assert ran == ["true"]


def test_cond_takes_python_truth() -> None:
    assert weft.cond(True, lambda x: x + 1, lambda x: x, 1) == 2
    assert weft.cond(np.False_, lambda x: x + 1, lambda x: x, 1) == 1


def test_loops_on_data_record_on_the_tape_without_regions() -> None:
    x = weft.tensor(3.0, requires_grad=True)
    y = weft.while_loop(lambda x: x > 1.0, lambda x: x / 2.0, x)
    assert y.grad_fn.name == "DivBackward"
    y.backward()
    assert float(x.grad) == 0.25


def test_index_of_switch_is_clamped() -> None:
    branches = [lambda: 10, lambda: 20, lambda: 30]
    found = [int(weft.switch(weft.tensor(i), branches)) for i in (-5, 0, 1, 2, 9)]
    assert found == [10, 10, 20, 30, 30]
    graph = graph_of(lambda i: weft.switch(i, branches), TensorType((), weft.int64))
    assert [int(interpret(graph, [np.asarray(i)])[0]) for i in (-5, 0, 1, 2, 9)] == found


def test_scan_gives_ys_at_the_place_of_their_row() -> None:
    xs = weft.tensor([1.0, 2.0, 3.0])
    total, ys = weft.scan(lambda c, x: (c + x, c), 0.0, xs, reverse=True)
    assert float(total) == 6.0
    assert ys.tolist() == [5.0, 3.0, 0.0]


def test_scan_of_no_rows_tells_types() -> None:
    carry, ys = weft.scan(lambda c, x: (c + x.sum(), {"y": x > c}), 2.0, weft.ones((0, 4)))
    assert float(carry) == 2.0
    assert ys["y"].shape == (0, 4)
    assert ys["y"].dtype == weft.bool


def test_fori_loop_counts_from_lower_to_upper() -> None:
    append = lambda i, v: v * 10 + i  # noqa: E731
    assert int(weft.fori_loop(2, 6, append, 0)) == 2345
    assert int(weft.fori_loop(6, 2, append, 7)) == 7
    assert int(weft.fori_loop(weft.tensor(-1), weft.tensor(2), append, 5)) == 4901


def test_numbers_in_carries_become_tensors() -> None:
    out = weft.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2.0), (0, 1.0))
    assert out[0].dtype == weft.int64
    assert out[1].dtype == weft.float32


def test_predicate_of_a_loop_may_be_a_python_bool() -> None:
    assert float(weft.while_loop(lambda x: False, lambda x: x + 1.0, 1.0)) == 1.0


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_max_iterations_stops_an_endless_loop(limit: int) -> None:
    f = lambda x: weft.while_loop(lambda x: x > 0.0, lambda x: x + 1.0, x, max_iterations=limit)  # noqa: E731
    assert float(f(weft.tensor(1.0))) == 1.0 + limit
    graph = graph_of(f, NUMBER)
    assert float(interpret(graph, [np.asarray(1.0)])[0]) == 1.0 + limit


def test_checkpointed_loop_saves_less() -> None:
    def states(every: int | None) -> int:
        kept: list[Any] = []
        x = weft.tensor(0.5, dtype=weft.float64, requires_grad=True)
        y = weft.while_loop(
            lambda s: s[0] < 12, lambda s: (s[0] + 1, weft.sin(s[1])), (0, x), checkpoint_every=every
        )[1]
        node = y.grad_fn
        while node is not None and hasattr(node, "saved"):
            kept.append(type(node.saved) is tuple)
            node = node.next_functions[0][0] if node.next_functions else None
        y.backward()
        assert abs(float(x.grad) - float(weft.grad(lambda x: _sines(x, 12))(weft.tensor(x.detach())))) < 1e-12
        return sum(kept)

    assert states(None) > 3 * max(states(4), 1)


def _sines(x: Any, count: int) -> Any:
    for _ in range(count):
        x = weft.sin(x)
    return x


# Nodes


def test_loop_is_one_node_whatever_its_length() -> None:
    def f(x: Any, n: int) -> Any:
        return weft.fori_loop(0, n, lambda i, v: weft.sin(v) * x, x)

    short, long = (graph_of(lambda x, n=n: f(x, n), VECTOR) for n in (3, 1000))
    assert len(list(short.walk())) == len(list(long.walk()))
    assert only(long, "scan").attrs["length"] == 1000


def test_gradient_of_a_while_loop_is_a_scan_over_what_it_collected() -> None:
    f = lambda x: weft.while_loop(lambda x: x < 100.0, lambda x: x * x, x)  # noqa: E731
    graph = graph_of(weft.grad(f), NUMBER)
    back = only(graph, "scan")
    assert back.attrs["reverse"]
    assert back.attrs["counted"]
    loops = [n for n in graph.nodes if n.op.name == "while_loop"]
    stacked = [v.type for n in loops for v in n.outputs if v.type.ndim == 1]
    assert [str(t.shape[0]) for t in stacked] == [str(back.attrs["length"])]
    for x in (2.0, 1000.0):
        expected = float(weft.grad(f)(weft.tensor(x, dtype=weft.float64)))
        assert float(interpret(graph, [np.asarray(x)])[0]) == expected


def stacked_sizes(graph: Graph) -> set[str]:
    """The names of sizes that only a run tells, of the values at the top of a graph."""
    names = set()
    for node in graph.nodes:
        names |= {str(s) for v in node.outputs for s in v.type.shape if not isinstance(s, int)}
    return names


def test_checkpoint_every_keeps_fewer_states_in_a_graph() -> None:
    def f(x: Any, every: int | None) -> Any:
        step = lambda s: (s[0] + 1, weft.sin(s[1]) * x)  # noqa: E731
        return weft.while_loop(lambda s: s[0] < 12, step, (0, x), checkpoint_every=every)[1].sum()

    def states_kept(every: int | None) -> int:
        """The largest first axis of what the forward pass hands to the backward pass."""
        graph = graph_of(weft.grad(lambda x: f(x, every)), VECTOR)
        loops = [n for n in graph.nodes if n.op.name == "while_loop"]
        stacks = [v for n in loops for v in n.outputs if v.type.ndim == 2]
        assert len(stacked_sizes(graph)) == 1
        x = np.array([0.3, 0.8, 0.5])
        found = interpret(graph, [x], stacks)
        expected = weft.grad(lambda x: f(x, None))(weft.tensor(x)).numpy()
        np.testing.assert_allclose(interpret(graph, [x])[0], expected, rtol=1e-12)
        return max(a.shape[0] for a in found)

    assert [states_kept(k) for k in (None, 1, 3, 5, 100)] == [12, 12, 4, 3, 1]


def test_what_stays_the_same_is_handed_over_once() -> None:
    def f(w: Any, x: Any) -> Any:
        return weft.scan(lambda h, r: (weft.tanh(w @ h + r), None), weft.zeros(3, dtype=weft.float64), x)[
            0
        ].sum()

    types = (TensorType((3, 3), weft.float64), TensorType((50, 3), weft.float64))
    graph = graph_of(weft.grad(f), *types)
    largest = max(int(np.prod(v.type.shape)) for n in graph.nodes for v in n.outputs)
    assert largest <= 50 * 3  # no stack of the weights


def test_length_of_a_scan_may_be_named() -> None:
    def f(x: Any) -> Any:
        c, ys = weft.scan(lambda c, r: (c * r, c + r), x.sum(), x)
        return c + (ys * x).sum()

    types = (TensorType((named_size("time"),), weft.float64),)
    graph, gradient = graph_of(f, *types), graph_of(weft.grad(f), *types)
    for n in (0, 1, 4):
        x = np.linspace(0.5, 1.5, n)
        np.testing.assert_allclose(interpret(graph, [x])[0], f(weft.tensor(x)).numpy(), rtol=1e-12)
        np.testing.assert_allclose(
            interpret(gradient, [x])[0], weft.grad(f)(weft.tensor(x)).numpy(), rtol=1e-9
        )


def test_scan_without_xs_takes_a_named_length() -> None:
    def f(x: Any) -> Any:
        return weft.scan(lambda c, _: (c * 2.0, c), x.sum(), length=x.shape[0])[1]

    graph = graph_of(f, TensorType((named_size("n"),), weft.float64))
    assert interpret(graph, [np.ones(3)])[0].tolist() == [3.0, 6.0, 12.0]


def test_graph_replayed_twice_has_sizes_of_its_own() -> None:
    f = lambda x: weft.while_loop(lambda x: x < 100.0, lambda x: x * x, x)  # noqa: E731
    gradient = graph_of(weft.grad(f), NUMBER)
    both = graph_of(lambda x, y: replay(gradient, [x]) + replay(gradient, [y]), NUMBER, NUMBER)
    found = interpret(both, [np.asarray(2.0), np.asarray(50.0)])
    expected = [float(weft.grad(f)(weft.tensor(v, dtype=weft.float64))) for v in (2.0, 50.0)]
    assert [float(a) for a in found] == expected


def test_text_of_a_program_is_the_same_each_time() -> None:
    f = lambda x: weft.while_loop(lambda x: x < 100.0, lambda x: x * x, x)  # noqa: E731
    first, second = (str(weft.make_graph(weft.grad(f))(weft.tensor(2.0))) for _ in range(2))
    assert first == second
    assert "f32[n1]" in first


def test_unrolled_copies_have_sizes_of_their_own() -> None:
    def inner(x: Any) -> Any:
        return weft.while_loop(lambda s: s[0] < 10.0, lambda s: (s[0] * 1.5, s[1] * s[0] * x), (x, x))[1]

    f = lambda x: weft.fori_loop(0, 3, lambda i, v: weft.grad(inner)(v) * 0.1 + v, x)  # noqa: E731
    graph = weft.passes.unroll(graph_of(f, NUMBER))
    assert not [n for n in graph.nodes if n.op.name == "scan" and not n.attrs["counted"]]
    x = np.asarray(1.3)
    np.testing.assert_allclose(interpret(graph, [x])[0], f(weft.tensor(x)).numpy())


def test_size_that_a_run_tells_does_not_take_the_name_of_another() -> None:
    def f(x: Any) -> Any:
        scale = weft.while_loop(lambda s: s < 10.0, lambda s: s * s, x.sum())
        return (x * scale).sum()

    graph = graph_of(weft.grad(f), TensorType((named_size("n1"),), weft.float64))
    for x in (np.array([1.5, 0.5]), np.full(5, 0.3)):
        np.testing.assert_allclose(interpret(graph, [x])[0], weft.grad(f)(weft.tensor(x)).numpy())


def test_region_keeps_the_lines_of_the_program() -> None:
    graph = graph_of(lambda x: weft.cond(x > 0.0, weft.sin, weft.cos, x), NUMBER)
    (sine,) = [n for n in graph.walk() if n.op.name == "sin"]
    assert sine.location is not None
    assert sine.location.file == __file__


def test_error_in_a_body_names_the_line() -> None:
    graph = graph_of(
        lambda x, i: weft.fori_loop(0, 3, lambda k, v: v + x[i], x), VECTOR, TensorType((), weft.int64)
    )
    with pytest.raises(IndexError) as error:
        interpret(graph, [np.zeros(3), np.asarray(7)])
    assert "v + x[i]" in str(error.value)


# NaN


def test_branch_not_taken_leaks_no_nan() -> None:
    safe = lambda x: weft.cond(x > 0.0, lambda x: weft.sqrt(x) * weft.log(x), lambda x: x * 0.0, x)  # noqa: E731
    xs = weft.tensor([4.0, -1.0, 0.0, 1.0], dtype=weft.float64)
    for f in (safe, weft.grad(safe), weft.grad(weft.grad(safe))):
        found = weft.vmap(f)(xs).numpy()
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, [float(f(x)) for x in xs])
    summed = weft.grad(lambda xs: weft.vmap(safe)(xs).sum())(xs)
    assert np.isfinite(summed.numpy()).all()


def test_examples_whose_loop_ended_leak_no_nan() -> None:
    def f(x: Any) -> Any:  # the body is not defined where the loop has ended
        return weft.while_loop(
            lambda x: x > 1.0, lambda x: x / 2.0 * weft.sqrt(x - 1.0) / weft.sqrt(x - 1.0), x
        )

    xs = weft.tensor([0.5, 10.0, 3.0, 1.0, -2.0], dtype=weft.float64)
    for g in (f, weft.grad(f), weft.grad(weft.grad(f))):
        np.testing.assert_allclose(weft.vmap(g)(xs).numpy(), [float(g(x)) for x in xs], atol=1e-12)


def test_branch_that_no_example_takes_is_not_run() -> None:
    graph = graph_of(
        weft.vmap(
            lambda x: weft.cond(x > 0.0, lambda x: weft.arange(3.0)[x.astype(weft.int64)], lambda x: 1.0, x)
        ),
        TensorType((2,), weft.float64),
    )
    assert interpret(graph, [np.array([-9.0, -7.0])])[0].tolist() == [1.0, 1.0]
    assert interpret(graph, [np.array([2.0, -7.0])])[0].tolist() == [2.0, 1.0]


def test_predicate_that_examples_share_stays_control_flow() -> None:
    f = weft.vmap(lambda p, x: weft.cond(p, weft.sin, weft.cos, x), in_axes=(None, 0))
    graph = graph_of(f, TensorType((), weft.bool), VECTOR)
    assert only(graph, "cond").inputs[0] is graph.inputs[0]
    counted = weft.vmap(
        lambda x: weft.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * x), (0, x))[1]
    )
    assert len(only(graph_of(counted, VECTOR), "while_loop").outputs) == 2


def test_loop_of_no_examples_gives_none() -> None:
    f = lambda x: weft.while_loop(lambda x: x > 1.0, lambda x: x / 2.0, x)  # noqa: E731
    empty = weft.zeros(0)
    assert weft.vmap(f)(empty).shape == weft.vmap(weft.grad(f))(empty).shape == (0,)


# Random numbers


def test_branches_under_vmap_draw_as_code_without_branches_does() -> None:
    xs = weft.tensor([4.0, -1.0, 2.0])

    def drawn(x: Any) -> Any:
        return x + weft.rand(())

    for randomness in ("same", "different"):
        found = []
        for f in (drawn, lambda x: weft.cond(x > 0.0, drawn, lambda x: x, x)):
            weft.manual_seed(3)
            found.append(weft.vmap(f, randomness=randomness)(xs).tolist())
        assert [found[1][i] for i in (0, 2)] == [found[0][i] for i in (0, 2)]
        assert found[1][1] == -1.0


def test_loops_of_examples_draw_from_keys_that_they_carry() -> None:
    def shrink(x: Any, key: Any) -> Any:
        def body(state: Any) -> Any:
            keys = weft.random.split(state[1], 2)
            return state[0] * weft.random.uniform(keys[0], ()), keys[1]

        return weft.while_loop(lambda state: state[0] > 0.2, body, (x, key))[0]

    xs, keys = weft.tensor([3.0, 0.1, 50.0]), weft.random.split(weft.random.key(1), 3)
    found = weft.vmap(shrink)(xs, keys).tolist()
    assert found == pytest.approx([float(shrink(x, k)) for x, k in zip(xs, keys, strict=True)])
    with pytest.raises(CaptureError, match="a draw in a loop whose end each example decides must have a key"):
        weft.vmap(
            lambda x: weft.while_loop(lambda x: x > 0.5, lambda x: x * weft.rand(()), x), randomness="same"
        )(xs)


# Functions with a gradient of their own


class Straight(weft.Function):
    """Rounds, and passes gradients as if it had not."""

    @staticmethod
    def forward(ctx: Any, x: Any, scale: float) -> Any:
        ctx.scale = scale
        return weft.round(x * scale) / scale

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * ctx.scale, None


class Product(weft.Function):
    """Keeps a value that is neither argument nor result, and has an output without gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        ctx.slope = weft.cos(x)
        rest = weft.floor(x * 10.0)
        ctx.mark_non_differentiable(rest)
        return weft.sin(x) * y, rest

    @staticmethod
    def backward(ctx: Any, g: Any, _: Any) -> Any:
        x, y = ctx.saved_tensors
        return g * y * ctx.slope, g * weft.sin(x)


def rounding_loop(x: Any) -> Any:
    return weft.scan(lambda c, r: (Straight.apply(weft.sin(c), 4.0) * r, None), x[0], x)[0]


def keeping_branch(x: Any) -> Any:
    def true(x: Any) -> Any:
        out, rest = Product.apply(x, x[::-1])
        return (out * x + rest).sum()

    return weft.cond(x[0] < x[1], true, lambda x: x.sum(), x)


@pytest.mark.parametrize("program", [rounding_loop, keeping_branch])
def test_gradient_that_the_user_wrote_holds_in_regions(program: Any) -> None:
    x = np.array([0.3, 0.8, 0.5])
    data = weft.tensor(x)
    graph = graph_of(program, VECTOR)
    f = lambda x: replay(graph, [x])[0]  # noqa: E731
    np.testing.assert_allclose(interpret(graph, [x])[0], program(data).numpy())
    expected = weft.grad(program)(data).numpy()
    np.testing.assert_allclose(weft.grad(f)(data).numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(interpret(graph_of(weft.grad(program), VECTOR), [x])[0], expected, rtol=1e-12)
    pushed = weft.jvp(f, (data,), (data,))[1].numpy()
    np.testing.assert_allclose(pushed, weft.jvp(program, (data,), (data,))[1].numpy(), rtol=1e-12)
    rows = weft.stack([data, data * 0.5])
    mapped = weft.vmap(weft.grad(f))(rows).numpy()
    np.testing.assert_allclose(mapped, [weft.grad(program)(row).numpy() for row in rows], rtol=1e-12)
