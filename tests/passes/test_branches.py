"""Branches that do no work become a choice, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.ir.graph import Graph
from weft.ir.interpret import interpret


def ops(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.walk()]


def simplified(text: str) -> Graph:
    graph = weft.parse_graph(text)
    graph.verify()
    out = weft.passes.simplify(graph)
    out.verify()
    types = [v.type for v in graph.inputs]
    rng = np.random.default_rng(0)
    for truth in (True, False):
        given = [np.asarray(truth), *[rng.normal(size=t.shape).astype(t.dtype) for t in types[1:]]]
        for a, b in zip(interpret(graph, given), interpret(out, given), strict=True):
            np.testing.assert_array_equal(a, b)
    return out


def cond_of(first: str, second: str, result: str = "bool[]") -> str:
    return f"""
    graph f(%p: bool[], %x: {result}, %y: {result}) {{
      %0: {result} = cond(%p, %x, %y) {{
        branches[0] true(%a: {result}, %b: {result}) {{ return {first} }}
        branches[1] false(%a: {result}, %b: {result}) {{ return {second} }}
      }}
      return %0
    }}"""


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("bool(True)", "bool(False)", []),
        ("bool(False)", "bool(True)", ["logical_not"]),
        ("%a", "%a", []),
        ("%a", "%b", ["where"]),
        ("%b", "bool(True)", ["where"]),
    ],
)
def test_flags(first: str, second: str, expected: list[str]) -> None:
    assert ops(simplified(cond_of(first, second))) == expected


def test_arrays_of_small_size_are_chosen() -> None:
    assert ops(simplified(cond_of("%a", "%b", "f32[8]"))) == ["where"]


def test_a_large_array_is_not_copied() -> None:
    assert ops(simplified(cond_of("%a", "%b", "f32[5000]"))) == ["cond"]
    assert ops(simplified(cond_of("%b", "%b", "f32[5000]"))) == []


def test_work_stays_in_its_branch() -> None:
    out = simplified("""
    graph f(%p: bool[], %x: f32[3]) {
      %0: f32[3], %1: bool[] = cond(%p, %x) {
        branches[0] true(%a: f32[3]) {
          %2: f32[3] = exp(%a)
          return %2, bool(True)
        }
        branches[1] false(%a: f32[3]) { return %a, bool(False) }
      }
      return %0, %1
    }""")
    assert ops(out) == ["exp", "cond"]
    assert len(out.nodes[0].outputs) == 1
    assert out.outputs[1] is out.inputs[0]


def test_an_effect_stays() -> None:
    def f(x: Any) -> Any:
        flag = 0.0
        if x > 0:
            print("up")  # noqa: T201 - the effect
            flag = 1.0
        return x * flag

    graph = weft.make_graph(f)(weft.ones(()))
    assert "cond" in ops(graph.optimize())


def test_a_break_leaves_no_branch() -> None:
    def f(x: Any) -> Any:
        total = x[0] * 0
        for v in x:
            if v < 0:
                break
            total = total + v
        return total

    graph = weft.make_graph(f)(weft.ones(5)).optimize()
    assert [v.type.dtype.name for n in graph.walk() if n.op.name == "cond" for v in n.outputs] == ["float32"]
