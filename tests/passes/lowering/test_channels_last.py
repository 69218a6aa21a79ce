"""Convolutions as nodes of a library, with channels last: what is found, and what it computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from tests.schedule.lowered import shaped
from weft.backends import backend_named
from weft.backends.cuda.build import build_program
from weft.ir.graph import Graph
from weft.loop.verify import verify_program
from weft.passes import lower
from weft.passes.lowering.gpu import GPU_LOWERING
from weft.schedule.gpu.machine import Gpu as Machine
from weft.schedule.gpu.target import Gpu
from weft.schedule.program import lower_graph

ALL = ["library_conv", "library_conv_input", "library_conv_weight"]


def whole(*shape: int, seed: int = 0) -> Any:
    """Small whole numbers, so that sums of products are exact in half precision's single sums."""
    numbers = np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)
    return weft.tensor(numbers).astype(weft.float16)


def windows(x: Any, w: Any, stride: int, padding: int, dilation: int = 1) -> Any:
    """The convolution by its definition, in float64."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    x = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    reach = dilation * (w.shape[2] - 1) + 1
    count = (x.shape[2] - reach) // stride + 1
    out = np.zeros((x.shape[0], w.shape[0], count, count))
    for i in range(count):
        for j in range(count):
            top, left = i * stride, j * stride
            part = x[:, :, top : top + reach : dilation, left : left + reach : dilation]
            out[:, :, i, j] = np.einsum("nchw,ochw->no", part, w)
    return out


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if node.op.name.startswith(("conv", "library"))]


CASES = [(1, 3, 1, 1), (2, 3, 1, 1), (2, 5, 2, 1), (3, 3, 0, 1), (1, 3, 2, 2), (2, 2, 0, 1)]


@pytest.mark.parametrize(("stride", "taps", "padding", "dilation"), CASES)
def test_gradients_are_adjoint_to_the_convolution(
    stride: int, taps: int, padding: int, dilation: int
) -> None:
    def f(x: Any, w: Any, g: Any) -> Any:
        conv = lambda x, w: F.conv2d(x, w, stride=stride, padding=padding, dilation=dilation)  # noqa: E731
        out, pull = weft.vjp(conv, x, w)
        return (out, *pull(g))

    x, w = whole(2, 8, 9, 9), whole(16, 8, taps, taps, seed=1)
    right = windows(x.numpy(), w.numpy(), stride, padding, dilation)
    g = whole(*right.shape, seed=2)
    made = lower(weft.make_graph(f)(x, w, g).optimize(), GPU_LOWERING)
    assert names(made) == ALL
    out, by_x, by_w = backend_named("interpret")(made)([t.numpy() for t in (x, w, g)])
    np.testing.assert_array_equal(out, right)
    along, others = whole(*x.shape, seed=3).numpy(), whole(*w.shape, seed=4).numpy()
    for got, given in ((by_x, (along, w.numpy())), (by_w, (x.numpy(), others))):
        wanted = np.vdot(g.numpy().astype(np.float64), windows(*given, stride, padding, dilation))
        moved = given[0] if got is by_x else given[1]
        np.testing.assert_allclose(np.vdot(got.astype(np.float64), moved.astype(np.float64)), wanted)


def test_channels_that_the_library_has_no_kernels_for_are_filled_up() -> None:
    def f(x: Any, w: Any, g: Any) -> Any:
        out, pull = weft.vjp(lambda w: F.conv2d(x, w, padding=1), w)
        return out, pull(g)[0]

    x, w, g = whole(2, 3, 6, 6), whole(8, 3, 3, 3, seed=1), whole(2, 8, 6, 6, seed=2)
    graph = weft.make_graph(f)(x, w, g).optimize()
    made = lower(graph, GPU_LOWERING)
    assert names(made) == ["library_conv", "library_conv_weight"]
    arrays = [t.numpy() for t in (x, w, g)]
    for got, right in zip(backend_named("interpret")(made)(arrays), interpreted(graph, arrays), strict=True):
        np.testing.assert_array_equal(got, right)


def interpreted(graph: Graph, arrays: Any) -> Any:
    return backend_named("interpret")(graph)(arrays)


def network(x: Any, w: Any, v: Any, scale: Any) -> Any:
    h = F.conv2d(x, w, padding=1)
    h = h - h.mean(axis=(0, 2, 3), keepdims=True)
    h = F.relu(h * scale[:, None, None])
    return F.relu(F.conv2d(h, v, stride=2)).mean()


@pytest.mark.rotating(2)
def test_work_between_convolutions_is_done_with_channels_last() -> None:
    """Nothing but small arrays is turned, forward and backward; values stay, on the grid, too."""
    given = whole(4, 8, 6, 6), whole(8, 8, 3, 3, seed=1), whole(8, 8, 2, 2, seed=2), whole(8, seed=3)
    graph = weft.make_graph(weft.grad(network, argnums=(1, 2, 3)))(*given).optimize()
    made = lower(graph, GPU_LOWERING)
    program = build_program(graph, machine=Machine(cudnn=True))
    assert " conv(" not in str(program)
    images = 4 * 8 * 6 * 6
    turned = [n for n in made.nodes if n.op.name == "permute" and np.prod(n.outputs[0].type.shape) >= images]
    assert [n.inputs[0] for n in turned] == [made.inputs[0]]
    arrays = [t.numpy() for t in given]
    loops = verify_program(lower_graph(made, target=Gpu(Machine(cudnn=True))))
    for run in (interpreted(made, arrays), shaped(loops, graph, arrays, {})):
        for got, right in zip(run, interpreted(graph, arrays), strict=True):
            near = 2e-2 * np.abs(right.astype(np.float64)).max()
            np.testing.assert_allclose(got.astype(np.float64), right.astype(np.float64), atol=near)


def test_other_convolutions_stay_as_they_are() -> None:
    x, w = whole(2, 8, 6, 6), whole(8, 8, 3, 3)
    for function, given in (
        (F.conv2d, (x.astype(weft.float32), w.astype(weft.float32))),
        (lambda x, w: F.conv2d(x, w, groups=2), (x, w[:, :4])),
        (lambda x, w: F.conv1d(x[:, :, 0], w[:, :, 0]), (x, w)),
        (F.conv2d, (x, w[:5])),
    ):
        assert names(lower(weft.make_graph(function)(*given).optimize(), GPU_LOWERING)) == ["conv"]
