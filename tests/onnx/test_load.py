"""``weft.onnx.load``: what the graph of a model is, and what it computes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import weft
from weft.errors import ArgumentError, FileError, GraphError, ShapeError, WeftError
from weft.onnx.operators import registry
from weft.onnx.operators.registry import find_handler

HEADER = '<ir_version: 10, opset_import: ["": 20]>'
BACKENDS = ("interpret", "llvm")
rng = np.random.default_rng(0)


def parse(text: str, header: str = HEADER) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{header} {text}")


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return rng.normal(size=shape).astype(np.float32)


def expected(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[np.ndarray[Any, Any]]:
    return ReferenceEvaluator(model).run(None, dict(feeds))


def check(model: onnx.ModelProto, graph: weft.Graph, feeds: Mapping[str, Any], rtol: float = 1e-5) -> None:
    """Compare what a graph gives on each backend with onnx's own evaluator."""
    wanted = expected(model, feeds)
    names = {v.name for v in graph.inputs}
    own = {name: array for name, array in feeds.items() if name in names}
    for backend in BACKENDS:
        found = weft.Session(graph, backend=backend).run(list(graph.outputs), own)
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            assert a.shape == np.shape(b)
            assert a.dtype == np.asarray(b).dtype
            np.testing.assert_allclose(a.numpy(), b, rtol=rtol, atol=1e-6)


def ops_of(graph: weft.Graph) -> list[str]:
    return [node.op.name for node in graph.walk()]


# What a graph is made of

MLP = parse("""
mlp (float[batch, 4] x) => (float[batch, 3] y)
<float[4, 5] "fc1.weight" = {0.1, -0.2, 0.3, 0.4, -0.5, 0.6, 0.7, -0.8, 0.9, 1.0,
                           -1.1, 1.2, 1.3, -1.4, 1.5, 0.2, 0.4, -0.6, 0.8, -0.1},
 float[5] "fc1.bias" = {0.1, 0.2, 0.3, 0.4, 0.5},
 float[5, 3] "fc2.weight" = {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3}>
{
  h = Gemm (x, "fc1.weight", "fc1.bias")
  a = Relu (h)
  y = MatMul (a, "fc2.weight")
}
""")


def test_initializers_are_parameters_by_their_names() -> None:
    graph = weft.onnx.load(MLP)
    roles = {v.name: role for v, role in zip(graph.inputs, graph.roles, strict=True)}
    assert roles == {"x": "arg", "fc1.weight": "param", "fc1.bias": "param", "fc2.weight": "param"}
    assert [v.name for v in graph.outputs] == ["y"]


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_open_batch_takes_any_size(batch: int) -> None:
    graph = weft.onnx.load(MLP)
    assert str(graph.inputs[0].type) == "f32[batch,4]"
    check(MLP, graph, {"x": floats(batch, 4)})


def test_sizes_fix_open_ones() -> None:
    graph = weft.onnx.load(MLP, sizes={"batch": 2})
    assert str(graph.inputs[0].type) == "f32[2,4]"
    with pytest.raises(ShapeError, match="x"):
        graph(floats(3, 4))


def test_model_comes_from_path_bytes_and_object(tmp_path: Path) -> None:
    path = tmp_path / "mlp.onnx"
    onnx.save(MLP, path)
    first = weft.onnx.load(path)
    assert first.same(weft.onnx.load(str(path)))
    for source in (path.read_bytes(), MLP):
        assert weft.onnx.load(source).to_text(locations=False) == first.to_text(locations=False)


def test_nodes_know_the_node_of_the_model_that_they_come_from() -> None:
    model = parse("f (float[2] x) => (float[2] y) { h = Exp (x)  y = Tanh (h) }")
    model.graph.node[0].name = "/encoder/layer.0/Exp"
    first, second = weft.onnx.load(model).nodes
    assert first.location is not None
    assert second.location is not None
    assert first.location.module == "encoder.layer.0.Exp"
    assert (first.location.line, second.location.line, second.location.function) == (1, 2, "Tanh")


