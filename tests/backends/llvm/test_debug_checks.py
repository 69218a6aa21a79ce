"""Builds that are checked, indices and memory: ops and random graphs show no violation, wrong code does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import weft
from tests.backends.agreement import assert_agree
from tests.ir.random_graphs import arrays_of, graphs
from tests.ops.checks import entries
from weft.backends.llvm import build
from weft.backends.llvm.checked import CheckedExecutable
from weft.backends.llvm.driver import compile_program
from weft.base.sizes import bind
from weft.errors import GraphError
from weft.ir.graph import Graph, Node, Value
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Block, Buffer, Function, Launch, Program
from weft.loop.spans import Span
from weft.loop.verify import verify_program
from weft.ops.op import OPS, Op
from weft.schedule.memory import ZONE
from weft.schedule.program import lower_graph

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
    assert_agree(got, expected, 64)


@settings(max_examples=15, deadline=None)
@given(graph=graphs())
def test_random_graph_stays_inside_its_buffers(graph: Graph) -> None:
    arrays = arrays_of(graph)
    got, expected = build(graph, debug=True)(arrays), interpret(graph, arrays)
    assert_agree(got, expected, 64)


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


F4 = np.dtype("f4")


def wrong_program(first: int, stop: int, size: int = 4, dtype: Any = F4) -> tuple[Graph, Program]:
    """A program that copies elements with numbers from first to stop, of arrays of a size."""
    b = Builder()
    x, y = b.buffer("x", dtype, size), b.buffer("y", dtype, size)
    with b.loop(stop, first) as i:
        b.store(y, i, b.load(x, i))
    kernel = b.function("copies", written=[y])
    main_x, main_y = Builder().buffer("in0", x.dtype, size), Builder().buffer("out0", y.dtype, size)
    launch = Launch(kernel, ((main_x, Index.of(0)), (main_y, Index.of(0))))
    main = Function("wrong", (main_x, main_y), (), Block([launch]), frozenset({main_y}))
    kind = TensorType((size,), dtype)
    graph = Graph("wrong", [Value(kind)], [], [Value(kind)])
    return graph, Program(main, 1, 1, (), {}, 0, (), (), ())


def checked(graph: Graph, program: Program, *, debug: bool = True) -> CheckedExecutable:
    return CheckedExecutable(graph, program, compile_program(program, debug=debug))


@pytest.mark.parametrize(("first", "stop", "got"), [(0, 5, 4), (-1, 4, -1)])
def test_index_outside_a_buffer_is_an_error(first: int, stop: int, got: int) -> None:
    run = checked(*wrong_program(first, stop))
    wanted = rf"debug: an index into buffer \w: float32\[4\] must be in 0\.\.3, got {got}, in kernel copies"
    with pytest.raises(GraphError, match=wanted):
        run([np.ones(4, np.float32)])


def test_right_program_passes_the_checks() -> None:
    run = checked(*wrong_program(0, 4))
    np.testing.assert_array_equal(run([np.arange(4, dtype=np.float32)])[0], np.arange(4))


@pytest.mark.parametrize(("first", "stop", "side"), [(0, 5, "after"), (-1, 4, "before"), (-16, 0, "before")])
def test_what_is_written_beside_a_result_is_an_error(first: int, stop: int, side: str) -> None:
    """The code itself checks nothing here."""
    run = checked(*wrong_program(first, stop), debug=False)
    with pytest.raises(GraphError, match=rf"memory {side} result 0 must stay as it is, but was written"):
        run([np.ones(4, np.float32)])


def test_what_nobody_writes_is_rubbish() -> None:
    for dtype in map(np.dtype, ("f4", "f8", "f2", "i4", "i8", "u1", "?")):
        graph, program = wrong_program(0, 2, dtype=dtype)
        (got,) = checked(graph, program)([np.zeros(4, dtype)])
        assert (got[:2] == 0).all()
        assert np.isnan(got[2:]).all() if dtype.kind == "f" else (got[2:] != 0).all()


def test_input_that_is_written_is_an_error() -> None:
    b = Builder()
    x = b.buffer("in0", np.dtype("f4"), 4)
    with b.loop(4) as i:
        b.store(x, i, 1.0)
    graph, _ = wrong_program(0, 4)
    main = b.function("writes", written=[x])
    program = Program(main, 1, 0, (), {}, 0, (), (), ())
    run = checked(graph.replace(outputs=()), program)
    with pytest.raises(GraphError, match=r"input 0 must stay as it is, but was written: f32\[4\]"):
        run([np.zeros(4, np.float32)])


def overlapping(distance: int) -> tuple[Graph, Program]:
    """A program of two buffers in the arena whose places are so many bytes apart, by kernels of their own."""
    graph, right = wrong_program(0, 4)
    (launch,) = right.main.body.statements
    assert isinstance(launch, Launch)
    x, y = right.main.buffers
    one, two = (Buffer(name, x.dtype, 4) for name in ("one", "two"))
    kernels = [replace(launch.function, name=name) for name in ("first", "second", "third")]
    places = [(x, one), (one, two), (two, y)]
    launches = [
        Launch(f, ((a, Index.of(0)), (b, Index.of(0)))) for f, (a, b) in zip(kernels, places, strict=True)
    ]
    main = replace(right.main, body=Block(list(launches)))
    spans = {one: Span(launches[0], launches[1]), two: Span(launches[1], launches[2])}
    return graph, replace(right, main=main, arena={one: 64, two: 64 + distance}, arena_size=1024, spans=spans)


def test_buffers_that_are_too_near_are_an_error_that_names_the_kernel() -> None:
    graph, program = overlapping(16 + 2 * 64)
    np.testing.assert_array_equal(checked(graph, program)([np.arange(4, dtype="f4")])[0], np.arange(4))
    graph, program = overlapping(64)
    wanted = r"memory after buffer one: float32\[4\] must stay as it is, but was written, in kernel second"
    with pytest.raises(GraphError, match=wanted):
        checked(graph, program)([np.arange(4, dtype="f4")])


def test_error_of_a_check_names_the_line() -> None:
    graph = weft.make_graph(lambda x: weft.sort(weft.tanh(x).sum(axis=0)) * 2.0)(weft.ones((64, 64)))
    program = lower_graph(weft.passes.lower(graph), debug=True)
    assert program.spans
    near = dict(zip(program.arena, range(64, 4096, 256), strict=False))
    run = checked(graph, replace(program, arena=near))
    with pytest.raises(GraphError, match=r"must stay as it is") as caught:
        run([np.ones((64, 64), np.float32)])
    assert "test_debug_checks.py" in str(caught.value)


def test_zones_lie_around_every_buffer_of_the_arena() -> None:
    def f(x: Any, n: Any) -> Any:
        h = weft.sort(x, axis=1)
        for _ in range(n):
            h = weft.sort(weft.tanh(h @ h), axis=0)
        return h.sum(axis=0), weft.cumsum(h, axis=1)

    for shape in ((5, 5), ("n", "n")):
        types = weft.TensorType(shape, weft.float32), weft.TensorType((), weft.int64)
        program = lower_graph(weft.make_graph(f)(*types), debug=True)
        verify_program(program)
        assert program.spans
        sizes = dict.fromkeys(program.main.sizes, 5)
        at = {b: int(bind(program.arena[b], sizes)) for b in program.spans}
        for b, begin in at.items():
            end = begin + int(bind(b.size, sizes)) * b.dtype.itemsize
            assert begin >= ZONE
            assert end + ZONE <= int(bind(program.arena_size, sizes))
