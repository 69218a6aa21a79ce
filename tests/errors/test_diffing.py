"""Where two graphs or backends first differ: planted mistakes are found, equal programs are not accused."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import weft
from tests.ir.random_graphs import arrays_of, graphs
from weft.backends import backend_named
from weft.capture.call.diffing import Side, compare
from weft.errors import ArgumentError, GraphError
from weft.ir.graph import Graph, Node


def network(x: Any, w: Any) -> Any:
    h = x @ w
    a = weft.tanh(h)  # activation
    b = a * 2.0 + x.sum()
    return weft.exp(b / 10.0)


def line_of(text: str) -> int:
    with open(__file__) as file:
        return next(i for i, line in enumerate(file, 1) if line.rstrip().endswith(f"# {text}"))


RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(3, 4)).astype(np.float32), RNG.normal(size=(4, 5)).astype(np.float32)


def graph_of(function: Any = network) -> Graph:
    graph: Graph = weft.make_graph(function)(weft.ones((3, 4)), weft.ones((4, 5)))
    return graph


def miscompiling(op: str, by: float = 0.1) -> Any:
    """A backend that makes one op give something else."""

    def build(graph: Graph) -> Any:
        return backend_named("interpret")(graph.replace(nodes=[spoiled(n) for n in graph.nodes]))

    def spoiled(node: Node) -> Node:
        if node.op.name != op:
            return node
        changed = copy.copy(node.op)
        changed.eval = lambda *xs, **attrs: node.op.eval(*xs, **attrs) + np.float32(by)
        return Node(changed, node.inputs, node.attrs, node.outputs, node.location)

    return build


def test_backends_that_agree_have_no_difference() -> None:
    assert graph_of().diff("llvm", {"x": X, "w": W}) is None
    assert weft.compile(network).diff("interpret", weft.tensor(X), weft.tensor(W)) is None


@pytest.mark.parametrize("op", ["matmul", "tanh", "add"])
def test_first_wrong_node_of_a_backend_is_named(op: str) -> None:
    found = graph_of().diff(miscompiling(op), {"x": X, "w": W})
    assert found.node.op.name == op
    np.testing.assert_allclose(found.right - found.left, 0.1, rtol=1e-3)
    assert "differs in 15 of 15 elements" in str(found)


def test_difference_names_the_value_and_the_line() -> None:
    found = graph_of().diff(miscompiling("tanh"), {"x": X, "w": W})
    assert (found.name, found.line) == ("a", line_of("activation"))
    assert str(found).startswith(f"a = tanh(h)  at test_diffing.py:{line_of('activation')}: a = weft.tanh(h)")


def test_compiled_function_is_compared_with_its_own_backend() -> None:
    wrong = weft.compile(network, backend=miscompiling("tanh"), passes=[])
    found = wrong.diff("interpret", weft.tensor(X), weft.tensor(W))
    assert found.node.op.name == "tanh"
    assert wrong.diff(weft.compile(network), weft.tensor(X), weft.tensor(W)).node.op.name == "tanh"


def test_few_graphs_are_built_for_a_long_chain() -> None:
    def chain(x: Any, w: Any) -> Any:
        for _ in range(64):
            x = weft.sin(x) + 0.5
        return weft.exp(x) + w.sum()

    built = []
    spoil = miscompiling("exp")

    def build(graph: Graph) -> Any:
        built.append(graph)
        return spoil(graph)

    found = weft.passes.unroll(graph_of(chain)).diff(build, {"x": X, "w": W})
    assert found.node.op.name == "exp"
    assert len(built) < 16


def test_tolerance_can_be_set() -> None:
    slightly = miscompiling("tanh", by=1e-3)
    assert graph_of().diff(slightly, {"x": X, "w": W}) is not None
    assert graph_of().diff(slightly, {"x": X, "w": W}, rtol=0.1) is None
    assert graph_of().diff(slightly, {"x": X, "w": W}, atol=0.1) is None
    assert graph_of().diff("llvm", {"x": X, "w": W}, rtol=0.0, atol=1e-4) is None


def test_two_graphs_are_matched_by_op_and_line() -> None:
    graph = graph_of()
    wrong = graph.rewrite(lambda h: weft.tanh(h), lambda h: weft.tanh(h * 1.5))
    assert graph.diff(graph.optimize(), {"x": X, "w": W}) is None
    found = graph.diff(wrong, {"x": X, "w": W})
    assert found is not None
    assert found.node.op.name != "matmul"
    assert found.line is not None
    assert found.line >= line_of("activation")


def test_nondeterminism_is_found_by_comparing_a_backend_with_itself() -> None:
    rng = np.random.default_rng(1)

    def build(graph: Graph) -> Any:
        run = backend_named("interpret")(graph)
        noisy = any(n.op.name == "tanh" for n in graph.nodes)
        return lambda arrays: [a + np.float32(noisy * rng.normal()) for a in run(arrays)]

    function = weft.compile(network, backend=build, passes=[])
    found = function.diff(function, weft.tensor(X), weft.tensor(W))
    assert found.node.op.name == "tanh"


def test_results_that_are_nan_on_both_sides_agree() -> None:
    graph = weft.make_graph(lambda x: weft.log(x) + 1.0)(weft.ones(2))
    assert graph.diff("llvm", {"x": [-1.0, 0.0]}) is None


def test_integers_must_be_equal() -> None:
    graph = weft.make_graph(lambda x: weft.argmax(x) + 1)(weft.ones(3))

    def other(part: Graph) -> Any:
        run = backend_named("interpret")(part)
        return lambda arrays: [a + (a.dtype == np.int64) for a in run(arrays)]

    assert graph.diff(other, {"x": [1.0, 3.0, 2.0]}).node.op.name == "argmax"


def test_training_step_is_compared_without_its_effects() -> None:
    model = weft.nn.Linear(4, 2)
    optimizer = weft.optim.Adam(model.parameters(), lr=0.1)

    @weft.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    before = model.weight.detach().numpy().copy()
    assert step.diff("interpret", weft.tensor(X)) is None
    np.testing.assert_array_equal(model.weight.detach().numpy(), before)


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(ArgumentError, match="must be given a compiled function or a backend"):
        weft.compile(network).diff(None, weft.tensor(X), weft.tensor(W))
    shorter = weft.make_graph(lambda x, w: (x.sum(), w.sum()))(weft.ones((3, 4)), weft.ones((4, 5)))
    with pytest.raises(GraphError, match="graphs must give as many results, got 1 and 2"):
        graph_of().diff(shorter, {"x": X, "w": W})


@settings(max_examples=20, deadline=None)
@given(graph=graphs())
def test_reference_agrees_with_itself_on_random_graphs(graph: Graph) -> None:
    arrays: Sequence[Any] = arrays_of(graph)
    other = backend_named("interpret")
    assert compare(Side(graph, arrays, "interpret"), Side(graph, arrays, other), None, None) is None


def test_node_in_a_loop_is_named_with_its_iteration() -> None:
    def looped(x: Any, w: Any) -> Any:
        for _ in range(6):
            x = x * 0.5
            x = weft.relu(x - 1.0) + 1.0  # clipped
        return x + w.sum()

    def build(graph: Graph) -> Any:
        """Wrong where a difference is negative, as it is from the second iteration on."""
        return backend_named("interpret")(graph.replace(nodes=[spoiled(n) for n in graph.nodes]))

    def spoiled(node: Node) -> Node:
        attrs = dict(node.attrs)
        if node.regions:
            body = attrs["body"]
            attrs["body"] = body.replace(nodes=[spoiled(n) for n in body.nodes])
        changed = copy.copy(node.op)
        if node.op.name == "sub":
            changed.eval = lambda a, b: np.where(a < b, a, a - b)
        return Node(changed, node.inputs, attrs, node.outputs, node.location)

    graph = graph_of(looped)
    found = graph.diff(build, {"x": np.full((3, 4), 3.0, np.float32), "w": W})
    assert found.node.op.name == "sub"
    assert found.line == line_of("clipped")
    assert "  in iteration 1, body of " in str(found)
    assert found.right[0, 0] == 0.75


def test_branch_is_looked_into() -> None:
    def branching(x: Any, w: Any) -> Any:
        if x.sum() > 0:
            x = weft.cos(x) * 2.0
        return x + w.sum()

    found = graph_of(branching).diff(miscompiling_inside("cos"), {"x": np.abs(X), "w": W})
    assert found.node.op.name == "cos"
    assert "  in branches[0] of " in str(found)


def miscompiling_inside(op: str) -> Any:
    """A backend that makes one op of branches give something else."""

    def spoiled(graph: Graph) -> Graph:
        return graph.replace(nodes=[spoiled_node(n) for n in graph.nodes])

    def spoiled_node(node: Node) -> Node:
        changed = copy.copy(node.op)
        if node.op.name == op:
            changed.eval = lambda *xs: node.op.eval(*xs) + np.float32(1.0)
        attrs = dict(node.attrs)
        if "branches" in attrs:
            attrs["branches"] = tuple(map(spoiled, attrs["branches"]))
        return Node(changed, node.inputs, attrs, node.outputs, node.location)

    return lambda graph: backend_named("interpret")(spoiled(graph))