def test_graph_saves_loads_optimizes_prints_and_draws(tmp_path: Path) -> None:
    graph = weft.onnx.load(MLP)
    x = weft.asarray(floats(3, 4))
    weft.save_graph(graph, tmp_path / "mlp.weft")
    loaded = weft.load_graph(tmp_path / "mlp.weft")
    assert set(loaded.weights) == {"fc1.weight", "fc1.bias", "fc2.weight"}
    assert bool(weft.allclose(loaded(x), graph(x)))
    assert bool(weft.allclose(graph.optimize()(x), graph(x)))
    text, data = graph.to_text(), graph.constant_data()
    assert weft.parse_graph(text, constants=data).same(graph)
    assert "fc1.weight" in str(weft.dot(graph))


def test_names_that_are_no_identifiers_are_kept_apart() -> None:
    model = parse("f (float[2] x) => (float[2] y) { h = Exp (x)  y = Tanh (h) }")
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = "a:0"
    model.graph.input[0].name = model.graph.node[0].input[0] = "a/0"
    graph = weft.onnx.load(model)
    np.testing.assert_allclose(graph(np.ones(2, np.float32)).numpy(), np.tanh(np.exp(np.ones(2))), rtol=1e-6)


def test_unsorted_nodes_are_sorted() -> None:
    model = parse("f (float[2] x) => (float[2] y) { h = Exp (x)  y = Tanh (h) }")
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    assert ops_of(weft.onnx.load(model)) == ["exp", "tanh"]


def test_gradients_flow_through_a_loaded_graph() -> None:
    graph = weft.onnx.load(MLP)
    x = floats(2, 4)
    found = weft.grad(lambda x: graph(x).sum())(weft.asarray(x))
    one, two, three = (numpy_helper.to_array(t) for t in MLP.graph.initializer)
    wanted = ((x @ one + two > 0) * (np.ones((2, 3), np.float32) @ three.T)) @ one.T
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5)


def test_weights_of_a_saved_graph_can_be_trained(tmp_path: Path) -> None:
    weft.save_graph(weft.onnx.load(MLP), tmp_path / "mlp.weft")
    loaded = weft.load_graph(tmp_path / "mlp.weft")
    weight = loaded.weights["fc2.weight"].requires_grad_()
    loaded(weft.ones((1, 4))).sum().backward()
    assert weight.grad is not None
    assert float(weft.abs(weight.grad).sum()) > 0


def test_float_initializers_stay_in_the_graph_while_integers_fold() -> None:
    model = parse("""
    f (float[2] x) => (float[2] y)
    <float[2] w = {1, 2}, int64[1] a = {1}, int64[1] b = {1}>
    { e = Exp (w)  s = Add (a, b)  v = Reshape (x, s)  y = Add (v, e) }
    """)
    assert ops_of(weft.onnx.load(model)) == ["exp", "reshape", "add"]


# Dynamic sizes

FLATTEN = parse("""
f (float[batch, time, 4] x) => (float[n, m] y)
<int64 zero = {0}, int64[1] first = {0}, int64[1] rest = {-1}>
{
  shape = Shape (x)
  count = Gather (shape, zero)
  wide = Unsqueeze (count, first)
  wanted = Concat <axis = 0> (wide, rest)
  y = Reshape (x, wanted)
}
""")


