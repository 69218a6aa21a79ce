"""Files of ONNX models: data beside them, damage, and errors that name the node."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

import weft
from tests.onnx.models import BRANCH, MLP, expected, floats, parse
from weft.errors import ArgumentError, FileError, GraphError, WeftError

# Files


def test_data_beside_the_model_is_read(tmp_path: Path) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(MLP)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    path = tmp_path / "mlp.onnx"
    onnx.save(model, path, save_as_external_data=True, location="mlp.data", size_threshold=0)
    assert (tmp_path / "mlp.data").exists()
    x = floats(2, 4)
    np.testing.assert_allclose(weft.onnx.load(path)(x).numpy(), expected(MLP, {"x": x})[0], rtol=1e-5)
    (tmp_path / "mlp.data").unlink()
    with pytest.raises((FileError, OSError), match=r"mlp\.data"):
        weft.onnx.load(path)


def test_data_outside_the_folder_of_the_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\0" * 80)
    (tmp_path / "in").mkdir()
    model = onnx.ModelProto()
    model.CopyFrom(MLP)
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    (tmp_path / "in" / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FileError, match=r"m\.onnx"):
        weft.onnx.load(tmp_path / "in" / "m.onnx")


@pytest.mark.parametrize(
    "data", [b"", b"not a model", b"\x08\x0a" + b"\xff" * 40, MLP.SerializeToString()[:100]]
)
def test_bytes_that_are_no_model_are_an_error(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="model"):
        weft.onnx.load(data)
    path = tmp_path / "broken.onnx"
    path.write_bytes(data)
    with pytest.raises(FileError, match=r"broken\.onnx"):
        weft.onnx.load(path)


@given(st.data())
def test_damaged_bytes_never_do_more_than_raise(data: st.DataObject) -> None:
    raw = bytearray(BRANCH.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(WeftError):
        weft.onnx.load(bytes(raw))


def test_missing_file_is_the_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        weft.onnx.load(tmp_path / "none.onnx")


def test_cycle_is_named() -> None:
    model = parse("f (float[2] x) => (float[2] y) { y = Add (x, h)  h = Exp (g)  g = Tanh (y) }")
    with pytest.raises(GraphError) as caught:
        weft.onnx.load(model)
    text = str(caught.value)
    assert "nodes must not form a cycle" in text
    for name in ("Add node 'y'", "Exp node 'h'", "Tanh node 'g'"):
        assert name in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f (float[2] x) => (float[2] y) { y = Add (x, h) }", "made by a node, got 'h'"),
        ("f (float[2] x) => (float[2] z) { y = Exp (x) }", "got 'z', which is neither"),
        (
            "f (float[2] x) => (float[2] y) { y = Exp (x)  y = Tanh (x) }",
            "a value must be made once, got 'y'",
        ),
        ("f (float[2] x) => (float[2] y) { y = Frobnicate (x) }", "got 'Frobnicate'"),
        ("f (float[2] x) => (float[2] y) { y = other.Exp (x) }", "operator sets must be imported"),
        ("f (float[2] x, float[3] z) => (float[2] y) { y = Add (x, z) }", "Add node 'y': add: shapes must"),
        ("f (float[2] x) => (float[2] y) { y = Concat <axis = 3> (x, x) }", "Concat node 'y'"),
        ("f (string[2] x) => (string[2] y) { y = Identity (x) }", "input 'x' must be of numbers, got string"),
        ("f (float[2] x) => (float[2] y) { y = Exp (x, x) }", "Exp node 'y': must be well formed"),
    ],
)
def test_wrong_model_is_an_error_that_names_the_node(text: str, message: str) -> None:
    with pytest.raises(WeftError) as caught:
        weft.onnx.load(parse(text))
    assert message in str(caught.value)


def test_newer_operator_set_than_known_is_an_error() -> None:
    model = parse(
        "f (float[2] x) => (float[2] y) { y = Exp (x) }", '<ir_version: 10, opset_import: ["": 999]>'
    )
    with pytest.raises(FileError, match=r"operator set \d+ or an earlier one, got 999"):
        weft.onnx.load(model)


def test_data_that_does_not_fit_its_shape_is_an_error() -> None:
    model = onnx.ModelProto()
    model.CopyFrom(MLP)
    model.graph.initializer[0].dims[0] = 2**40
    with pytest.raises(FileError, match=r"tensor 'fc1\.weight' must have data that fits"):
        weft.onnx.load(model)


def test_functions_that_grow_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.onnx.importer._MOST_NODES", 1000)
    functions = "".join(
        f'<domain: "own", opset_import: ["": 20, "own": 1]> F{i} (a) => (c) {{ b = own.F{i + 1} (a)  '
        f"c = own.F{i + 1} (b) }} "
        for i in range(20)
    )
    last = '<domain: "own", opset_import: ["": 20]> F20 (a) => (b) { b = Exp (a) }'
    header = '<ir_version: 10, opset_import: ["": 20, "own": 1]>'
    text = f"{header} f (float[2] x) => (float[2] y) {{ y = own.F0 (x) }}"
    with pytest.raises(GraphError, match="at most 1000 nodes"):
        weft.onnx.load(onnx.parser.parse_model(f"{text} {functions} {last}"))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"model": 3}, ArgumentError, "a path, bytes or a ModelProto, got int"),
        ({"model": MLP, "known": {"nope": 1}}, ArgumentError, "known must name inputs of the model"),
        ({"model": MLP, "known": {"x": ["a"]}}, WeftError, "'x' must be float32"),
        ({"model": MLP, "sizes": {"bach": 3}}, ArgumentError, "got 'bach', where it has 'batch'"),
        ({"model": MLP, "sizes": {"batch": "3"}}, ArgumentError, "'batch' must be an int from 0 on, got '3'"),
    ],
)
def test_wrong_argument_is_an_error(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        weft.onnx.load(**arguments)


def test_without_the_package_the_error_tells_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ArgumentError, match=r"pip install weft\[onnx\]"):
        weft.onnx.load(b"")


def test_package_is_imported_at_first_use_alone() -> None:
    code = "import sys, weft, weft.onnx.loading; weft.onnx.load; assert 'onnx' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
