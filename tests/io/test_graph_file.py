"""Graphs in files: they run as the function did, without its source, on every backend."""

from __future__ import annotations

import inspect
import json
import linecache
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load_file

import weft
from weft import nn
from weft.errors import ArgumentError, CaptureError, DtypeError, FileError, ShapeError
from weft.io.layout import read_file, write_file

ROOT = Path(weft.__file__).parent.parent


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.weft"


def numbers(*shape: int, seed: int = 0) -> Any:
    return weft.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def classifier() -> Any:
    weft.manual_seed(0)
    layers = [nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)]
    return nn.Sequential(*layers).eval()


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_a_traced_module_gives_the_same_after_loading(backend: str, file: Path) -> None:
    model, x = classifier(), numbers(5, 4)
    weft.jit.trace(model, x).save(file)
    loaded = weft.load_graph(file, backend=backend)
    np.testing.assert_allclose(loaded(x).numpy(), model(x).detach().numpy(), rtol=1e-6, atol=1e-7)
    assert list(loaded.weights) == ["0.weight", "0.bias", "3.weight", "3.bias"]


SCRIPT = """
import sys
import numpy as np
import weft
assert "model" not in sys.modules
run = weft.load_graph(sys.argv[1], backend=sys.argv[2])
np.save(sys.argv[4], run(np.load(sys.argv[3])).numpy())
"""

MODEL = """
import weft
from weft import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        while (x * x).sum() > 1.0:
            x = weft.tanh(self.inner(x)) * 0.5
        return weft.gelu(x)
"""