def test_shapes_computed_from_shapes_stay_open() -> None:
    graph = weft.onnx.load(FLATTEN)
    assert str(graph.outputs[0].type) == "f32[batch,4*time]"
    assert ops_of(graph) == ["reshape"]
    for batch, time in ((2, 3), (1, 1), (5, 2)):
        check(FLATTEN, graph, {"x": floats(batch, time, 4)})


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ("s = Shape (x)  p = ReduceProd <keepdims = 1> (s)  y = Reshape (x, p)", "f32[4*batch*time]"),
        ("s = Shape <start = 1> (x)  t = Concat <axis = 0> (m, s)  y = Reshape (x, t)", "f32[batch,time,4]"),
        (
            "s = Shape (x)  a, b, c = Split <num_outputs = 3> (s)  d = Mul (a, b)"
            "  t = Concat <axis = 0> (d, c)  y = Reshape (x, t)",
            "f32[batch*time,4]",
        ),
        ("s = Shape (x)  e = Equal (s, m)  w = Where (e, m, s)  y = Reshape (x, w)", "f32[batch,time,4]"),
        ("s = Shape (x)  d = Mul (s, two)  h = Div (d, two)  y = Reshape (x, h)", "f32[batch,time,4]"),
        ("s = Shape (x)  c = ConstantOfShape (s)  y = Add (x, c)", "f32[batch,time,4]"),
        (
            "s = Shape (x)  f = Cast <to = 1> (s)  g = Floor (f)  i = Cast <to = 7> (g)  y = Expand (x, i)",
            "f32[batch,time,4]",
        ),
    ],
)
def test_sizes_are_followed_through_arithmetic(nodes: str, shape: str) -> None:
    model = parse(f"""
    f (float[batch, time, 4] x) => (float[n] y)
    <int64[1] m = {{-1}}, int64[1] two = {{2}}> {{ {nodes} }}
    """)
    graph = weft.onnx.load(model)
    assert str(graph.outputs[0].type) == shape
    check(model, graph, {"x": floats(2, 3, 4)})


def test_size_as_data_is_what_the_run_has() -> None:
    model = parse("""
    f (float[batch, 4] x) => (float[4] y, int64[2] s)
    { s = Shape (x)  f = Cast <to = 1> (s)  i = Constant <value_int = 0> ()  n = Gather (f, i)
      a = Constant <value_ints = [0]> ()  t = ReduceSum <keepdims = 0> (x, a)  y = Div (t, n) }
    """)
    graph = weft.onnx.load(model)
    for batch in (1, 5):
        check(model, graph, {"x": floats(batch, 4)})


def test_range_over_an_open_size() -> None:
    model = parse("""
    f (float[batch, 4] x) => (int64[batch] y)
    <int64 zero = {0}, int64 one = {1}>
    { s = Shape (x)  n = Gather (s, zero)  y = Range (zero, n, one) }
    """)
    graph = weft.onnx.load(model)
    assert str(graph.outputs[0].type) == "i64[batch]"
    check(model, graph, {"x": floats(3, 4)})


def test_sizes_of_any_name_stay_apart() -> None:
    text = "f (float[n, 2] x, float[n, 2] z, float[m] input.1) => (float[n, 2] y) { y = Exp (x) }"
    model = parse(text.replace("input.1", '"input.1"'))
    first, second, third = (item.type.tensor_type.shape.dim for item in model.graph.input)
    first[0].dim_param, second[0].dim_param = "batch size", "batch_size"
    third[0].ClearField("dim_param")
    graph = weft.onnx.load(model)
    assert [str(v.type) for v in graph.inputs] == [
        "f32[batch_size,2]",
        "f32[batch_size_,2]",
        "f32[input_1_0]",
    ]
    fixed = weft.onnx.load(model, sizes={"batch size": 3, "input_1_0": 5})
    assert [str(v.type) for v in fixed.inputs] == ["f32[3,2]", "f32[batch_size_,2]", "f32[5]"]


def test_sizes_may_be_expressions() -> None:
    model = parse("f (float[n] x, float[m] z) => (float[k] y) { y = Concat <axis = 0> (x, z) }")
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "2*n + 1"
    graph = weft.onnx.load(model)
    assert str(graph.outputs[0].type) == "f32[3*n+1]"
    assert str(weft.onnx.load(model, sizes={"n": 2}).outputs[0].type) == "f32[7]"


def test_input_that_decides_a_shape_must_be_known() -> None:
    model = parse("f (float[2, 3] x, int64[k] s) => (float[n] y) { y = Reshape (x, s) }")
    model.graph.input[1].name = model.graph.node[0].input[1] = "s.1"
    with pytest.raises(GraphError) as caught:
        weft.onnx.load(model)
    assert "shape of Reshape node 'y' must be known while the model is imported" in str(caught.value)
    assert "known={'s.1': ...}" in str(caught.value)
    graph = weft.onnx.load(model, known={"s.1": [3, 2]})
    assert [v.name for v in graph.inputs] == ["x"]
    check(model, graph, {"x": floats(2, 3), "s.1": np.array([3, 2])})


