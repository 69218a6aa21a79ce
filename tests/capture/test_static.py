"""Graphs written by hand: placeholders, parameters, names, gradients, updates, and what goes wrong."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, CaptureError, GraphError, ShapeError

rng = np.random.default_rng(0)


def array(*shape: int) -> Any:
    return rng.uniform(-1.0, 1.0, shape).astype(np.float32)


# The block


def test_the_example_of_the_design() -> None:
    w = weft.tensor(array(5, 3))
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("batch", 5), weft.float32)
        y = weft.tanh(x @ w)
        (gw,) = weft.gradients(y.sum(), [w])
    for batch in (1, 4):
        fed = array(batch, 5)
        value, gradient = weft.Session(g, backend="interpret").run([y, gw], {x: fed})
        np.testing.assert_allclose(value.numpy(), np.tanh(fed @ w.numpy()), rtol=1e-6)
        slope = 1 - np.tanh(fed @ w.numpy()) ** 2
        np.testing.assert_allclose(gradient.numpy(), fed.T @ slope, rtol=1e-5, atol=1e-6)


def test_the_graph_is_the_object_itself_and_frozen_with_all_nodes() -> None:
    g = weft.Graph("f")
    with g as inside:
        assert inside is g
        x = weft.placeholder("x", (2,))
        x + 1.0
        y = x * 2.0
    assert type(g.nodes) is tuple
    assert [node.op.name for node in g.nodes] == ["add", "mul"]
    assert [v.name for v in g.inputs] == ["x"]
    assert len(g.outputs) == 2
    assert y.shape == (2,)
    with pytest.raises(AttributeError, match="frozen"):
        g.name = "other"


def test_a_graph_prints_inside_its_block_and_parses_back_after_it() -> None:
    w = weft.ones(3)
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n", 3))
        x * w
        assert "%x: f32[n,3]" in str(g)
        assert "mul(%x, " in str(g)
        weft.softmax(x, axis=1)
    assert weft.parse_graph(str(g)).same(g, locations=False)


def test_nothing_is_computed_in_the_block() -> None:
    with weft.Graph("f"):
        x = weft.placeholder("x", ())
        with pytest.raises(CaptureError, match="which only a run tells"):
            float(x)
        with pytest.raises(CaptureError, match="which only a run tells"):
            bool(x > 0)


def test_a_second_block_of_one_graph_is_an_error() -> None:
    with weft.Graph("f") as g:
        weft.placeholder("x")
    with pytest.raises(GraphError, match="must be written in one block, got f, which is complete"), g:
        pass


def test_tensors_of_a_graph_outside_its_block_name_both_lines() -> None:
    with weft.Graph("f"):
        x = weft.placeholder("x", (2,))
        y = x * 3.0
    with pytest.raises(CaptureError) as info:
        y + 1.0
    text = str(info.value)
    assert "y = x * 3.0" in text
    assert "y + 1.0" in text
    assert "weft.Session(graph).run" in text


def test_a_block_that_fails_leaves_tensors_as_they_were() -> None:
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    v = weft.tensor([1.0, 2.0])
    g = weft.Graph("f")
    with pytest.raises(ZeroDivisionError), g:
        x = weft.placeholder("x", (2,))
        v *= x * w
        raise ZeroDivisionError
    assert v.numpy().tolist() == [1.0, 2.0]
    assert not v.requires_grad
    assert (w * 2.0).detach().numpy().tolist() == [2.0, 4.0]
    assert g.nodes == ()
    assert g.inputs == ()


def test_nested_blocks_write_graphs_of_their_own() -> None:
    w = weft.tensor(2.0)
    with weft.Graph("outer") as outer:
        x = weft.placeholder("x")
        a = x * w
        with weft.Graph("inner") as inner:
            y = weft.placeholder("y")
            b = y + w
            with pytest.raises(CaptureError, match="got one of graph outer"):
                y + a
        c = a + w
    assert [n.op.name for n in outer.nodes] == ["mul", "add"]
    assert weft.Session(outer).run(c, {x: 3.0}).item() == 8.0
    assert weft.Session(inner).run(b, {y: 3.0}).item() == 5.0
    assert w.item() == 2.0
    assert not w.requires_grad


def test_a_session_runs_inside_the_block_of_another_graph() -> None:
    w = weft.tensor(2.0)
    with weft.Graph("first") as first:
        x = weft.placeholder("x")
        y = x * w
    with weft.Graph("second") as second:
        value = weft.Session(first).run(y, {x: 5.0})
        z = w + value
    assert value.item() == 10.0
    assert weft.Session(second).run(z).item() == 12.0


def test_a_graph_must_be_complete_to_run() -> None:
    with weft.Graph("f") as g:
        x = weft.placeholder("x")
        with pytest.raises(GraphError, match="whose block has not ended yet"):
            weft.Session(g).run(x, {x: 1.0})


def test_threads_write_graphs_with_a_shared_parameter() -> None:
    w = weft.tensor(np.full(3, 2.0))
    out: dict[int, Any] = {}

    def work(i: int) -> None:
        with weft.Graph(f"f{i}") as g:
            x = weft.placeholder("x", (3,), weft.float64)
            y = x
            for _ in range(20):
                y = y * w
        out[i] = weft.Session(g).run(y, {x: np.full(3, float(i))}).numpy()[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert out == {i: i * 2.0**20 for i in range(4)}


def test_another_thread_reads_a_parameter_while_a_graph_is_written() -> None:
    w = weft.tensor([1.0, 2.0])
    seen: list[Any] = []
    with weft.Graph("f"):
        w += weft.placeholder("x", (2,))
        reader = threading.Thread(target=lambda: seen.append(w.shape))
        reader.start()
        reader.join()
        waiting = threading.Thread(target=lambda: seen.append((w * 2.0).numpy().tolist()))
        waiting.start()
    waiting.join()
    assert seen == [(2,), [2.0, 4.0]]


# Placeholders


def test_sizes_of_placeholders() -> None:
    with weft.Graph("f"):
        x = weft.placeholder("x", ("batch", None, 3, "2*batch+1"))
        y = weft.placeholder("y", [None], weft.int32)
        z = weft.placeholder("z", 4)
    assert str(x.shape) == "(batch, x_1, 3, 2*batch+1)"
    assert str(y.shape) == "(y_0,)"
    assert y.dtype == weft.int32
    assert z.shape == (4,)
    assert weft.float32 == z.dtype
    assert x.name == "x"


@pytest.mark.parametrize(
    ("name", "shape", "error", "words"),
    [
        ("x y", (), ArgumentError, "a name must be a string such as"),
        (3, (), ArgumentError, "a name must be a string such as"),
        ("x", (-1,), ShapeError, "sizes must not be negative"),
        ("x", (2.5,), ArgumentError, "a size must be an int, a name or None, got 2.5"),
        ("x", ("n+",), ValueError, "a name or a number at column 3"),
    ],
)
def test_a_placeholder_that_cannot_be(name: Any, shape: Any, error: Any, words: str) -> None:
    with weft.Graph("f"), pytest.raises(error, match=words):
        weft.placeholder(name, shape)


def test_placeholder_outside_a_block_tells_how_to_begin_one() -> None:
    with pytest.raises(CaptureError, match=r"hint: write `with weft.Graph\(\"f\"\) as g:` around it"):
        weft.placeholder("x")


def test_two_placeholders_of_one_name_are_an_error() -> None:
    with weft.Graph("f"):
        weft.placeholder("x")
        with pytest.raises(GraphError, match="names must be distinct in a graph, got 'x' twice"):
            weft.placeholder("x")


def test_results_and_parameters_can_be_named() -> None:
    w = weft.ones(2)
    with weft.Graph("f") as g:
        x = weft.placeholder("x", (2,))
        w.name = "w"
        y = x + w
        y.name = "sum"
        with pytest.raises(GraphError, match="'x' twice"):
            y.name = "x"
    assert y.name == "sum"
    assert w.name == ""
    assert "%sum: f32[2] = add(%x, %w)" in str(g)
    assert g.run("sum", {"x": [1.0, 2.0]}).numpy().tolist() == [2.0, 3.0]
    with pytest.raises(GraphError, match="before the block of graph f ends"):
        y.name = "late"
    with pytest.raises(GraphError, match="must be set in the block of a graph"):
        w.name = "w"


# Parameters


def test_parameters_are_read_at_each_run() -> None:
    w = weft.tensor([1.0, 1.0])
    with weft.Graph("f") as g:
        y = w * 2.0
    session = weft.Session(g)
    assert session.run(y).numpy().tolist() == [2.0, 2.0]
    w += 1.0
    assert session.run(y).numpy().tolist() == [4.0, 4.0]
    assert g.roles == ("param",)


def test_tensors_that_share_memory_are_parameters_of_their_own() -> None:
    w = weft.tensor([1.0, 1.0])
    same = w.__copy__()
    with weft.Graph("f") as g:
        y = w - same
    w += 1.0
    assert weft.Session(g).run(y).numpy().tolist() == [1.0, 1.0]


def test_a_tensor_that_dies_with_the_block_is_a_constant() -> None:
    with weft.Graph("f") as g:
        x = weft.placeholder("x", (2,))
        y = x + weft.tensor([1.0, 2.0]) + np.ones(2, np.float32)
    assert len(g.inputs) == 1
    assert weft.Session(g).run(y, {x: [0.0, 0.0]}).numpy().tolist() == [2.0, 3.0]


def test_a_parameter_with_a_past_keeps_it_outside() -> None:
    a = weft.tensor(3.0, requires_grad=True)
    b = a * a
    with weft.Graph("f") as g:
        (gb,) = weft.gradients(b * b, b)
        (ga,) = weft.gradients(b * b, a)
    assert ga is None
    assert weft.Session(g).run(gb).item() == 18.0
    b.backward()
    assert a.grad.item() == 6.0


def test_indexing_and_views_of_parameters_are_nodes() -> None:
    w = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
    with weft.Graph("f") as g:
        y = w[1] + w.mT[0]
    w[1] = weft.tensor([10.0, 10.0])
    assert weft.Session(g).run(y).numpy().tolist() == [11.0, 20.0]


# Gradients


def test_gradients_by_placeholders_parameters_and_results() -> None:
    w = weft.tensor(3.0)
    with weft.Graph("f") as g:
        x = weft.placeholder("x")
        h = x * w
        y = h * h
        other = weft.placeholder("other")
        gx, gw, gh, none = weft.gradients(y, [x, w, h, other])
    assert none is None
    values = weft.Session(g).run([gx, gw, gh], {x: 2.0})
    assert [v.item() for v in values] == [2 * 6 * 3, 2 * 6 * 2, 12]


def test_gradients_of_several_and_with_given_starts() -> None:
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n",))
        a, b = x * x, x * 3.0
        (both,) = weft.gradients([a, b], x)
        (scaled,) = weft.gradients([a, b], [x], grad_ys=[weft.ones_like(a) * 2.0, None])
    out = weft.Session(g).run([both, scaled], {x: [1.0, 2.0]})
    assert out[0].numpy().tolist() == [5.0, 7.0]
    assert out[1].numpy().tolist() == [7.0, 11.0]


def test_second_order_gradients_equal_eager_ones() -> None:
    w = weft.tensor(array(4), requires_grad=True)

    def loss(x: Any, w: Any) -> Any:
        return (weft.sin(x @ w) ** 2).mean()

    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n", 4))
        (first,) = weft.gradients(loss(x, w), w)
        (second,) = weft.gradients((first * first).sum(), w)
    fed = array(3, 4)
    (e1,) = weft.autograd.grad(loss(weft.tensor(fed), w), [w], create_graph=True)
    (e2,) = weft.autograd.grad((e1 * e1).sum(), [w])
    a1, a2 = weft.Session(g).run((first, second), {x: fed})
    np.testing.assert_allclose(a1.numpy(), e1.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(a2.numpy(), e2.numpy(), rtol=1e-5, atol=1e-6)


def test_gradients_stop_at_detach_and_no_grad() -> None:
    with weft.Graph("f") as g:
        x = weft.placeholder("x")
        with weft.no_grad():
            fixed = x * 2.0
        (gx,) = weft.gradients(x * fixed * x.detach(), x)
    assert weft.Session(g).run(gx, {x: 3.0}).item() == 18.0


def test_backward_in_the_block_leaves_a_gradient_of_the_graph() -> None:
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    with weft.Graph("f") as g:
        (w * w).sum().backward()
        gw = w.grad
    assert w.grad is None
    assert weft.Session(g).run(gw).numpy().tolist() == [2.0, 4.0]


def test_a_custom_function_keeps_its_own_gradient() -> None:
    class Clip(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 100.0

    with weft.Graph("f") as g:
        x = weft.placeholder("x")
        (gx,) = weft.gradients(Clip.apply(x), x)
    assert weft.Session(g).run(gx, {x: 1.0}).item() == 100.0


def test_gradients_outside_a_block_or_of_no_tensors_are_errors() -> None:
    with pytest.raises(CaptureError, match="gradients: must be called inside the block"):
        weft.gradients(weft.ones(1), weft.ones(1))
    with weft.Graph("f"):
        x = weft.placeholder("x")
        with pytest.raises(ArgumentError, match="ys must be tensors, got float"):
            weft.gradients(1.0, x)
        with pytest.raises(ArgumentError, match="grad_ys must be as many as ys, got 2 for 1"):
            weft.gradients(x, x, [None, None])
