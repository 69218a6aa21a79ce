"""Constant folding: what depends on constants alone is computed now, by the ops' own kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value, has_sizes
from weft.ir.rewrite import Draft, sweep
from weft.ops.control import cond, switch
from weft.passes.base import graph_pass
from weft.passes.loops import LOOPS

LIMIT = 1 << 12  # elements


@graph_pass
def fold(graph: Graph, limit: int = LIMIT) -> Graph:
    """Compute nodes whose inputs are all constants, and take the branch that a constant chooses.

    A result of more than ``limit`` elements is computed only if it is no larger than what it is computed
    from, so that graphs do not grow. Loops are left alone: nobody knows how long they take.

    >>> import weft
    >>> graph = weft.parse_graph('''
    ... graph f(%x: f32[3]) {
    ...   %0: f32[] = mul(f32(2.0), f32(4.0))
    ...   %1: f32[3] = mul(%x, %0)
    ...   return %1
    ... }''')
    >>> print(weft.passes.fold(graph))
    graph f(%x: f32[3]) {
      %0: f32[3] = mul(%x, f32(8.0))
      return %0
    }
    """
    return sweep(graph, {cond: [_choose], switch: [_choose], None: [partial(_compute, limit=limit)]})


def _choose(draft: Draft, node: Node) -> Sequence[Value] | None:
    """The branch that a constant predicate or index takes."""
    array = draft.array(node.inputs[0])
    if array is None:
        return None
    branches = node.attrs["branches"]
    place = (0 if array else 1) if node.op is cond else min(max(int(array), 0), len(branches) - 1)
    return draft.expand(branches[place], node.inputs[1:])


def _compute(draft: Draft, node: Node, limit: int) -> Sequence[Value] | None:
    constants = draft.constants
    for v in node.inputs:
        if v not in constants:
            return None
    if not _may_compute(draft, node, limit):
        return None
    try:
        with np.errstate(all="ignore"):
            result = node.op.eval(*[constants[v] for v in node.inputs], **node.attrs)
    except Exception:  # the run will say what is wrong, with the user's line
        return None
    arrays = [np.asarray(a) for a in ((result,) if node.op.outputs == 1 else result)]
    if any(
        a.dtype != v.type.dtype or a.shape != v.type.shape for a, v in zip(arrays, node.outputs, strict=True)
    ):
        return None
    # A constant shares no memory, so that nobody can change it from outside.
    return [draft.constant(a if a.base is None else np.array(a)) for a in arrays]


def _may_compute(draft: Draft, node: Node, limit: int) -> bool:
    shapes = [v.type.shape for v in node.outputs]
    if node.op in LOOPS or not node.outputs or not node.is_pure or has_sizes(node.attrs):
        return False
    if node.op.ambient:
        return False
    if any(isinstance(s, Size) for shape in shapes for s in shape):
        return False
    made = sum(int(np.prod(shape)) for shape in shapes)
    return made <= limit or made <= sum(draft.constants[v].size for v in node.inputs)