# Control flow

BRANCH = parse("""
f (float[2] x, bool c) => (float[2] y)
<float[2] w = {3, 4}>
{
  h = Exp (x)
  y = If (c) <
    then_branch = yes () => (float[2] a) { a = Mul (h, w) },
    else_branch = no () => (float[2] b) { z = Neg (x)  b = Sub (z, h) }
  >
}
""")


def test_if_becomes_a_branch_that_sees_what_is_around() -> None:
    graph = weft.onnx.load(BRANCH)
    assert "cond" in ops_of(graph)
    for c in (True, False):
        check(BRANCH, graph, {"x": floats(2), "c": np.array(c)})


def test_if_with_a_known_condition_is_one_of_its_branches() -> None:
    graph = weft.onnx.load(BRANCH, known={"c": False})
    assert ops_of(graph) == ["exp", "neg", "sub"]


def test_gradient_goes_through_the_branch_that_ran() -> None:
    graph = weft.onnx.load(BRANCH)
    x = weft.tensor([0.5, -1.0])

    def gradient(c: bool) -> Any:
        return weft.grad(lambda x: graph(x, weft.tensor(c)).sum())(x).numpy()

    np.testing.assert_allclose(gradient(True), np.exp(x.numpy()) * [3, 4], rtol=1e-6)
    np.testing.assert_allclose(gradient(False), -1 - np.exp(x.numpy()), rtol=1e-6)


LOOP = parse("""
f (int64 count, bool go, float[2] x) => (float[2] last, float[n, 2] all)
{
  last, all = Loop (count, go, x) <
    body = b (int64 i, bool going, float[2] s) => (bool more, float[2] t, float[2] row) {
      more = Identity (going)
      t = Mul (s, x)
      k = Cast <to = 1> (i)
      row = Add (t, k)
    }
  >
}
""")


def test_loop_of_an_unknown_number_of_rounds_collects_as_many_rows() -> None:
    graph = weft.onnx.load(LOOP)
    assert "while_loop" in ops_of(graph)
    for count in (1, 3, 6):
        check(LOOP, graph, {"count": np.array(count), "go": np.array(True), "x": floats(2)})
    rows = graph(weft.tensor(4), weft.tensor(False), weft.ones(2))[1]
    assert rows.shape == (0, 2)


def test_loop_of_a_known_number_of_rounds_is_a_scan() -> None:
    graph = weft.onnx.load(LOOP, known={"count": 3, "go": True})
    assert "scan" in ops_of(graph)
    check(LOOP, graph, {"count": np.array(3), "go": np.array(True), "x": floats(2)})


def test_gradient_goes_back_through_every_round_of_a_loop() -> None:
    graph = weft.onnx.load(LOOP)
    x = weft.tensor([1.5, -0.5])
    found = weft.grad(lambda x: graph(weft.tensor(3), weft.tensor(True), x)[0].sum())(x)
    np.testing.assert_allclose(found.numpy(), 4 * x.numpy() ** 3, rtol=1e-5)  # of x to the fourth


WHILE = parse("""
f (float x) => (float y)
<int64 many = {100}, bool yes = {1}, float limit = {10}>
{
  y = Loop (many, yes, x) <
    body = b (int64 i, bool going, float s) => (bool more, float t) {
      t = Add (s, s)
      more = Less (t, limit)
    }
  >
}
""")


def test_loop_ends_when_its_condition_fails() -> None:
    graph = weft.onnx.load(WHILE)
    for start in (1.0, 9.0, 0.3):
        check(WHILE, graph, {"x": np.array(start, np.float32)})


def test_loop_whose_state_grows_is_written_out() -> None:
    model = parse("""
    f (float[2] x) => (float[n] y)
    <int64 three = {3}, bool yes = {1}>
    {
      y = Loop (three, yes, x) <
        body = b (int64 i, bool going, float[m] s) => (bool more, float[k] t) {
          more = Identity (going)
          t = Concat <axis = 0> (s, x)
        }
      >
    }
    """)
    graph = weft.onnx.load(model)
    assert ops_of(graph) == ["concat"] * 3
    check(model, graph, {"x": floats(2)})


