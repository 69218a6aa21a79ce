"""Branches, loops, functions and sequences of ONNX models as graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import weft
from tests.onnx.models import BACKENDS, BRANCH, MLP, check, floats, ops_of, parse
from weft.errors import GraphError
from weft.onnx.operators import registry
from weft.onnx.operators.registry import find_handler

# Control flow


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


def test_every_operator_has_a_handler_or_a_definition_but_those_of_text_and_pictures() -> None:
    weft.onnx.load(MLP)
    newest = onnx.defs.onnx_opset_version()
    schemas = [s for s in onnx.defs.get_all_schemas() if s.domain == "" and not s.deprecated]
    ways = ("function_opset_versions", "context_dependent_function_opset_versions")
    defined = {s.name for s in schemas if any(getattr(s, way) for way in ways)}
    missing = {s.name for s in schemas if find_handler("", s.name, newest) is None} - defined
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
