"""Graphs that look for NaN: every node, in regions too, raises an error where a result of it has one.

It is how the reference backend does ``check_nan=True``; a faster one that met a NaN can run this on the same
arrays, to find the node.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np

from weft.ir.graph import Graph, Node
from weft.ops.nan import count_nans, nan_error
from weft.ops.op import Op


def checked(graph: Graph) -> Graph:
    """A graph that raises an error at the first node that gives a NaN.

    >>> import numpy as np, weft
    >>> from weft.backends.checked import checked
    >>> from weft.ir.interpret import interpret
    >>> graph = checked(weft.make_graph(lambda x: weft.log(x))(weft.ones(2)))
    >>> interpret(graph, [np.array([1, -1], np.float32)])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.DomainError: log: results must not be NaN, got 1 in f32[2], from f32[2] in -1..1
    ...
    """
    return graph.replace(nodes=[_checked_node(node) for node in graph.nodes])


def _checked_node(node: Node) -> Node:
    attrs = {name: _checked_attr(value) for name, value in node.attrs.items()} if node.regions else node.attrs
    return Node(_checked_op(node.op), node.inputs, attrs, node.outputs, node.location)


def _checked_attr(value: Any) -> Any:
    if type(value) is Graph:
        return checked(value)
    if type(value) is tuple and value and type(value[0]) is Graph:
        return tuple(map(checked, value))
    return value


@cache
def _checked_op(op: Op) -> Op:
    evaluate, out = op.eval, copy.copy(op)

    def run(*arrays: Any, **attrs: Any) -> Any:
        result = evaluate(*arrays, **attrs)
        for array in (result,) if op.outputs == 1 else result:
            if count_nans(array) > 0:
                raise nan_error(op.name, np.asarray(array), arrays)
        return result

    out.eval = run
    return out
