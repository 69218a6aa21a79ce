"""Ops of several loops written as their decompositions: the same bits as their kernels, which are these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import weft
from tests.passes.helpers import assert_becomes, assert_stays
from tests.schedule.lowered import graph_of
from weft.base.sizes import named_size
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.ops.op import OPS
from weft.ops.table import import_all
from weft.passes import decompose

import_all()
DECOMPOSED = [name for name, op in OPS.items() if op.decomposition is not None]


def test_ops_that_say_how_they_are_decomposed() -> None:
    rings = ["ring_attention", "ring_attention_vjp"]
    assert sorted(DECOMPOSED) == [
        "conv_add",
        "log_softmax",
        "logsumexp",
        "matmul_add",
        *rings,
        "softmax",
        "standardize",
    ]


def test_softmax() -> None:
    assert_becomes(
        decompose,
        """
        graph f(%x: f32[2,3]) {
          %0: f32[2,3] = softmax(%x, axis=1)
          return %0
        }""",
        """
        graph f(%x: f32[2,3]) {
          %0: f32[2,1] = max(%x, axes=(1,), keepdims=True)
          %1: f32[2,3] = sub(%x, %0)
          %2: f32[2,3] = exp(%1)
          %3: f32[2,1] = sum(%2, axes=(1,), keepdims=True)
          %4: f32[2,1] = div(f32(1.0), %3)
          %5: f32[2,3] = mul(%2, %4)
          return %5
        }""",
    )


def test_rows() -> None:
    assert_becomes(
        decompose,
        """
        graph f(%x: f32[2,3]) {
          %0: f32[3], %1: f32[3] = rows(%x, count=2)
          return %0, %1
        }""",
        """
        graph f(%x: f32[2,3]) {
          %0: f32[1,3] = slice(%x, starts=(0, 0), stops=(1, 3), steps=(1, 1))
          %1: f32[3] = reshape(%0, shape=(3,))
          %2: f32[1,3] = slice(%x, starts=(1, 0), stops=(2, 3), steps=(1, 1))
          %3: f32[3] = reshape(%2, shape=(3,))
          return %1, %3
        }""",
    )


def test_other_ops_stay() -> None:
    assert_stays(
        decompose,
        """
        graph f(%x: f32[3]) {
          %0: f32[3] = exp(%x)
          return %0
        }""",
    )


@pytest.mark.parametrize("name", DECOMPOSED)
def test_decomposition_gives_the_bits_of_the_op(name: str) -> None:
    op = OPS[name]
    assert op.samples is not None
    for sample in op.samples():
        graph = graph_of(op, [TensorType(x.shape, x.dtype) for x in sample.inputs], sample.attrs)
        after = decompose(graph)
        assert all(node.op is not op for node in after.nodes)
        for a, b in zip(interpret(graph, sample.inputs), interpret(after, sample.inputs), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", DECOMPOSED)
def test_named_sizes_stay_named(name: str) -> None:
    attrs: dict[str, Any] = {
        "standardize": {"axes": (1,), "eps": 1e-5, "center": True},
        "logsumexp": {"axes": (1,), "keepdims": False},
        "ring_attention": {"axis": "seq", "causal": True, "scale": 0.5},
        "ring_attention_vjp": {"axis": "seq", "causal": True, "scale": 0.5},
        "matmul_add": {},
        "conv_add": {
            "stride": (1,),
            "padding": ((1, 1),),
            "dilation": (1,),
            "input_dilation": (1,),
            "groups": 1,
        },
    }.get(name, {"axis": 1})
    shapes: dict[str, Sequence[tuple[int, ...]]] = {
        "ring_attention": [(5, 3)] * 3,
        "ring_attention_vjp": [(5, 3)] * 3 + [(5, 1), (5, 3), (5, 1)],
        "matmul_add": [(5, 3), (3, 4), (4,)],
        "conv_add": [(5, 2, 6), (4, 2, 3), (4,)],
    }
    dtype = weft.bfloat16 if name.endswith("_add") else weft.float32
    rng, n = np.random.default_rng(0), named_size("n")
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes.get(name, [(3, 5)])]
    types = [TensorType(tuple([n if s == 5 else s for s in x.shape]), x.dtype) for x in arrays]
    graph = graph_of(OPS[name], types, attrs)
    for a, b in zip(interpret(graph, arrays), interpret(decompose(graph), arrays), strict=True):
        np.testing.assert_array_equal(a, b)


def test_nodes_have_the_line_of_the_op() -> None:
    graph = weft.make_graph(lambda x: weft.softmax(x))(weft.ones(3))
    (node,) = graph.nodes
    assert {n.location for n in decompose(graph).nodes} == {node.location}


def test_body_of_a_function_takes_its_place() -> None:
    class Twice(weft.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2.0

    graph = weft.make_graph(lambda x: weft.fori_loop(0, 3, lambda i, y: Twice.apply(y), x))(weft.ones(2))
    assert "function" in [node.op.name for node in graph.walk()]
    after = decompose(graph)
    assert "function" not in [node.op.name for node in after.walk()]
    np.testing.assert_array_equal(interpret(after, [np.ones(2, "f4")])[0], [8.0, 8.0])
