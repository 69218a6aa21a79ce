"""The models of all examples, exported, give in onnxruntime what they give in weft."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import weft
from tests.examples.test_examples import FOLDER
from tests.onnx.exports import assert_agrees, assert_same, export, leaves
from weft import nn

F = nn.functional
f32, i64 = weft.float32, weft.int64


def example(name: str) -> ModuleType:
    """The module of an example."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _same_numbers_later() -> Any:
    state = weft.get_rng_state()
    weft.manual_seed(0)
    yield
    weft.set_rng_state(state)


def test_line(tmp_path: Path) -> None:
    model = nn.Linear(1, 1)
    exported = export(model, tmp_path, weft.TensorType(("points", 1), f32))
    assert exported.operators == ["Gemm"]
    assert_agrees(exported, model, weft.randn(5, 1))


def test_training_step_of_the_line_gives_new_weights(tmp_path: Path) -> None:
    x, y = example("linear_regression").points(20)
    model = nn.Linear(1, 1)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

    @weft.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    exported = export(step, tmp_path, x, y, updates="outputs")
    got = dict(zip(exported.outputs, exported.run(x.numpy(), y.numpy()), strict=True))
    loss = step(x, y)
    assert_same([got["output"]], leaves(loss))
    new = {name.removesuffix(".new"): value for name, value in got.items() if name.endswith(".new")}
    for parameter in (model.weight, model.bias):
        assert any(np.allclose(value, parameter.detach().numpy(), atol=1e-6) for value in new.values())


def test_digits_network(tmp_path: Path) -> None:
    model = example("digits_cnn").make_model().eval()
    for layer in (model[1], model[4]):
        layer.running_mean.copy_(weft.randn(*layer.running_mean.shape))
        layer.running_var.copy_(weft.rand(*layer.running_var.shape) + 0.5)
    exported = export(model, tmp_path, weft.TensorType(("batch", 1, 8, 8), f32))
    layers = ["Conv", "BatchNormalization", "Relu"]
    assert exported.operators == [*layers, *layers, "MaxPool", "Reshape", "Gemm"]
    assert "Dropout" not in exported.operators
    assert set(model.state_dict()) - set(exported.weights) <= {
        "1.num_batches_tracked",
        "4.num_batches_tracked",
    }
    for batch in (1, 7):
        assert_agrees(exported, model, weft.rand(batch, 1, 8, 8))


def test_digits_by_hand(tmp_path: Path) -> None:
    module = example("digits")
    parameters = [p.detach() for p in module.make_parameters((64, 16, 10))]

    def loss(x: Any, labels: Any) -> Any:
        logits = module.network(parameters, x)
        return logits, module.cross_entropy(logits, labels)

    batch = weft.TensorType(("batch", 64), f32), weft.TensorType(("batch",), i64)
    exported = export(loss, tmp_path, *batch)
    assert_agrees(exported, loss, weft.rand(3, 64), weft.tensor([1, 9, 4]))


@pytest.mark.parametrize("opset", [13, 20, 23])
def test_gpt(tmp_path: Path, opset: int) -> None:
    model = example("char_gpt").GPT(30, 32, 32, 4, 2).eval()

    def logits(tokens: Any) -> Any:
        return model(tokens)[0]

    exported = export(logits, tmp_path, weft.TensorType(("batch", 16), i64), opset=opset)
    assert exported.operators.count("Attention") == (2 if opset >= 23 else 0)
    assert exported.operators.count("LayerNormalization") == (5 if opset >= 17 else 0)
    assert exported.outputs == {"output": "float[batch,16,30]"}
    for batch in (1, 3):
        assert_agrees(exported, logits, weft.randint(0, 30, (batch, 16)))


def test_gpt_goes_on_from_its_cache(tmp_path: Path) -> None:
    model = example("char_gpt").GPT(30, 32, 32, 4, 2).eval()
    part = weft.TensorType((1, 4, "past", 8), f32)
    exported = export(model, tmp_path, weft.TensorType((1, 1), i64), [(part, part), (part, part)])
    assert [*exported.inputs] == ["tokens", "past.0.0", "past.0.1", "past.1.0", "past.1.1"]
    assert [*exported.outputs] == ["output.0", *[f"output.1.{i}.{k}" for i in (0, 1) for k in (0, 1)]]
    for length in (3, 9):
        _, cache = model(weft.randint(0, 30, (1, length)))
        assert_agrees(exported, model, weft.tensor([[3]]), cache)


def test_forecaster(tmp_path: Path) -> None:
    model = example("sunspots_lstm").Forecaster(8)
    exported = export(model, tmp_path, weft.TensorType(("series", "months"), f32))
    assert "LSTM" in exported.operators
    assert_agrees(exported, model, weft.randn(3, 20))


