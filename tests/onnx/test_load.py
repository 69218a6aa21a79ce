"""``weft.onnx.load``: what the graph of a model is, its sizes, and what it computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import weft
from tests.onnx.models import MLP, check, floats, ops_of, parse
from weft.errors import GraphError, ShapeError

# What a graph is made of


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


def test_gemm_of_half_precision_is_rounded_once() -> None:
    inputs = "float16[8,600] x, float16[4,600] w, float16[4] b"
    graph = weft.onnx.load(parse(f"f ({inputs}) => (float16[8,4] y) {{ y = Gemm <transB = 1> (x, w, b) }}"))
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-16, 17, shape).astype(np.float16) for shape in ((8, 600), (4, 600)))
    b = (rng.integers(-39, 40, 4) / 8).astype(np.float16)
    wide = [a.astype(np.float64) for a in (x, w, b)]
    np.testing.assert_array_equal(graph(x, w, b).numpy(), (wide[0] @ wide[1].T + wide[2]).astype(np.float16))
