"""The joint graph and its split: gradients equal those of eager backward, and what is saved is little."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow

import weft
from tests.of_code import examples
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.transform.joint import Derivative, capture_joint, differentiate, joint_graph, split
from weft.transform.maxflow import Network
from weft.transform.partition import LONGEST_CHAIN, bytes_of, is_cheap
from weft.transform.tracing import trace_graph


def dropped(x: Any) -> Any:
    return weft.dropout(x, 0.5, key=weft.random.key(7))


UNARY: list[Callable[[Any], Any]] = [
    weft.tanh,
    weft.sin,
    weft.sigmoid,
    weft.relu,
    lambda x: weft.exp(-x * x),
    lambda x: x.mT,
    lambda x: weft.softmax(x, axis=-1),
    lambda x: x.sum(axis=0, keepdims=True) + weft.zeros_like(x),
    lambda x: x.reshape(-1).reshape(x.shape) * 2.0,
    dropped,
    lambda x: x.detach() * x,
    lambda x: weft.concat([x[1:], x[:1]]),
    lambda x: weft.gelu(x),
    lambda x: weft.layer_norm(x, (3,)),
    lambda x: x.max(axis=1, keepdims=True) * x,
]
BINARY: list[Callable[[Any, Any], Any]] = [
    weft.add,
    weft.sub,
    weft.mul,
    weft.matmul,
    weft.maximum,
    lambda x, y: weft.where(x > y, x, y * 0.5),
    lambda x, y: x / (1.0 + y * y),
]
STEPS = st.lists(
    st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 99), st.integers(0, 99)),
    min_size=1,
    max_size=14,
)


def program(steps: Sequence[tuple[int, int, int]]) -> Callable[..., Any]:
    """A function of three matrices that runs ops on what it has, and returns the last two results."""

    def run(*inputs: Any) -> Any:
        values = list(inputs)
        for op, i, j in steps:
            x, y = values[-1 - i % len(values)], values[-1 - j % len(values)]
            values.append(UNARY[op](x) if op < len(UNARY) else BINARY[op - len(UNARY)](x, y))
        return values[-1], values[-2] * 2.0

    return run


def matrices(count: int = 3) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(3, 3)).astype(np.float32) for _ in range(count)]


def graph_of(function: Callable[..., Any], arrays: Sequence[Any]) -> Graph:
    types = [weft.TensorType(a.shape, a.dtype) for a in arrays]
    graph, imports = trace_graph(function, types, "f", ["a", "b", "c"][: len(types)])
    assert not imports
    return graph


def run_split(
    derivative: Derivative, arrays: Sequence[Any], seeds: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Outputs and gradients of the two graphs."""
    forward, backward, kept, _, saved = derivative
    found = interpret(forward, arrays)
    outputs, residuals = found[: len(found) - saved], found[len(found) - saved :]
    return outputs, interpret(backward, [*residuals, *[arrays[i] for i in kept], *seeds])


def eager(
    function: Callable[..., Any], arrays: Sequence[Any], seeds: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    tensors = [weft.tensor(a, requires_grad=True) for a in arrays]
    outs = function(*tensors)
    pairs = [(o, weft.tensor(s)) for o, s in zip(outs, seeds, strict=True) if o.requires_grad]
    if not pairs:
        return [o.detach().numpy() for o in outs], [np.zeros_like(a) for a in arrays]
    grads = weft.autograd.grad(
        [o for o, _ in pairs], tensors, [s for _, s in pairs], allow_unused=True, materialize_grads=True
    )
    return [o.detach().numpy() for o in outs], [g.numpy() for g in grads]


def needed_bytes(graph: Graph) -> int:
    """What backward would keep if it saved everything that it uses of the forward pass."""
    joint = capture_joint(graph, range(len(graph.inputs)))
    nodes = joint.capture.nodes
    made = {v for n in nodes[: joint.forward] for v in n.outputs}.union(joint.inputs)
    wanted, used = set(joint.gradients), set(joint.gradients)
    for node in reversed(nodes[joint.forward :]):
        if not wanted.isdisjoint(node.outputs):
            wanted.update(node.inputs)
            used.update(node.inputs)
    return sum(bytes_of(v) for v in used & made)


def saved_bytes(derivative: Derivative) -> int:
    count = derivative.saved + len(derivative.kept)
    return sum(bytes_of(v) for v in derivative.backward.inputs[:count])


@examples(50, 16)
@given(STEPS)
def test_split_of_a_random_program_equals_eager_backward_bit_by_bit(
    steps: list[tuple[int, int, int]],
) -> None:
    function, arrays = program(steps), matrices()
    seeds = [np.full((3, 3), 1.5, np.float32), np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)]
    expected = eager(function, arrays, seeds)
    graph = graph_of(function, arrays)
    for recompute in (False, True):
        derivative = differentiate(graph, range(3), recompute=recompute)
        found = run_split(derivative, arrays, seeds)
        for a, b in zip([*found[0], *found[1]], [*expected[0], *expected[1]], strict=True):
            np.testing.assert_array_equal(a, b)
        assert derivative.saved == 0 or not recompute
    assert saved_bytes(differentiate(graph, range(3))) <= needed_bytes(graph)


