"""A graph that is not well formed is refused, with the node and the user's line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ir.random_graphs import BOOL, F32, F64, I64, Builder
from weft.base.sizes import named_size
from weft.errors import GraphError
from weft.ir.graph import Graph, Node, Value
from weft.ir.location import Location
from weft.ir.order import kahn_order, needed_nodes
from weft.ir.types import TensorType
from weft.ops.table import find_op

X = TensorType((2,), F32)
HERE = Location(__file__, 1, "f")


def message(graph: Graph) -> str:
    with pytest.raises(GraphError) as caught:
        graph.verify()
    return caught.value.message


def node(op: str, inputs: list[Value], outputs: list[Value], **attrs: Any) -> Node:
    return Node(find_op(op), inputs, attrs, outputs, HERE)


def test_well_formed_graph_is_given_back() -> None:
    b = Builder()
    graph = b.graph([b.emit("tanh", b.input(X))])
    assert graph.verify() is graph


def test_error_names_the_node_and_its_line() -> None:
    x, y = Value(X, "x"), Value(TensorType((3,), F32))
    graph = Graph("f", [x], [node("tanh", [x], [y])], [y])
    with pytest.raises(GraphError) as caught:
        graph.verify()
    assert caught.value.message == "node 0, %0 = tanh(%x): types must be f32[2], got f32[3]"
    assert "  at test_verify.py:1: " in str(caught.value)


def test_operand_of_another_graph_is_refused() -> None:
    x, out = Value(X, "x"), Value(X)
    assert "operand 0 must be made in the graph, got %x: f32[2] from outside" in message(
        Graph("f", [], [node("tanh", [x], [out])], [out])
    )


def test_operand_of_a_later_node_is_refused() -> None:
    x, y, z = Value(X), Value(X), Value(X)
    nodes = [node("tanh", [y], [z]), node("tanh", [x], [y])]
    assert "operand 0 must be made before it is used" in message(Graph("f", [x], nodes, [z]))


def test_cycle_is_named() -> None:
    x, y, z = Value(X), Value(X), Value(X)
    nodes = [node("add", [x, z], [y]), node("tanh", [y], [z])]
    found = message(Graph("f", [x], nodes, [z]))
    assert "nodes must not form a cycle, got add (node 0) <- tanh (node 1) <- add (node 0)" in found


def test_node_that_uses_itself_is_a_cycle() -> None:
    x = Value(X)
    assert "add (node 0) <- add (node 0)" in message(Graph("f", [], [node("add", [x, x], [x])], [x]))


def test_value_made_twice_is_refused() -> None:
    x, y = Value(X), Value(X)
    nodes = [node("tanh", [x], [y]), node("exp", [x], [y])]
    assert "node 1, %1 = exp(%0): a value must be made once" in message(Graph("f", [x], nodes, [y]))


def test_input_made_by_a_node_is_refused() -> None:
    x, y = Value(X), Value(X, "y")
    assert "a value must be made once, got %y" in message(Graph("f", [x, y], [node("tanh", [x], [y])], [y]))


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"roles": ["arg"]}, "every input must have a role, got 2 and 1 roles"),
        ({"roles": ["arg", "bias"]}, "roles must be one of arg, param, weight, state, got 'bias'"),
        ({"outputs": [Value(X, "z")]}, "every output must be made in the graph, got %z: f32[2]"),
    ],
)
def test_wrong_parts_are_refused(parts: dict[str, Any], expected: str) -> None:
    graph = Graph("f", [Value(X, "x"), Value(X, "y")])
    assert expected in message(graph.replace(**parts))


def test_names_of_inputs_are_unique() -> None:
    assert "names of inputs must be unique, got 'x' twice" in message(
        Graph("f", [Value(X, "x"), Value(X, "x")])
    )


def test_inputs_are_distinct() -> None:
    x = Value(X)
    assert "inputs must be distinct" in message(Graph("f", [x, x]))


def test_sizes_are_not_negative_and_their_names_identifiers() -> None:
    assert "sizes must be 0 or more, got f32[-1]" in message(Graph("f", [Value(TensorType((-1,), F32))]))
    odd = Value(TensorType((named_size("a b"),), F32))  # type: ignore[arg-type]
    assert "the name of a size must be an identifier, got 'a b'" in message(Graph("f", [odd]))


def test_constants_are_of_their_types() -> None:
    c = Value(X, "c")
    assert "a constant must be of its type, got float64[2]" in message(Graph(constants={c: np.zeros(2)}))
    assert "constants must be arrays, got list" in message(Graph(constants={c: [0.0, 0.0]}))  # type: ignore[dict-item]
    assert "an input or a constant" in message(Graph("f", [c], constants={c: np.zeros(2, np.float32)}))


def test_only_state_is_updated_once_by_a_value_of_its_type() -> None:
    x, y, z = Value(X, "x"), Value(X, "y"), Value(TensorType((2,), F64), "z")
    graph = Graph("f", [x, y, z], roles=["state", "param", "arg"])
    assert "got %y: f32[2], which is param" in message(graph.replace(updates=[(y, x)]))
    assert "an update must be of the type of %x: f32[2], got f64[2]" in message(
        graph.replace(updates=[(x, z)])
    )
    assert "can be updated once, got %x" in message(graph.replace(updates=[(x, y), (x, y)]))
    assert "which is no input" in message(graph.replace(updates=[(Value(X), y)]))
    assert "every update must be made in the graph" in message(graph.replace(updates=[(x, Value(X))]))
    graph.replace(updates=[(x, y)]).verify()


def test_attributes_are_literals_and_complete() -> None:
    x, y = Value(X), Value(TensorType((), F32))
    bad = node("sum", [x], [y], axes=[0], keepdims=False)
    assert "an attribute must be a literal, got list" in message(Graph("f", [x], [bad], [y]))
    short = node("sum", [x], [y], axes=(0,))
    assert "attributes must be complete, got none for keepdims" in message(Graph("f", [x], [short], [y]))


def test_regions_are_closed() -> None:
    b = Builder()
    p, x = b.input(TensorType((), BOOL)), b.input(X, "x")
    inner = Value(X)
    region = Graph("branches", [inner], [], [x])
    made = [Value(X)]
    b.nodes.append(Node(find_op("cond"), [p, x], {"branches": (region, region)}, made))
    assert "every output must be made in the graph, got %x" in message(b.graph(made))


def test_node_in_a_region_is_named() -> None:
    b = Builder()
    p, x = b.input(TensorType((), BOOL)), b.input(X, "x")
    inner, out = Value(X), Value(TensorType((3,), F32))
    region = Graph("branches", [inner], [node("tanh", [inner], [out])], [inner])
    made = [Value(X)]
    b.nodes.append(Node(find_op("cond"), [p, x], {"branches": (region, region)}, made))
    assert message(b.graph(made)) == "tanh in a region: types must be f32[2], got f32[3]"


def test_sizes_that_only_a_run_tells_may_have_any_name() -> None:
    n, m = named_size("n"), named_size("m")
    x = Value(TensorType((n,), F32))  # type: ignore[arg-type]
    wrong = Value(TensorType((m,), F32))  # type: ignore[arg-type]
    assert "types must be f32[n], got f32[m]" in message(
        Graph("f", [x], [node("tanh", [x], [wrong])], [wrong])
    )
    count = node("iota", [], [wrong], size=n, dtype=I64)
    assert "types must be i64[n]" in message(Graph("f", [], [count], [wrong]))


# Order


def chain(length: int) -> tuple[Value, list[Node]]:
    x = Value(X)
    nodes = []
    at = x
    for _ in range(length):
        out = Value(X)
        nodes.append(node("tanh", [at], [out]))
        at = out
    return x, nodes


def test_order_puts_each_node_after_what_it_uses() -> None:
    _, nodes = chain(5)
    shuffled = [nodes[i] for i in (3, 0, 4, 2, 1)]
    assert kahn_order(shuffled) == nodes
    assert kahn_order(nodes) == nodes


def test_long_cycle_is_found_and_only_its_nodes_are_named() -> None:
    x, nodes = chain(4)
    back = node("add", [nodes[-1].outputs[0], x], [nodes[0].inputs[0]])
    after = node("exp", [nodes[-1].outputs[0]], [Value(X)])
    with pytest.raises(GraphError) as caught:
        kahn_order([after, *nodes, back])
    ring = "tanh (node 4) <- tanh (node 3) <- tanh (node 2) <- tanh (node 1) <- add (node 5) <- tanh (node 4)"
    assert caught.value.message == f"nodes must not form a cycle, got {ring}"


def test_cycle_of_many_nodes_is_found_at_once_and_told_in_short() -> None:
    _, nodes = chain(20_000)
    nodes[0] = node("tanh", [nodes[-1].outputs[0]], list(nodes[0].outputs))
    with pytest.raises(GraphError) as caught:
        kahn_order(nodes)
    assert "tanh (node 0) <- tanh (node 19999)" in caught.value.message
    assert "and 19992 more" in caught.value.message


def test_needed_nodes_leave_out_what_nobody_asks_for() -> None:
    _, nodes = chain(4)
    assert needed_nodes(nodes, [nodes[1].outputs[0]]) == nodes[:2]


def test_needed_nodes_keep_effects_unless_told() -> None:
    x, nodes = chain(1)
    effect = Node(find_op("print"), [x], {"pieces": ("", ""), "places": ("",)}, [])
    assert needed_nodes([*nodes, effect], []) == [effect]
    assert needed_nodes([*nodes, effect], [], effects=False) == []
