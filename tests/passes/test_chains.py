"""Chains of many nodes: nothing goes along them by calling itself, and passes take time linear in the nodes.

Python's own limit is 1,000 calls, so a chain of some thousands shows what recurses; those of 100,000 nodes
would take for ever in a pass that is quadratic.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import weft
from weft.backends.interpret import build
from weft.ir.graph import Graph, Node, Value
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.loop.verify import verify_program
from weft.ops.op import OPS
from weft.schedule.program import lower_graph
from weft.transform.joint import differentiate

LONG = 100_000
SHORT = 1_500
STEPS = {step.name: step for step in (*weft.passes.PIPELINE, *weft.passes.LOWERING)}


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000)
    yield
    sys.setrecursionlimit(before)


@cache
def chain(length: int, ops: tuple[str, ...] = ("add", "tanh"), shape: tuple[int, ...] = (8,)) -> Graph:
    """A graph in which each node uses the one before."""
    kind = TensorType(shape, np.dtype("f4"))
    x, w = Value(kind, "x"), Value(kind, "w")
    last, nodes = x, []
    for i in range(length):
        name, out = ops[i % len(ops)], Value(kind)
        nodes.append(Node(OPS[name], [last, w] if name in ("add", "mul") else [last], {}, [out]))
        last = out
    return Graph("chain", [x, w], nodes, [last])


def expected(length: int) -> Any:
    x, w = np.full(8, 0.5, np.float32), np.full(8, 0.01, np.float32)
    for i in range(length):
        x = np.tanh(x) if i % 2 else x + w
    return x


ARRAYS = [np.full(8, 0.5, np.float32), np.full(8, 0.01, np.float32)]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", STEPS)
def test_pass_takes_a_long_chain(name: str) -> None:
    graph = chain(LONG)
    begin = time.perf_counter()
    found = STEPS[name](graph)
    assert len(found.nodes) == LONG
    assert time.perf_counter() - begin < 60  # a quadratic one takes hours


@pytest.mark.rotating(2)
def test_reference_takes_a_long_chain() -> None:
    length = LONG // 4
    graph = chain(length)
    graph.verify()
    (got,) = build(graph)(ARRAYS)
    np.testing.assert_allclose(got, expected(length), rtol=1e-4)
    assert len(graph.to_text(locations=False).splitlines()) == length + 3


def test_text_of_a_chain_is_read_back() -> None:
    graph = chain(SHORT)
    again = weft.parse_graph(graph.to_text())
    np.testing.assert_array_equal(*[interpret(g, ARRAYS)[0] for g in (graph, again)])


CHAINS: dict[str, tuple[str, ...]] = {"adds": ("add",), "products": ("mul", "add"), "tanh": ("tanh", "add")}


@pytest.mark.rotating(4)
@pytest.mark.parametrize("ops", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("shape", [(), (8,), (40, 40)])
def test_schedule_takes_a_chain(ops: tuple[str, ...], shape: tuple[int, ...]) -> None:
    graph = chain(SHORT, ops, shape)
    verify_program(lower_graph(weft.passes.lower(graph.optimize())))


@pytest.mark.rotating(3)
@pytest.mark.parametrize("ops", CHAINS.values(), ids=CHAINS)
def test_gradient_of_a_chain(ops: tuple[str, ...]) -> None:
    derivative = differentiate(chain(SHORT, ops), [0, 1])
    backward = weft.passes.lower(derivative.backward.optimize())
    lower_graph(backward)
    lower_graph(weft.passes.lower(derivative.forward.optimize()))


# Programs: what they repeat, as graphs, compiled, eager and under transforms


def slices(x: Any, w: Any) -> Any:
    return weft.concat([x[1:], x[:1]]) + w


def rows_changed(x: Any, w: Any) -> Any:
    return weft.index_add(x, weft.tensor([1]), w[:1], axis=0)


def normalised(x: Any, w: Any) -> Any:
    return x - x.mean(axis=0, keepdims=True) * w


def branched(x: Any, w: Any) -> Any:
    return weft.cond(x.sum() > 0.0, lambda a: a * 0.5, lambda a: a - 1.0, x)


def repeated(step: Callable[..., Any], count: int) -> Callable[..., Any]:
    def f(x: Any, w: Any) -> Any:
        for _ in range(count):
            x = step(x, w)
        return x

    return f


@pytest.mark.rotating(4)
@pytest.mark.parametrize("step", [slices, rows_changed, normalised, branched])
def test_program_of_many_steps_is_lowered(step: Callable[..., Any]) -> None:
    kind = TensorType((8,), np.dtype("f4"))
    graph = weft.transform.tracing.trace_graph(repeated(step, 1_100), [kind, kind])[0]
    lower_graph(weft.passes.lower(graph.optimize()))
    differentiate(graph, [0])


def tanh_and_add(x: Any, w: Any) -> Any:
    return weft.tanh(x) + w


def test_tape_of_a_long_chain_runs_backward_and_is_freed() -> None:
    x, w = weft.tensor(ARRAYS[0], requires_grad=True), weft.tensor(ARRAYS[1])
    y = repeated(lambda x, w: x + w, LONG)(x, w)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0] * 8
    del y


def test_transforms_take_a_chain() -> None:
    f = repeated(tanh_and_add, SHORT)
    x, w = map(weft.tensor, ARRAYS)
    wanted = f(x, w)
    value, slope = weft.jvp(f, (x, w), (weft.ones(8), weft.zeros(8)))
    np.testing.assert_array_equal(value.numpy(), wanted.numpy())
    back = weft.grad(lambda x: f(x, w).sum())(x)
    np.testing.assert_allclose(slope.numpy(), back.numpy(), rtol=1e-3, atol=1e-30)
    rows = weft.vmap(lambda x: f(x, w))(weft.stack([x, x]))
    np.testing.assert_allclose(rows.numpy()[0], wanted.numpy(), rtol=1e-6)


@pytest.mark.rotating(2)
def test_compiled_chain_with_its_gradient() -> None:
    f = repeated(tanh_and_add, 1_100)
    x, w = weft.tensor(ARRAYS[0], requires_grad=True), weft.tensor(ARRAYS[1])
    f(x, w).sum().backward()
    assert x.grad is not None
    wanted, x.grad = x.grad.numpy(), None
    weft.compile(f, capture="trace")(x, w).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-3, atol=1e-30)
