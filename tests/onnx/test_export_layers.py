"""Layers of ``weft.nn`` with open sizes, and training steps, give in onnxruntime what they give in weft."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.onnx.exports import assert_agrees, assert_same, export, leaves
from tests.onnx.test_export_examples import example
from weft import nn, optim

F = nn.functional


def image(*sizes: Any) -> Any:
    return weft.TensorType(("batch", *sizes), weft.float32)


CLASSES = weft.TensorType(("batch",), weft.int64)
CASES: dict[str, tuple[Any, tuple[Any, ...], list[str] | None]] = {
    "attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), (image("time", 8),) * 3, None),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (image("time", 8),), None),
    "decoder": (
        lambda: nn.TransformerDecoderLayer(8, 2, 16, batch_first=True),
        (image("time", 8), image("source", 8)),
        None,
    ),
    "gru": (lambda: nn.GRU(3, 4, num_layers=2, bidirectional=True), (image("time", 3),), None),
    "rnn": (lambda: nn.RNN(3, 4), (image("time", 3),), None),
    "lstm cell": (lambda: nn.LSTMCell(3, 4), (image(3),), None),
    "batch norm": (lambda: nn.BatchNorm3d(3), (image(3, "h", "w", "d"),), ["BatchNormalization"]),
    "plain batch norm": (lambda: nn.BatchNorm1d(3, affine=False), (image(3),), ["BatchNormalization"]),
    "group norm": (lambda: nn.GroupNorm(2, 4), (image(4, "h"),), None),
    "instance norm": (lambda: nn.InstanceNorm2d(3, affine=True), (image(3, "h", "w"),), None),
    "layer norm": (lambda: nn.LayerNorm((3, 4)), (image(3, 4),), ["LayerNormalization"]),
    "plain layer norm": (
        lambda: nn.LayerNorm(4, elementwise_affine=False),
        (image(4),),
        ["LayerNormalization"],
    ),
    "rms norm": (lambda: nn.RMSNorm(4), (image(4),), None),
    "convolution": (lambda: nn.Conv1d(4, 6, 3, groups=2, dilation=2, padding=2), (image(4, "n"),), ["Conv"]),
    "reflected convolution": (
        lambda: nn.Conv2d(2, 3, (3, 4), padding="same", padding_mode="reflect"),
        (image(2, 7, 8),),
        None,
    ),
    "transposed convolution": (
        lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
        (image(3, "h", "w"),),
        ["ConvTranspose"],
    ),
    "max pool": (lambda: nn.MaxPool2d(3, 2, 1), (image(2, "h", "w"),), ["MaxPool"]),
    "max pool with places": (lambda: nn.MaxPool2d(2, return_indices=True), (image(2, 6, 8),), None),
    "max pool to the end": (lambda: nn.MaxPool2d(3, 2, ceil_mode=True), (image(2, 7, 8),), ["MaxPool"]),
    "average pool": (lambda: nn.AvgPool2d(3, 2, 1), (image(2, "h", "w"),), ["AveragePool"]),
    "average of what is inside": (
        lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        (image(2, "h", "w"),),
        ["AveragePool"],
    ),
    "average of all": (lambda: nn.AdaptiveAvgPool2d(1), (image(2, "h", "w"),), ["GlobalAveragePool"]),
    "average of parts": (lambda: nn.AdaptiveAvgPool2d((3, 2)), (image(2, 7, 8),), None),
    "pixel shuffle": (lambda: nn.PixelShuffle(2), (image(8, "h", "w"),), ["DepthToSpace"]),
    "bilinear": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (image(2, 3, 4),), None),
    "bicubic": (
        lambda: nn.Upsample(size=(7, 5), mode="bicubic", align_corners=True),
        (image(2, 3, 4),),
        None,
    ),
    "prelu": (lambda: nn.PReLU(3), (image(3, "h"),), None),
    "embedding": (lambda: nn.Embedding(5, 3), (weft.TensorType(("batch", "time"), weft.int64),), ["Gather"]),
    "cross entropy": (lambda: nn.CrossEntropyLoss(), (image(4), CLASSES), ["SoftmaxCrossEntropyLoss"]),
    "entropy of logits": (lambda: nn.BCEWithLogitsLoss(), (image(4), image(4)), None),
    "windows": (lambda: nn.Unfold(2), (image(2, 5, 6),), None),
    "windows back": (lambda: nn.Fold((5, 6), 2), (image(8, 20),), None),
    "two inputs": (lambda: nn.Bilinear(3, 4, 2), (image(3), image(4)), None),
    "zeros around": (lambda: nn.ZeroPad2d(2), (image(2, "h", "w"),), ["Pad"]),
    "mirror around": (lambda: nn.ReflectionPad2d(1), (image(2, "h", "w"),), None),
    "gate": (lambda: nn.GLU(), (image(6),), None),
    "angle": (lambda: nn.CosineSimilarity(), (image(6), image(6)), None),
}
SIZES = {"batch": 3, "time": 5, "source": 2, "n": 9, "h": 6, "w": 7, "d": 2}


def arguments(types: tuple[Any, ...]) -> list[Any]:
    out = []
    for t in types:
        shape = tuple(SIZES.get(s, s) for s in t.shape)
        out.append(weft.randint(0, 4, shape) if t.dtype == weft.int64 else weft.randn(*shape))
    return out


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", [*CASES])
def test_layer_gives_the_same(name: str, tmp_path: Path) -> None:
    make, types, operators = CASES[name]
    model = make().eval()
    exported = export(model, tmp_path, *types)
    assert operators in (None, exported.operators)
    assert_agrees(exported, model, *arguments(types))


def steps() -> dict[str, tuple[Any, Any, tuple[Any, Any]]]:
    def gpt_loss(m: Any, x: Any, y: Any) -> Any:
        return F.cross_entropy(m(x)[0].reshape(-1, 30), y.reshape(-1))

    network = nn.Sequential(*[m for m in example("digits_cnn").make_model() if not isinstance(m, nn.Dropout)])
    tokens = weft.randint(0, 30, (2, 8)), weft.randint(0, 30, (2, 8))
    months = weft.randn(3, 7), weft.randn(3, 7)
    digits = weft.randn(4, 1, 8, 8), weft.tensor([1, 0, 7, 3])
    return {
        "network": (network, lambda m, x, y: F.cross_entropy(m(x), y), digits),
        "gpt": (example("char_gpt").GPT(30, 8, 16, 2, 1), gpt_loss, tokens),
        "lstm": (example("sunspots_lstm").Forecaster(4), lambda m, x, y: F.mse_loss(m(x), y), months),
    }


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", ["network", "gpt", "lstm"])
def test_training_step_gives_the_new_weights(name: str, tmp_path: Path) -> None:
    model, loss_of, (x, y) = steps()[name]
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    exported = export(step, tmp_path, x, y, updates="outputs")
    got = dict(zip(exported.outputs, exported.run(x.numpy(), y.numpy()), strict=True))
    assert_same([got["output"]], leaves(step(x, y)))
    for parameter_name, parameter in model.named_parameters():
        new = got[f"model.{parameter_name}.new"]
        np.testing.assert_allclose(new, parameter.detach().numpy(), rtol=1e-5, atol=1e-5)