@examples(15, 5)
@given(STEPS)
def test_joint_graph_of_a_random_program_equals_eager_backward(steps: list[tuple[int, int, int]]) -> None:
    function, arrays = program(steps), matrices()
    seeds = [np.ones((3, 3), np.float32)] * 2
    outs, grads = eager(function, arrays, seeds)
    found = interpret(joint_graph(graph_of(function, arrays), [0, 2]), [*arrays, *seeds])
    for a, b in zip(found[: len(outs)], outs, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(found[len(outs) :], [grads[0], grads[2]], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)  # sums of gradients may be in another order


@examples(20, 6)
@given(STEPS)
def test_only_cheap_ops_run_again_in_bounded_chains(steps: list[tuple[int, int, int]]) -> None:
    graph = graph_of(program(steps), matrices())
    joint = capture_joint(graph, range(3))
    backward = split(joint).backward
    again = [n for n in backward.nodes if n.location is not None and n.location.phase != "backward"]
    assert all(is_cheap(n) for n in again)
    depth: dict[Any, int] = {}
    for node in again:
        longest = 1 + max((depth.get(v, 0) for v in node.inputs), default=0)
        depth |= dict.fromkeys(node.outputs, longest)
        assert longest <= LONGEST_CHAIN


def test_a_long_chain_is_cut_in_pieces() -> None:
    def chain(x: Any) -> Any:
        for _ in range(100):
            x = weft.sin(x) * 1.01
        return x

    graph = graph_of(chain, matrices(1))
    derivative = differentiate(graph, [0])
    assert 3 <= derivative.saved <= 2 * 200 // LONGEST_CHAIN
    (x,), seed = matrices(1), np.ones((3, 3), np.float32)
    expected = eager(lambda x: (chain(x),), [x], [seed])
    np.testing.assert_array_equal(run_split(derivative, [x], [seed])[1][0], expected[1][0])


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def test_products_are_not_computed_twice() -> None:
    graph = graph_of(lambda a, b: weft.sin(weft.tanh(a @ b) * 3.0), matrices(2))
    derivative = differentiate(graph, [0, 1])
    assert names(derivative.forward).count("matmul") == 1
    assert names(derivative.backward).count("matmul") == 2
    assert derivative.saved == 1
    assert derivative.kept == (0, 1)


def test_products_much_larger_than_their_factors_are_computed_again() -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return weft.softmax(q @ k.mT, axis=-1) @ v

    def saved(length: int) -> list[tuple[int, ...]]:
        graph = graph_of(attention, [np.ones((length, 8))] * 3)
        return [v.type.shape for v in differentiate(graph, range(3)).forward.outputs[1:]]

    assert (64, 64) not in saved(64)
    assert (16, 16) in saved(16)


def test_a_mask_is_saved_as_bools() -> None:
    graph = graph_of(lambda a, b: dropped(a @ b), matrices(2))
    derivative = differentiate(graph, [0])
    saved = derivative.forward.outputs[-derivative.saved :]
    assert [str(v.type) for v in saved] == ["bool[3,3]"]
    assert not {"random_bits", "derive_key"} & set(names(derivative.backward))


def test_inputs_are_listed_and_not_copied() -> None:
    graph = graph_of(lambda a, b: a * b, matrices(2))
    derivative = differentiate(graph, [0])
    assert (derivative.saved, derivative.kept) == (0, (1,))
    assert len(derivative.forward.outputs) == 1
    assert [str(v) for v in derivative.backward.inputs] == ["%b: f32[3,3]", "%grad: f32[3,3]"]


def test_free_inputs_are_kept_rather_than_results_saved() -> None:
    def function(a: Any, b: Any) -> Any:
        h = a * b
        return h * h * h

    graph = graph_of(function, matrices(2))
    assert differentiate(graph, [0, 1], free=[0, 1]).kept == (0, 1)
    assert differentiate(graph, [0, 1], free=[0, 1]).saved == 0


def test_gradient_of_an_input_without_influence_is_zeros() -> None:
    graph = graph_of(lambda a, b: weft.sin(a), matrices(2))
    derivative = differentiate(graph, [0, 1])
    assert derivative.reached == (True, False)
    arrays, seed = matrices(2), np.ones((3, 3), np.float32)
    _, grads = run_split(derivative, arrays, [seed])
    np.testing.assert_array_equal(grads[1], np.zeros((3, 3)))


def test_outputs_without_gradients_have_no_seed() -> None:
    graph = graph_of(lambda a: (weft.argmax(a), a > 0.0, a * a), matrices(1))
    derivative = differentiate(graph, [0])
    (a,) = matrices(1)
    outputs, grads = run_split(derivative, [a], [np.ones_like(a)])
    np.testing.assert_array_equal(grads[0], 2 * a)
    assert outputs[0] == a.argmax()


def test_detach_in_a_graph_stops_gradients() -> None:
    graph = graph_of(lambda a: a * a.detach(), matrices(1))
    (a,) = matrices(1)
    _, grads = run_split(differentiate(graph, [0]), [a], [np.ones_like(a)])
    np.testing.assert_array_equal(grads[0], a)


def test_second_order_by_differentiating_the_joint_graph() -> None:
    graph = graph_of(lambda a: weft.sin(a) * a, matrices(1))
    (a,) = matrices(1)
    twice = joint_graph(joint_graph(graph, [0]), [0])
    ones = np.ones_like(a)
    found = interpret(twice, [a, ones, 0 * ones, ones])
    np.testing.assert_allclose(found[-1], 2 * np.cos(a) - a * np.sin(a), rtol=2e-6)


def test_effects_stay_in_the_forward_graph(capsys: Any) -> None:
    graph = weft.make_graph(_noisy)(weft.ones(3))
    derivative = differentiate(graph, [0], recompute=True)
    assert "print" in "".join(names(derivative.forward))
    assert "print" not in "".join(names(derivative.backward))
    ones = np.ones(3, np.float32)
    run_split(derivative, [ones], [ones])
    assert capsys.readouterr().out.count("seen") == 1


def _noisy(x: Any) -> Any:
    y = weft.exp(x)
    print("seen", y)  # noqa: T201 - the effect to look at
    return y * y


def test_integers_cannot_be_differentiated() -> None:
    graph = graph_of(lambda a: a + 1, [np.ones(2, np.int64)])
    with pytest.raises(
        weft.errors.DtypeError, match="input a must be floating or complex to be differentiated"
    ):
        differentiate(graph, [0])


def test_calls_stay_calls_in_the_forward_graph_and_nodes_keep_their_lines() -> None:
    graph = graph_of(lambda a: weft.gelu(a, approximate="tanh"), matrices(1))
    forward, backward, *_ = differentiate(graph, [0])
    assert [n.attrs["function"] for n in forward.nodes if n.op.name == "call"] == ["gelu"]
    line = graph.nodes[0].location.line
    assert {n.location.line for n in forward.nodes} == {line}
    assert {n.location.line for n in backward.nodes if n.op.name != "add"} == {line}
    assert {n.location.phase for n in backward.nodes} == {"", "backward"}


EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 20)), max_size=30)


@examples(150, 50)
@given(EDGES)
def test_flow_is_the_largest_and_the_cut_the_smallest(edges: list[tuple[int, int, int]]) -> None:
    edges = [(a, b, c) for a, b, c in edges if a != b]
    network = Network()
    for _ in range(8):
        network.vertex()
    dense = np.zeros((8, 8), np.int32)
    for a, b, capacity in edges:
        network.edge(a, b, capacity)
        dense[a, b] += capacity
    flow = network.push(0, 7)
    assert flow == maximum_flow(csr_matrix(dense), 0, 7).flow_value
    near = network.leading_to(7)
    assert 0 not in near
    assert sum(c for a, b, c in edges if a not in near and b in near) == flow
