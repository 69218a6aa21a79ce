"""Builds with every index checked: ops and random graphs show no violation, wrong code does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import weft
from tests.ir.random_graphs import arrays_of, graphs
from tests.ops.checks import entries
from weft.backends.llvm import build
from weft.backends.llvm.driver import compile_program
from weft.backends.llvm.run import NativeExecutable
from weft.errors import GraphError
from weft.ir.graph import Graph, Node, Value
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Block, Function, Launch, Program
from weft.ops.op import OPS, Op

SAMPLED = sorted({e.name for e in entries() if isinstance(e.op, Op) and not e.op.effect})
TOGETHER = 12  # ops in one graph


def graph_of_samples(ops: Sequence[Op]) -> tuple[Graph, list[Any]]:
    """A graph that applies ops to the first of their samples, and to the smallest."""
    inputs: list[Value] = []
    nodes: list[Node] = []
    arrays: list[Any] = []
    for op in ops:
        assert op.samples is not None
        samples = list(op.samples())
        for sample in (samples[0], min(samples, key=lambda s: sum(a.size for a in s.inputs))):
            types = [TensorType(a.shape, a.dtype) for a in sample.inputs]
            made = op.type_rule(*types, **sample.attrs)
            given = [Value(t) for t in types]
            outputs = [Value(t) for t in (made if isinstance(made, tuple | list) else [made])]
            nodes.append(Node(op, given, sample.attrs, outputs))
            inputs += given
            arrays += [np.ascontiguousarray(a).reshape(a.shape) for a in sample.inputs]
    return Graph("samples", inputs, nodes, [v for n in nodes for v in n.outputs]), arrays


@pytest.mark.parametrize("first", range(0, len(SAMPLED), TOGETHER))
def test_ops_stay_inside_their_buffers(first: int) -> None:
    graph, arrays = graph_of_samples([OPS[name] for name in SAMPLED[first : first + TOGETHER]])
    got, expected = build(graph, debug=True)(arrays), interpret(graph, arrays)
    for a, b in zip(got, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)


@settings(max_examples=15, deadline=None)
@given(graph=graphs())
def test_random_graph_stays_inside_its_buffers(graph: Graph) -> None:
    arrays = arrays_of(graph)
    got, expected = build(graph, debug=True)(arrays), interpret(graph, arrays)
    assert [a.shape for a in got] == [b.shape for b in expected]


def test_training_step_stays_inside_its_buffers() -> None:
    model = weft.nn.Sequential(
        weft.nn.Conv2d(1, 4, 3), weft.nn.ReLU(), weft.nn.Flatten(), weft.nn.Linear(4 * 36, 5)
    )
    optimizer = weft.optim.Adam(model.parameters(), lr=0.01)

    @weft.compile(backend="llvm", debug=True)
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = weft.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = weft.ones((4, 1, 8, 8)), weft.tensor([0, 1, 2, 3])
    assert step(x, y).item() > step(x, y).item()


# Wrong code


def wrong_program(first: int, stop: int, size: int = 4) -> tuple[Graph, Program]:
    """A program that copies elements with numbers from first to stop, of arrays of a size."""
    b = Builder()
    x, y = b.buffer("x", np.dtype("f4"), size), b.buffer("y", np.dtype("f4"), size)
    with b.loop(stop, first) as i:
        b.store(y, i, b.load(x, i))
    kernel = b.function("copies", written=[y])
    main_x, main_y = Builder().buffer("in0", x.dtype, size), Builder().buffer("out0", y.dtype, size)
    launch = Launch(kernel, ((main_x, Index.of(0)), (main_y, Index.of(0))))
    main = Function("wrong", (main_x, main_y), (), Block([launch]), frozenset({main_y}))
    kind = TensorType((size,), np.dtype("f4"))
    graph = Graph("wrong", [Value(kind)], [], [Value(kind)])
    return graph, Program(main, 1, 1, (), {}, 0, (), (), ())


@pytest.mark.parametrize(("first", "stop", "got"), [(0, 5, 4), (-1, 4, -1)])
def test_index_outside_a_buffer_is_an_error(first: int, stop: int, got: int) -> None:
    graph, program = wrong_program(first, stop)
    run = NativeExecutable(graph, program, compile_program(program, debug=True))
    with pytest.raises(GraphError, match=rf"debug: an index into buffer \d+ must be in 0\.\.3, got {got}"):
        run([np.ones(4, np.float32)])


def test_right_program_passes_the_checks() -> None:
    graph, program = wrong_program(0, 4)
    run = NativeExecutable(graph, program, compile_program(program, debug=True))
    np.testing.assert_array_equal(run([np.arange(4, dtype=np.float32)])[0], np.arange(4))
