"""Passes that programs for GPUs have instead of others: less memory, the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from tests.schedule.lowered import shaped
from weft.backends import backend_named
from weft.errors import BoundsError
from weft.ir.graph import Graph
from weft.loop.verify import verify_program
from weft.passes import lower
from weft.passes.lowering.gpu import GPU_LOWERING
from weft.passes.lowering.recompute import is_backward
from weft.schedule.gpu.target import Gpu
from weft.schedule.program import lower_graph


def normal(*shape: int) -> Any:
    return weft.tensor(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def lowered(function: Any, *given: Any) -> tuple[Graph, Graph]:
    graph = weft.make_graph(function)(*given).optimize()
    return graph, lower(graph, GPU_LOWERING)


def run(graph: Graph, *given: Any) -> list[Any]:
    return list(backend_named("interpret")(graph)([t.numpy() for t in given]))


def log_probabilities(x: Any) -> Any:
    shifted = x.astype(np.float64) - x.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


@pytest.mark.parametrize("ignore", [-100, 3])
def test_classes_are_taken_before_the_row_is_computed(ignore: int) -> None:
    x, y = normal(6, 9), weft.tensor(np.array([0, 3, 8, 3, 1, 2]))
    _, made = lowered(lambda x, y: F.cross_entropy(x, y, ignore_index=ignore), x, y)
    (taken,) = [node for node in made.nodes if node.op.name == "pick_class"]
    assert taken.inputs[0] is made.inputs[0]
    wanted = log_probabilities(x.numpy())[range(6), y.numpy()][y.numpy() != ignore]
    np.testing.assert_allclose(run(made, x, y)[0], -wanted.mean(), rtol=1e-6)
    with pytest.raises(BoundsError):
        run(made, x, weft.tensor(np.full(6, 9)))


@pytest.mark.parametrize("ignore", [-100, 3])
def test_gradients_of_losses_need_no_rows_of_classes(ignore: int) -> None:
    """They are a comparison, and what sums them up is left out; on the grid, too."""
    x, y = normal(6, 9), weft.tensor(np.array([0, 3, 8, 3, 1, 2]))
    loss = weft.value_and_grad(lambda x, y: F.cross_entropy(x, y, ignore_index=ignore))
    graph, made = lowered(loss, x, y)
    ops = [node.op.name for node in made.nodes]
    assert "put_class" not in ops
    assert [node.inputs[0].type.shape for node in made.nodes if node.op.name == "sum"].count((6, 9)) == 1
    counted = (y.numpy() != ignore)[:, None]
    exact = (np.exp(log_probabilities(x.numpy())) - np.eye(9)[y.numpy()]) * counted / counted.sum()
    program = verify_program(lower_graph(made, target=Gpu()))
    for got in (run(made, x, y), shaped(program, graph, [x.numpy(), y.numpy()], {})):
        np.testing.assert_allclose(got[1], exact, atol=1e-6)
    with pytest.raises(BoundsError):
        shaped(program, graph, [x.numpy(), np.full(6, 9)], {})


def test_gradients_of_parts_are_put_together() -> None:
    def f(x: Any) -> Any:
        a, b, c = x.chunk(3, -1)
        return (a * b.sin()).sum() + (c * c).sum()

    x = normal(4, 9)
    _, made = lowered(weft.grad(f), x)
    assert "concat" in [node.op.name for node in made.nodes]
    assert "pad" not in [node.op.name for node in made.nodes]
    a, b, c = np.split(x.numpy(), 3, 1)
    np.testing.assert_allclose(run(made, x)[0], np.hstack([np.sin(b), a * np.cos(b), 2 * c]), rtol=1e-6)
    overlapping, _ = lowered(weft.grad(lambda x: (x[:, :5] * 2.0).sum() + (x[:, 4:] * 3.0).sum()), x)
    assert "concat" not in [node.op.name for node in lower(overlapping, GPU_LOWERING).nodes]


def test_what_lies_in_memory_anyway_is_read_again() -> None:
    """Of a norm of what products are added to, the sum is kept, and not what the norm makes of it."""

    def f(x: Any, w: Any, s: Any, g: Any) -> Any:
        def network(x: Any, w: Any, s: Any) -> Any:
            h = x + x @ w
            return h + F.layer_norm(h, (256,), s, s) @ w

        out, pull = weft.vjp(network, x, w, s)
        return (out, *pull(g))

    given = normal(512, 256), normal(256, 256) * 0.1, normal(256), normal(513, 256)[:512]
    graph, made = lowered(f, *given)
    forward = {v for node in made.nodes if not is_backward(node) for v in node.outputs}
    used = {v for node in made.nodes if is_backward(node) for v in node.inputs} & forward
    large = [node for node in made.nodes if node.outputs[0].type.shape == (512, 256)]
    wide = [node.op.name for node in large if node.outputs[0] in used]
    assert wide == ["add", "add"]  # the sum, and the result of the norm, which a product takes
    for got, right in zip(run(made, *given), run(graph, *given), strict=True):
        np.testing.assert_array_equal(got, right)


def test_rows_that_are_not_finite_do_not_reach_those_that_are_left_out() -> None:
    x, y = normal(4, 5), weft.tensor(np.array([0, 1, 2, 3]))
    x[1] = float("inf")
    graph, made = lowered(lambda x, y: F.cross_entropy(x, y, ignore_index=1), x, y)
    assert np.isfinite(run(made, x, y)[0])
    np.testing.assert_array_equal(run(made, x, y)[0], run(graph, x, y)[0])


def test_what_is_narrow_is_kept_instead_of_what_it_becomes() -> None:
    """Of gelu in half precision the product is kept, and nothing of single precision."""

    def f(x: Any, w: Any, g: Any) -> Any:
        def network(x: Any, w: Any) -> Any:
            with weft.autocast(weft.bfloat16):
                return F.gelu(x @ w, approximate="tanh")

        out, pull = weft.vjp(network, x, w)
        return (out, *pull(g))

    x, w = normal(512, 16), normal(16, 256)
    g = normal(512, 256).astype(weft.bfloat16)
    graph, made = lowered(f, x, w, g)
    forward = {v for node in made.nodes if not is_backward(node) for v in node.outputs}
    used = {v for node in made.nodes if is_backward(node) for v in node.inputs} & forward
    assert not [v.type for v in used if str(v.type) == "f32[512,256]"]
    for got, wanted in zip(run(made, x, w, g), run(graph, x, w, g), strict=True):
        np.testing.assert_array_equal(got, wanted)
