"""Passes tested by text: a graph as text before, and the text that is expected after."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent
from typing import Any

import weft
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.passes.check import same_elements


def parse(text: str) -> Graph:
    """The graph that an indented text stands for."""
    return weft.parse_graph(dedent(text).strip() + "\n")


def text_of(graph: Graph) -> str:
    """A graph without locations, with calls as they are."""
    return str(graph.to_text(locations=False)).strip()


def assert_becomes(run: Callable[[Graph], Graph], before: str, after: str) -> None:
    """A pass turns one graph into another, both as text; the result is well formed."""
    graph = run(parse(before))
    graph.verify()
    assert text_of(graph) == text_of(parse(after))


def assert_stays(run: Callable[[Graph], Graph], text: str) -> None:
    """A pass leaves a graph as it is: the same object."""
    graph = parse(text)
    assert run(graph) is graph


def op_names(graph: Graph) -> list[str]:
    """The ops of the nodes of a graph, without those of regions."""
    return [node.op.name for node in graph.nodes]


def count_op(graph: Graph, name: str) -> int:
    """How many nodes apply an op, in regions too."""
    return sum(node.op.name == name for node in graph.walk())


def graph_of(function: Callable[..., Any], *args: Any) -> Graph:
    """The graph of a function."""
    return weft.make_graph(function, name="f")(*args)


def assert_same_results(before: Graph, after: Graph, *arrays: Any) -> None:
    """Both graphs give the same bits; the second is well formed."""
    after.verify()
    for a, b in zip(interpret(before, arrays), interpret(after, arrays), strict=True):
        assert a.shape == b.shape
        assert same_elements(a, b).all()
