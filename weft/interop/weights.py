"""The parameters of a graph, by name."""

from __future__ import annotations

from weft.base.public import public
from weft.capture.static.block import parameters
from weft.errors import ArgumentError
from weft.ir.graph import Graph
from weft.tensor.tensor import Tensor


@public
def weights(graph: Graph) -> dict[str, Tensor]:
    """The tensors that a graph reads at each run besides its arguments, by name; those it changes too.

    They are the tensors themselves: one that is told to require grad gets a gradient from what a call of the
    graph gives, and a new value of one is what the next run reads.

    >>> import weft
    >>> w = weft.tensor([2.0])
    >>> with weft.Graph("double") as graph:
    ...     y = weft.placeholder("x", (1,)) * w
    ...     w.name = "w"
    >>> weft.interop.weights(graph)
    {'w': tensor([2.])}
    """
    if not isinstance(graph, Graph):
        raise ArgumentError("weights", f"must be given a graph, got {type(graph).__name__}")
    found = [v for v in graph.inputs if v in parameters]
    return {v.name or f"%{graph.inputs.index(v)}": parameters[v] for v in found}
