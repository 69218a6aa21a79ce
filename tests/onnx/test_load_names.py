"""Names of a model are names of the graph, numbers too: ``"0"`` is the input, ``"%0"`` the first value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import weft
from tests.onnx.models import parse
from weft.errors import GraphError
from weft.io.interface import Interface, open_model

X, Y = np.array([1.0, -2.0], np.float32), np.array([0.5, 0.25], np.float32)


def numbered() -> onnx.ModelProto:
    """As PyTorch wrote models for years: inputs, values and outputs are called by numbers."""
    model = parse("f (float[2] x, float[2] y) => (float[2] d) { b = Relu (x) c = Neg (b) d = Sub (c, y) }")
    names = {"x": "1", "y": "0", "b": "2", "c": "3", "d": "4"}
    for item in (*model.graph.input, *model.graph.output):
        item.name = names[item.name]
    for node in model.graph.node:
        node.input[:] = [names[n] for n in node.input]
        node.output[:] = [names[n] for n in node.output]
    return model


WANTED = -np.maximum(X, 0) - Y


def test_a_number_is_the_name_that_the_model_gave() -> None:
    graph = weft.onnx.load(numbered())
    session = weft.Session(graph)
    np.testing.assert_allclose(session.run("4", {"1": X, "0": Y}).numpy(), WANTED)
    np.testing.assert_allclose(graph.run("4", {"1": X, "0": Y}).numpy(), WANTED)
    np.testing.assert_allclose(graph(weft.tensor(X), **{"0": Y}).numpy(), WANTED)
    np.testing.assert_allclose(graph(**{"1": X, "0": Y}).numpy(), WANTED)
    assert [graph.value(name) for name in ("1", "0", "4")] == [*graph.inputs, *graph.outputs]


def test_a_printed_number_is_written_with_its_sign() -> None:
    graph = weft.onnx.load(numbered())
    session = weft.Session(graph)
    np.testing.assert_allclose(session.run("%0", {"1": X}).numpy(), np.maximum(X, 0))
    np.testing.assert_allclose(session.run("4", {"%0": X, "0": Y}).numpy(), -X - Y)
    assert graph.value("%0") is graph.nodes[0].outputs[0]
    with weft.Graph("g") as plain:
        x = weft.placeholder("x", (2,))
        _ = weft.exp(x) + 1.0
    for wrong in ("0", "1"):
        words = rf"must be in the graph g, got {wrong}\n(.*\n)* *hint: .*%{wrong}"
        with pytest.raises(GraphError, match=words):
            plain.run(wrong, {"x": X})
    np.testing.assert_allclose(plain.run("%1", {"x": X}).numpy(), np.exp(X) + 1, rtol=1e-6)


def test_numbers_stay_names_in_text_in_files_and_in_exported_models(tmp_path: Path) -> None:
    graph = weft.onnx.load(numbered())
    assert 'graph f(%"1": f32[2], %"0": f32[2])' in str(graph)
    read = weft.parse_graph(graph.to_text())
    assert read.same(graph, locations=False)
    assert [v.name for v in (*read.inputs, *read.outputs)] == ["1", "0", "4"]
    weft.save_graph(graph, tmp_path / "f.weft")
    loaded = weft.load_graph(tmp_path / "f.weft")
    np.testing.assert_allclose(loaded(X, Y).numpy(), WANTED)
    again = onnx.load(weft.onnx.export(loaded, tmp_path / "f.onnx"))
    assert np.allclose(onnx_run(again, [X, Y]), WANTED)


def onnx_run(model: onnx.ModelProto, arrays: list[Any]) -> Any:
    names = [item.name for item in model.graph.input]
    return onnx.reference.ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))[0]  # type: ignore[index]


@pytest.mark.parametrize("name", ["0", "input.1", "x"])
def test_programs_that_know_a_model_by_its_file_find_its_names(tmp_path: Path, name: str) -> None:
    model = parse("f (float[2] x) => (float[2] y) { y = Exp (x) }")
    model.graph.input[0].name = model.graph.node[0].input[0] = name
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    for opened in (open_model(path), _through_a_file(path, tmp_path)):
        interface = Interface(opened)
        assert [port.name for port in interface.inputs] == [name]
        (found,) = interface.run(interface.arrays({name: X}))
        np.testing.assert_allclose(found, np.exp(X), rtol=1e-6)


def _through_a_file(path: Path, folder: Path) -> Any:
    weft.save_graph(weft.onnx.load(path), folder / "m.weft")
    return weft.load_graph(folder / "m.weft")