def test_autoencoder(tmp_path: Path) -> None:
    model = example("vae").VAE(4, 16)

    def rebuilt(images: Any, noise: Any) -> Any:
        mean, log_variance = model.encoder(images).chunk(2, -1)
        return model.decoder(mean + weft.exp(0.5 * log_variance) * noise), mean, log_variance

    images, noise = weft.TensorType(("batch", 64), f32), weft.TensorType(("batch", 4), f32)
    exported = export(rebuilt, tmp_path, images, noise)
    assert_agrees(exported, rebuilt, weft.rand(3, 64), weft.randn(3, 4))
    with pytest.raises(weft.errors.GraphError, match="random numbers") as caught:
        export(model, tmp_path, images)
    assert "vae.py" in str(caught.value)
    assert "takes the random numbers as an argument" in str(caught.value)


def test_residual_of_the_equation_with_second_derivatives(tmp_path: Path) -> None:
    module = example("physics_informed")
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))

    def residual(t: Any, x: Any) -> Any:
        return module.residual(model, t, x)

    points = weft.TensorType(("points",), f32)
    exported = export(residual, tmp_path, points, points)
    assert_agrees(exported, residual, weft.rand(6), weft.rand(6))


def test_policy_and_advantages(tmp_path: Path) -> None:
    module = example("policy_gradient")
    policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    assert_agrees(export(policy, tmp_path, weft.TensorType(("carts", 4), f32)), policy, weft.randn(5, 4))
    exported = export(module.advantages, tmp_path, weft.TensorType(("steps", "carts"), weft.bool))
    assert "Scan" in exported.operators
    assert_agrees(exported, module.advantages, weft.rand(7, 3) > 0.2)


def test_loops_of_newton_and_of_the_ball(tmp_path: Path) -> None:
    module = example("newton_ode")
    kepler = export(module.kepler, tmp_path, weft.TensorType(("means",), f32), weft.TensorType((), f32))
    assert "Loop" in kepler.operators
    assert_agrees(kepler, module.kepler, weft.linspace(0, 3, 20), weft.tensor(0.6))
    throw = export(module.throw, tmp_path, weft.tensor([0.6, 8.0]))
    assert "Loop" in throw.operators
    for aim in ([0.6, 8.0], [1.1, 5.0]):
        assert_agrees(throw, module.throw, weft.tensor(aim))


def test_sentences_of_different_length(tmp_path: Path) -> None:
    model = example("ragged_text").Author(20, 4)
    words, splits = weft.randint(0, 20, (9,)), [0, 4, 5, 9]

    def fixed(words: Any) -> Any:
        return model(weft.ragged_from_splits(words, splits))

    def any_rows(words: Any, splits: Any) -> Any:
        """The same on what a ragged tensor is made of, where splits are a tensor too."""
        row = weft.searchsorted(splits, weft.arange(words.shape[0]), side="right") - 1
        vectors = model.vectors(words)
        scores = model.weigh(vectors)[:, 0]
        powers = weft.exp(scores - scores.max())
        totals = weft.zeros(splits.shape[0] - 1).index_add(row, powers, axis=0)
        parts = vectors * (powers / totals[row])[:, None]
        mixed = weft.zeros((splits.shape[0] - 1, 4)).index_add(row, parts, axis=0)
        return model.decide(mixed)[:, 0]

    assert_agrees(export(fixed, tmp_path, words), fixed, words)
    types = weft.TensorType(("words",), i64), weft.TensorType(("ends",), i64)
    exported = export(any_rows, tmp_path, *types)
    assert_same(exported.run(words.numpy(), np.array(splits)), leaves(fixed(words)))
    assert_agrees(exported, any_rows, weft.randint(0, 20, (7,)), weft.tensor([0, 1, 3, 6, 7]))


def test_network_on_a_graph(tmp_path: Path) -> None:
    module = example("graph_convolution")
    model = module.Network(5, 4)

    def logits(indices: Any, values: Any, x: Any) -> Any:
        return model(weft.SparseTensor(indices, values, (5, 5)), x)

    edges = weft.TensorType((2, "edges"), i64), weft.TensorType(("edges",), f32)
    exported = export(logits, tmp_path, *edges, weft.eye(5))
    for pairs in ([[0, 1], [1, 2], [3, 4]], [[0, 4]]):
        neighbours = module.normalised(weft.tensor(pairs), 5)
        assert_agrees(exported, logits, neighbours.indices, neighbours.values, weft.eye(5))


def test_demo_and_graphs_by_hand(tmp_path: Path) -> None:
    model = example("demo").make_model().eval()
    exported = export(model, tmp_path, weft.TensorType(("batch", 1, 8, 8), f32))
    assert_agrees(exported, model, weft.rand(3, 1, 8, 8))
    module = example("graphs")
    x, w = weft.randn(2, 3), weft.randn(3, 3) * 0.1
    assert_agrees(export(module.settle, tmp_path, x, w), module.settle, x, w)
    assert_agrees(export(module.softmax_by_hand, tmp_path, x), module.softmax_by_hand, x)
