"""Imported network operators on sizes that stay open, and gradients through them.

Values are compared with onnxruntime, gradients with finite differences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import weft
from tests.onnx.network import Array, Arrays, agree, by_runtime, by_weft, model_of, reals

# Sizes that stay open


@pytest.mark.rotating(2)
def test_batch_and_image_sizes_of_conv_and_pools_stay_open() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 20]>
        net (float[batch, 3, h, w] x) => (float[batch, c, p, q] y)
        <float[4, 3, 3, 3] weight>
        {
            a = Conv <pads = [1, 1, 1, 1]> (x, weight)
            b = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (a)
            c = AveragePool <kernel_shape = [2, 2], auto_pad = "SAME_UPPER", strides = [2, 2]> (b)
            d = Conv <auto_pad = "SAME_LOWER", strides = [2, 2], group = 2> (c, weight2)
            e = ConvTranspose <strides = [2, 2], auto_pad = "SAME_UPPER"> (d, weight3)
            y = LpPool <kernel_shape = [2, 1], auto_pad = "SAME_UPPER"> (e)
        }""")
    weights = {"weight": (4, 3, 3, 3), "weight2": (4, 2, 2, 3), "weight3": (4, 2, 3, 3)}
    del model.graph.initializer[:]
    for seed, (name, shape) in enumerate(weights.items()):
        model.graph.initializer.append(numpy_helper.from_array(reals(seed, *shape), name))
    graph = weft.onnx.load(model)
    assert str(graph.inputs[0].type) == "f32[batch,3,h,w]"
    session = weft.Session(graph)
    for shape in ((2, 3, 12, 9), (1, 3, 7, 16)):
        x = reals(5, *shape)
        (expected,) = by_runtime(model, {"x": x})
        for run in (session.run, weft.Session(graph, backend="interpret").run):
            (got,) = run(list(graph.outputs), {"x": x})
            np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("pads", [(0, 0), (1, 1), (0, 1)])
def test_last_windows_of_pools_over_open_sizes(stride: int, pads: tuple[int, int]) -> None:
    attributes = {"kernel_shape": [2], "strides": [stride], "pads": list(pads), "ceil_mode": 1}
    for op in ("MaxPool", "AveragePool"):
        model = model_of(op, {"x": reals(0, 1, 1, 1)}, shapes={"x": ("n", 2, "length")}, **attributes)
        for length in (4, 5, 6, 7):
            agree(model, {"x": reals(length, 3, 2, length)})


@pytest.mark.rotating(3)
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_time_of_recurrent_layers_stays_open(op: str) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    inputs = {
        "x": reals(0, 4, 2, 3),
        "w": reals(1, 2, gates * 5, 3),
        "r": reals(2, 2, gates * 5, 5),
        "b": reals(3, 2, gates * 10),
    }
    open_ended = {"x": ("time", "batch", 3)}
    model = model_of(
        op, inputs, 2, shapes=open_ended, stored=("w", "r", "b"), hidden_size=5, direction="bidirectional"
    )
    for time, batch in ((4, 2), (9, 1), (1, 3)):
        agree(model, {"x": reals(time, time, batch, 3)}, ("interpret", "llvm"))


