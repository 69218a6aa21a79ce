"""Libraries compute what the compiled function computes, bit by bit, in a program that has no Python."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import weft
from tests.ir.random_graphs import arrays_of, graphs
from tests.library.harness import Library, exported, run_example, same
from weft import nn
from weft.backends.llvm.driver import build_executable

Type = weft.TensorType


def numbers(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


class Case(NamedTuple):
    """A function, the arrays it runs on, the types to export it for, and the sizes of the run."""

    function: Any
    arrays: tuple[Any, ...]
    types: tuple[Any, ...] = ()
    sizes: Mapping[str, int] = MappingProxyType({})


def mlp() -> Case:
    layers = [nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10)]
    return Case(nn.Sequential(*layers), (numbers(7, 20),), (Type(("batch", 20), weft.float32),), {"batch": 7})


def digits_cnn() -> Case:
    layers = [
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 10)),
    ]
    model = nn.Sequential(*layers).eval()
    return Case(model, (numbers(5, 1, 8, 8),), (Type(("batch", 1, 8, 8), weft.float32),), {"batch": 5})


def attention() -> Case:
    return Case(nn.TransformerEncoderLayer(32, 4, 64).eval(), (numbers(2, 9, 32),))


def lstm() -> Case:
    layer = nn.LSTM(6, 12)
    types = (Type(("time", 3, 6), weft.float32),)
    return Case(lambda x: layer(x)[0], (numbers(11, 3, 6),), types, {"time": 11})


def collatz(n: Any, x: Any) -> Any:
    count = 0
    while n > 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        count = count + 1
    return count, x * n


def loop_with_branches() -> Case:
    return Case(collatz, (np.int64(27), numbers(3)))


def several(a: Any, b: Any, c: Any, d: Any) -> Any:
    half = a.astype(weft.bfloat16) * b
    return {"half": half, "counts": c + c.sum(), "flags": [(c > 2) & d], "waves": weft.complex(a, a) * 2}


def dtypes() -> Case:
    a = numbers(3, 4)
    b = weft.tensor(a).astype(weft.bfloat16).numpy()
    return Case(several, (a, b, np.arange(5, dtype=np.int32), np.array([1, 0, 1, 1, 1], bool)))


def leaves(x: Any) -> list[Any]:
    return [leaf for leaf in weft.tree_leaves(x) if leaf is not None]


def compiled_for(function: Any, folder: Path, *types: Any) -> Any:
    """The function compiled for types, whose named sizes stay open at each call."""
    weft.compile(function).save(folder / "saved.weft", *types)
    return weft.load_graph(folder / "saved.weft")


MODELS = [mlp, digits_cnn, attention, lstm, loop_with_branches, dtypes]


@pytest.mark.rotating(3)
@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_example_program_gives_what_the_compiled_function_gives(
    make: Callable[[], Case], tmp_path: Path
) -> None:
    weft.manual_seed(0)
    case = make()
    tensors = [weft.tensor(a) for a in case.arrays]
    with weft.no_grad():
        run = compiled_for(case.function, tmp_path, *(case.types or tensors))
        exported(run, tmp_path)
        expected = leaves(run(*tensors))
    assert same(run_example(tmp_path, case.arrays, **case.sizes), expected)


@settings(max_examples=6, suppress_health_check=[*HealthCheck], deadline=None)
@given(graphs())
def test_random_graph_gives_what_its_compiled_form_gives(graph: Any) -> None:
    graph = graph.replace(roles=["arg"] * len(graph.inputs))
    arrays = arrays_of(graph)
    with tempfile.TemporaryDirectory() as folder:
        weft.export_library(graph, folder, name="model")
        found = Library(Path(folder))(*arrays)
    expected = dict(zip(graph.results, build_executable(graph.optimize())(arrays), strict=True))
    for array, value in zip(found, dict.fromkeys(graph.outputs), strict=False):  # what changes comes after
        np.testing.assert_array_equal(array, expected[value], strict=True)


def test_one_library_runs_every_batch(tmp_path: Path) -> None:
    case = digits_cnn()
    run = compiled_for(case.function, tmp_path, *case.types)
    with exported(run, tmp_path).create() as handle:
        for batch in (3, 1, 64, 0, 2):  # memory for what is in between grows, and stays
            x = numbers(batch, 1, 8, 8)
            assert same(handle(x, batch=batch), [run(weft.tensor(x))])


def test_product_by_blas_takes_the_library_beside_it(tmp_path: Path) -> None:
    run = weft.compile(lambda x, y: x @ y)
    x, y = numbers(512, 512), numbers(512, 640)
    folder = tmp_path / "first"
    weft.export_library(run, folder, weft.tensor(x), weft.tensor(y), name="product")
    moved = folder.rename(tmp_path / "moved")
    assert any("openblas" in path.name for path in moved.iterdir())
    assert same(Library(moved, "product")(x, y), [run(weft.tensor(x), weft.tensor(y))])


def test_random_numbers_are_those_of_the_seed(tmp_path: Path) -> None:
    run = weft.compile(lambda x: x + weft.randn(4))
    x = numbers(4)
    library = exported(run, tmp_path, weft.tensor(x))
    with library.create() as handle:
        for seed in (0, 7):
            weft.manual_seed(seed)
            library.function("seed")(handle.handle, seed)
            for _ in range(3):
                assert same(handle(x), [run(weft.tensor(x))])


def test_argument_and_weight_that_are_returned_are_outputs(tmp_path: Path) -> None:
    scale = weft.tensor([2.0, 3.0])

    def function(x: Any) -> Any:
        y = x * scale
        return {"given": x, "scaled": y, "again": y, "number": 3}

    x = numbers(2)
    library = exported(weft.compile(function), tmp_path, weft.tensor(x))
    assert [d["name"] for d in library.signature["outputs"]] == ["given", "scaled"]
    assert same(library(x), [x, x * np.array([2, 3], np.float32)])


def test_argument_that_is_changed_is_an_output_too(tmp_path: Path) -> None:
    def function(x: Any, y: Any) -> Any:
        x += y
        x[0] = 5.0
        return x.sum()

    x, y = numbers(3), numbers(3) + 1
    library = exported(weft.compile(function), tmp_path, weft.tensor(x), weft.tensor(y))
    assert [d["name"] for d in library.signature["outputs"]] == ["out", "x.new"]
    before, expected = x.copy(), x + y
    expected[0] = 5
    total, new = library(x, y)
    assert same([x, new], [before, expected])
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-6)


def test_loaded_graph_is_exported_with_the_weights_it_has(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    weft.jit.trace(model, weft.ones((4, 3))).save(tmp_path / "linear.weft")
    loaded = weft.load_graph(tmp_path / "linear.weft")
    loaded.weights["bias"] += 1.0
    loaded.export_library(tmp_path / "c", name="linear")
    x = numbers(4, 3)
    assert same(Library(tmp_path / "c", "linear")(x), [loaded(weft.tensor(x))])


def test_graph_with_parameters_is_exported(tmp_path: Path) -> None:
    w = weft.tensor(numbers(3, 2))
    with weft.Graph("affine") as graph:
        x = weft.placeholder("x", ("n", 3), weft.float32)
        weft.tanh(x @ w)
    weft.export_library(graph, tmp_path)
    given = numbers(4, 3)
    assert same(Library(tmp_path, "affine")(given, n=4), [graph(weft.tensor(given))])
