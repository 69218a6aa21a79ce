"""Programs with loops, lowered and run both by the interpreter of loops and as machine code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import weft
from tests.schedule.lowered import program_of, shaped
from weft.backends.llvm.driver import build_executable
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.loop.ir import Program
from weft.loop.verify import verify_program
from weft.loop.walk import blocks_of


def graph_of(function: Any, *args: Any) -> Graph:
    """The optimised graph of a function that is written with loops and branches of Python."""
    compiled = weft.compile(function, backend="interpret")
    compiled(*[weft.tensor(a) for a in args])
    graph: Graph = compiled.graph.optimize()
    return graph


def check(graph: Graph, *arrays: Any) -> Program:
    """Demand that loops and machine code give what the graph's interpreter gives; gives the program."""
    program = program_of(graph)
    verify_program(program)
    expected = interpret(graph, [np.array(a) for a in arrays])
    for actual in (
        shaped(program, graph, [np.array(a) for a in arrays], {}),
        build_executable(graph, debug=True)([np.array(a) for a in arrays]),
        build_executable(graph)([np.array(a) for a in arrays]),
    ):
        for a, e in zip(actual, expected, strict=True):
            np.testing.assert_allclose(a.reshape(e.shape), e, rtol=1e-5, atol=1e-6)
    return program


def statements(program: Program, kind: type, *, in_loops: bool = False) -> list[Any]:
    """All statements of a kind in the main function, or those inside of loops."""
    return list(_walk(program.main.body.statements, kind, not in_loops))


def _walk(found: Sequence[Any], kind: type, counts: bool) -> Iterator[Any]:
    for s in found:
        if counts and isinstance(s, kind):
            yield s
        for block in blocks_of(s):
            yield from _walk(block.statements, kind, counts or type(s).__name__ in ("Loop", "While"))
