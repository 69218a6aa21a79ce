"""``make_graph``: the graph of a function, from the types of its arguments alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import as_dtype, default_complex, default_float
from weft.base.public import public
from weft.base.size_text import shape_of_texts
from weft.base.tracebacks import hide_weft
from weft.base.trees import Structure, tree_flatten, tree_unflatten
from weft.capture.program.arguments import check_callable, leaf_names, name_of
from weft.capture.program.sources import Fixed
from weft.capture.record.record import enter, record
from weft.capture.record.root import Root
from weft.capture.static.block import parameters
from weft.ir.graph import Graph
from weft.ir.types import TensorType
from weft.ops.op import TensorLike, type_of


@public
def make_graph(function: Callable[..., Any], *, name: str | None = None) -> Callable[..., Graph]:
    """A function that gives the graph of another one, for arguments of the types of its own.

    Nothing is computed: only the types of the examples matter. They may be tensors, arrays, floats, types
    such as ``weft.TensorType(("batch", 3), weft.float32)``, in which a string is the name of a size that
    each call may choose or an expression such as ``"4*h"``, and trees of these. Ints, bools, strings and
    other objects are part of the graph as they are.

    Args:
        function: of tensors; control flow on them goes into the graph.
        name: of the graph; by default that of the function.

    >>> import weft
    >>> print(weft.make_graph(lambda x: weft.tanh(x) * 2.0)(weft.ones(3)))  # doctest: +ELLIPSIS
    graph <lambda>(%x: f32[3]) {
      %0: f32[3] = tanh(%x)...
      %1: f32[3] = mul(%0, f32(2.0))...
      return %1
    }
    """
    check_callable("make_graph", function)

    @functools.wraps(function, updated=())
    def graph_of(*examples: Any, **keywords: Any) -> Graph:
        leaves, structure = tree_flatten((examples, keywords), is_leaf=_is_example)
        try:
            return _capture(name or name_of(function), function, leaves, structure)
        except Exception as error:
            hide_weft(error)
            raise

    return graph_of


def _capture(name: str, function: Any, leaves: list[Any], structure: Structure) -> Graph:
    types = [type_of_example(leaf) for leaf in leaves]
    names = leaf_names(function, *tree_unflatten(structure, range(len(leaves))))
    with enter(name, staged=True, looks=False) as root:
        given = [_given(root, x, t, n) for x, t, n in zip(leaves, types, names, strict=True)]
        args, kwargs = tree_unflatten(structure, given)
        del given
        program = record(root, function, args, kwargs)
    sources = zip(program.graph.inputs, program.sources, strict=True)
    parameters.update((value, source.held) for value, source in sources if isinstance(source, Fixed))
    return program.graph


def _is_example(x: Any) -> bool:
    return isinstance(x, TensorType | TensorLike)


def _given(root: Root, example: Any, kind: TensorType | None, name: str) -> Any:
    if kind is None:
        return example
    tensor = root.input(kind, name)
    needs = getattr(example, "requires_grad", False)
    return tensor.requires_grad_() if needs else tensor


def type_of_example(x: Any) -> TensorType | None:
    """The type that an example stands for; None for what is part of the graph as it is."""
    if isinstance(x, TensorType):
        return TensorType(shape_of_texts(x.shape), as_dtype(x.dtype))
    if isinstance(x, TensorLike):
        return type_of(x)
    if isinstance(x, np.ndarray | np.generic):
        return TensorType(x.shape, as_dtype(x.dtype))
    if type(x) is float:
        return TensorType((), default_float())
    return TensorType((), default_complex()) if type(x) is complex else None
