"""Arrays to run a graph on where a user gives none, to see how long its kernels take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.backends.backend import Array
from weft.base.dtypes import DType, kind
from weft.base.sizes import bind
from weft.ir.graph import Graph

NOT_MEASURED = "not measured: give explain the arguments of a call, since made-up ones may not do"


def made_up(graph: Graph, sizes: Mapping[str, int]) -> tuple[list[Array] | None, str]:
    """Arrays of the types of the inputs, or None where it is better not to run; and what to say of that.

    >>> import weft
    >>> from weft.backends.made_up import made_up
    >>> arrays, note = made_up(weft.make_graph(lambda x: x * 2.0)(weft.ones(3)), {})
    >>> [a.shape for a in arrays], note[:27]
    ([(3,)], 'measured on made-up numbers')
    """
    if has_effects(graph) or any(node.op.name == "while_loop" for node in graph.walk()):
        return None, NOT_MEASURED
    shapes: list[Any] = [bind(v.type.shape, sizes) for v in graph.inputs]
    if not all(isinstance(s, int) for shape in shapes for s in shape):
        return None, "not measured: give explain the arguments of a call"
    arrays = [_array(shape, v.type.dtype) for shape, v in zip(shapes, graph.inputs, strict=True)]
    return arrays, "measured on made-up numbers: give explain the arguments of a call to measure on these"


def has_effects(graph: Graph) -> bool:
    """Whether a run of a graph does something besides giving values."""
    return any(node.op.effect for node in graph.walk())


def _array(shape: tuple[int, ...], dtype: DType) -> Array:
    if kind(dtype) not in "fc":
        return np.zeros(shape, dtype)  # the index that exists wherever any does
    return np.random.default_rng(0).random(shape, np.float32).astype(dtype)