def test_initializers_of_a_branch_and_of_a_body_are_parameters_too() -> None:
    model = parse("""
    f (float[2] x, bool c) => (float[2] y, float[2] z)
    <int64 two = {2}, bool yes = {1}>
    {
      y = If (c) <
        then_branch = t () => (float[2] a) <float[2] w = {3, 4}> { a = Mul (x, w) },
        else_branch = e () => (float[2] b) <float[2] v = {5, 6}> { b = Add (x, v) }
      >
      z = Loop (two, yes, x) <
        body = l (int64 i, bool g, float[2] s) => (bool m, float[2] t) <float[2] u = {0.5, 2}> {
          m = Identity (g)
          t = Mul (s, u)
        }
      >
    }
    """)
    graph = weft.onnx.load(model)
    assert {v.name for v in graph.inputs} == {"x", "c", "w", "v", "u"}
    for c in (True, False):
        check(model, graph, {"x": floats(2), "c": np.array(c)})


def test_loop_whose_condition_follows_from_itself_is_an_error() -> None:
    model = parse("""
    f (float[2] x) => (float[2] y)
    <int64 two = {2}, bool yes = {1}>
    {
      y = Loop (two, yes, x) <
        body = l (int64 i, bool g, float[2] s) => (bool m, float[2] t) {
          m = Identity (k)
          k = Identity (m)
          t = Exp (s)
        }
      >
    }
    """)
    with pytest.raises(GraphError, match="nodes must not form a cycle"):
        weft.onnx.load(model)


def test_scan_goes_along_axes_in_both_directions() -> None:
    model = parse("""
    f (float[3] s, float[3, 5] x, float[5, 3] z) => (float[3] last, float[3, 5] rows)
    {
      last, rows = Scan (s, x, z) <
        body = b (float[3] a, float[3] u, float[3] v) => (float[3] c, float[3] r) {
          t = Add (a, u)
          c = Mul (t, v)
          r = Sub (c, u)
        },
        num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [0, 1],
        scan_output_axes = [1], scan_output_directions = [1]
      >
    }
    """)
    graph = weft.onnx.load(model)
    assert "scan" in ops_of(graph)
    feeds = {"s": floats(3), "x": floats(3, 5), "z": floats(5, 3)}
    a, rows = feeds["s"], []
    for t in range(5):
        u, v = feeds["x"][:, t], feeds["z"][4 - t]
        a = (a + u) * v
        rows.append(a - u)
    for backend in BACKENDS:
        last, found = weft.Session(graph, backend=backend).run(list(graph.outputs), feeds)
        np.testing.assert_allclose(last.numpy(), a, rtol=1e-4)
        np.testing.assert_allclose(found.numpy(), np.stack(rows[::-1], axis=1), rtol=1e-4, atol=1e-6)


# Functions

FUNCTIONS = """
<ir_version: 10, opset_import: ["": 20, "own": 1]>
f (float[3] x) => (float[3] y) { y = own.Twice <factor: float = 3.0> (x) }
<domain: "own", opset_import: ["": 20, "own": 1]>
Twice <factor: float = 2.0> (a) => (c) { k = Constant <value_float: float = @factor> ()  b = Mul (a, k)
  c = own.Plus (b) }
<domain: "own", opset_import: ["": 20]>
Plus (a) => (b) { k = Constant <value_float = 1.0> ()  b = Add (a, k) }
"""


def test_functions_of_a_model_are_expanded() -> None:
    x = floats(3)
    found = weft.onnx.load(onnx.parser.parse_model(FUNCTIONS))(x)
    np.testing.assert_allclose(found.numpy(), 3 * x + 1, rtol=1e-6)


def test_function_that_calls_itself_is_refused() -> None:
    model = onnx.parser.parse_model(FUNCTIONS.replace("c = own.Plus (b)", "c = own.Twice (b)"))
    with pytest.raises(GraphError, match="functions must not call themselves"):
        weft.onnx.load(model)


