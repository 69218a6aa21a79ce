"""Weights of loaded graphs that are packed once: never stale, whatever is done to them, and the same bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.io.kept import is_kept
from weft import nn, optim
from weft.backends.llvm.fingerprint import fingerprint
from weft.backends.llvm.prepared import PreparedExecutable
from weft.backends.llvm.target import host_target
from weft.backends.llvm.tuned import machine_like
from weft.capture.static.block import parameters
from weft.io.model import LoadedGraph
from weft.io.saved import saved_graph
from weft.schedule.cpu.units import unit_for

Array = np.ndarray[Any, Any]
INPUTS, OUTPUTS = 192, 80  # of weights large enough to be packed; the last panel is not full
OPEN = weft.TensorType(("batch", INPUTS), weft.float32)
keeps = pytest.mark.skipif(fingerprint() is None, reason="programs are not kept on this machine")


def file_of(path: Path, example: Any = OPEN) -> str:
    weft.manual_seed(0)
    file = str(path / "linear.weft")
    weft.compile(nn.Linear(INPUTS, OUTPUTS).requires_grad_(False)).save(file, example)
    return file


def rows(count: int) -> Array:
    return np.random.default_rng(count).standard_normal((count, INPUTS), dtype=np.float32)


def expected(loaded: Any, x: Array) -> Array:
    """What NumPy computes of the weights that a loaded graph has now, in double precision."""
    weight, bias = (loaded.weights[name].numpy().astype(float) for name in ("weight", "bias"))
    return x.astype(float) @ weight.T + bias


def check(loaded: Any, x: Array) -> None:
    np.testing.assert_allclose(loaded(x).numpy(), expected(loaded, x), rtol=1e-4, atol=1e-4)


def is_prepared(loaded: Any) -> bool:
    if is_kept(loaded):
        return loaded._cached.program._preparation is not None
    return isinstance(loaded._opened.version.run, PreparedExecutable)


def holds_weights(loaded: Any) -> bool:
    """Whether what was computed of weights is kept for the next call."""
    if is_kept(loaded):
        return loaded._cached.program._preparation._held is not None
    return loaded._opened.version.run._preparation._held is not None


@pytest.fixture(params=["compiled", pytest.param("kept", marks=keeps)])
def loaded(request: Any, cache: Path, tmp_path: Path) -> Any:
    """A graph whose weights were packed at a call; compiled, or as it was kept on disk."""
    file = file_of(tmp_path)
    found = weft.load_graph(file)
    found(rows(3))
    if request.param == "kept":
        found = weft.load_graph(file)
        found(rows(3))
    assert is_kept(found) is (request.param == "kept")
    assert is_prepared(found)
    assert holds_weights(found)
    return found


# The same results


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 12, 13, 31, 32, 33, 64, 100, 600])
def test_open_batch_gives_what_numpy_does(loaded: Any, count: int) -> None:
    check(loaded, rows(count))


def test_row_has_the_same_bits_in_every_batch(loaded: Any) -> None:
    x = rows(101)
    whole = loaded(x).numpy()
    for first, last in ((0, 1), (5, 8), (40, 57), (64, 101)):
        np.testing.assert_array_equal(loaded(x[first:last]).numpy(), whole[first:last])


@pytest.mark.parametrize("count", [1, 5, 16, 48, 130])
def test_bits_are_those_of_weights_that_are_packed_at_each_call(
    cache: Path, tmp_path: Path, count: int
) -> None:
    file, x = file_of(tmp_path), rows(count)
    once, anew = weft.load_graph(file), weft.load_graph(file)
    for weight in anew.weights.values():
        weight.data = weft.tensor(weight.numpy().copy())
    np.testing.assert_array_equal(once(x).numpy(), anew(x).numpy())
    assert is_prepared(once)
    assert not is_prepared(anew)


@pytest.mark.parametrize("count", [1, 6, 64, 200])
def test_known_batch_gives_what_numpy_does(cache: Path, tmp_path: Path, count: int) -> None:
    loaded = weft.load_graph(file_of(tmp_path, weft.ones((count, INPUTS))))
    for _ in range(2):
        check(loaded, rows(count))


def test_several_products_share_a_weight(cache: Path, tmp_path: Path) -> None:
    w = weft.tensor(np.random.default_rng(0).standard_normal((INPUTS, INPUTS), dtype=np.float32))
    file = str(tmp_path / "twice.weft")
    weft.compile(lambda x: weft.tanh(x @ w * 0.01) @ w + (x @ w.T)).save(file, OPEN)
    loaded, x = weft.load_graph(file), rows(9)
    exact, plain = w.numpy().astype(float), x.astype(float)
    wanted = np.tanh(plain @ exact * 0.01) @ exact + plain @ exact.T
    for _ in range(2):
        np.testing.assert_allclose(loaded(x).numpy(), wanted, rtol=1e-3, atol=1e-3)
    assert is_prepared(loaded)


def test_mapped_file_gives_the_same_bits(cache: Path, tmp_path: Path) -> None:
    file = file_of(tmp_path)
    read, mapped = weft.load_graph(file), weft.load_graph(file, mmap=True)
    for x in (rows(4), rows(40)):
        np.testing.assert_array_equal(read(x).numpy(), mapped(x).numpy())


def test_weights_begin_where_lines_of_the_cache_do(cache: Path, tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 300), nn.Linear(300, 3)).requires_grad_(False)
    file = str(tmp_path / "network.weft")
    weft.compile(network).save(file, weft.ones((2, 7)))
    for _ in range(2):
        loaded = weft.load_graph(file)
        loaded(weft.ones((2, 7)))
        assert [w.numpy().ctypes.data % 64 for w in loaded.weights.values()] == [0] * 6


def test_saved_again_it_has_its_weights(loaded: Any, tmp_path: Path) -> None:
    file = str(tmp_path / "again.weft")
    loaded.save(file)
    again = weft.load_graph(file)
    np.testing.assert_array_equal(again(rows(5)).numpy(), loaded(rows(5)).numpy())
    np.testing.assert_array_equal(again.weights["weight"].numpy(), loaded.weights["weight"].numpy())


# Never stale


def _copied(w: weft.Tensor) -> None:
    w.copy_(weft.full(w.shape, 0.5))


def _scaled(w: weft.Tensor) -> None:
    w *= 2.0


def _item(w: weft.Tensor) -> None:
    w[3, 5] = 100.0


def _row_through_a_view(w: weft.Tensor) -> None:
    row = w[7]
    row += 3.0


def _through_the_transpose(w: weft.Tensor) -> None:
    w.T[0] = 9.0


def _detached(w: weft.Tensor) -> None:
    w.detach().add_(1.0)


def _data(w: weft.Tensor) -> None:
    w.data = weft.full(w.shape, -0.25)


def _by_an_optimizer(w: weft.Tensor) -> None:
    w.requires_grad_()
    optimizer = optim.SGD([w], lr=0.5)
    (w * w).sum().backward()
    optimizer.step()
    w.requires_grad_(False)


def _from_numpy(w: weft.Tensor) -> None:
    w.data = weft.from_dlpack(np.full(w.shape, 0.125, np.float32))


CHANGES: list[Callable[[weft.Tensor], None]] = [
    _copied, _scaled, _item, _row_through_a_view, _through_the_transpose, _detached, _data, _by_an_optimizer,
    _from_numpy,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__.strip("_"))
def test_changed_weight_is_seen_by_the_next_call(loaded: Any, change: Callable[[weft.Tensor], None]) -> None:
    x, weight = rows(6), loaded.weights["weight"]
    before = loaded(x).numpy()
    for _ in range(3):  # an array that was given to it may be written in place by later changes
        change(weight)
        check(loaded, x)
        check(loaded, x)
    assert not np.array_equal(loaded(x).numpy(), before)


def test_changed_back_and_forth_every_call_sees_the_weight_it_has(loaded: Any) -> None:
    x, weight = rows(2), loaded.weights["weight"]
    first = weight.numpy().copy()
    before = loaded(x).numpy()
    for _ in range(3):
        weight.copy_(weft.zeros(weight.shape))
        np.testing.assert_array_equal(loaded(x).numpy(), np.tile(loaded.weights["bias"].numpy(), (2, 1)))
        weight.copy_(weft.tensor(first))
        np.testing.assert_array_equal(loaded(x).numpy(), before)


def test_array_of_a_user_that_a_weight_shows_is_read_at_each_call(loaded: Any) -> None:
    x, own = rows(2), np.zeros((OUTPUTS, INPUTS), np.float32)
    loaded.weights["weight"].data = weft.from_dlpack(own)
    for number in (1.0, 2.0, 3.0):
        own[...] = number  # of which weft is not told
        check(loaded, x)
    assert not is_prepared(loaded) or not holds_weights(loaded)


def test_nobody_is_given_memory_of_a_packed_weight_to_write_to(loaded: Any) -> None:
    weight = loaded.weights["weight"]
    shown = weight.numpy()
    with pytest.raises(ValueError, match="read-only"):
        shown[0, 0] = 1.0
    with pytest.raises(ValueError, match="WRITEABLE"):
        shown.flags.writeable = True
    old = np.from_dlpack(_Old(weight))  # who cannot be told that memory is read-only is given a copy
    assert not np.shares_memory(old, shown)
    check(loaded, rows(3))


def test_living_tensors_of_a_graph_that_is_run_as_one_from_a_file_stay_as_they_are() -> None:
    own = np.ones((OUTPUTS, INPUTS), np.float32)
    weight = weft.from_dlpack(own)
    loaded = LoadedGraph(saved_graph(weft.make_graph(lambda x: x @ weight.T)(OPEN)))
    x = rows(3)
    for number in (1.0, 2.0):
        own[...] = number
        wanted = np.tile(number * x.astype(float).sum(axis=1, keepdims=True), (1, OUTPUTS))
        np.testing.assert_allclose(loaded(x).numpy(), wanted, rtol=1e-3, atol=1e-3)
    assert own.flags.writeable


class _Old:
    """A tensor as consumers of DLPack before version 1.0 see it."""

    def __init__(self, tensor: weft.Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        return self._tensor.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()


def test_state_that_a_graph_changes_is_not_packed(cache: Path, tmp_path: Path) -> None:
    model = nn.Linear(INPUTS, OUTPUTS)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x: weft.Tensor) -> weft.Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    file, x = str(tmp_path / "step.weft"), weft.tensor(rows(64))
    weft.compile(step).save(file, x)
    loaded = weft.load_graph(file)
    held = [loaded.weights[name]._data for name in ("model.weight", "model.bias")]
    assert all(array.base is None and array.flags.writeable for array in held)  # may be written in place
    del held
    interpreted = weft.load_graph(file, backend="interpret")
    for _ in range(4):
        np.testing.assert_allclose(float(loaded(x)), float(interpreted(x)), rtol=1e-4)
    assert not is_prepared(loaded)


# Programs on disk


@keeps
def test_each_loaded_graph_packs_its_own_weights(cache: Path, tmp_path: Path) -> None:
    file, x = file_of(tmp_path), rows(3)
    weft.load_graph(file)(x)
    one, other = weft.load_graph(file), weft.load_graph(file)
    assert np.array_equal(one(x).numpy(), other(x).numpy())
    one.weights["weight"].copy_(weft.zeros((OUTPUTS, INPUTS)))
    for graph in (one, other, one, other):
        assert is_kept(graph)
        check(graph, x)


@keeps
def test_program_without_the_one_that_prepares_is_compiled_again(cache: Path, tmp_path: Path) -> None:
    file, x = file_of(tmp_path), rows(3)
    first = weft.load_graph(file)
    wanted = first(x).numpy()
    kept = {f for f in cache.rglob("*") if f.is_file()}
    for lost in sorted(kept):
        data = lost.read_bytes()
        lost.unlink()
        np.testing.assert_array_equal(weft.load_graph(file)(x).numpy(), wanted)
        lost.parent.mkdir(exist_ok=True)
        lost.write_bytes(data)


@keeps
def test_packed_constants_of_a_file_are_in_the_program_that_is_kept(cache: Path, tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((OUTPUTS, INPUTS), dtype=np.float32)
    graph = weft.make_graph(lambda x: x @ weft.tensor(w).T)(OPEN)
    file, x = str(tmp_path / "constant.weft"), rows(40)
    weft.save_graph(graph, file)
    first = weft.load_graph(file)
    wanted = first(x).numpy()
    second = weft.load_graph(file)
    np.testing.assert_array_equal(second(x).numpy(), wanted)
    assert is_kept(second)
    np.testing.assert_allclose(wanted, x.astype(float) @ w.T.astype(float), rtol=1e-4, atol=1e-4)
    assert len(graph.constants) == 1
    (constant,) = first._opened.version.run.program.constants
    assert constant.ndim == 3


@pytest.mark.parametrize("count", [6, 64, 200])
def test_products_with_constants_have_the_bits_they_have_without(count: int) -> None:
    w = np.random.default_rng(0).standard_normal((OUTPUTS, INPUTS), dtype=np.float32)
    x = weft.tensor(rows(count))
    packed, plain = (
        weft.compile(lambda x: x @ weft.tensor(w).T, disable=disable) for disable in ([], ["prepared"])
    )
    np.testing.assert_array_equal(packed(x).numpy(), plain(x).numpy())


# Quantised models


def quantised(w: Array) -> Any:
    onnx = pytest.importorskip("onnx")
    text = """<ir_version: 9, opset_import: ["": 20]>
    f (uint8[9, 50] x) => (int32[9, 90] y) <uint8 zero = {7}> { y = MatMulInteger (x, w, zero) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    return weft.onnx.load(model)


def test_imported_bytes_are_packed_once_and_exact_and_never_stale() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (9, 50)).astype(np.uint8), rng.integers(-128, 128, (50, 90)).astype(np.int8)
    graph = quantised(w)
    run, given = weft.compile(graph), weft.tensor(x)
    (weight,) = [parameters[v] for v in graph.inputs if v.name == "w"]
    for number in (None, 3, -128, 127):
        if number is not None:
            w = np.full_like(w, number)
            weight.copy_(weft.tensor(w))
        for _ in range(2):
            np.testing.assert_array_equal(run(given).numpy(), (x.astype(int) - 7) @ w.astype(int))
    has_unit = unit_for(machine_like(host_target()).units, weft.int8, weft.int8) is not None
    assert isinstance(run.versions[0].run, PreparedExecutable) is has_unit
