"""The second list of passes, and the choices of the schedule: named, switched off one by one, told."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.timing import least_seconds
from weft.backends.llvm import build
from weft.errors import ArgumentError, GraphError
from weft.ir.graph import Graph, Node
from weft.ir.interpret import interpret
from weft.passes import LOWERING, PIPELINE, graph_pass, lower, pipeline
from weft.schedule.choices import CHOICES, ON_DEVICES
from weft.schedule.program import lower_graph

NAMES = [p.name for p in LOWERING]
EVERYTHING_OFF = {"passes": [], "disable": list(CHOICES)}


def random(*shape: int, seed: int = 0) -> weft.Tensor:
    return weft.tensor(np.random.default_rng(seed).standard_normal(shape).astype("f4"))


def attention_gradients(q: Any, k: Any, v: Any) -> Any:
    def loss(q: Any, k: Any, v: Any) -> Any:
        return (weft.scaled_dot_product_attention(q, k, v, is_causal=True) ** 2).sum()

    return weft.grad(loss, (0, 1, 2))(q, k, v)


def recurrent_gradients(w: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        h = weft.zeros(2, 64)
        for t in range(8):
            h = weft.tanh(x[t] @ w + h)
        return (weft.softmax(h) * h).sum()

    return weft.grad(loss)(w)


def layer_gradients(w: Any, x: Any) -> Any:
    return weft.grad(lambda w: (weft.tanh(weft.tanh(x @ w.mT) * 2.0) ** 2).sum())(w)


def element_gradients(x: Any) -> Any:
    def loss(x: Any) -> Any:
        return weft.fori_loop(0, 3, lambda i, s: s + x[i] * x[i + 1], 0.0)

    return weft.grad(loss)(x)


def looked_up(x: Any, i: Any) -> Any:
    return weft.fori_loop(0, 100, lambda k, s: s + weft.exp(x[i[k]]), 0.0)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "attention": (attention_gradients, tuple(random(2, 160, 16, seed=s) for s in range(3))),
    "recurrent": (recurrent_gradients, (random(32, 64), random(8, 2, 32, seed=1))),
    "layer": (layer_gradients, (random(32, 16), random(8, 16, seed=1))),
    "elements": (element_gradients, (random(4),)),
    "looked up": (looked_up, (random(3), weft.tensor(np.arange(100) % 3))),
}


def compiled(name: str, **settings: Any) -> tuple[Any, list[Any]]:
    """A compiled program, and what it gives."""
    function, args = PROGRAMS[name]
    made = weft.compile(function, **settings)
    out = made(*args)
    return made, [t.numpy() for t in (out if isinstance(out, tuple) else (out,))]


def passes_of(function: Any) -> list[str]:
    return [record.name for record in function.lowered.history()]


# The list


def test_lowering_is_a_list_of_named_passes() -> None:
    assert NAMES == [
        "inline", "add_parts", "mask_whole", "hoist_lookups", "narrow_products", "take_products",
        "fuse_attention", "decompose", "stream_products", "straighten", "turn_products", "accumulate",
        "recompute",
    ]  # fmt: skip
    assert [p.name for p in LOWERING if not p.once] == ["inline"]


def test_all_passes_and_choices_are_described() -> None:
    text = (Path(__file__).parents[3] / "docs" / "passes.md").read_text()
    for name in [*[p.name for p in PIPELINE], *NAMES, *CHOICES]:
        assert f"| `{name}` |" in text


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("looked up", "hoist_lookups"),
        ("recurrent", "take_products"),
        ("attention", "fuse_attention"),
        ("recurrent", "decompose"),
        ("layer", "turn_products"),
        ("elements", "accumulate"),
        ("layer", "recompute"),
    ],
)
def test_pass_is_in_the_history_unless_it_is_disabled(program: str, name: str) -> None:
    function, out = compiled(program)
    assert name in passes_of(function)
    without, other = compiled(program, disable=[name])
    assert name not in passes_of(without)
    for a, b in zip(out, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("program", PROGRAMS)
def test_history_leads_from_the_captured_graph_to_the_one_that_runs(program: str) -> None:
    function, _ = compiled(program)
    records = function.lowered.history()
    assert records[0].before is function.graph
    assert records[-1].after is function.lowered
    assert all(a.after is b.before for a, b in pairwise(records))
    assert records[-1].after is function.versions[0].run.program.origins.graph


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_step_is_well_formed_and_gives_the_same(program: str) -> None:
    function, args = PROGRAMS[program]
    graph = weft.make_graph(function)(*args)
    arrays = [t.numpy() for t in args]
    expected = interpret(graph, arrays)
    lowered = lower(graph.optimize(), debug=True)
    assert lowered.history()
    for record in lowered.history():
        for a, b in zip(interpret(record.after, arrays), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("program", PROGRAMS)
def test_lowered_graphs_are_read_back_from_their_text(program: str) -> None:
    function, args = PROGRAMS[program]
    lowered = lower(weft.make_graph(function)(*args).optimize())
    assert lowered.difference(weft.parse_graph(lowered.to_text(), lowered.constant_data())) is None


def test_debug_names_the_pass_of_lowering_that_breaks_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    @graph_pass(once=True)
    def break_it(graph: Graph) -> Graph:
        return graph.replace(nodes=graph.nodes[1:])

    monkeypatch.setattr(pipeline, "LOWERING", [break_it])
    with pytest.raises(GraphError, match="break_it: the graph after the pass must be well formed"):
        weft.compile(lambda x: weft.exp(x) * 2.0, backend="llvm", debug=True)(weft.ones(3))


def test_chain_of_many_sums_is_lowered_in_no_time() -> None:
    lines = [f"%{i}: f32[4] = add(%{i - 1 if i else 'x'}, %x)" for i in range(1500)]
    graph = weft.parse_graph("\n".join(["graph f(%x: f32[4]) {", *lines, "return %1499", "}"]))
    assert least_seconds(lambda: lower(graph), 5.0, tries=3) < 5.0


def test_steps_die_with_the_graph() -> None:
    graph = weft.make_graph(weft.softmax)(weft.ones(3))
    lowered = lower(graph)
    step = weakref.ref(graph)
    del graph
    assert step() is not None
    del lowered
    gc.collect()
    assert step() is None


# Lists of one's own


@pytest.mark.parametrize("program", PROGRAMS)
def test_empty_list_of_passes_leaves_the_graph_as_it_is(program: str) -> None:
    function, out = compiled(program, passes=[])
    assert function.lowered is function.graph
    assert function.lowered.history() == []
    for a, b in zip(out, compiled(program, backend="interpret", passes=[])[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def test_list_is_all_that_runs() -> None:
    function, _ = compiled("attention", passes=["inline", "decompose"])
    assert passes_of(function) == ["inline", "decompose"]


def test_passes_that_run_once_stand_in_order_with_others() -> None:
    graph = weft.make_graph(lambda x: weft.softmax(x) + weft.softmax(x))(weft.ones(3))
    first = graph.optimize(passes=["cse", "decompose"])
    last = graph.optimize(passes=["decompose", "cse"])
    assert [r.name for r in first.history()] == ["cse", "decompose"]
    assert [r.name for r in last.history()] == ["decompose", "cse"]
    seen: list[str] = []

    @graph_pass(once=True)
    def look(graph: Graph) -> Graph:
        seen.append(graph.name)
        return graph

    graph.optimize(passes=["simplify", look, "cse"])
    assert len(seen) == 1


def test_both_lists_do_what_compile_does() -> None:
    function, args = PROGRAMS["recurrent"]
    graph = weft.make_graph(function)(*args)
    by_hand = graph.optimize(passes=[*PIPELINE, *LOWERING])
    assert by_hand.difference(lower(graph.optimize())) is None


# Choices


@pytest.mark.rotating(4)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", CHOICES)
def test_choice_that_is_off_changes_no_result(program: str, name: str) -> None:
    function, out = compiled(program, disable=[name])
    (explained,) = function.versions[0].explain(PROGRAMS[program][1])
    assert name not in explained.choices
    assert set(CHOICES) - ON_DEVICES - {name, "epilogues"} <= set(explained.choices)
    for a, b in zip(out, compiled(program)[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def test_explain_says_what_was_on(capsys: pytest.CaptureFixture[str]) -> None:
    function, _ = compiled("looked up", disable=["fusion", "waves"])
    capsys.readouterr()
    (explained,) = function.explain(*PROGRAMS["looked up"][1])
    text = capsys.readouterr().out
    assert "hoist_lookups" in explained.passes
    assert f"passes: {', '.join(dict.fromkeys(explained.passes))}\n" in text
    on = "dots, units, prepared, layouts, copy_elision, vectorisation, memory_plan, donation"
    assert f"schedule: {on}\n" in text


def test_without_fusion_each_op_is_a_kernel() -> None:
    def f(x: Any) -> Any:
        return weft.tanh(x * 2.0 + 1.0)

    x = random(64, 64)
    counts = []
    for disable in ([], ["fusion"]):
        function = weft.compile(f, backend="llvm", disable=disable)
        function(x)
        counts.append(len(function.versions[0].explain([x])[0].kernels))
    assert counts == [1, 3]


def test_without_a_memory_plan_nothing_shares_memory() -> None:
    def f(x: Any) -> Any:
        return weft.sort(weft.sort(weft.sort(weft.sort(x).mT).mT).mT)

    graph = weft.make_graph(f)(random(64, 64))
    program = lower_graph(graph, disable=["memory_plan"])
    places = list(program.arena.values())
    assert len(set(places)) == len(places)
    assert program.arena_size > lower_graph(graph).arena_size


def test_everything_off_gives_the_bits_of_the_interpreter_where_ieee_tells_them() -> None:
    def f(x: Any, y: Any) -> Any:
        a = weft.where(x > y, x / y, weft.sqrt(weft.abs(x))) - x * y
        return a.max(axis=0), a.mT.floor(), a.astype(weft.float64) + 0.1, weft.relu(a)

    x, y = random(40, 30), random(40, 30, seed=1)
    expected = weft.compile(f, backend="interpret", passes=[])(x, y)
    for a, b in zip(weft.compile(f, backend="llvm", **EVERYTHING_OFF)(x, y), expected, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


# Names


def test_unknown_names_are_errors_that_list_the_known_ones() -> None:
    with pytest.raises(
        ArgumentError, match=r"compile: disable must be among inline, .*recompute,.*_more, fusion,.*'fuson'"
    ):
        weft.compile(lambda x: x, disable=["fuson"])
    with pytest.raises(ArgumentError, match=r"optimize: disable must be among inline, .*'fuson'"):
        weft.make_graph(lambda x: x * 1.0)(weft.ones(2)).optimize(disable=["fuson"])
    with pytest.raises(ArgumentError, match="script: disable must be among"):
        weft.jit.script(lambda x: x, disable=["fuson"])
    with pytest.raises(ArgumentError, match="trace: disable must be among"):
        weft.jit.trace(lambda x: x, weft.ones(2), disable=["fuson"])
    graph = weft.make_graph(lambda x: x * 1.0)(weft.ones(2))
    with pytest.raises(ArgumentError, match="Session: disable must be among"):
        weft.Session(graph, disable="fuson")


def test_name_of_a_pass_of_ones_own_can_be_disabled() -> None:
    @graph_pass
    def mine(graph: Graph) -> Graph:
        nodes = [Node(n.op, n.inputs, n.attrs, n.outputs) for n in graph.nodes]
        return graph.replace(name="mine", nodes=nodes) if graph.name != "mine" else graph

    for disable, name in (([], "mine"), (["mine"], "<lambda>")):
        function = weft.compile(lambda x: weft.exp(x), passes=[mine], disable=disable)
        function(weft.ones(2))
        assert function.lowered.name == name


def test_script_trace_and_sessions_leave_passes_out() -> None:
    x = random(3, 4)
    expected = weft.softmax(x).numpy()
    for f in (
        weft.jit.script(lambda x: weft.softmax(x), disable=["decompose"]),
        weft.jit.trace(lambda x: weft.softmax(x), x, disable=["decompose"]),
    ):
        np.testing.assert_array_equal(f(x).numpy(), expected)
        assert [node.op.name for node in f.lowered.nodes] == ["softmax"]
    with weft.Graph("g") as graph:
        given = weft.placeholder("x", (3, 4))
        out = weft.softmax(given)
    session = weft.Session(graph, disable=["decompose"])
    np.testing.assert_array_equal(session.run(out, {given: x}).numpy(), expected)


def test_a_backend_without_kernels_needs_no_lowering() -> None:
    function, _ = compiled("attention", backend="interpret")
    assert not set(passes_of(function)) & (set(NAMES) - {"inline"})


def test_calls_and_functions_are_lowered_as_they_are() -> None:
    graph = weft.make_graph(lambda x: weft.silu(x) * 2.0)(weft.ones(40))
    assert [node.op.name for node in graph.nodes] == ["call", "mul"]
    x = random(40).numpy()
    run: Any = build(graph, lowering=())
    assert run.program.origins.graph is graph
    assert not run.program.hosts
    np.testing.assert_allclose(run([x])[0], interpret(graph, [x])[0], rtol=1e-6)
