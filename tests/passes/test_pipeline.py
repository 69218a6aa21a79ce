"""The pipeline: order, rounds, history, registered passes, debug mode, time; and ``check_passes``."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from tests.passes.helpers import count_op, graph_of, op_names, parse
from tests.timing import least_seconds
from weft.errors import ArgumentError, GraphError
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.ops.arithmetic import add, mul
from weft.ops.exponential import exp
from weft.passes import PIPELINE, Pass, graph_pass


@graph_pass
def swap_subtractions(graph: Graph) -> Graph:
    """A wrong pass."""
    nodes = [
        Node(n.op, n.inputs[::-1], n.attrs, n.outputs, n.location) if n.op.name == "sub" else n
        for n in graph.nodes
    ]
    return graph.replace(nodes=nodes) if "sub" in op_names(graph) else graph


@pytest.fixture
def registry() -> Iterator[None]:
    from weft.passes import pipeline

    before = list(pipeline._pipeline)
    yield
    pipeline._pipeline[:] = before


def silly(x: weft.Tensor) -> weft.Tensor:
    return weft.exp(x * 1.0) + weft.exp(x - 0.0)


# What it does


def test_pipeline_is_a_list_of_named_passes() -> None:
    assert [p.name for p in PIPELINE] == [
        "inline", "unroll", "fold", "simplify", "cse", "share_loops", "dce", "licm",
    ]  # fmt: skip


def test_passes_run_until_none_changes_the_graph() -> None:
    after = graph_of(silly, weft.ones(3)).optimize()
    assert op_names(after) == ["exp", "add"]
    assert after.optimize() is after


def test_graph_that_cannot_be_improved_is_the_same_object_and_has_no_history() -> None:
    graph = graph_of(lambda x: weft.exp(x), weft.ones(3))
    assert graph.optimize() is graph
    assert graph.history() == []


@pytest.mark.parametrize("fast", [False, True])
def test_fast_math_reaches_the_passes_that_know_it(fast: bool) -> None:
    graph = graph_of(lambda x: x + 0.0, weft.ones(3)).optimize(fast_math=fast)
    assert op_names(graph) == ([] if fast else ["add"])


def test_passes_are_chosen_by_name_object_function_or_rule() -> None:
    seen: list[Graph] = []

    def look(graph: Graph) -> Graph:
        seen.append(graph)
        return graph

    @weft.passes.rewrite
    def exp_to_sin(x: Any) -> Any:
        return weft.exp(x), weft.sin(x)

    after = graph_of(silly, weft.ones(3)).optimize(passes=["simplify", look, weft.passes.cse, exp_to_sin])
    assert op_names(after) == ["sin", "add"]
    assert seen
    assert [r.name for r in after.history()] == ["simplify", "cse", "exp_to_sin"]


def test_passes_are_left_out_by_name() -> None:
    graph = graph_of(silly, weft.ones(3))
    assert op_names(graph.optimize(disable=["cse"])) == ["exp", "exp", "add"]
    assert op_names(graph.optimize(disable="cse")) == ["exp", "exp", "add"]


def test_unknown_names_are_errors() -> None:
    graph = graph_of(silly, weft.ones(3))
    with pytest.raises(ArgumentError, match=r"optimize: passes must be among inline, unroll, .*, got 'ces'"):
        graph.optimize(passes=["ces"])
    with pytest.raises(ArgumentError, match=r"optimize: disable must be among inline, .*, got 'ces'"):
        graph.optimize(disable=["ces"])
    with pytest.raises(ArgumentError, match="optimize: a pass must be a function of a graph, got int"):
        graph.optimize(passes=[3])  # type: ignore[list-item]
    with pytest.raises(ArgumentError, match="unroll: unknown keyword 'times'"):
        weft.passes.unroll(graph, times=3)
    with pytest.raises(ArgumentError, match="cse: takes a graph, got function"):
        weft.passes.cse(silly)  # type: ignore[arg-type]


def test_debug_mode_names_the_pass_that_breaks_a_graph() -> None:
    @graph_pass
    def forget_everything(graph: Graph) -> Graph:
        return graph.replace(nodes=())

    graph = graph_of(silly, weft.ones(3))
    with pytest.raises(GraphError, match="forget_everything: the graph after the pass must be well formed"):
        graph.optimize(passes=[forget_everything], debug=True)


# Order that matters


def swapped(first: str, second: str) -> list[Pass]:
    names = [p.name for p in PIPELINE]
    i, j = names.index(first), names.index(second)
    passes = list(PIPELINE)
    passes[i], passes[j] = passes[j], passes[i]
    return passes


def nodes_after_one_round(graph: Graph, passes: list[Pass]) -> int:
    return sum(1 for _ in graph.optimize(passes=passes, rounds=1).walk())


ORDERS = {
    ("inline", "cse"): lambda x: weft.silu(x) * weft.sigmoid(x),
    ("fold", "simplify"): lambda x: x * (weft.tensor(0.5) + 0.5),
    ("simplify", "cse"): silly,
    ("cse", "dce"): lambda x: weft.fori_loop(0, 3, lambda i, s: (weft.sin(s[0]), weft.sin(s[1])), (x, x)),
}  # fmt: skip


@pytest.mark.parametrize("pair", ORDERS, ids=" before ".join)
def test_one_round_does_less_where_two_passes_change_places(pair: tuple[str, str]) -> None:
    graph = graph_of(ORDERS[pair], weft.ones(()))
    assert nodes_after_one_round(graph, PIPELINE) < nodes_after_one_round(graph, swapped(*pair))


# History


def test_history_tells_what_each_pass_did() -> None:
    graph = graph_of(silly, weft.ones(3))
    after = graph.optimize()
    steps = after.history()
    assert [s.name for s in steps] == ["simplify", "cse"]
    assert steps[0].before is graph
    assert steps[-1].after is after
    assert all(a.after is b.before for a, b in itertools.pairwise(steps))


def test_history_does_not_keep_graphs_alive() -> None:
    after = graph_of(silly, weft.ones(3)).optimize()
    gone = [weakref.ref(after), weakref.ref(after.history()[0].before)]
    del after
    gc.collect()
    assert [r() for r in gone] == [None, None]


# Registering


@pytest.mark.usefixtures("registry")
def test_registered_rules_and_passes_join_the_pipeline() -> None:
    @weft.passes.register
    @weft.passes.rewrite
    def exp_to_sin(x: Any) -> Any:
        return weft.exp(x), weft.sin(x)

    assert op_names(graph_of(silly, weft.ones(3)).optimize()) == ["sin", "add"]
    assert "exp_to_sin" not in [
        r.name for r in graph_of(silly, weft.ones(3)).optimize(disable="exp_to_sin").history()
    ]
    weft.passes.unregister("exp_to_sin")
    assert op_names(graph_of(silly, weft.ones(3)).optimize()) == ["exp", "add"]


@pytest.mark.usefixtures("registry")
def test_registering_before_a_pass_and_again_under_the_same_name() -> None:
    seen: list[str] = []

    @graph_pass
    def spy(graph: Graph) -> Graph:
        seen.append("first")
        return graph

    weft.passes.register(spy, before="inline")
    graph = graph_of(silly, weft.ones(3))
    graph.optimize(rounds=1)

    @graph_pass  # type: ignore[no-redef]
    def spy(graph: Graph) -> Graph:
        seen.append("second")
        return graph

    weft.passes.register(spy)
    graph.optimize(rounds=1)
    assert seen == ["first", "second"]


def test_names_of_weft_are_not_registered_anew() -> None:
    with pytest.raises(
        ArgumentError, match="register: the name must not be that of a pass of weft, got 'cse'"
    ):
        weft.passes.register(Pass(lambda graph: graph, "cse"))
    with pytest.raises(ArgumentError, match="unregister: the name must be of a registered pass, got 'cse'"):
        weft.passes.unregister("cse")
    with pytest.raises(
        ArgumentError, match="register: before must name a pass of the pipeline, got 'nothing'"
    ):
        weft.passes.register(lambda graph: graph, before="nothing")


# Time


def large_graph(size: int) -> Graph:
    """A chain with equal nodes, identities, dead ends and constants."""
    kind = TensorType((8,), np.dtype("float32"))
    x = Value(kind, "x")
    one = Value(TensorType((), kind.dtype))
    nodes: list[Node] = []

    def put(op: Any, *inputs: Value) -> Value:
        nodes.append(Node(op, inputs, {}, (Value(kind),)))
        return nodes[-1].outputs[0]

    last = x
    while len(nodes) < size:
        a, b = put(exp, last), put(exp, put(mul, last, one))
        put(exp, a)
        last = put(add, a, b)
    return Graph("chain", [x], nodes, [last], constants={one: np.ones((), np.float32)})


def test_graph_of_four_thousand_nodes_is_optimised_quickly() -> None:
    graph_of(silly, weft.ones(3)).optimize()  # traces the rules
    graph = large_graph(4000)
    assert len(graph.optimize().nodes) == 2 * (len(graph.nodes) // 5)
    assert least_seconds(graph.optimize, 0.5) < 0.5


def test_time_grows_linearly_with_the_graph() -> None:
    most = 24 * least_seconds(large_graph(500).optimize, tries=5)  # eight times, and room for noise
    assert least_seconds(large_graph(4000).optimize, most) < most


# check_passes


def test_check_passes_names_the_passes_that_changed_the_graph() -> None:
    assert weft.check_passes(silly, weft.ones(3)) == ["simplify", "cse"]


def test_check_passes_names_the_first_wrong_pass_the_node_and_the_line() -> None:
    def function(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
        return weft.exp((x * 1.0) - y) * 2.0

    with pytest.raises(GraphError) as caught:
        weft.check_passes(
            function, weft.ones(3), weft.zeros(3), passes=["simplify", swap_subtractions, "dce"]
        )
    text = str(caught.value)
    assert "results must be the same after swap_subtractions, got result 0 is" in text
    assert "the first node that differs is %0 = sub(%y, %x), which is -1.0 instead of 1.0 at (0,)" in text
    assert "return weft.exp((x * 1.0) - y) * 2.0" in text


def test_check_passes_finds_a_sign_of_zero() -> None:
    @weft.passes.rewrite
    def add_zero(x: Any) -> Any:
        return x + 0.0, x

    with pytest.raises(GraphError, match=r"after add_zero, got result 0 is -0.0 instead of 0.0 at \(1,\)"):
        weft.check_passes(lambda x: x + 0.0, weft.tensor([1.0, -0.0]), passes=[add_zero])
    names = weft.check_passes(lambda x: x + 0.0, weft.tensor([1.0, -0.0]), passes=[add_zero], tolerance=0.0)
    assert names == ["add_zero"]


def test_check_passes_takes_a_graph() -> None:
    graph = parse(
        """
        graph f(%x: f32[]) {
          %0: f32[] = mul(%x, f32(1.0))
          return %0
        }"""
    )
    assert weft.check_passes(graph, weft.tensor(3.0)) == ["simplify"]
    assert weft.check_passes(graph, np.float32(3.0)) == ["simplify"]


def test_check_passes_allows_a_tolerance_for_fast_math() -> None:
    names = weft.check_passes(lambda x: weft.log(weft.exp(x)), weft.tensor([0.1, 0.2]), fast_math=True)
    assert names == ["simplify"]


def test_check_passes_reads_tensors_from_outside_and_changes_nothing() -> None:
    weight = weft.tensor([1.0, 2.0], requires_grad=True)
    total = weft.zeros(2)

    def step(x: weft.Tensor) -> weft.Tensor:
        total.__iadd__(x * weight * 1.0)
        return (x * weight * 1.0).sum()

    assert "simplify" in weft.check_passes(step, weft.ones(2))
    np.testing.assert_array_equal(total.numpy(), [0.0, 0.0])


def test_check_passes_of_something_else_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="check_passes: takes a function or a graph, got int"):
        weft.check_passes(3)  # type: ignore[arg-type]


def test_passes_work_on_loops_with_gradients() -> None:
    def function(x: weft.Tensor) -> Any:
        y = weft.while_loop(lambda y: y.sum() > 0.1, lambda y: weft.sin(y) * 0.5, x)
        return y, *weft.autograd.grad(y.sum(), [x])

    names = weft.check_passes(function, weft.tensor([0.5, 0.7], requires_grad=True))
    assert "share_loops" in names
    graph = graph_of(function, weft.tensor([0.5, 0.7], requires_grad=True)).optimize()
    assert count_op(graph, "while_loop") == 1


def test_all_names_that_are_listed_are_there() -> None:
    assert [name for name in dir(weft.passes) if not hasattr(weft.passes, name)] == []
