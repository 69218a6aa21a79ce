"""Convolutions of half precision with a bias are rounded once; see ``test_affine`` for the numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import weft
from tests.ops.oracles_network import naive_conv
from tests.ops.test_affine import HALVES, same, tensors
from tests.schedule.lowered import shaped
from weft.backends.cuda.build import build_program, loops_of
from weft.errors import ShapeError
from weft.loop.verify import verify_program
from weft.schedule.gpu.machine import Gpu

CASES = [
    (weft.conv1d, (2, 20, 9), (6, 20, 3), {"padding": 1}),
    (weft.conv2d, (2, 8, 7, 6), (5, 8, 3, 3), {"padding": 1}),
    (weft.conv2d, (2, 8, 9, 8), (6, 4, 3, 2), {"stride": 2, "groups": 2}),
    (weft.conv2d, (3, 64, 12, 12), (16, 64, 3, 3), {"dilation": 2}),
    (weft.conv3d, (1, 9, 4, 5, 3), (4, 9, 2, 2, 2), {}),
]


def layer(dtype: Any, x: tuple[int, ...], w: tuple[int, ...]) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(sum(x) + sum(w))
    images, weights = (rng.integers(-48, 49, shape).astype(dtype) for shape in (x, w))
    return images, weights, (rng.integers(-39, 40, w[0]) / 8).astype(dtype)


def exact(x: Any, w: Any, b: Any, **given: Any) -> Any:
    rank = x.ndim - 2
    usual = {"stride": 1, "dilation": 1, "padding": 0} | given
    attrs = {k: (v,) * rank for k, v in usual.items() if k in ("stride", "dilation")}
    padding = [(usual["padding"],) * 2] * rank
    sums = naive_conv(
        x.astype(np.float64), w.astype(np.float64), **attrs, padding=padding, input_dilation=(1,) * rank,
        groups=given.get("groups", 1),
    )  # fmt: skip
    return sums + b.astype(np.float64).reshape(-1, *(1,) * rank)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("case", CASES)
def test_convolutions_are_rounded_once(dtype: Any, case: Any) -> None:
    function, x, w, given = case
    arrays, run = layer(dtype, x, w), partial(function, **given)
    sums = exact(*arrays, **given)
    bias = arrays[2].reshape(-1, *(1,) * (len(x) - 2))
    twice = ((sums - bias.astype(float)).astype(dtype) + bias).astype(dtype)
    assert (twice != sums.astype(dtype)).any()  # or else it would not show
    same(run(*tensors(*arrays)), sums.astype(dtype))
    for backend in ("llvm", "interpret"):
        same(weft.compile(run, backend=backend)(*tensors(*arrays)), sums.astype(dtype))
    activated = weft.compile(lambda *xs: weft.relu(run(*xs)) / 2)(*tensors(*arrays))
    same(activated, (np.maximum(sums.astype(dtype), 0) / 2).astype(dtype))


@pytest.mark.parametrize("case", CASES[:3])
def test_on_the_grid_of_a_gpu(case: Any) -> None:
    function, x, w, given = case
    arrays = layer(weft.bfloat16, x, w)
    graph = weft.make_graph(partial(function, **given))(*tensors(*arrays)).optimize()
    (found,) = shaped(verify_program(loops_of(graph, Gpu())), graph, arrays, {})
    same(found, exact(*arrays, **given).astype(weft.bfloat16))


def test_cudnn_convolves_images_with_a_bias() -> None:
    x, w, b = tensors(*layer(weft.bfloat16, (2, 16, 8, 8), (8, 16, 3, 3)))
    graph = weft.make_graph(weft.conv2d)(x, w, b).optimize()
    assert "call library_conv_add(" in str(build_program(graph, machine=Gpu(libraries=True, cudnn=True)))


def test_pools_of_convolutions() -> None:
    arrays = layer(weft.bfloat16, (2, 16, 10, 10), (16, 16, 3, 3))
    expected = exact(*arrays).astype(weft.bfloat16).reshape(2, 16, 4, 2, 4, 2).max((3, 5))
    same(weft.compile(lambda x, w, b: weft.max_pool2d(weft.conv2d(x, w, b), 2))(*tensors(*arrays)), expected)


def test_one_example_and_transposed_convolutions() -> None:
    x, w, b = layer(weft.bfloat16, (1, 20, 9), (6, 20, 3))
    same(weft.conv1d(*tensors(x[0], w, b)), exact(x, w, b)[0].astype(weft.bfloat16))
    turned = np.ascontiguousarray(w.transpose(1, 0, 2)[:, :, ::-1])  # as its own transpose undoes it
    same(weft.conv_transpose1d(*tensors(x, turned, b)), exact(x, w, b, padding=2).astype(weft.bfloat16))


def test_examples_of_images_weights_and_biases() -> None:
    x, w, b = layer(weft.float16, (2, 12, 8), (4, 12, 3))
    more = [np.stack([a, a[::-1]]) for a in (x, w, b)]
    for which in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        axes = tuple(0 if i in which else None for i in range(3))
        given = [more[i] if i in which else a for i, a in enumerate((x, w, b))]
        each = [exact(*[g[k] if i in which else g for i, g in enumerate(given)]) for k in range(2)]
        found = weft.vmap(weft.conv1d, in_axes=axes)(*tensors(*given))
        same(found, np.stack(each).astype(weft.float16))


@pytest.mark.parametrize("backend", [None, "llvm"])
def test_gradients_are_sums_that_are_rounded_once(backend: str | None) -> None:
    x, w, b = layer(weft.bfloat16, (40, 3, 12), (4, 3, 3))
    g = np.ones((40, 4, 10), weft.bfloat16)

    def gradients(x: Any, w: Any, b: Any, g: Any) -> Any:
        return weft.vjp(weft.conv1d, x, w, b)[1](g)

    run = gradients if backend is None else weft.compile(gradients, backend=backend)
    found = run(*tensors(x, w, b, g))
    wide = [a.astype(np.float64) for a in (x, w, b, g)]
    of_double = gradients(*tensors(*wide))
    for a, e in zip(found, of_double, strict=True):
        same(a, e.numpy().astype(weft.bfloat16))
    np.testing.assert_array_equal(found[2].numpy().astype(float), np.full(4, 400.0))


def test_a_bias_that_does_not_fit_is_told() -> None:
    x, w, _ = tensors(*layer(weft.bfloat16, (2, 3, 8), (4, 3, 3)))
    with pytest.raises(ShapeError, match="conv1d: bias must have one value for each of 4 output channels"):
        weft.conv1d(x, w, weft.zeros(3, dtype=weft.bfloat16))
