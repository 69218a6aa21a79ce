"""Pools into a number of bins, of inputs and outputs whose sizes are open: compiled, saved and exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import weft
from weft import nn
from weft.errors import ArgumentError

rng = np.random.default_rng(5)
F = weft.float32


def floats(*shape: int) -> Any:
    return weft.tensor(rng.normal(size=shape).astype(np.float32))


def of(*shape: Any) -> weft.TensorType:
    return weft.TensorType(shape, F)


def assert_saved_alike(
    f: Any, types: tuple[weft.TensorType, ...], path: Path, *calls: tuple[Any, ...]
) -> None:
    """One file of a function, and of its gradient, gives what eager code does at each call."""
    gradient = weft.grad(lambda *args: weft.sin(f(*args)).sum())
    for name, function in (("f", f), ("g", gradient)):
        weft.compile(function).save(path / f"{name}.weft", *types)
        loaded = weft.load_graph(path / f"{name}.weft")
        for args in calls:
            found, wanted = loaded(*args), function(*args)
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)


SIZES: list[Any] = [1, 2, (3, 2), (7, None), (5, 1)]


@pytest.mark.rotating(5)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_averages_of_bins_take_open_sizes(size: Any, tmp_path: Path) -> None:
    calls = [(floats(*shape),) for shape in ((1, 2, 4, 5), (2, 3, 1, 7), (1, 1, 9, 6))]
    assert_saved_alike(
        lambda x: weft.adaptive_avg_pool2d(x, size), (of("b", "c", "h", "w"),), tmp_path, *calls
    )


@pytest.mark.parametrize("pool", [weft.adaptive_avg_pool2d, weft.adaptive_max_pool2d])
def test_equal_bins_of_open_lengths(pool: Any, tmp_path: Path) -> None:
    calls = [(floats(*shape),) for shape in ((1, 2, 4, 6), (2, 3, 2, 8))]
    calls.append((weft.ones((1, 1, 4, 4)),))  # all are the largest
    for size in (1, 2):
        assert_saved_alike(
            lambda x, size=size: pool(x, size), (of("b", "c", "2*h", "2*w"),), tmp_path, *calls
        )


@pytest.mark.rotating(5)
@pytest.mark.parametrize("like", [(7, 9), (3, 4), (1, 1), (4, 5), (2, 10)], ids=str)
def test_the_number_of_bins_may_be_the_size_of_another_tensor(like: tuple[int, int], tmp_path: Path) -> None:
    types = (of("b", 2, "h", "w"), of("c", 1, "k", "l"))
    call = (floats(1, 2, 4, 5), floats(1, 1, *like))
    assert_saved_alike(lambda x, a: weft.adaptive_avg_pool2d(x, a.shape[-2:]), types, tmp_path, call)


def test_what_is_not_finite_stays_in_its_bins() -> None:
    x = floats(1, 2, 6)
    x[0, 0, 1], x[0, 1, 5] = float("nan"), float("inf")
    graph = weft.make_graph(lambda x: weft.adaptive_avg_pool1d(x, 4))(of(1, 2, "n"))
    np.testing.assert_allclose(graph(x).numpy(), weft.adaptive_avg_pool1d(x, 4).numpy(), rtol=1e-5)


def test_an_open_number_of_bins_must_fit_the_axes() -> None:
    with pytest.raises(ArgumentError, match="output_size must be an int or 2 of them"):
        weft.make_graph(lambda x: weft.adaptive_avg_pool2d(x, (x.shape[0],)))(of("n", 2, 4, 4))


@pytest.mark.parametrize(
    ("pool", "operator"),
    [
        (nn.AdaptiveAvgPool2d(1), "GlobalAveragePool"),
        (nn.AdaptiveMaxPool2d(1), "GlobalMaxPool"),
        (nn.AdaptiveAvgPool2d((3, 2)), None),
    ],
    ids=str,
)
def test_a_network_with_open_height_and_width_is_exported(
    pool: Any, operator: str | None, tmp_path: Path
) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), pool).eval()
    path = weft.onnx.export(model, tmp_path / "m.onnx", of("b", 3, "h", "w"))
    session, read = onnxruntime.InferenceSession(path), weft.compile(weft.onnx.load(path))
    for shape in ((2, 3, 8, 9), (1, 3, 5, 6)):
        x = floats(*shape)
        wanted = model(x).detach().numpy()
        for found in (session.run(None, {"x": x.numpy()})[0], read(x).numpy()):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    if operator:
        assert operator in [node.op_type for node in onnx.load(path).graph.node]
