"""Every op and composite as a graph: captured, verified, printed, read back, run; with its gradient too.

A run takes the first sample of each op, and a third of the others, another third whenever weft's code is
another; ``WEFT_ALL=1`` takes all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.ir.random_graphs import assert_same_results
from tests.ops import checks
from weft.base.dtypes import kind
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.ops.op import NoGradient, Op
from weft.transform.scopes import run_composite
from weft.transform.tracing import trace_graph

ENTRIES = checks.entries()


def over(rows: list[checks.Entry]) -> pytest.MarkDecorator:
    groups = checks.by_name(rows, parts=3)
    return pytest.mark.parametrize("samples", groups.values(), ids=groups)


def _has_gradient(entry: checks.Entry) -> bool:
    none = isinstance(entry.op, Op) and isinstance(entry.op.vjp, NoGradient)
    return bool(entry.differentiable) and not none


def called(entry: checks.Entry, *xs: Any) -> list[Any]:
    """The call, so that a composite is one call node."""
    if isinstance(entry.op, Op):
        out = entry.op.on_tensors(*xs, **entry.sample.attrs)
    elif entry.op.sampled is entry.op.function:
        out = run_composite(entry.op, xs, dict(entry.sample.attrs))
    else:
        out = entry.op.sampled(*xs, **entry.sample.attrs)
    return list(out) if isinstance(out, tuple | list) else [out]


def with_gradient(entry: checks.Entry, *xs: Any) -> list[Any]:
    """What the call gives, and the gradients of the sum of it."""
    where = entry.differentiable

    def function(*some: Any) -> tuple[Any, ...]:
        full = [some[where.index(i)] if i in where else x for i, x in enumerate(xs)]
        return tuple(o for o in called(entry, *full) if kind(o.dtype) in "fc")

    outs, pull = weft.vjp(function, *[xs[i] for i in where])
    return [*outs, *pull(tuple(weft.ones_like(o) for o in outs))]


def graph_of(entry: checks.Entry, function: Callable[..., Any]) -> Graph:
    types = [weft.TensorType(a.shape, a.dtype) for a in entry.sample.inputs]
    graph, imports = trace_graph(lambda *xs: function(entry, *xs), types, entry.name)
    assert not imports
    return graph.verify()


def read_back(graph: Graph, *, expand: bool) -> Graph:
    again = weft.parse_graph(graph.to_text(expand=expand), constants=graph.constant_data(expand=expand))
    assert graph.difference(again) is None
    return again


@over(ENTRIES)
def test_graph_of_an_op_is_read_back_and_runs(samples: list[checks.Entry]) -> None:
    for entry in samples:
        graph = graph_of(entry, called)
        if any(node.op.name == "call" for node in graph.nodes):
            read_back(graph, expand=True)
        actual = interpret(read_back(graph, expand=False), entry.sample.inputs)
        expected = checks.values(called(entry, *checks.tensors(entry.sample.inputs)))
        assert_same_results(actual, expected)


@pytest.mark.rotating(4)
@over([e for e in ENTRIES if _has_gradient(e)])
def test_graph_with_gradient_is_read_back_and_runs(samples: list[checks.Entry]) -> None:
    for entry in samples:
        graph = graph_of(entry, with_gradient)
        if any(node.op.name == "call" for node in graph.nodes):
            read_back(graph, expand=True)
        actual = interpret(read_back(graph, expand=False), entry.sample.inputs)
        expected = checks.values(with_gradient(entry, *checks.tensors(entry.sample.inputs)))
        for a, e in zip(actual, expected, strict=True):
            assert (a.dtype, a.shape) == (e.dtype, e.shape)
            np.testing.assert_allclose(a, e, rtol=1e-6, atol=1e-9)


@pytest.mark.rotating(3)
@over([e for e in ENTRIES if not isinstance(e.op, Op)])
def test_call_of_a_composite_is_one_line(samples: list[checks.Entry]) -> None:
    for entry in samples:
        if any(isinstance(a, int) and abs(a) > 2**26 for a in entry.sample.attrs.values()):
            continue  # traced again only for small arguments
        graph = graph_of(entry, called)
        assert len(graph.nodes) <= 1
        assert "body(" not in str(graph)