@pytest.mark.parametrize("causal", [0, 1])
def test_lengths_of_attention_stay_open(causal: int) -> None:
    shapes = {"q": ("batch", "l", 8), "k": ("batch", "s", 4), "v": ("batch", "s", 4)}
    for batch, queries, keys in ((2, 3, 5), (1, 6, 6)):
        given = {
            "q": reals(1, batch, queries, 8),
            "k": reals(2, batch, keys, 4),
            "v": reals(3, batch, keys, 4),
        }
        settings = {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": causal}
        model = model_of("Attention", given, opset=23, shapes=shapes, **settings)
        expected = attention(given, causal=bool(causal))
        for backend in ("interpret", "llvm"):
            (got,) = by_weft(model, given, backend)
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def attention(given: Arrays, causal: bool) -> Array:
    """Attention with four heads of queries and two of keys, by the formula."""
    q, k, v = (_heads(given[n], h) for n, h in (("q", 4), ("k", 2), ("v", 2)))
    k, v = np.repeat(k, 2, axis=1), np.repeat(v, 2, axis=1)
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    if causal:
        scores = np.where(np.tri(q.shape[2], k.shape[2], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out = weights / weights.sum(axis=-1, keepdims=True) @ v
    return out.swapaxes(1, 2).reshape(given["q"].shape)


def _heads(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2).astype(np.float64)


@pytest.mark.rotating(4)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("transform", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
def test_resize_of_open_sizes(mode: str, transform: str) -> None:
    inputs = {
        "x": reals(0, 1, 2, 4, 6),
        "roi": np.zeros(0, np.float32),
        "scales": np.array([1, 1, 2, 0.5], np.float32),
    }
    model = model_of(
        "Resize",
        inputs,
        opset=19,
        shapes={"x": ("batch", 2, "h", "w")},
        stored=("roi", "scales"),
        mode=mode,
        coordinate_transformation_mode=transform,
    )
    for shape in ((1, 2, 4, 6), (2, 2, 3, 10), (1, 2, 1, 2), (1, 2, 2, 3)):  # the last ones become 1 wide
        agree(model, {"x": reals(1, *shape)}, ("interpret", "llvm"), rtol=1e-3)


def test_crops_of_open_sizes_that_become_one_element() -> None:
    """The middle of the box, by the formula of the standard; ONNX Runtime makes other sizes of boxes."""
    inputs = {
        "x": reals(0, 1, 3),
        "roi": np.array([0, 0.25, 1, 0.75], np.float32),
        "scales": np.array([1, 0.5], np.float32),
    }
    settings = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
    model = model_of("Resize", inputs, opset=19, shapes={"x": (1, "w")}, stored=("roi", "scales"), **settings)
    for width in (4, 5, 7):
        x = reals(width, 1, width)
        for backend in ("interpret", "llvm"):
            (got,) = by_weft(model, {"x": x}, backend)
            middle = (width - 1) / 2
            expected = np.interp([middle], np.arange(width), x[0])
            np.testing.assert_allclose(got, [expected], rtol=1e-4, atol=1e-6)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample_of_open_sizes(padding: str) -> None:
    shapes = {"x": ("batch", 2, "h", "w"), "grid": ("batch", "a", "b", 2)}
    inputs = {"x": reals(0, 1, 1, 1, 1), "grid": reals(1, 1, 1, 1, 2)}
    model = model_of("GridSample", inputs, opset=20, shapes=shapes, padding_mode=padding)
    for batch, h, w in ((1, 4, 6), (2, 3, 1)):
        agree(model, {"x": reals(2, batch, 2, h, w), "grid": reals(3, batch, 3, 4, 2)}, ("interpret", "llvm"))


@pytest.mark.rotating(3)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_to_the_size_of_another_tensor(mode: str) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 19]>
        up (float[batch, 2, h, w] x) => (float[batch, 2, h, w] y)
        {{
            a = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
            sizes = Shape (x)
            y = Resize <mode = "{mode}", coordinate_transformation_mode = "asymmetric",
                        nearest_mode = "floor"> (a, , , sizes)
        }}""")
    for shape in ((1, 2, 4, 7), (2, 2, 9, 6)):
        agree(model, {"x": reals(0, *shape)}, ("interpret", "llvm"), rtol=1e-3)


# Gradients


def finite_difference(f: Callable[[Array], float], x: Array, direction: Array, step: float = 1e-6) -> float:
    return (f(x + step * direction) - f(x - step * direction)) / (2 * step)


def check_gradient(model: onnx.ModelProto, x: Array) -> None:
    """The gradient of the squares of the outputs by x, along a random direction."""
    graph = weft.onnx.load(model)

    def loss(x: Any) -> Any:
        outs = graph(x)
        outs = outs if isinstance(outs, tuple | list) else [outs]
        return sum((out * out).sum() for out in outs)

    direction = reals(99, *x.shape, dtype=np.float64)
    gradient = weft.grad(loss)(weft.tensor(x)).numpy()
    expected = finite_difference(lambda x: float(loss(weft.tensor(x)).item()), x, direction)
    assert gradient.dtype == np.float64
    np.testing.assert_allclose((gradient * direction).sum(), expected, rtol=1e-5)


def test_gradient_through_a_convolutional_network() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 20]>
        net (double[2, 3, 9, 8] x) => (y)
        {
            a = Conv <pads = [1, 0, 1, 2], strides = [2, 1]> (x, w0)
            b = BatchNormalization (a, s, s, s, v)
            c = Tanh (b)
            d = MaxPool <kernel_shape = [2, 2]> (c)
            e = ConvTranspose <strides = [2, 2]> (d, w1)
            f = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 0, 1]> (e)
            y = GlobalAveragePool (f)
        }""")
    weights = {
        "w0": reals(0, 4, 3, 3, 3),
        "w1": reals(1, 4, 5, 2, 2),
        "s": reals(2, 4),
        "v": reals(3, 4) ** 2,
    }
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float64), name))
    check_gradient(model, reals(7, 2, 3, 9, 8, dtype=np.float64))


@pytest.mark.rotating(3)
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_gradient_through_recurrent_layers(op: str) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    inputs = {
        "x": reals(0, 4, 2, 3, dtype=np.float64),
        "w": reals(1, 2, gates * 5, 3, dtype=np.float64),
        "r": reals(2, 2, gates * 5, 5, dtype=np.float64),
        "b": reals(3, 2, gates * 10, dtype=np.float64),
    }
    model = model_of(
        op,
        inputs,
        2,
        shapes={"x": ("time", "batch", 3)},
        stored=("w", "r", "b"),
        hidden_size=5,
        direction="bidirectional",
    )
    check_gradient(model, inputs["x"])