@pytest.mark.rotating(2)
@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_a_file_runs_in_a_process_without_the_source(
    backend: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = file.parent / "source"
    source.mkdir()
    (source / "model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(source)
    model = __import__("model").Model()
    sys.modules.pop("model")
    x = numbers(3, 4)
    weft.compile(model).save(file, x)
    expected = model(x).detach().numpy()
    (source / "model.py").unlink()
    np.save(file.parent / "x.npy", x.numpy())
    arguments = [str(file), backend, str(file.parent / "x.npy"), str(file.parent / "y.npy")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT, *arguments]
    subprocess.run(command, check=True, env=environment, cwd=file.parent)
    np.testing.assert_allclose(np.load(file.parent / "y.npy"), expected, rtol=1e-6, atol=1e-7)


def test_an_open_batch_takes_every_size(file: Path) -> None:
    model = classifier()
    weft.compile(model).save(file, weft.TensorType(("batch", 4), weft.float32))
    loaded = weft.load_graph(file)
    assert repr(loaded) == "<loaded graph Sequential(x: f32[batch,4]): 3 nodes, 4 weights>"
    for n in (0, 1, 2, 7):
        x = numbers(n, 4)
        np.testing.assert_allclose(loaded(x).numpy(), model(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_function_whose_sizes_varied_is_saved_open(file: Path) -> None:
    f = weft.compile(lambda x: x.sum(axis=1))
    for n in (2, 3, 4):
        f(weft.ones((n, 5)))
    f.save(file)
    assert weft.load_graph(file)(weft.ones((9, 5))).tolist() == [5.0] * 9


def test_weights_are_read_by_the_safetensors_package(file: Path) -> None:
    model = classifier()
    weft.jit.trace(model, numbers(2, 4)).save(file)
    found = load_file(file)
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(found[name], tensor.numpy())


class Pair(NamedTuple):
    total: Any
    rest: Any


def test_trees_go_in_and_out(file: Path) -> None:
    def f(batch: dict[str, Any], *more: Any, scale: float = 2.0, **named: Any) -> Any:
        total = (batch["x"] + more[0]) * scale + named["bias"]
        return {"pair": Pair(total.sum(), [total, None, "text"]), "same": batch["x"], "count": len(more)}

    x = weft.ones(3)
    arguments: dict[str, Any] = {"scale": 3.0, "bias": weft.ones(1)}
    weft.compile(f).save(file, {"x": x}, weft.ones(3), **arguments)
    loaded = weft.load_graph(file)
    out = loaded({"x": x}, weft.ones(3), **arguments)
    assert out["pair"][0].item() == 21.0
    assert out["pair"][1][0].tolist() == [7.0] * 3
    assert out["pair"][1][1:] == [None, "text"]
    assert out["same"] is x
    assert out["count"] == 1
    assert str(loaded.signature) == "(batch, *more, scale=2.0, **named)"
    assert inspect.signature(loaded) == loaded.signature


def test_a_call_by_name_or_with_defaults_is_the_same_call(file: Path) -> None:
    def f(x: Any, y: Any, power: int = 2) -> Any:
        return x**power - y

    weft.compile(f).save(file, weft.ones(2), weft.ones(2))
    loaded = weft.load_graph(file)
    x, y = weft.tensor([3.0, 4.0]), weft.ones(2)
    for out in (loaded(x, y), loaded(x, y=y), loaded(y=y, x=x), loaded(x, y, 2), loaded(x, y, power=2)):
        assert out.tolist() == [8.0, 15.0]
    with pytest.raises(ArgumentError, match="power must be 2, got 3"):
        loaded(x, y, 3)
    with pytest.raises(ArgumentError, match=r"missing a required argument: 'y'\n(.*\n)*.*f\(x, y, power=2\)"):
        loaded(x)


def test_floats_that_varied_stay_arguments(file: Path) -> None:
    f = weft.compile(lambda x, rate, limit=float("inf"): x * rate if limit > 1.0 else x)
    for rate in (0.5, 0.25, 2.0):
        f(weft.ones(2), rate)
    f.save(file)
    loaded = weft.load_graph(file)
    assert loaded(weft.ones(2), 7.0).tolist() == [7.0, 7.0]
    assert loaded(weft.ones(2), 7.0, float("inf")).tolist() == [7.0, 7.0]
    with pytest.raises(ArgumentError, match=r"limit must be inf, got 1\.0"):
        loaded(weft.ones(2), 7.0, 1.0)


def test_a_tensor_given_twice_must_be_given_twice(file: Path) -> None:
    a, b = weft.ones(2), weft.zeros(2)
    weft.compile(lambda x, y, z: x + y - z).save(file, a, a, b)
    loaded = weft.load_graph(file)
    assert loaded(a, a, b).tolist() == [2.0, 2.0]
    with pytest.raises(ArgumentError, match="y must be a tensor given before"):
        loaded(a, b, b)


def test_arrays_and_lists_are_taken_as_tensors(file: Path) -> None:
    weft.compile(lambda x: x + 1.0).save(file, weft.ones(2))
    loaded = weft.load_graph(file)
    assert loaded(np.zeros(2, np.float32)).tolist() == loaded([0.0, 0.0]).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("argument", "error", "message"),
    [
        (weft.ones((2, 3)), ShapeError, "f: x must be f32[n,2], got f32[2,3], where n=2"),
        (weft.ones(2), ShapeError, "f: x must be f32[n,2], got f32[2]"),
        (weft.ones((1, 2), dtype=weft.float64), DtypeError, "f: x must be float32, got float64"),
        (object(), ArgumentError, "f: x must be a tensor f32[n,2], got object"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(
    argument: Any, error: type[Exception], message: str, file: Path
) -> None:
    def f(x: Any) -> Any:
        return x + 1.0

    weft.compile(f).save(file, weft.TensorType(("n", 2), weft.float32))
    with pytest.raises(error) as caught:
        weft.load_graph(file)(argument)
    assert str(caught.value).startswith(message)


def test_a_training_step_goes_on_where_it_was_saved(file: Path) -> None:
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    optimizer = weft.optim.Adam(model.parameters(), lr=0.01)

    @weft.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = weft.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    x, y = numbers(6, 3), numbers(6, 1, seed=1)
    step(x, y)
    step.save(file)
    state = weft.get_rng_state()
    expected = [step(x, y).item() for _ in range(4)]
    weft.set_rng_state(state)
    loaded = weft.load_graph(file)
    first = [loaded(x, y).item() for _ in range(2)]
    loaded.save(file)  # and again from there
    again = weft.load_graph(file)
    assert first + [again(x, y).item() for _ in range(2)] == expected
    np.testing.assert_array_equal(again.weights["model.0.weight"].numpy(), model[0].weight.detach().numpy())


def test_gradients_and_other_graphs_flow_through_a_loaded_one(file: Path) -> None:
    weft.compile(lambda x: (x * x).sum()).save(file, weft.TensorType(("n",), weft.float32))
    loaded = weft.load_graph(file)
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    loaded(x).backward()
    assert x.grad.tolist() == [2.0, 4.0]
    assert weft.vmap(loaded)(weft.ones((3, 2))).tolist() == [2.0] * 3
    assert weft.compile(lambda x: loaded(x) + 1.0)(weft.ones(2)).item() == 3.0


def test_a_graph_is_saved_with_its_parameters(file: Path) -> None:
    w = weft.tensor([2.0, 3.0])
    weft.save_graph(weft.make_graph(lambda x: x * w)(weft.TensorType(("n", 2), weft.float32)), file)
    w.data = weft.zeros(2)
    loaded = weft.load_graph(file)
    assert loaded(x=[[1.0, 1.0]]).tolist() == [[2.0, 3.0]]
    assert [w.tolist() for w in loaded.weights.values()] == [[2.0, 3.0]]


def test_two_runs_from_one_mapped_file_agree(file: Path) -> None:
    model, x = classifier(), numbers(2, 4)
    weft.jit.trace(model, x).save(file)
    mapped = weft.load_graph(file, mmap=True)
    assert not mapped.weights["0.weight"].numpy().flags.owndata
    np.testing.assert_array_equal(mapped(x).numpy(), weft.load_graph(file)(x).numpy())


def test_a_loaded_graph_keeps_the_lines_it_came_from(file: Path) -> None:
    weft.compile(lambda x: weft.tanh(x)).save(file, weft.ones(2))
    assert "test_graph_file.py" in weft.load_graph(file).text


def test_draws_from_the_global_generator_follow_its_seed(file: Path) -> None:
    weft.compile(lambda x: x + weft.rand(2)).save(file, weft.zeros(2))
    loaded = weft.load_graph(file)
    weft.manual_seed(3)
    first, second = loaded(weft.zeros(2)), loaded(weft.zeros(2))
    assert first.tolist() != second.tolist()
    weft.manual_seed(3)
    assert weft.rand(2).tolist() == first.tolist()


def test_a_function_without_a_graph_says_how_to_get_one(file: Path) -> None:
    with pytest.raises(CaptureError, match="has a graph from its first call on"):
        weft.compile(lambda x: x).save(file)


def test_an_argument_that_cannot_be_written_is_an_error(file: Path) -> None:
    f = weft.compile(lambda x, how: how(x))
    f(weft.ones(2), weft.tanh)
    with pytest.raises(ArgumentError, match="arguments must be tensors or plain values"):
        f.save(file)
    assert not file.exists()


@pytest.mark.parametrize("backend", ["interpret", "llvm"])
def test_names_are_never_code(backend: str, file: Path) -> None:
    name = json.dumps("f\"\n}\ndefine void @f() { ret void } ; %x \\22 é ' __import__('os')")
    text = f"graph {name}(%{name}: f32[2]) {{\n  %0: f32[2] = tanh(%{name})\n  return %0\n}}"
    weft.save_graph(weft.parse_graph(text), file)
    loaded = weft.load_graph(file, backend=backend)
    np.testing.assert_allclose(loaded(weft.ones(2)).numpy(), np.tanh([1.0, 1.0]), rtol=1e-6)


def test_a_graph_with_an_op_that_is_not_known_names_it(file: Path) -> None:
    weft.compile(lambda x: weft.tanh(x)).save(file, weft.ones(2))
    contents = read_file("load", str(file), mmap=False, verify=True)
    own = {k: contents.metadata[k] for k in ("weft.graph", "weft.program")}
    own["weft.graph"] = own["weft.graph"].replace("tanh(", "tanhh(")
    write_file(str(file), contents.arrays, "graph", own)
    with pytest.raises(FileError, match=r"model.weft: the graph must be one that weft writes, .*tanhh"):
        weft.load_graph(file)


def test_a_file_has_the_lines_but_not_the_folders_of_its_source(tmp_path: Path) -> None:
    path = tmp_path / "double.weft"
    weft.jit.trace(lambda x: x * 2.0, weft.ones(3)).save(path)
    data = path.read_bytes()
    assert str(Path(__file__).parent).encode() not in data
    assert b"weft.jit.trace(lambda x: x * 2.0, weft.ones(3))" in data
    assert b"def test_a_file_has" not in data
    weft.load_graph(path).save(path)
    assert path.read_bytes() == data


def test_an_error_shows_a_line_whose_source_is_gone(tmp_path: Path) -> None:
    source, path = tmp_path / "gone.py", tmp_path / "pick.weft"
    source.write_text("def pick(x, i):\n    y = x * 2.0\n    return y[i]  # the third line\n")
    names: dict[str, Any] = {}
    exec(compile(source.read_text(), str(source), "exec"), names)  # noqa: S102
    weft.compile(names["pick"]).save(path, weft.ones(3), weft.asarray(0))
    source.unlink()
    linecache.clearcache()
    with pytest.raises(weft.errors.BoundsError) as caught:
        weft.load_graph(path)(weft.ones(3), weft.asarray(7))
    assert "at gone.py:3: return y[i]  # the third line" in str(caught.value)


@pytest.mark.parametrize(
    "lines",
    [
        "[]",
        '{"train.py":{"1":"x"}}',
        '{"/etc/passwd":{"1":"x"}}',
        '{"<source 01234567>/a/b.py":{"1":"x"}}',
        '{"<source 01234567>/b.py":["x"]}',
        '{"<source 01234567>/b.py":{"99999999999":"x"}}',
        '{"<source 01234567>/b.py":{"-1":"x"}}',
        '{"<source 01234567>/b.py":{"1":["x"]}}',
        '{"<source 01234567>/b.py":{"1":"x\\ny"}}',
        "{",
    ],
)
def test_lines_that_are_none_are_an_error_and_taken_for_no_other_file(lines: str, file: Path) -> None:
    weft.compile(lambda x: weft.tanh(x)).save(file, weft.ones(2))
    contents = read_file("load_graph", str(file), mmap=False, verify=True)
    own = {name: text for name, text in contents.metadata.items() if name in ("weft.graph", "weft.program")}
    write_file(str(file), contents.arrays, "graph", {**own, "weft.source": lines})
    before = dict(linecache.cache)
    with pytest.raises(FileError, match=r"model.weft: the lines of its source must be"):
        weft.load_graph(file)
    assert linecache.cache.keys() <= before.keys()


def _adjacency(nodes: int, edges: int) -> Any:
    drawn = np.random.default_rng(nodes * 100 + edges)
    places = drawn.integers(0, nodes, (2, edges))
    return weft.sparse_coo_tensor(places, drawn.random(edges, dtype=np.float32), (nodes, nodes))


class TwoHops(weft.nn.Module):
    """A graph network of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = weft.nn.Linear(3, 4), weft.nn.Linear(4, 2)

    def forward(self, edges: Any, x: Any) -> Any:
        return edges @ self.second(weft.relu(edges @ self.first(x)))


def test_graph_networks_are_saved_with_open_numbers_of_nodes_and_edges(tmp_path: Path) -> None:
    model = TwoHops()
    compiled = weft.compile(model)
    for nodes, edges in ((4, 5), (6, 9)):
        compiled(_adjacency(nodes, edges), weft.ones(nodes, 3))
    assert len(compiled.versions) == 2
    compiled.save(tmp_path / "hops.weft")
    loaded = weft.load_graph(tmp_path / "hops.weft")
    for nodes, edges in ((5, 7), (9, 30), (3, 0)):
        dense = _adjacency(nodes, edges).to_dense().numpy()
        first, second = model.first, model.second
        x = np.ones((nodes, 3), np.float32)
        hidden = np.maximum(dense @ (x @ first.weight.detach().numpy().T + first.bias.detach().numpy()), 0)
        expected = dense @ (hidden @ second.weight.detach().numpy().T + second.bias.detach().numpy())
        found = loaded(_adjacency(nodes, edges), weft.tensor(x)).detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(weft.errors.ShapeError, match="where"):
        loaded(_adjacency(5, 7), weft.ones(4, 3))
    with pytest.raises(weft.errors.WeftError, match="edges"):
        loaded(weft.ones(5, 5), weft.ones(5, 3))


def test_sparse_and_ragged_tensors_are_taken_and_returned_by_saved_functions(tmp_path: Path) -> None:
    @weft.compile
    def scaled(s: Any, r: Any) -> Any:
        return {"sparse": s * 2.0, "ragged": r * 3.0}

    ragged = weft.ragged([[1.0, 2.0], [3.0]])
    for nodes, edges in ((3, 4), (5, 6)):
        scaled(_adjacency(nodes, edges), ragged)
    scaled.save(tmp_path / "scaled.weft")
    loaded = weft.load_graph(tmp_path / "scaled.weft")
    given = _adjacency(4, 9)
    found = loaded(given, ragged)
    assert found["sparse"].shape == (4, 4)
    np.testing.assert_allclose(found["sparse"].to_dense().numpy(), given.to_dense().numpy() * 2.0)
    assert [row.tolist() for row in found["ragged"]] == [[3.0, 6.0], [9.0]]
    with pytest.raises(weft.errors.WeftError):
        loaded(given, weft.ragged([[1.0], [2.0, 3.0]]))


def test_numbers_and_pairs_that_calls_change_go_on_in_a_file(file: Path) -> None:
    class Counter:
        n = 0
        pair: Any = (weft.tensor(0.0), weft.tensor(1.0))

    counter = Counter()

    def step(x: Any) -> Any:
        counter.n += 1
        h, c = counter.pair
        counter.pair = (h + x, c * 2.0)
        return x * counter.n + h + c

    run = weft.compile(step)
    run(weft.tensor(1.0))
    run(weft.tensor(1.0))
    run.save(file)
    loaded = weft.load_graph(file)
    given = [weft.tensor(x) for x in (1.0, 0.5, 2.0)]
    assert [loaded(x).item() for x in given] == [step(x).item() for x in given]


def test_a_pair_that_is_swapped_is_no_state_of_a_file(file: Path) -> None:
    held = {"pair": (weft.tensor(1.0), weft.tensor(2.0))}

    @weft.compile
    def step(x: Any) -> Any:
        first, second = held["pair"]
        held["pair"] = (second, first)
        return x * first

    assert [step(weft.tensor(1.0)).item() for _ in range(3)] == [1.0, 2.0, 1.0]
    with pytest.raises(ArgumentError, match="state must keep its type, got the item 'pair' of a dict"):
        step.save(file)


def test_an_error_about_a_part_of_an_argument_names_the_way_to_it(tmp_path: Path) -> None:
    def product(table: dict[str, Any], x: Any) -> Any:
        return table["edges"][0] @ x

    x = weft.ones((5, 2))
    weft.compile(product).save(tmp_path / "f.weft", {"edges": [_adjacency(5, 3)]}, x)
    loaded = weft.load_graph(tmp_path / "f.weft")
    with pytest.raises(ShapeError, match=r"table\.edges\.0\.0 must be f32\[3\], got f32\[4\]"):
        loaded({"edges": [_adjacency(5, 4)]}, x)
