"""Parts of one place are added before they are padded, with the same bits; others are left as they are."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.passes.lowering.add_parts import add_parts

X = weft.tensor(np.random.default_rng(0).normal(size=(3, 3)))


def pads(graph: Any) -> int:
    return sum(node.op.name == "pad" for node in graph.nodes)


def graph_of(f: Any) -> Any:
    return weft.make_graph(weft.grad(f))(X).optimize()


def minors(a: Any) -> Any:
    """The determinant, without a loop of the graph."""
    orders = [(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2), (2, 1, 0)]
    terms = [a[0, i] * a[1, j] * a[2, k] for i, j, k in orders]
    return sum(terms[:3]) - sum(terms[3:])


def test_elements_that_are_read_often() -> None:
    graph = graph_of(minors)
    found = add_parts(graph)
    assert pads(graph) > 9
    assert pads(found) == 9
    (before,), (after,) = ([x] if not isinstance(x, tuple | list) else x for x in (graph(X), found(X)))
    assert before.numpy().tobytes() == after.numpy().tobytes()
    x = X.numpy()
    wanted = np.linalg.det(x) * np.linalg.inv(x).T
    np.testing.assert_allclose(after.numpy(), wanted, rtol=1e-12)


def test_compiled_code_has_it() -> None:
    f = weft.compile(weft.grad(minors))
    off = weft.compile(weft.grad(minors), disable=["add_parts"])
    np.testing.assert_allclose(f(X).numpy(), off(X).numpy(), rtol=1e-15)
    assert [pads(g.lowered) for g in (f, off)] == [9, pads(graph_of(minors))]


def test_places_that_overlap_are_left() -> None:
    pairs = [(0, 2), (1, 3), (0, 2), (1, 3), (0, 2), (1, 3), (0, 2), (1, 3), (0, 2), (1, 3)]

    def f(a: Any) -> Any:
        return sum([(a[i:j] ** n).sum() for n, (i, j) in enumerate(pairs, 1)])

    graph = graph_of(f)
    assert pads(graph) == len(pairs)
    assert add_parts(graph) is graph


def test_few_parts_and_other_sums_are_left() -> None:
    for f in (lambda a: (a[0] * a[1] * a[0]).sum(), lambda a: (a * a + a[0] * a).sum()):
        graph = graph_of(f)
        assert add_parts(graph) is graph


def test_one_place() -> None:
    def f(a: Any) -> Any:
        return sum([weft.sin(a[0] * n).sum() for n in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)])

    graph = graph_of(f)
    assert [pads(graph), pads(add_parts(graph))] == [8, 1]
    np.testing.assert_array_equal(add_parts(graph)(X).numpy(), graph(X).numpy())
