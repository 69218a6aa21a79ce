"""Imported network operators with parameters chosen at random, and those that the suite has no cases of.

The suite of the onnx package is run elsewhere; here values are compared with onnxruntime.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.of_code import examples
from tests.onnx.network import agree, by_weft, model_of, reals
from weft.errors import GraphError

few = examples(15, 7)
numbers = st.integers(0, 2**31 - 1)
chance = st.sampled_from


# Parameters chosen at random


@st.composite
def windows(draw: Any, rank: int) -> dict[str, Any]:
    """Attributes of windows that fit any size from 7 on."""
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    out: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": [draw(st.integers(1, 3)) for _ in range(rank)],
        "dilations": [draw(st.integers(1, 2)) for _ in range(rank)],
    }
    if draw(st.booleans()):
        out["pads"] = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    elif max(out["dilations"]) == 1:
        out["auto_pad"] = draw(chance(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    return out


@few
@given(rank=st.integers(1, 3), data=st.data(), groups=st.integers(1, 2), seed=numbers, bias=st.booleans())
def test_conv_agrees(rank: int, data: Any, groups: int, seed: int, bias: bool) -> None:
    attributes = data.draw(windows(rank))
    inputs = {
        "x": reals(seed, 2, 4, *(8, 7, 9)[:rank]),
        "w": reals(seed + 1, 6, 4 // groups, *attributes["kernel_shape"]),
    }
    inputs |= {"b": reals(seed + 2, 6)} if bias else {}
    agree(model_of("Conv", inputs, group=groups, **attributes), inputs)


@few
@given(
    rank=st.integers(1, 2),
    data=st.data(),
    groups=st.integers(1, 2),
    seed=numbers,
    padding=chance(["pads", "output_shape", "SAME_UPPER", "SAME_LOWER"]),
)
def test_conv_transpose_agrees(rank: int, data: Any, groups: int, seed: int, padding: str) -> None:
    kernel = [data.draw(st.integers(2, 3)) for _ in range(rank)]
    strides = [data.draw(st.integers(1, 2)) for _ in range(rank)]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    if padding == "pads":
        attributes["pads"] = [data.draw(st.integers(0, k - 1)) for k in kernel * 2]
        attributes["output_padding"] = [data.draw(st.integers(0, s - 1)) for s in strides]
    elif padding == "output_shape":
        attributes["output_shape"] = [s * n for s, n in zip(strides, (5, 4), strict=False)]
    else:
        attributes["auto_pad"] = padding
    inputs = {"x": reals(seed, 2, 4, *(5, 4)[:rank]), "w": reals(seed + 1, 4, 3, *kernel)}
    agree(model_of("ConvTranspose", inputs, group=groups, **attributes), inputs)


@few
@given(rank=st.integers(1, 2), data=st.data(), ceil=st.booleans(), seed=numbers, include=st.booleans())
def test_pools_agree(rank: int, data: Any, ceil: bool, seed: int, include: bool) -> None:
    attributes = data.draw(windows(rank))
    if "auto_pad" not in attributes:
        attributes["ceil_mode"] = int(ceil)
    inputs = {"x": reals(seed, 2, 3, *(8, 7)[:rank])}
    agree(model_of("MaxPool", inputs, 2, **attributes), inputs)
    agree(model_of("AveragePool", inputs, count_include_pad=int(include), **attributes), inputs)
    attributes.pop("ceil_mode", None)
    agree(model_of("LpPool", inputs, p=data.draw(st.integers(1, 3)), **attributes), inputs)


TRANSFORMS = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]


@few
@given(
    mode=chance(["nearest", "linear", "cubic"]),
    transform=chance(TRANSFORMS),
    rounding=chance(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]),
    sizes=st.tuples(st.integers(2, 11), st.integers(2, 11)),
    seed=numbers,
)
def test_resize_agrees(mode: str, transform: str, rounding: str, sizes: tuple[int, int], seed: int) -> None:
    inputs = {
        "x": reals(seed, 1, 2, 4, 6),
        "roi": np.zeros(0, np.float32),
        "scales": np.zeros(0, np.float32),
        "sizes": np.array([1, 2, *sizes], np.int64),
    }
    attributes = {"mode": mode, "coordinate_transformation_mode": transform}
    attributes |= {"nearest_mode": rounding} if mode == "nearest" else {}
    model = model_of("Resize", inputs, opset=19, stored=("roi", "scales", "sizes"), **attributes)
    agree(model, inputs, rtol=1e-3)


@few
@given(
    direction=chance(["forward", "reverse", "bidirectional"]),
    op=chance(["LSTM", "GRU", "RNN"]),
    lengths=st.booleans(),
    start=st.booleans(),
    clip=st.booleans(),
    other=st.booleans(),
    seed=numbers,
)
def test_recurrent_layers_agree(
    direction: str, op: str, lengths: bool, start: bool, clip: bool, other: bool, seed: int
) -> None:
    time, batch, features, hidden = 5, 3, 4, 6
    ways, gates = 2 if direction == "bidirectional" else 1, {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    inputs = {
        "x": reals(seed, time, batch, features),
        "w": reals(seed + 1, ways, gates * hidden, features) / 2,
        "r": reals(seed + 2, ways, gates * hidden, hidden) / 2,
        "b": reals(seed + 3, ways, 2 * gates * hidden),
        "lens" if lengths else "": np.array([5, 2, 4], np.int32),
    }
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    attributes |= {"clip": 0.7} if clip else {}
    if start:
        inputs["h"] = reals(seed + 4, ways, batch, hidden)
        inputs |= {"c": reals(seed + 5, ways, batch, hidden)} if op == "LSTM" else {}
    if start and op == "LSTM":
        inputs["p"] = reals(seed + 6, ways, 3 * hidden)
        attributes["input_forget"] = int(other)
    if op == "GRU":
        attributes["linear_before_reset"] = int(other)
    elif op == "RNN" and other:
        attributes |= {"activations": ["HardSigmoid"] * ways, "activation_alpha": [0.3] * ways}
        attributes["activation_beta"] = [0.4] * ways
    agree(model_of(op, inputs, 3 if op == "LSTM" else 2, **attributes), inputs)


@few
@given(
    mode=chance(["linear", "nearest", "cubic"]),
    padding=chance(["zeros", "border", "reflection"]),
    corners=st.booleans(),
    rank=st.integers(2, 3),
    seed=numbers,
)
def test_grid_sample_agrees(mode: str, padding: str, corners: bool, rank: int, seed: int) -> None:
    rank = 2 if mode == "cubic" else rank
    places = np.random.default_rng(seed).uniform(-1.4, 1.4, (2, *(3, 4, 2)[:rank], rank)).astype(np.float32)
    inputs = {"x": reals(seed, 2, 2, *(5, 4, 3)[:rank]), "grid": places}
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": int(corners)}
    agree(model_of("GridSample", inputs, opset=20, **attributes), inputs, rtol=1e-3)


@few
@given(
    dtype=chance([np.int8, np.uint8, np.int16, np.uint16]),
    per_axis=st.booleans(),
    zero=st.booleans(),
    seed=numbers,
)
def test_quantisation_agrees(dtype: Any, per_axis: bool, zero: bool, seed: int) -> None:
    size = 3 if per_axis else 1
    scale = np.random.default_rng(seed).uniform(1e-3, 0.3, size).astype(np.float32)
    start = np.random.default_rng(seed).integers(0, 100, size).astype(dtype) * zero
    shape = (size,) if per_axis else ()
    inputs = {"x": reals(seed, 2, 3, 5) * 20, "s": scale.reshape(shape), "z": start.reshape(shape)}
    inputs["x"][0, :, 0] = 0.5 * inputs["s"]  # halves
    model = model_of("QuantizeLinear", inputs, opset=21, axis=1)
    agree(model, inputs)
    (small,) = by_weft(model, inputs)
    back = {"x": small, "s": inputs["s"], "z": inputs["z"]}
    agree(model_of("DequantizeLinear", back, opset=21, axis=1), back)


@few
@given(seed=numbers, size=chance([(), (1,), (2, 3)]), axis=st.integers(1, 2))
def test_normalisation_agrees(seed: int, size: tuple[int, ...], axis: int) -> None:
    x, scale, bias = reals(seed, 2, 4, *size), reals(seed + 1, 4), reals(seed + 2, 4)
    inputs = {"x": x, "s": scale, "b": bias}
    statistics = {"m": reals(seed + 3, 4), "v": reals(seed + 4, 4) ** 2}
    agree(model_of("BatchNormalization", inputs | statistics, opset=15), inputs | statistics)
    alone = model_of("InstanceNormalization", inputs, opset=18)
    if size == (1,):
        (got,) = by_weft(alone, inputs)
        np.testing.assert_array_equal(got, np.broadcast_to(bias[:, None], x.shape))
    elif size:
        agree(alone, inputs)
    axis = min(axis, x.ndim - 1)
    whole = {"x": x, "s": reals(seed, *x.shape[axis:]), "b": reals(seed + 1, *x.shape[axis:])}
    agree(model_of("LayerNormalization", whole, 3, opset=17, axis=axis), whole, rtol=1e-3)


# Older versions and operators that the suite has no cases of


def test_older_upsample_and_resize() -> None:
    inputs = {"x": reals(0, 1, 2, 3, 4), "scales": np.array([1, 1, 2, 3], np.float32)}
    for op, opset in (("Upsample", 9), ("Resize", 10)):
        for mode in ("nearest", "linear"):
            agree(model_of(op, inputs, opset=opset, stored=("scales",), mode=mode), inputs)


def test_group_normalization_with_a_scale_for_each_group() -> None:
    x, scale, bias = reals(0, 2, 6, 5), reals(1, 3), reals(2, 3)
    model = model_of("GroupNormalization", {"x": x, "s": scale, "b": bias}, opset=18, num_groups=3)
    groups = x.reshape(2, 3, -1).astype(np.float64)
    spread = groups.std(axis=2, keepdims=True)
    out = (groups - groups.mean(axis=2, keepdims=True)) / np.sqrt(spread**2 + 1e-5)
    expected = (out * scale[:, None] + bias[:, None]).reshape(x.shape)
    (got,) = by_weft(model, {"x": x, "s": scale, "b": bias})
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_pools_of_regions_agree() -> None:
    rois = np.array([[0, 1, 1, 6, 4], [1, 0, 2, 5, 7], [1, 3, 3, 3, 3]], np.float32)
    inputs = {"x": reals(0, 2, 3, 8, 9), "rois": rois}
    agree(model_of("MaxRoiPool", inputs, opset=18, pooled_shape=[2, 3], spatial_scale=0.7), inputs)
    boxes = {"x": inputs["x"], "rois": rois[:, 1:], "batch": np.array([0, 1, 1])}
    cells = {"output_height": 2, "output_width": 3}
    for transform in ("half_pixel", "output_half_pixel"):
        for ratio in (2, 0):
            attributes = {"sampling_ratio": ratio, "coordinate_transformation_mode": transform}
            model = model_of("RoiAlign", boxes, opset=16, **cells, **attributes)
            agree(model, boxes, ("interpret", "llvm"))


def test_norms_and_global_pools_agree() -> None:
    inputs = {"x": reals(0, 2, 6, 4, 3)}
    agree(model_of("GlobalLpPool", inputs, opset=18, p=3), inputs)
    agree(model_of("LRN", inputs, size=3, alpha=0.5), inputs)
    squares = np.pad(inputs["x"].astype(np.float64) ** 2, ((0, 0), (1, 2), (0, 0), (0, 0)))
    around = squares[:, :-3] + squares[:, 1:-2] + squares[:, 2:-1] + squares[:, 3:]
    (got,) = by_weft(model_of("LRN", inputs, size=4, alpha=0.5), inputs)
    np.testing.assert_allclose(got, inputs["x"] / (1 + 0.5 / 4 * around) ** 0.75, rtol=1e-5)
    agree(model_of("LpNormalization", inputs, axis=1, p=1), inputs)


def test_trees_with_lists_agree() -> None:
    attributes = {
        "n_targets": 2,
        "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 1, 0, 0, 0, 2, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.1, -0.2, 0.0, 0.0, 0.0, 0.3, 0.0, 0.0],
        "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
        "target_treeids": [0, 0, 0, 0, 1, 1, 1, 1],
        "target_nodeids": [2, 3, 3, 4, 1, 1, 2, 2],
        "target_ids": [0, 0, 1, 1, 0, 1, 0, 1],
        "target_weights": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        "base_values": [0.5, -0.5],
    }
    inputs = {"x": reals(0, 20, 3)}
    agree(model_of("TreeEnsembleRegressor", inputs, domain="ai.onnx.ml", **attributes), inputs)


def test_features_of_classical_models_agree() -> None:
    floats = {"x": reals(0, 5, 3)}
    agree(
        model_of("Scaler", floats, domain="ai.onnx.ml", offset=[1.0, 2.0, 3.0], scale=[0.5, 1.0, 2.0]), floats
    )
    agree(
        model_of(
            "LinearRegressor",
            floats,
            domain="ai.onnx.ml",
            coefficients=[1.0, -2.0, 3.0, 0.5, 0.0, 1.0],
            intercepts=[0.1, 0.2],
            targets=2,
        ),
        floats,
    )
    labels = {"x": np.array([[7, 3], [5, 100], [3, -1]])}
    agree(
        model_of(
            "LabelEncoder",
            labels,
            domain="ai.onnx.ml",
            keys_int64s=[3, 7, 5],
            values_floats=[0.3, 0.7, 0.5],
            default_float=-9.0,
        ),
        labels,
    )


def test_dropout_in_training_keeps_the_mean() -> None:
    inputs = {"x": np.ones((100, 100), np.float32), "ratio": np.float32(0.25), "training": np.array(True)}
    model = model_of("Dropout", inputs, 2, stored=("ratio", "training"))
    out, kept = by_weft(model, inputs)
    np.testing.assert_allclose(out, np.where(kept, 1 / 0.75, 0.0), rtol=1e-6)
    assert 0.7 < kept.mean() < 0.8


# Mistakes


def failure(model: onnx.ModelProto) -> str:
    with pytest.raises(GraphError) as error:
        weft.onnx.load(model)
    return str(error.value)


def test_errors_name_the_node_and_what_must_hold() -> None:
    x, w, r = reals(0, 2, 1, 3), reals(1, 1, 4, 3), reals(2, 1, 4, 4)
    text = failure(model_of("RNN", {"x": x, "w": w, "r": r}, 2, hidden_size=4, activations=["Sine"]))
    assert "RNN node" in text
    assert "activations must be among relu, tanh" in text
    four = {"x": reals(0, 1, 1, 2, 2, 2, 2), "w": reals(1, 1, 1, 1, 1, 1, 1)}
    assert "the input must have 1 to 3 sizes after batch and channels, got 4" in failure(
        model_of("Conv", four)
    )
    tree = {
        "nodes_treeids": [0, 0],
        "nodes_nodeids": [0, 1],
        "nodes_featureids": [0, 0],
        "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ"],
        "nodes_values": [0.0, 0.0],
        "nodes_truenodeids": [1, 1],
        "nodes_falsenodeids": [1, 0],
        "target_treeids": [0],
        "target_nodeids": [0],
        "target_ids": [0],
        "target_weights": [1.0],
    }
    round_and_round = model_of("TreeEnsembleRegressor", {"x": reals(0, 2, 1)}, domain="ai.onnx.ml", **tree)
    assert "nodes must lead to leaves" in failure(round_and_round)
