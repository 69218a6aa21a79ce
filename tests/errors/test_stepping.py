"""Running a graph node by node: where it stands, what it holds, what a change does, in loops and branches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import weft
from tests.ir.random_graphs import arrays_of, graphs
from weft.capture.call.stepping import Stepper
from weft.errors import BoundsError, DtypeError, GraphError
from weft.ir.graph import Graph
from weft.ir.interpret import interpret


def line_of(text: str) -> int:
    with open(__file__) as file:
        return next(i for i, line in enumerate(file, 1) if line.rstrip().endswith(f"# {text}"))


def plain(x: Any, w: Any) -> Any:
    h = x @ w  # product
    y = weft.tanh(h)
    return y.sum()  # total


def looped(x: Any) -> Any:
    total = x * 0.0
    for i in range(4):
        square = x * x  # square
        total = total + square * float(i)
    return total


def halved(x: Any) -> Any:
    while x.sum() > 1.0:
        if x.max() > 4.0:
            x = x / 4.0  # quarter
        else:
            x = x / 2.0  # half
    return x


X, W = np.array([[1.0, 2.0]], np.float32), np.array([[0.5], [0.25]], np.float32)


def stepper() -> Stepper:
    return weft.make_graph(plain)(weft.ones((1, 2)), weft.ones((2, 1))).step({"x": X, "w": W})


def test_each_step_runs_one_node_and_its_value_can_be_seen() -> None:
    run = stepper()
    assert (run.node.op.name, run.line) == ("matmul", line_of("product"))
    run.step()
    np.testing.assert_allclose(run["h"].numpy(), X @ W)
    run.step()
    np.testing.assert_allclose(run["y"].numpy(), np.tanh(X @ W), rtol=1e-6)
    run.step()
    assert run.ended
    assert run.node is None
    assert run.run().item() == pytest.approx(np.tanh(X @ W).sum(), rel=1e-6)


def test_value_is_found_by_name_number_node_and_value() -> None:
    run = stepper()
    node = run.node
    run.step()
    found = [run["h"], run["%0"], run[0], run[node], run[node.outputs[0]]]
    assert [t.tolist() for t in found] == [[[1.0]]] * 5
    assert run["x"].tolist() == X.tolist()
    assert sorted(run.values()) == ["h", "w", "x"]


def test_what_is_looked_at_is_a_copy() -> None:
    run = stepper()
    run["x"][0, 0] = 100.0
    assert run["x"].tolist() == X.tolist()


def test_changed_value_is_read_by_what_comes_after() -> None:
    run = stepper()
    run.step()
    run["h"] = [[0.0]]
    assert run["h"].tolist() == [[0.0]]
    assert run.run().item() == 0.0


def test_change_of_another_type_is_an_error() -> None:
    run = stepper()
    with pytest.raises(DtypeError, match=r"the value must be f32\[1,2\], got i64\[1,2\]"):
        run["x"] = weft.ones((1, 2), dtype=weft.int64)


def test_run_to_line_stops_before_it() -> None:
    run = stepper()
    assert run.run_to(line=line_of("total"))
    assert run.node.op.name == "sum"
    assert not run.run_to(line=f"nowhere.py:{line_of('total')}")
    assert run.ended


def test_run_to_node_and_file_with_line() -> None:
    graph = weft.make_graph(plain)(weft.ones((1, 2)), weft.ones((2, 1)))
    run = graph.step({"x": X, "w": W})
    assert run.run_to(node=graph.nodes[1])
    assert run.node is graph.nodes[1]
    run = graph.step({"x": X, "w": W})
    assert run.run_to(line=f"test_stepping.py:{line_of('total')}")


def test_predicate_sees_values() -> None:
    run = weft.make_graph(halved)(weft.ones(2)).step({"x": [16.0, 16.0]})
    assert run.run_to(when=lambda r: r.node.op.name == "div" and r["x"].sum() < 5.0)
    assert run["x"].tolist() == [2.0, 2.0]
    assert run.line == line_of("half")


def test_loop_tells_its_iteration_and_its_values_change() -> None:
    run = weft.make_graph(halved)(weft.ones(2)).step({"x": [16.0, 16.0]})
    seen = []
    while run.run_to(node="div"):
        seen.append((run.iteration, run.line, run["x"].tolist()[0]))
    quarter, half = line_of("quarter"), line_of("half")
    assert seen == [(0, quarter, 16.0), (1, half, 4.0), (2, half, 2.0), (3, half, 1.0)]
    assert run.run().tolist() == [0.5, 0.5]


def test_value_around_a_loop_can_be_seen_from_inside() -> None:
    run = weft.make_graph(looped)(weft.ones(2)).step({"x": [1.0, 3.0]})
    assert run.run_to(when=lambda r: r.iteration == 2)
    assert "iteration 2" in repr(run)
    assert run["x"].tolist() == [1.0, 3.0]
    run.step()
    assert run["square"].tolist() == [1.0, 9.0]


def test_over_runs_a_loop_as_a_whole_and_out_ends_an_iteration() -> None:
    graph = weft.make_graph(looped)(weft.ones(2))
    run = graph.step({"x": [1.0, 3.0]})
    run.run_to(node="scan")
    run.over()
    assert run.ended
    run = graph.step({"x": [1.0, 3.0]})
    run.run_to(when=lambda r: r.iteration is not None)
    first = run.iteration
    run.out()
    assert run.iteration == first + 1
    assert run.run().tolist() == [6.0, 54.0]


def test_change_inside_a_loop_goes_on_from_there() -> None:
    run = weft.make_graph(halved)(weft.ones(2)).step({"x": [16.0, 16.0]})
    run.run_to(when=lambda r: r.iteration == 1 and r.part == "body of while_loop")
    run["x"] = [8.0, 8.0]
    assert run.run().tolist() == [0.5, 0.5]
    assert run["x"].tolist() == [16.0, 16.0]


def test_nested_loops_have_an_iteration_each() -> None:
    def nested(x: Any) -> Any:
        def row(i: Any, c: Any) -> Any:
            return weft.fori_loop(0, 2, lambda j, d: d + 1.0, c)

        return weft.fori_loop(0, 3, row, x)

    run = weft.make_graph(nested)(weft.ones(())).step({"x": 0.0})
    counts = set()
    for node in run:
        if node.op.name == "add" and len(run.iterations) == 2:
            counts.add(run.iterations)
    assert counts == {(i, j) for i in range(3) for j in range(2)}
    assert run.run().item() == 6.0


def test_iteration_gives_each_node_and_may_change_values() -> None:
    run = stepper()
    names = []
    for node in run:
        names.append(node.op.name)
        if node.op.name == "sum":
            run["y"] = [[7.0]]
    assert names == ["matmul", "tanh", "sum"]
    assert run.run().item() == 7.0


def test_graph_of_a_block_is_stepped_with_its_parameters_and_fed_values() -> None:
    w = weft.tensor([2.0, 3.0])
    with weft.Graph("f") as g:
        x = weft.placeholder("x", ("n", 2))
        y = x * w
        z = y + 1.0
    run = g.step({x: [[1.0, 1.0]]})
    run.step()
    assert run[y._data.value].tolist() == [[2.0, 3.0]]
    assert run.run().tolist() == [[3.0, 4.0]]
    assert g.step({y: [[10.0, 20.0]], x: [[0.0, 0.0]]}).run().tolist() == [[11.0, 21.0]]
    assert z.shape[1] == 2


def test_compiled_function_is_stepped_without_its_effects() -> None:
    weight = weft.nn.Parameter(weft.ones(2))
    optimizer = weft.optim.SGD([weight], lr=0.5)

    @weft.compile
    def train(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (x * weight).sum()
        loss.backward()
        optimizer.step()
        return loss

    run = train.step(weft.ones(2))
    found = run.run()
    assert (found[0] if isinstance(found, tuple) else found).item() == 2.0
    assert weight.tolist() == [1.0, 1.0]


def test_error_in_a_step_names_the_line_and_what_went_in() -> None:
    graph = weft.make_graph(lambda x, i: x[i])(weft.ones(3), weft.tensor([0]))
    run = graph.step({"x": [1.0, 2.0, 3.0], "i": [5]})
    with pytest.raises(BoundsError, match=r"where x is f32\[3\] and i is i64\[1\]"):
        run.run()


def test_value_that_is_not_there_yet_is_said_with_its_line() -> None:
    with pytest.raises(
        GraphError, match=r"must have been computed, got y, which is y = tanh\(h\)  at test_st"
    ):
        stepper()["y"]


@settings(max_examples=25, deadline=None)
@given(graph=graphs())
def test_stepping_gives_what_the_interpreter_gives(graph: Graph) -> None:
    arrays = arrays_of(graph)
    run = Stepper(graph, arrays)
    while not run.ended:
        run.step()
    for ours, theirs in zip(run._walk.results, interpret(graph, arrays), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "run", [lambda g, feeds: g.step(feeds), lambda g, feeds: weft.Session(g).run([], feeds)]
)
def test_feeds_that_are_no_dict_are_an_error_that_says_what_to_write(run: Any) -> None:
    graph = weft.make_graph(lambda x: x * 2.0)(weft.ones(3))
    with pytest.raises(
        weft.errors.ArgumentError, match=r'(?s)feeds must be a dict, got list.*write \{"x": \.\.\.\}'
    ):
        run(graph, [[1.0, 2.0, 3.0]])
