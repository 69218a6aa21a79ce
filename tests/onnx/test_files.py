"""Models as a widely used exporter writes them: tests/onnx/files, made by tests/onnx/make_files.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft

FILES = sorted((Path(__file__).parent / "files").glob("*.onnx"))
OPEN = ("attention", "pictures", "recurrent", "resizing")  # those that take any batch


def stored(path: Path) -> tuple[dict[str, Any], list[Any]]:
    with np.load(path.with_suffix(".npz")) as arrays:
        inputs = {name: arrays[name] for name in arrays if name.startswith("x")}
        return inputs, [arrays[name] for name in arrays if name.startswith("y")]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("backend", ["interpret", "llvm"])
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_exported_model_gives_what_it_gave_where_it_was_made(path: Path, backend: str) -> None:
    inputs, outputs = stored(path)
    graph = weft.onnx.load(path)
    found = weft.Session(graph, backend=backend).run(list(graph.outputs), inputs)
    for own, wanted in zip(found, outputs, strict=True):
        assert own.dtype == wanted.dtype
        np.testing.assert_allclose(own.numpy(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("path", [p for p in FILES if p.stem.startswith(OPEN)], ids=lambda p: p.stem)
def test_exported_model_takes_another_batch(path: Path) -> None:
    inputs, outputs = stored(path)
    graph = weft.onnx.load(path)
    assert str(graph.inputs[0].type.shape[0]) == "batch"
    more = np.concatenate([inputs["x0"], inputs["x0"][:1], inputs["x0"]])
    first = weft.Session(graph).run(graph.outputs[0], {"x0": more})
    wanted = np.concatenate([outputs[0], outputs[0][:1], outputs[0]])
    np.testing.assert_allclose(first.numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_exported_attention_takes_another_time() -> None:
    path = next(p for p in FILES if p.stem == "attention_graph")
    inputs, outputs = stored(path)
    found = weft.onnx.load(path)(inputs["x0"][:, :3])  # it is causal: what comes later changes nothing
    np.testing.assert_allclose(found.numpy(), outputs[0][:, :3], rtol=1e-5, atol=1e-5)
