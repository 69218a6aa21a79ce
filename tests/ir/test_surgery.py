"""Graphs changed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.ir.random_graphs import F32, Builder
from weft.base.sizes import named_size
from weft.errors import ArgumentError, GraphError
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.ir.types import TensorType

X = TensorType((3,), F32)


def example() -> Graph:
    """y = tanh(x) * w + x, of which the part before the sum is %1."""
    return weft.parse_graph(
        """
        graph f(%x: f32[3], param %w: f32[3]) {
          %0: f32[3] = tanh(%x)
          %1: f32[3] = mul(%0, %w)
          %y: f32[3] = add(%1, %x)
          return %y
        }
        """
    )


def shown(graph: Graph) -> list[str]:
    return [line.strip() for line in graph.to_text(locations=False).splitlines()]


# Finding values


def test_values_are_found_by_name_and_number() -> None:
    graph = example()
    assert graph.value("x") is graph.value("%x") is graph.inputs[0]
    assert graph.value("y") is graph.outputs[0]
    assert graph.value("%1") is graph.nodes[1].outputs[0]
    assert graph.value(graph.inputs[1]) is graph.inputs[1]


def test_unknown_value_is_refused_with_a_hint() -> None:
    with pytest.raises(GraphError, match="must be in the graph f, got %7"):
        example().value("%7")
    with pytest.raises(GraphError) as caught:
        example().extract("x", "yy")
    assert caught.value.hint == "did you mean %y?"
    with pytest.raises(GraphError, match="must be a value of the graph f, got %x: f32\\[3\\] of another one"):
        example().value(example().inputs[0])
    with pytest.raises(ArgumentError, match="must be a value or a name, got int"):
        example().value(3)


# Cutting


def test_extract_gives_what_is_between_values() -> None:
    part = example().extract(["%0", "w"], "%1", name="part")
    assert shown(part) == [
        "graph part(%0: f32[3], param %w: f32[3]) {",
        "%1: f32[3] = mul(%0, %w)",
        "return %1",
        "}",
    ]
    part.verify()


def test_extract_names_the_inputs_that_are_missing() -> None:
    with pytest.raises(GraphError) as caught:
        example().extract("%0", ["%1", "y"])
    assert caught.value.message == "outputs must follow from the inputs, got none for %x, %w"
    assert caught.value.hint == "add %x, %w to inputs"


def test_extract_may_give_an_input_itself() -> None:
    part = example().extract(["x", "%1"], ["%1", "x"])
    assert not part.nodes
    assert part.verify().outputs == (part.inputs[1], part.inputs[0])


def test_cut_makes_a_value_an_input() -> None:
    rest = example().cut("%1")
    assert shown(rest) == ["graph f(%x: f32[3], %0: f32[3]) {", "%y: f32[3] = add(%0, %x)", "return %y", "}"]
    rest.verify()


def test_cut_keeps_state_and_its_update() -> None:
    graph = weft.parse_graph(
        "graph f(state %m: f32[3], %x: f32[3]) {\n  %0: f32[3] = tanh(%x)\n  %1: f32[3] = add(%m, %0)\n"
        "  update %m = %1\n  return\n}"
    )
    rest = graph.cut("%0").verify()
    assert rest.roles == ("state", "arg")
    assert len(rest.updates) == 1
    with pytest.raises(GraphError, match="a value that is updated must not be cut"):
        graph.cut("m")


def test_cut_of_one_of_several_outputs_keeps_the_other() -> None:
    b = Builder()
    x = b.input(TensorType((3, 3), F32), "x")
    q, r = b.emit("qr", x, complete=False)
    graph = b.graph([b.emit("add", q, r)])
    rest = graph.cut([q]).verify()
    a = np.eye(3, dtype=np.float32) + 1
    zero = np.zeros((3, 3), np.float32)
    np.testing.assert_allclose(interpret(rest, [a, zero])[0], np.linalg.qr(a)[1], atol=1e-5)


# Replacing


def test_replaced_value_is_used_nowhere() -> None:
    graph = example().replace_values({"%0": "x", "%y": "%1"})
    assert shown(graph)[1:] == [
        "%0: f32[3] = tanh(%x)",
        "%1: f32[3] = mul(%x, %w)",
        "%y: f32[3] = add(%1, %x)",
        "return %1",
        "}",
    ]


def test_replacing_by_a_later_value_moves_nodes() -> None:
    graph = weft.parse_graph(
        "graph f(%x: f32[3]) {\n %0: f32[3] = tanh(%x)\n %1: f32[3] = exp(%0)\n"
        " %2: f32[3] = sin(%x)\n return %1\n}"
    )
    moved = graph.replace_values({"%0": "%2"}).verify()
    np.testing.assert_allclose(
        interpret(moved, [np.ones(3, np.float32)])[0], np.exp(np.sin(np.ones(3))), rtol=1e-6
    )


def test_replacing_that_would_make_a_cycle_is_refused() -> None:
    with pytest.raises(GraphError, match="nodes must not form a cycle"):
        example().replace_values({"%0": "%y"})


def test_replacing_by_another_type_is_refused() -> None:
    graph = weft.parse_graph("graph f(%x: f32[3], %y: f32[2]) { %0: f32[3] = tanh(%x)\n return %0 }")
    with pytest.raises(GraphError, match=r"types must agree, got %x: f32\[3\] and %y: f32\[2\]"):
        graph.replace_values({"x": "y"})


# Copies and counts


def test_clone_has_another_name_if_asked() -> None:
    assert example().clone("g").name == "g"


def test_graph_has_no_unknown_method() -> None:
    with pytest.raises(AttributeError, match="a graph has no 'nothing'"):
        example().nothing  # noqa: B018


def test_stats_count_ops_parameters_and_flops() -> None:
    b = Builder()
    x, w = b.input(TensorType((4, 8), F32)), b.input(TensorType((8, 2), F32), "w", "param")
    h = b.emit("tanh", b.emit("matmul", x, w))
    found = b.graph([b.emit("reshape", h, shape=(8,))]).stats()
    assert found.ops == {"matmul": 1, "tanh": 1, "reshape": 1}
    assert (found.nodes, found.parameters, found.parameter_bytes) == (3, 16, 64)
    assert found.flops == 2 * 4 * 8 * 2 + 8
    assert found.value_bytes == 3 * 32
    assert "parameters  16 (64 bytes)" in str(found)


def test_stats_are_expressions_where_sizes_are_named() -> None:
    n: Any = named_size("batch")
    b = Builder()
    x, w = b.input(TensorType((n, 8), F32)), b.input(TensorType((8, 2), F32), "w", "param")
    found = b.graph([b.emit("matmul", x, w)]).stats()
    assert str(found.flops) == "32*batch"
    assert str(found.value_bytes) == "8*batch"


def test_stats_look_into_regions_and_count_calls_by_name() -> None:
    region = Builder("branches")
    inner = region.graph([region.emit("tanh", region.input(X))])
    b = Builder()
    p, x = b.input(TensorType((), np.dtype(bool))), b.input(X)
    (y,) = b.emit("cond", p, x, branches=(inner, inner))
    (z,) = b.emit("call", y, function="gelu", arguments=(), body=inner)
    found = b.graph([z]).stats()
    assert found.ops == {"tanh": 2, "cond": 1, "gelu": 1}
    assert found.inner_nodes == 2
    assert "2 and 2 in regions" in str(found)
