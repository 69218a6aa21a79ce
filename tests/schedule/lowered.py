"""Graphs of one op, lowered to loops and run by the interpreter of loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np

import weft
from weft.backends.llvm.driver import build_executable
from weft.base.dtypes import DTYPES, bfloat16, float16, int64, kind
from weft.base.sizes import named_size
from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.loop.interpret import FailureError, run_program
from weft.loop.ir import Program
from weft.loop.verify import verify_program
from weft.ops.op import OPS, Op
from weft.ops.scalar import NUMPY
from weft.passes import lower
from weft.schedule.fusion import Grouping
from weft.schedule.program import lower_graph

for _name in weft.__all__:
    getattr(weft, _name)  # imported at first use, and with it its ops
assert weft.fft
assert weft.linalg


def program_of(graph: Graph, **options: Any) -> Program:
    """The program of a graph, as a backend makes it."""
    return lower_graph(lower(graph), **options)


def graph_of(op: Op, types: Sequence[TensorType], attrs: Mapping[str, Any], *, turned: bool = False) -> Graph:
    """A graph of one node; turned, its inputs come with their axes in reverse and are permuted first."""
    inputs = [Value(TensorType(t.shape[::-1], t.dtype)) if turned else Value(t) for t in types]
    nodes, values = [], inputs
    if turned:
        values = [Value(t) for t in types]
        for source, value in zip(inputs, values, strict=True):
            axes = tuple(reversed(range(value.type.ndim)))
            nodes.append(Node(OPS["permute"], [source], {"axes": axes}, [value]))
    outs = op.type_rule(*types, **attrs)
    outputs = [Value(t) for t in (outs if isinstance(outs, tuple | list) else [outs])]
    return Graph("test", inputs, [*nodes, Node(op, values, attrs, outputs)], outputs)


def run(
    graph: Graph, arrays: Sequence[Any], sizes: Mapping[str, int] | None = None, *, alone: bool = False
) -> list[Any]:
    """The results of a graph, by way of loops; alone, no op is fused with another."""
    with patch.object(Grouping, "run", lambda self, **_: []) if alone else nullcontext():
        program = program_of(graph)
    verify_program(program)
    assert not program.hosts, "falls back to Python"
    return shaped(program, graph, arrays, sizes or {})


def shaped(program: Program, graph: Graph, arrays: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
    """The results of a program, in the shapes that the graph says."""
    try:
        flat = run_program(program, arrays, sizes=sizes)
    except FailureError as failure:
        raise program.failures[failure.number].error(failure.values) from None
    shapes = [[s if isinstance(s, int) else s.substitute(sizes) for s in v.type.shape] for v in graph.results]
    return [out.reshape(shape) for out, shape in zip(flat, shapes, strict=True)]


def lowered(
    op: Op | str,
    arrays: Sequence[Any],
    attrs: Mapping[str, Any],
    *,
    turned: bool = False,
    alone: bool = False,
) -> Any:
    """What an op gives, by way of loops."""
    op = OPS[op] if isinstance(op, str) else op
    types = [TensorType(a.shape, a.dtype) for a in arrays]
    graph = graph_of(op, types, attrs, turned=turned)
    fed = [np.ascontiguousarray(a.T) for a in arrays] if turned else arrays
    fed = [f.reshape(v.type.shape) for f, v in zip(fed, graph.inputs, strict=True)]
    outs = run(graph, fed, alone=alone)
    return outs[0] if op.outputs == 1 else tuple(outs)


def compiled(op: Op | str, arrays: Sequence[Any], attrs: Mapping[str, Any], *, alone: bool = False) -> Any:
    """What an op gives, by way of machine code."""
    op = OPS[op] if isinstance(op, str) else op
    graph = graph_of(op, [TensorType(a.shape, a.dtype) for a in arrays], attrs)
    with patch.object(Grouping, "run", lambda self, **_: []) if alone else nullcontext():
        executable = build_executable(graph)
    return executable(arrays)[0]


def sized(
    op: Op | str,
    arrays: Sequence[Any],
    attrs: Mapping[str, Any],
    names: Mapping[int, str],
    *,
    alone: bool = False,
) -> Any:
    """What an op gives where sizes of its inputs that have a number are named."""
    op = OPS[op] if isinstance(op, str) else op
    types = [
        TensorType(tuple(named_size(names[s]) if s in names else s for s in a.shape), a.dtype) for a in arrays
    ]
    graph = graph_of(op, types, attrs)
    return run(graph, arrays, {name: number for number, name in names.items()}, alone=alone)[0]


def variants(arrays: Sequence[Any]) -> list[list[Any]]:
    """Arrays with their floats (or all, where there are none) in each dtype."""
    floats = any(kind(a.dtype) == "f" for a in arrays)
    out = []
    for dtype in DTYPES:
        changed = [_cast(a, dtype) if kind(a.dtype) == "f" or not floats else a for a in arrays]
        out.append(changed)
    return out


def _cast(a: Any, dtype: Any) -> Any:
    """An array in a dtype; negative floats wrap to unsigned ones, which each processor does its own way."""
    return NUMPY.cast(NUMPY.cast(a, int64) if (kind(a.dtype), kind(dtype)) == ("f", "u") else a, dtype)


def tolerance(dtype: Any) -> float:
    """How far results of a dtype may be apart, relative to the largest."""
    if dtype == bfloat16:
        return 2e-2
    if dtype == float16:
        return 2e-3
    return 1e-5 if dtype.itemsize <= (8 if kind(dtype) == "c" else 4) else 1e-12


def assert_same(actual: Any, expected: Any) -> None:
    """Equal in type; in value exactly, or nearly for floats."""
    expected = np.asarray(expected)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    if kind(expected.dtype) not in "fc":
        np.testing.assert_array_equal(actual, expected)
        return
    near = tolerance(expected.dtype)
    wide = np.complex128 if kind(expected.dtype) == "c" else np.float64
    np.testing.assert_allclose(actual.astype(wide), expected.astype(wide), rtol=near, atol=near)
