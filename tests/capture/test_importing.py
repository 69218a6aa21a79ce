"""Graphs that are built by an import: names, places, results, and what is left out."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.capture.static.importing import Importer, clean_name, placed
from weft.ir.location import Location

PLACE = Location("/models/net.py", 12, "forward", "head")


def test_arguments_parameters_and_results_have_names() -> None:
    importer = Importer("a/b")
    with importer:
        x = importer.argument("x:0", ("batch", 2), weft.float32)
        w = importer.parameter("head.w", np.array([[1.0], [2.0]], np.float32))
        importer.finish([x @ w], ["logits"])
    graph = importer.graph
    assert (graph.name, [v.name for v in graph.inputs]) == ("a_b", ["x_0", "head.w"])
    assert (graph.roles, graph.outputs[0].name) == (("arg", "param"), "logits")
    graph.verify()
    assert graph(weft.ones((3, 2))).tolist() == [[3.0]] * 3


def test_names_that_come_again_are_told_apart() -> None:
    importer = Importer("f")
    with importer:
        a, b = (importer.argument("x", (), weft.float32) for _ in range(2))
        importer.finish([a - b])
    assert [v.name for v in importer.graph.inputs] == ["x", "x_2"]


@pytest.mark.parametrize(
    ("name", "clean"), [("x", "x"), ("a/b c", "a_b_c"), ("0", "0"), (".x", "v.x"), ("", "v")]
)
def test_names_of_any_kind_become_names_of_graphs(name, clean) -> None:
    assert clean_name(name) == clean


def test_results_may_be_arguments_parameters_and_constants() -> None:
    importer = Importer("f")
    with importer:
        x = importer.argument("x", (2,), weft.float32)
        w = importer.parameter("w", np.zeros(1, np.float32))
        importer.finish([x, w, weft.tensor([7.0])])
    importer.graph.verify()
    assert [y.tolist() for y in importer.graph(weft.ones(2))] == [[1.0, 1.0], [0.0], [7.0]]


def test_what_nothing_needs_is_left_out_but_for_arguments() -> None:
    importer = Importer("f")
    with importer:
        x = importer.argument("x", (2,), weft.float32)
        importer.argument("unused", (2,), weft.float32)
        w = importer.parameter("w", np.zeros(2, np.float32))
        weft.tanh(x + w)
        importer.finish([x * 2.0])
    graph = importer.graph
    assert ([v.name for v in graph.inputs], [n.op.name for n in graph.nodes]) == (["x", "unused"], ["mul"])


def test_updates_are_applied_by_a_call() -> None:
    importer = Importer("count")
    with importer:
        count = importer.parameter("count", np.array(0))
        importer.update(count, count + 1)
        importer.finish([count * 10])
    assert [int(importer.graph()) for _ in range(3)] == [0, 10, 20]
    assert importer.graph.roles == ("state",)


def test_nodes_have_the_place_they_are_given_in_regions_too() -> None:
    importer = Importer("f")
    with importer:
        x = importer.argument("x", (2,), weft.float32)
        with placed(PLACE):
            y = weft.cond(x.sum() > 0.0, lambda x: weft.tanh(x), lambda x: x, x)
        importer.finish([y])
    assert {node.location for node in importer.graph.walk()} == {PLACE}


def test_gradients_of_placed_nodes_have_their_place() -> None:
    importer = Importer("f")
    with importer:
        x = importer.argument("x", (2,), weft.float32)
        with placed(PLACE):
            y = weft.tanh(x)
        (g,) = weft.gradients(y.sum(), x)
        importer.finish([g])
    assert PLACE._replace(phase="backward") in {node.location for node in importer.graph.nodes}


def test_error_names_the_place() -> None:
    importer = Importer("f")
    with pytest.raises(weft.errors.ShapeError, match=r"at net\.py:12"), importer:
        x = importer.argument("x", (2,), weft.float32)
        with placed(PLACE):
            x @ weft.ones((3, 3))


def test_outside_of_a_capture_a_place_changes_nothing() -> None:
    with placed(PLACE):
        assert weft.ones(1).tolist() == [1.0]
