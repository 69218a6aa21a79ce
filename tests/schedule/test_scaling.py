"""The work of compiling grows with the nodes of a program, and no faster.

Time would depend on the machine, so lines of weft that Python runs are counted: they are the same in every
run. Between sizes n, 2 n and 4 n the second step is twice the first where work is linear, and four times
where it is quadratic; what a program costs at any size does not count. Loops inside of C (a search through
a list) are not seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import weft
from weft import nn, optim
from weft.backends.interpret import build as interpret
from weft.backends.llvm.emit.main import emit_main
from weft.backends.llvm.target import host_target
from weft.ir.graph import Graph
from weft.loop.ir import Copy, Program
from weft.loop.walk import launched_functions, statements
from weft.schedule.program import lower_graph

WEFT = weft.__path__[0]
LINEAR = 2.05  # how much more work the second doubling is; where something small is quadratic, 2.1


def lines_of(function: Callable[[], object]) -> int:
    """How many lines of weft a call runs; a turn of a comprehension counts as one."""
    count = 0

    def line(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def enter(frame: FrameType, event: str, arg: object) -> Any:
        return line if frame.f_code.co_filename.startswith(WEFT) else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def growth(work: Callable[[int], Callable[[], object]], size: int) -> float:
    """How much more work the second doubling is than the first; ``work(n)`` is ready to be counted."""
    work(2)()  # what is done once in a process
    a, b, c = (lines_of(work(n)) for n in (size, 2 * size, 4 * size))
    return (c - b) / (b - a)


def training_step(layers: int) -> tuple[Callable[[Any], Any], Any]:
    """Layers with a vector of weights each: their gradients are clipped together, then Adam changes all."""
    weft.manual_seed(0)
    weights = [nn.Parameter(weft.randn(16)) for _ in range(layers)]
    optimizer = optim.AdamW(weights, lr=1e-3)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        for w in weights:
            x = weft.tanh(x * w) @ weft.ones(16, 16)
        loss = x.sum()
        loss.backward()
        optim.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        return loss

    return step, weft.ones(4, 16)


def looked_up(count: int) -> Graph:
    """Rows of many tables, each by an index that may be wrong."""
    tables = [weft.ones(16, 4) for _ in range(count)]

    def f(i: Any) -> Any:
        total = weft.zeros(())
        for table in tables:
            total = total + table[i].sum()
        return total

    return weft.make_graph(f)(weft.tensor([1, 2]))


def joined(count: int) -> Graph:
    def f(x: Any) -> Any:
        return weft.concat([weft.sin(x * float(i)) for i in range(count)])

    found: Graph = weft.jit.trace(f, weft.ones(8)).graph
    return found


GRAPHS: dict[str, tuple[Callable[[int], Graph], int]] = {"joined": (joined, 40), "lookups": (looked_up, 40)}


def lowered(graph: Graph) -> Program:
    return lower_graph(weft.passes.lower(graph.optimize()))


@pytest.mark.parametrize("name", GRAPHS)
def test_work_on_a_graph_is_linear_in_its_nodes(name: str) -> None:
    make, size = GRAPHS[name]

    def work(n: int) -> Callable[[], object]:
        graph = make(n)

        def run() -> None:
            emit_main(lowered(graph), "main", lambda function: "kernel", host_target())

        return run

    assert growth(work, size) < LINEAR


def test_work_on_a_training_step_is_linear_in_its_layers() -> None:
    def build(graph: Graph) -> Any:
        lowered(graph)
        return interpret(graph)

    def work(n: int) -> Callable[[], object]:
        step, x = training_step(n)
        compiled = weft.compile(step, backend=build)
        return lambda: compiled(x)

    assert growth(work, 6) < LINEAR


def kernels_of(layers: int) -> int:
    """How many different kernels the program of a step has."""
    step, x = training_step(layers)
    program = lowered(weft.make_graph(step)(x))
    return len({id(f.body) for f in launched_functions(program.main.body)})


def test_equal_layers_have_the_same_kernels() -> None:
    assert kernels_of(8) == kernels_of(16) > 0


def test_norms_of_gradients_are_made_where_they_are_joined() -> None:
    step, x = training_step(8)
    program = lowered(weft.make_graph(step)(x))
    copies = [s for s in statements(program.main.body) if isinstance(s, Copy)]
    assert not [s for s in copies if s.target in program.arena]
