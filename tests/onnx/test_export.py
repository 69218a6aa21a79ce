"""What export takes and writes: names, sizes, weights, places in the source, files, errors."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

import weft
from tests.onnx.exports import Exported, assert_agrees, assert_same, export, leaves
from weft import nn
from weft.errors import ArgumentError, DomainError, GraphError
from weft.onnx.export_model import Made, write_model

f32, i64 = weft.float32, weft.int64
BATCH = weft.TensorType(("batch", 4), f32)


class Pair(NamedTuple):
    left: Any
    right: Any


# What can be exported


def test_function_module_graph_trace_and_loaded_function_are_exported_alike(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    saved = tmp_path / "model.weft"
    weft.compile(model).save(saved, BATCH)
    graph = weft.make_graph(model)(BATCH)
    x = weft.randn(3, 4)
    for target, examples in [
        (model, (BATCH,)),
        (lambda x: model(x), (BATCH,)),
        (weft.compile(model), (BATCH,)),
        (weft.jit.script(model), (BATCH,)),
        (weft.jit.trace(model, x), ()),
        (graph, ()),
        (weft.load_graph(saved), ()),
    ]:
        exported = export(target, tmp_path, *examples)
        assert exported.operators == ["Gemm", "Relu", "Gemm"]
        assert_same(exported.run(x.numpy()), leaves(model(x)))


def test_compiled_function_is_exported_as_it_was_last_called(tmp_path: Path) -> None:
    f = weft.compile(lambda x: weft.tanh(x))
    with pytest.raises(weft.errors.CaptureError, match="has a graph from its first call on"):
        export(f, tmp_path)
    f(weft.ones(3))
    assert export(f, tmp_path).inputs == {"x": "float[3]"}


def test_block_is_exported_with_its_placeholders(tmp_path: Path) -> None:
    w = weft.randn(4, 2)
    with weft.Graph("block") as g:
        x = weft.placeholder("x", ("batch", 4), f32)
        weft.tanh(x @ w)
    exported = export(g, tmp_path)
    assert exported.model.graph.name == "block"
    assert exported.inputs == {"x": "float[batch,4]"}
    assert_agrees(exported, lambda x: weft.tanh(x @ w), weft.randn(3, 4))


def test_loaded_model_is_exported_again_with_its_names(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
    first = export(model, tmp_path, BATCH)
    again = export(weft.onnx.load(first.path), tmp_path)
    assert (again.inputs, again.outputs) == (first.inputs, first.outputs)
    assert set(again.weights) == set(first.weights)
    assert_agrees(again, model, weft.randn(2, 4))


# Names


def test_inputs_and_outputs_are_called_by_their_places(tmp_path: Path) -> None:
    def f(x: Any, params: Any, *, scale: float, flag: bool = True) -> Any:
        y = x * params["w"] + params["b"][0] * scale
        return {"sum": y.sum(), "parts": (y, [x]), "none": None} if flag else y

    params = {"w": weft.ones(3), "b": [weft.ones(3)]}
    exported = export(f, tmp_path, weft.ones(3), params, scale=2.0)
    assert [*exported.inputs] == ["x", "params.w", "params.b.0"]
    assert [*exported.outputs] == ["sum", "parts.0", "parts.1.0"]
    x, w, b = (np.full(3, v, np.float32) for v in (1, 2, 3))
    got = exported.run(**{"x": x, "params.w": w, "params.b.0": b})
    assert_same(
        got, leaves(f(*map(weft.tensor, (x,)), {"w": weft.tensor(w), "b": [weft.tensor(b)]}, scale=2.0))
    )


def test_single_results_tuples_and_named_tuples(tmp_path: Path) -> None:
    x = weft.ones(2)
    assert [*export(lambda x: x + 1, tmp_path, x).outputs] == ["output"]
    assert [*export(lambda x: (x + 1, x * 2), tmp_path, x).outputs] == ["output.0", "output.1"]
    assert [*export(lambda x: Pair(x + 1, x * 2), tmp_path, x).outputs] == ["output.0", "output.1"]


def test_names_do_not_clash(tmp_path: Path) -> None:
    def f(output: Any, add: Any) -> Any:
        return {"output": output + add, "add": output * add}

    exported = export(f, tmp_path, weft.ones(2), weft.ones(2))
    assert [*exported.inputs] == ["output", "add"]
    assert [*exported.outputs] == ["output_1", "add_1"]
    assert_agrees(exported, f, weft.tensor([1.0, 2.0]), weft.tensor([3.0, 4.0]))
    assert [*export(lambda x: {"add": weft.exp(x + 1.0)}, tmp_path, weft.ones(2)).outputs] == ["add"]


def test_weights_have_the_names_and_values_of_the_state_dict(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 3))
    weights = export(model, tmp_path, BATCH).weights
    assert set(weights) == set(model.state_dict())
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(weights[name], tensor.numpy())


def test_shared_weights_are_written_once(tmp_path: Path) -> None:
    layer = nn.Linear(4, 4)
    exported = export(nn.Sequential(layer, nn.Tanh(), layer), tmp_path, BATCH)
    assert sum(array.shape == (4, 4) for array in exported.weights.values()) == 1


def test_constants_stand_beside_what_uses_them_and_large_ones_are_written_once(tmp_path: Path) -> None:
    table = np.arange(200, dtype=np.float32)
    exported = export(lambda x: (x * 2.0 + table) * 2.0 + table, tmp_path, weft.ones(200))
    assert [float(c) for c in exported.constants] == [2.0, 2.0]
    assert [w.shape for w in exported.weights.values()] == [(200,)]


def test_result_that_is_an_argument_or_twice_the_same(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        y = weft.exp(x)
        return x, y, y

    exported = export(f, tmp_path, weft.ones(2))
    assert_agrees(exported, f, weft.tensor([1.0, 2.0]))


def test_nodes_tell_the_line_and_the_module(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 4), nn.GELU())

        def forward(self, x: Any) -> Any:
            return weft.cond(x.sum() > 0, lambda x: self.body(x), lambda x: x, x)

    exported = export(Net(), tmp_path, BATCH)
    line = Net.forward.__code__.co_firstlineno + 1
    choice = next(node for node in exported.model.graph.node if node.op_type == "If")
    assert choice.doc_string == f"test_export.py:{line} in forward"
    inside = {node.op_type: node for a in choice.attribute for node in a.g.node}
    props = {p.key: p.value for p in inside["Gelu"].metadata_props}
    assert props["weft.op"] == "gelu"
    assert props["weft.module"] == "body.1"
    assert props["weft.location"].startswith("test_export.py:")
    assert inside["Gemm"].name.startswith("body.0/Gemm")
    assert not any(os.sep in p.value for node in exported.model.graph.node for p in node.metadata_props)


# Sizes


def test_open_sizes_and_expressions_in_them(tmp_path: Path) -> None:
    def f(x: Any, y: Any) -> Any:
        n, m = x.shape
        joined = weft.concat([x, y], axis=0)
        flat = joined.reshape(m, -1)
        return flat, x[1:-1] / n, weft.zeros((m, n)) + 1.0, weft.arange(n // 2), x.reshape(n * m)

    exported = export(f, tmp_path, weft.TensorType(("n", "m"), f32), weft.TensorType((3, "m"), f32))
    assert exported.outputs["output.4"] == "float[m*n]"
    for n, m in ((4, 2), (5, 6)):
        assert_agrees(exported, f, weft.randn(n, m), weft.randn(3, m))


def test_size_that_only_an_expression_tells(tmp_path: Path) -> None:
    graph = weft.parse_graph(
        """
        graph f(%x: f32[2*n+1]) {
          %0: f32[n] = slice(%x, starts=(0,), stops=(n,))
          %1: f32[] = size(value=n, dtype=f32)
          %2: f32[n] = mul(%0, %1)
          return %2
        }
        """
    )
    x = np.arange(7, dtype=np.float32)
    assert_same(export(graph, tmp_path).run(x), [x[:3] * 3])


@pytest.mark.parametrize("opset", [13, 14, 17, 18, 20, 21, 22, 23])
def test_each_opset_gives_the_same(tmp_path: Path, opset: int) -> None:
    def f(x: Any) -> Any:
        h = weft.layer_norm(weft.gelu(x), (6,))
        top, places = weft.topk(h, 2)
        sums, spread = weft.logsumexp(h, axis=1), weft.std(h, axis=0)
        return sums, top, places, spread, h[..., ::2].cumsum(1), h.max(axis=0)

    exported = export(f, tmp_path, weft.TensorType(("n", 6), f32), opset=opset)
    assert exported.model.opset_import[0].version == opset
    assert_agrees(exported, f, weft.randn(3, 6))


# Dtypes and corner cases


@pytest.mark.parametrize("dtype", [weft.float16, weft.float64, weft.int8, weft.uint8, weft.int16, weft.int32])
def test_arithmetic_in_each_dtype(tmp_path: Path, dtype: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        return x + y, x * y - x, weft.maximum(x, y), x // y, x % y, weft.where(x > y, x, y), x.sum(), x @ y.mT

    values = np.array([[7, 3, 100], [2, 5, 9]]), np.array([[2, 5, 7], [3, 3, 4]])
    arrays = [v.astype(dtype) for v in values]
    exported = export(f, tmp_path, *map(weft.tensor, arrays))
    assert_agrees(exported, f, *map(weft.tensor, arrays))


def test_bfloat16_is_written_and_read_back(tmp_path: Path) -> None:
    weight = weft.randn(3, 3).astype(weft.bfloat16)
    exported = export(lambda x: x @ weight + 1.0, tmp_path, weft.ones((2, 3), dtype=weft.bfloat16))
    assert exported.inputs == {"x": "bfloat16[2,3]"}
    assert any(a.dtype == weft.bfloat16 and a.shape == (3, 3) for a in exported.weights.values())


def test_signs_of_integer_division_are_those_of_weft(tmp_path: Path) -> None:
    def f(x: Any, y: Any) -> Any:
        return x // y, x % y, weft.fmod(x, y), x**2, weft.pow(x, y)

    x, y = (a.reshape(-1) for a in np.meshgrid(np.arange(-7, 8), [-3, -2, -1, 1, 2, 3]))
    exported = export(f, tmp_path, weft.tensor(x), weft.tensor(y))
    assert_agrees(exported, f, weft.tensor(x), weft.tensor(y))


def test_division_of_integers_by_zero_gives_zero(tmp_path: Path) -> None:
    exported = export(lambda x, y: (x // y, x % y), tmp_path, weft.tensor([1, 2]), weft.tensor([1, 1]))
    got = exported.run(np.array([7, -7]), np.array([0, 2]))
    assert [a.tolist() for a in got] == [[0, -4], [0, 1]]


SPECIAL = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, 2.5, -3.5, 1e-30], np.float32)


def test_floats_that_are_not_finite_and_the_sign_of_zero(tmp_path: Path) -> None:
    def f(x: Any, y: Any) -> Any:
        ordered = weft.maximum(x, y), weft.minimum(x, y), weft.clip(x, -1.0, 1.0), weft.relu(x), weft.sign(x)
        tests = weft.isnan(x), weft.isinf(x), weft.isfinite(x), weft.signbit(x), x == y, x < y
        parts = weft.floor(x), weft.ceil(x), weft.trunc(x), weft.round(x), weft.remainder(x, y), x // y
        return *ordered, *tests, *parts, weft.copysign(x, y), weft.atan2(x, y), weft.hypot(x, y)

    x, y = (a.reshape(-1) for a in np.meshgrid(SPECIAL, SPECIAL))
    exported = export(f, tmp_path, weft.tensor(x), weft.tensor(y))
    got, expected = exported.run(x, y), leaves(f(weft.tensor(x), weft.tensor(y)))
    assert_same(got, expected)
    for name, i in {"ceil": 12, "round": 14, "copysign": 17}.items():
        zeros = expected[i] == 0
        assert np.array_equal(np.signbit(got[i][zeros]), np.signbit(expected[i][zeros])), name


def test_small_numbers_keep_their_digits(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        return weft.log1p(x), weft.expm1(x)

    x = np.array([1e-7, -1e-7, 3e-4, 0.3, -0.3, 5.0], np.float32)
    exported = export(f, tmp_path, weft.tensor(x))
    for a, e in zip(exported.run(x), leaves(f(weft.tensor(x))), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5)


def test_negative_indices_and_several_writes_to_one_place(tmp_path: Path) -> None:
    def f(x: Any, i: Any) -> Any:
        written = x * 1.0
        written[i] = weft.arange(20).reshape(4, 5) * 10.0
        return x[i], written, x[i, i], x.index_add(i, weft.ones((4, 5)), axis=0)

    x, i = weft.randn(5, 5), weft.tensor([-1, 0, -5, 2])
    assert_agrees(export(f, tmp_path, x, i), f, x, i)


def test_truth_values_add_and_multiply_as_logic(tmp_path: Path) -> None:
    def f(p: Any, q: Any) -> Any:
        return p | q, p & q, p ^ q, ~p, p.any(), q.all(axis=0), weft.where(p, q, p), p.sum(), p == q

    p, q = weft.tensor([[True, False], [True, True]]), weft.tensor([[False, False], [True, False]])
    assert_agrees(export(f, tmp_path, p, q), f, p, q)


# Files


def test_large_weights_go_beside_the_model(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    exported = export(model, tmp_path, weft.TensorType(("n", 64), f32), external_data=True)
    assert sorted(os.listdir(tmp_path)) == ["model.onnx", "model.onnx.data"]
    assert os.path.getsize(tmp_path / "model.onnx") < 6000
    assert (tmp_path / "model.onnx.data").read_bytes().startswith(model[0].weight.detach().numpy().tobytes())
    assert_agrees(exported, model, weft.randn(2, 64))


def test_weights_that_are_too_large_for_one_file_go_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.onnx.export_model._MOST", 10_000)
    model = nn.Linear(64, 64)
    exported = export(model, tmp_path, weft.ones((1, 64)))
    assert os.path.getsize(tmp_path / "model.onnx.data") == 64 * 64 * 4
    assert_agrees(exported, model, weft.randn(1, 64))


def test_nothing_is_left_of_an_export_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"before")
    with pytest.raises(GraphError):
        weft.onnx.export(weft.linalg.inv, path, weft.eye(3))
    graph = onnx.helper.make_graph([onnx.helper.make_node("Nothing", ["x"], ["y"])], "g", [], [])
    with pytest.raises(GraphError, match="the model must be valid"):
        write_model(Made(onnx.helper.make_model(graph), {}), str(path), external=False)
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_path_is_given_back_and_may_be_a_path(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    assert weft.onnx.export(lambda x: x * 2.0, path, weft.ones(2)) == str(path)
    assert Exported(path).model.producer_name == "weft"
    with pytest.raises(ArgumentError, match="path must be a str or a Path, got int"):
        weft.onnx.export(lambda x: x, 3, weft.ones(2))  # type: ignore[arg-type]


# Changes and random numbers


def test_function_that_changes_something_is_refused_or_gives_new_values(tmp_path: Path) -> None:
    model = nn.BatchNorm1d(3)
    with pytest.raises(
        GraphError, match=r"must change nothing, got new values of num_batches_tracked, running_mean"
    ) as caught:
        export(model, tmp_path, weft.TensorType(("batch", 3), f32))
    assert "model.eval()" in str(caught.value)
    exported = export(model, tmp_path, weft.TensorType((8, 3), f32), updates="outputs")
    assert {"output", "running_mean.new", "running_var.new"} <= set(exported.outputs)
    x = weft.randn(8, 3)
    got = dict(zip(exported.outputs, exported.run(x.numpy()), strict=True))
    expected = leaves(model(x))
    assert_same([got["output"]], expected)
    assert_same([got["running_mean.new"]], leaves(model.running_mean))
    with pytest.raises(DomainError, match='updates must be None or "outputs"'):
        export(model, tmp_path, BATCH, updates="inputs")


def test_random_numbers_are_refused_with_the_line(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    with pytest.raises(GraphError) as caught:
        export(lambda x: model(x), tmp_path, BATCH)
    text = str(caught.value)
    assert "must draw no random numbers" in text
    assert "at test_export.py:" in text
    assert "export model.eval()" in text
    assert export(model.eval(), tmp_path, BATCH).operators == ["Gemm"]


def test_key_as_an_argument_is_refused_too(tmp_path: Path) -> None:
    key = weft.random.key(0)
    with pytest.raises(
        GraphError, match=r"every op must be one that ONNX can say, got (random_bits|derive_key)"
    ):
        export(lambda k: weft.random.normal(k, (3,)), tmp_path, key)


# Errors


def test_op_that_onnx_cannot_say_is_told_with_its_line(tmp_path: Path) -> None:
    def solve(a: Any) -> Any:
        return weft.linalg.inv(a)  # here

    with pytest.raises(GraphError) as caught:
        export(solve, tmp_path, weft.eye(3))
    text = str(caught.value)
    assert "onnx.export: every op must be one that ONNX can say, got inv of f32[3,3]" in text
    assert "return weft.linalg.inv(a)  # here" in text
    assert "hint: compute it outside of the exported function" in text


def test_complex_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"inputs must be real, got %x: c64\[2\]"):
        export(lambda x: x * 2, tmp_path, weft.ones(2, dtype=weft.complex64))
    with pytest.raises(GraphError, match="got rfft of"):
        export(lambda x: weft.abs(weft.fft.rfft(x)), tmp_path, weft.ones(4))


def test_trace_that_took_one_way_is_refused(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        return x * 2.0 if x.sum() > 0 else x

    with pytest.raises(GraphError, match="got guard") as caught:
        export(weft.jit.trace(f, weft.ones(2)), tmp_path)
    assert "weft.jit.script" in str(caught.value)


def test_operator_of_a_later_opset_is_told(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="opset 13 must have BitwiseAnd, which came later") as caught:
        export(lambda x: x & 3, tmp_path, weft.arange(4), opset=13)
    assert "export with opset=18 or above" in str(caught.value)


def test_settings_are_checked(tmp_path: Path) -> None:
    for opset in (12, 99):
        with pytest.raises(DomainError, match=rf"opset must be in 13\.\.\d+, got {opset}"):
            export(lambda x: x, tmp_path, weft.ones(2), opset=opset)
    with pytest.raises(ArgumentError, match="opset must be an int, got '20'"):
        export(lambda x: x, tmp_path, weft.ones(2), opset="20")
    with pytest.raises(ArgumentError, match="a function must be given with examples, got none"):
        export(lambda x: x, tmp_path)
    with pytest.raises(ArgumentError, match="a graph must be given without examples"):
        export(weft.make_graph(lambda x: x * 2.0)(weft.ones(2)), tmp_path, weft.ones(2))
    with pytest.raises(ArgumentError, match="takes a function or a module, got int"):
        export(3, tmp_path, weft.ones(2))


def test_arguments_that_are_made_of_tensors_are_refused_with_a_hint(tmp_path: Path) -> None:
    sparse = weft.to_sparse(weft.eye(2))
    for argument in (sparse, weft.ragged([[1.0], [2.0, 3.0]])):
        with pytest.raises(
            ArgumentError, match=r"onnx\.export: arguments must be tensors or plain"
        ) as caught:
            export(lambda x: x.values * 2.0, tmp_path, argument)
        assert "of a sparse tensor its indices and values" in str(caught.value)


def test_graph_whose_parameters_have_no_data_is_refused(tmp_path: Path) -> None:
    graph = weft.parse_graph("graph f(param %w: f32[2]) { return %w }")
    with pytest.raises(ArgumentError, match=r"onnx\.export: all parameters must have data, got none for %w"):
        export(graph, tmp_path)


def test_package_that_is_not_there_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ArgumentError, match="needs the package onnx, got none") as caught:
        weft.onnx.export(lambda x: x, tmp_path / "m.onnx", weft.ones(2))
    assert "pip install weft[onnx]" in str(caught.value)


# Custom ops


def test_custom_op_is_written_by_its_own_writer(tmp_path: Path) -> None:
    @weft.custom_op("tests::thrice", type_rule=lambda x: x, gradient=lambda g: g * 3, replace=True)
    def thrice(x: Any) -> Any:
        return x * 3

    with pytest.raises(GraphError, match="got tests::thrice of") as caught:
        export(lambda x: thrice(x), tmp_path, weft.ones(2))
    assert "weft.onnx.writer" in str(caught.value)

    @weft.onnx.writer("tests::thrice")
    def write_thrice(w: Any, x: Any) -> Any:
        return w.emit("Mul", x, 3.0)

    exported = export(lambda x: thrice(x), tmp_path, weft.ones(2))
    assert exported.operators == ["Mul"]

    @weft.onnx.writer("tests::thrice")
    def write_wrongly(w: Any, x: Any) -> Any:
        return w.emit("Equal", x, 3.0)

    with pytest.raises(GraphError, match="tests::thrice: its writer must give float32, got bool"):
        export(lambda x: thrice(x), tmp_path, weft.ones(2))
    weft.remove_custom_op("tests::thrice")


def test_custom_elementwise_op_is_written_by_its_scalar_code(tmp_path: Path) -> None:
    @weft.custom_op(
        "tests::bump",
        partials=(lambda x: -2 * x,),
        scalar=lambda e, x: e.select(e.lt(x, 0), 0.0, e.exp(e.neg(e.mul(x, x)))),
        replace=True,
    )
    def bump(x: Any) -> Any:
        return np.where(x < 0, np.zeros((), x.dtype), np.exp(-x * x))

    assert_agrees(export(lambda x: bump(x), tmp_path, weft.ones(3)), bump, weft.tensor([-1.0, 0.5, 2.0]))
    weft.remove_custom_op("tests::bump")


def test_prints_and_assertions_are_left_out(tmp_path: Path) -> None:
    def f(x: Any) -> Any:
        assert x.sum() > 0, "must be positive"
        print(x.sum())  # noqa: T201 - what is left out
        return x * 2.0

    assert export(f, tmp_path, weft.ones(2)).operators == ["Mul"]
