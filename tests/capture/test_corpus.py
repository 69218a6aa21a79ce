"""Small programs in plain Python: the same values and gradients eager, traced, from source, through text."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest

import weft
from tests.capture import programs
from tests.capture.programs.registry import PROGRAMS, Program
from weft.errors import TraceGuardError

for module in pkgutil.iter_modules(programs.__path__):
    importlib.import_module(f"{programs.__name__}.{module.name}")

every_program = pytest.mark.parametrize("name", sorted(PROGRAMS))
every_differentiable = pytest.mark.parametrize("name", [n for n, p in PROGRAMS.items() if p.differentiable])
every_abstract = pytest.mark.parametrize("name", [n for n, p in PROGRAMS.items() if p.abstract])
every_counted = pytest.mark.parametrize("name", [n for n, p in PROGRAMS.items() if p.loops is not None])


def tensors(run: tuple[Any, ...], *, grad: bool = False) -> list[weft.Tensor]:
    return [weft.tensor(a, requires_grad=grad and a.dtype.kind == "f") for a in run]


def arrays(result: Any) -> list[Any]:
    return [leaf.detach().numpy() for leaf in weft.tree_leaves(result)]


def gradients(function: Any, run: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Values, and gradients of a weighted sum of the outputs by the inputs."""
    inputs = tensors(run, grad=True)
    outputs = [o for o in weft.tree_leaves(function(*inputs)) if o.requires_grad]
    total = sum(((o * (k + 1.5)).sum() for k, o in enumerate(outputs)), weft.zeros(()))
    if outputs:
        total.backward()
    return [o.detach().numpy() for o in outputs], [None if x.grad is None else x.grad.numpy() for x in inputs]


def assert_same(got: list[Any], expected: list[Any]) -> None:
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        if a is None or b is None:
            zero = a if b is None else b
            assert zero is None or not np.any(zero)
            continue
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_corpus_is_large() -> None:
    assert len(PROGRAMS) >= 150


@pytest.mark.rotating(4)
@every_program
def test_source_gives_the_values_of_eager(name: str) -> None:
    program = PROGRAMS[name]
    scripted = weft.jit.script(program.function)
    for run in program.inputs:
        assert_same(arrays(scripted(*tensors(run))), arrays(program.function(*tensors(run))))


@pytest.mark.rotating(5)
@every_differentiable
def test_compiled_function_gives_the_gradients_of_eager(name: str) -> None:
    program = PROGRAMS[name]
    compiled = weft.compile(program.function)
    for run in program.inputs:
        values, slopes = gradients(compiled, run)
        expected_values, expected_slopes = gradients(program.function, run)
        assert_same(values, expected_values)
        assert_same(slopes, expected_slopes)


@pytest.mark.rotating(4)
@every_program
def test_trace_gives_the_values_of_eager_or_raises(name: str) -> None:
    program = PROGRAMS[name]
    traced = weft.jit.trace(program.function, *tensors(program.inputs[0]))
    assert_same(
        arrays(traced(*tensors(program.inputs[0]))), arrays(program.function(*tensors(program.inputs[0])))
    )
    for run in program.inputs[1:]:
        got = traced_or_none(traced, run)
        if got is not None:
            assert_same(got, arrays(program.function(*tensors(run))))


def traced_or_none(traced: Any, run: tuple[Any, ...]) -> list[Any] | None:
    """What a trace gives, or None where it says that this call goes another way."""
    try:
        return arrays(traced(*tensors(run)))
    except TraceGuardError:
        return None


def graph_of(program: Program) -> weft.Graph:
    return weft.make_graph(program.function)(*tensors(program.inputs[0]))


@pytest.mark.rotating(4)
@every_abstract
def test_text_parses_back_to_a_graph_with_the_values_of_eager(name: str) -> None:
    program = PROGRAMS[name]
    graph = graph_of(program)
    parsed = weft.parse_graph(graph.to_text(), graph.constant_data())
    parsed.verify()
    for run in program.inputs:
        got = [np.asarray(a) for a in weft.tree_leaves(interpreted(parsed, run))]
        assert_same(got, arrays(program.function(*tensors(run))))


@pytest.mark.rotating(3)
@every_abstract
def test_optimised_graph_gives_the_values_of_eager(name: str) -> None:
    program = PROGRAMS[name]
    optimised = graph_of(program).optimize(debug=True)
    for run in program.inputs:
        assert_same(interpreted(optimised, run), arrays(program.function(*tensors(run))))


@every_counted
def test_loops_stay_loops(name: str) -> None:
    program = PROGRAMS[name]
    graph = graph_of(program)
    loops = [n for n in graph.walk() if n.op.name in ("scan", "while_loop")]
    assert len(loops) == program.loops


def interpreted(graph: weft.Graph, run: tuple[Any, ...]) -> list[Any]:
    from weft.ir.interpret import interpret

    return interpret(graph, list(run))[: len(graph.outputs)]