def test_function_that_is_called_with_too_much_is_refused() -> None:
    model = onnx.parser.parse_model(FUNCTIONS.replace("y = own.Twice", "y, z = own.Twice"))
    with pytest.raises(GraphError, match="must have at most 1 inputs and 1 outputs, got 1 and 2"):
        weft.onnx.load(model)


@pytest.mark.parametrize(
    "node",
    [
        "HardSwish (x)",
        "Softsign (x)",
        "ThresholdedRelu <alpha = 0.5> (x)",
        "Gelu (x)",
        "Celu <alpha = 2.0> (x)",
        "LayerNormalization <axis = 1> (x, w)",
    ],
)
def test_operator_without_a_handler_is_expanded_by_its_definition(
    node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weft.onnx.load(MLP)
    monkeypatch.delitem(registry._handlers, ("", node.split()[0]))
    model = parse(f"f (float[2, 4] x) => (float[2, 4] y) <float[4] w = {{1, 2, 3, 4}}> {{ y = {node} }}")
    check(model, weft.onnx.load(model), {"x": floats(2, 4)}, rtol=1e-4)


def test_sequence_map_runs_its_graph_on_each_tensor() -> None:
    node = helper.make_node(
        "SequenceMap",
        ["s"],
        ["t"],
        body=helper.make_graph(
            [helper.make_node("Exp", ["a"], ["b"])],
            "body",
            [helper.make_tensor_value_info("a", 1, [2])],
            [helper.make_tensor_value_info("b", 1, [2])],
        ),
    )
    made = helper.make_node("SequenceConstruct", ["x", "x"], ["s"])
    out = helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0)
    graph = helper.make_graph(
        [made, node, out],
        "f",
        [helper.make_tensor_value_info("x", 1, [2])],
        [helper.make_tensor_value_info("y", 1, [4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    check(model, weft.onnx.load(model), {"x": floats(2)})


def test_every_operator_has_a_handler_but_those_of_text_and_pictures() -> None:
    weft.onnx.load(MLP)
    newest = onnx.defs.onnx_opset_version()
    names = {s.name for s in onnx.defs.get_all_schemas() if s.domain == "" and not s.deprecated}
    missing = {name for name in names if find_handler("", name, newest) is None}
    text = {"RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"}
    assert missing == {"ImageDecoder", *text}


# Sequences


def test_sequence_input_is_several_arguments() -> None:
    info = helper.make_tensor_sequence_value_info("xs", 1, [2])
    node = helper.make_node("ConcatFromSequence", ["xs"], ["y"], axis=0)
    graph = helper.make_graph([node], "f", [info], [helper.make_tensor_value_info("y", 1, [None])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    with pytest.raises(GraphError, match="input 'xs' is a sequence, whose length must be known"):
        weft.onnx.load(model)
    loaded = weft.onnx.load(model, sizes={"xs": 3})
    assert [v.name for v in loaded.inputs] == ["xs.0", "xs.1", "xs.2"]
    assert loaded(*[np.full(2, i, np.float32) for i in range(3)]).tolist() == [0, 0, 1, 1, 2, 2]


# Random numbers


def test_random_numbers_are_drawn_anew_at_each_run() -> None:
    model = parse(
        "f () => (float[1000] u, float[1000] n) { u = RandomUniform <shape = [1000], low = 2.0, "
        "high = 4.0> ()  n = RandomNormal <shape = [1000], mean = 5.0, scale = 2.0> () }"
    )
    session = weft.Session(weft.onnx.load(model))
    weft.manual_seed(0)
    (u, n), (v, _) = (session.run(list(session.graph.outputs)) for _ in range(2))
    assert not bool(weft.allclose(u, v))
    assert 2 <= float(u.min()) < 2.1 < 3.9 < float(u.max()) <= 4
    assert float(u.mean()) == pytest.approx(3, abs=0.1)
    assert (float(n.mean()), float(weft.std(n))) == pytest.approx((5, 2), abs=0.3)


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
