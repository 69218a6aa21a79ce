"""Graphs that look for NaN: every node, in regions too, raises an error where a result of it is wrong.

It is how the reference backend does ``check_nan``. What is wrong, and how that is said: ``weft.ops.nan``.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np

from weft.backends.backend import Option
from weft.ir.graph import Graph, Node
from weft.ops.nan import non_finite_error
from weft.ops.op import Op


def checked(graph: Graph, check: Option = True) -> Graph:
    """A graph that raises an error at the first node that gives a NaN; or an infinity, if asked for "all".

    >>> import numpy as np, weft
    >>> from weft.backends.checked import checked
    >>> from weft.ir.interpret import interpret
    >>> graph = checked(weft.make_graph(lambda x: weft.log(x))(weft.ones(2)))
    >>> interpret(graph, [np.array([1, -1], np.float32)])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    weft.errors.NonFiniteError: log: results must not be NaN, got 1 in f32[2], from f32[2] in -1..1
    ...
    """
    return graph.replace(nodes=[_checked_node(node, check) for node in graph.nodes])


def _checked_node(node: Node, check: Option) -> Node:
    attrs = node.attrs
    if node.regions:
        attrs = {name: _checked_attr(value, check) for name, value in attrs.items()}
    return Node(_checked_op(node.op, check), node.inputs, attrs, node.outputs, node.location)


def _checked_attr(value: Any, check: Option) -> Any:
    if type(value) is Graph:
        return checked(value, check)
    if type(value) is tuple and value and type(value[0]) is Graph:
        return tuple(checked(region, check) for region in value)
    return value


@cache
def _checked_op(op: Op, check: Option) -> Op:
    evaluate, out = op.eval, copy.copy(op)

    def run(*arrays: Any, **attrs: Any) -> Any:
        result = evaluate(*arrays, **attrs)
        for array in (result,) if op.outputs == 1 else result:
            error = non_finite_error(op.name, np.asarray(array), arrays, attrs, check)
            if error is not None:
                raise error
        return result

    out.eval = run
    return out
