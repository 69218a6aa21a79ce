"""Loaded graphs by the names of their inputs and outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from weft.io.interface import Interface, random_inputs


def interface_of(path: Path, function: Any, *args: Any, **kwargs: Any) -> Interface:
    weft.compile(function).save(path, *args, **kwargs)
    return Interface(weft.load_graph(path))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "f.weft"


F2 = weft.TensorType((2,), weft.float32)
ONES = np.ones(2, np.float32)


def test_names_are_paths_in_the_trees(path: Path) -> None:
    def f(pair: Any, options: Any) -> Any:
        return {"sum": pair[0] + pair[1], "rest": [pair[0] * options["k"], "text"]}

    found = interface_of(path, f, (F2, F2), {"k": F2})
    assert [port.name for port in found.inputs] == ["pair.0", "pair.1", "options.k"]
    assert [port.name for port in found.outputs] == ["sum", "rest.0"]
    results = found.run([ONES, 2 * ONES, 5 * ONES])
    assert [r.tolist() for r in results] == [[3.0, 3.0], [5.0, 5.0]]


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: x + 1, ["output"]),
        (lambda x: (x + 1, x * 2), ["output0", "output1"]),
        (lambda x: [{"a": x + 1}], ["output0.a"]),
        (lambda x: None, []),
    ],
)
def test_names_of_what_is_returned(path: Path, function: Any, names: list[str]) -> None:
    assert [port.name for port in interface_of(path, function, F2).outputs] == names


def test_outputs_of_a_graph_keep_their_names(path: Path) -> None:
    with weft.Graph("g") as g:
        x = weft.placeholder("x", ("n",))
        y = x * 2.0
        z = y + 1.0
        y.name, z.name = "double", "more"
    weft.save_graph(g, path)
    found = Interface(weft.load_graph(path))
    assert [port.name for port in found.outputs] == ["double", "more"]
    assert found.sizes == ["n"]


def test_arguments_and_weights_that_are_returned_have_types(path: Path) -> None:
    weight = weft.ones((3, 1))
    found = interface_of(path, lambda x: (x, weight, x.sum()), F2)
    assert [str(port.type) for port in found.outputs] == ["f32[2]", "f32[3,1]", "f32[]"]
    assert [r.shape for r in found.run([ONES])] == [(2,), (3, 1), ()]


def test_plain_arguments_are_those_it_was_saved_with(path: Path) -> None:
    def f(x: Any, k: int = 2, *, scale: float = 3.0) -> Any:
        return x * k * scale

    found = interface_of(path, f, F2, scale=4.0)
    assert [port.name for port in found.inputs] == ["x"]
    assert found.run([ONES])[0].tolist() == [8.0, 8.0]


def test_a_tensor_that_is_given_twice_is_one_input(path: Path) -> None:
    x = weft.ones(2)
    found = interface_of(path, lambda a, b: a + b, x, x)
    assert [port.name for port in found.inputs] == ["a"]
    assert found.run([ONES])[0].tolist() == [2.0, 2.0]


def test_a_tensor_alone_in_a_tuple_is_given_in_it(path: Path) -> None:
    found = interface_of(path, lambda pair: pair[0] * 2.0, (F2,))
    assert found.run([ONES])[0].tolist() == [2.0, 2.0]


def test_arrays_take_the_dtype_of_their_input(path: Path) -> None:
    found = interface_of(path, lambda x, i: x + i, F2, weft.TensorType((), weft.int8))
    arrays = found.arrays({"i": 3, "x": np.arange(2)})
    assert [a.dtype.name for a in arrays] == ["float32", "int8"]
    assert found.run(arrays)[0].tolist() == [3.0, 4.0]


def test_bfloat16_comes_through_files_of_numpy(path: Path, tmp_path: Path) -> None:
    found = interface_of(path, lambda x: x + 1, weft.TensorType((2,), weft.bfloat16))
    np.save(tmp_path / "x.npy", np.array([1, 2], ml_dtypes.bfloat16))
    arrays = found.arrays({"x": np.load(tmp_path / "x.npy")})
    assert found.run(arrays)[0].astype(np.float32).tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "every input must be given, got none for x: f32"),
        ({"x": ONES, "y": ONES}, "inputs must be among x, got 'y'"),
        ({"x": ONES * 1j}, "x must be f32.2., got an array of complex"),
        ({"x": np.array(["a", "b"])}, "x must be f32.2., got an array of str"),
    ],
)
def test_inputs_that_do_not_fit_are_told(path: Path, given: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        interface_of(path, lambda x: x + 1, F2).arrays(given)


def test_check_raises_what_a_run_would(path: Path) -> None:
    found = interface_of(path, lambda x: x + 1, F2)
    found.check([ONES])
    with pytest.raises(weft.errors.ShapeError, match=r"x must be f32\[2\], got f32\[3\]"):
        found.check([np.ones(3, np.float32)])


def test_random_inputs_fit(path: Path) -> None:
    kinds = [weft.TensorType(("n", 2), t) for t in (weft.float32, weft.int64, weft.bool)]
    found = interface_of(path, lambda x, i, b: weft.where(b, x, i.astype(weft.float32)), *kinds)
    arrays = random_inputs(found, {"n": 5}, np.random.default_rng(0))
    assert [a.shape for a in arrays] == [(5, 2)] * 3
    found.check(arrays)


def test_floats_that_may_differ_are_inputs(path: Path) -> None:
    f = weft.compile(lambda x, s: x * s)
    f(weft.ones(2), 1.5)
    f(weft.ones(2), 2.5)
    f.save(path)
    found = Interface(weft.load_graph(path))
    assert [str(port.type) for port in found.inputs] == ["f32[2]", "f64[]"]
    assert found.run(found.arrays({"x": ONES, "s": 4}))[0].tolist() == [4.0, 4.0]
