"""The reference interpreter: runs a graph on arrays, node after node in Kahn's order, by the ops' kernels.

It is the truth that every faster way is compared with. Named sizes are bound by the arrays that come in, and
sizes that only a run tells (how often a loop ran) by the arrays that its nodes make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.sizes import Size, bind
from weft.base.sizes import solve as solve
from weft.errors import GraphError, ShapeError, WeftError
from weft.ir.graph import Array, Graph, Node, Value, bind_attr, has_sizes
from weft.ir.naming import explain_error
from weft.ir.order import kahn_order, needed_nodes
from weft.ir.types import TensorType


def interpret(
    graph: Graph,
    inputs: Sequence[Array],
    fetches: Sequence[Value] | None = None,
    sizes: Mapping[str, int] = {},
) -> list[Array]:
    """The arrays of the results of a graph (its outputs and updates), or of other values, on arrays.

    >>> import numpy as np, weft
    >>> graph = weft.make_graph(lambda x: x * 2.0 + 1.0)(weft.ones(3))
    >>> from weft.ir.interpret import interpret
    >>> interpret(graph, [np.ones(3, np.float32)])
    [array([3., 3., 3.], dtype=float32)]
    """
    try:
        return run_nodes(graph, inputs, fetches, sizes)
    except WeftError as error:
        explain_error(error, graph)
        raise


def run_nodes(
    graph: Graph,
    inputs: Sequence[Array],
    fetches: Sequence[Value] | None = None,
    sizes: Mapping[str, int] = {},
) -> list[Array]:
    """As ``interpret``, of a graph that may be a region of another one: its errors are not explained yet."""
    results = graph.results if fetches is None else tuple(fetches)
    run = Run(graph, sizes)
    run.bind_inputs(inputs)
    for node in kahn_order(needed_nodes(graph.nodes, results, effects=fetches is None)):
        run.step(node)
    return [run.values[v] for v in results]


def solve_sizes(graph: Graph, inputs: Sequence[Array]) -> dict[str, int]:
    """The values that the arrays of the inputs give the named sizes; an error if they do not fit.

    >>> import numpy as np, weft
    >>> from weft.ir.interpret import solve_sizes
    >>> graph = weft.parse_graph("graph f(%x: f32[n]) { return %x }")
    >>> solve_sizes(graph, [np.ones(3, np.float32)])
    {'n': 3}
    """
    run = Run(graph, {})
    run.bind_inputs(inputs)
    return run.sizes


def check_sizes(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Raise the error of a node that values of named sizes do not fit, as running it would.

    >>> import weft
    >>> from weft.ir.interpret import check_sizes
    >>> graph = weft.make_graph(lambda x: x[2])(weft.TensorType(("n",), weft.float32))
    >>> check_sizes(graph, {"n": 3})
    >>> check_sizes(graph, {"n": 2})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    BoundsError: slice: index must be in 0..1 for axis 0 of size 2, got 2
    """
    for node in needed_nodes(graph.nodes, graph.results):
        sized = has_sizes(node.attrs) or any(isinstance(s, Size) for v in node.inputs for s in v.type.shape)
        if not sized or node.op.accepts or node.regions:
            continue
        types = [TensorType(bind(v.type.shape, sizes), v.type.dtype) for v in node.inputs]
        try:
            node.op.type_rule(*types, **{k: bind(a, sizes) for k, a in node.attrs.items()})
            _check_not_negative(node, sizes)
        except WeftError as error:
            raise explain_error(placed(error, node), graph) from None


def _check_not_negative(node: Node, sizes: Mapping[str, int]) -> None:
    """Raise if a size such as ``4-n`` is below 0: sums of it with others may look as if they were right."""
    for value in node.outputs:
        for size in value.type.shape:
            if isinstance(size, Size):
                number = bind(size, sizes)
                if not isinstance(number, Size) and number < 0:
                    raise ShapeError(node.op.name, f"sizes must not be negative, got {size} = {number}")


def regions_fit(graph: Graph, sizes: Mapping[str, int]) -> bool:
    """Whether values of named sizes fit all nodes of the regions of a graph, those that may not run too.

    >>> import weft
    >>> from weft.ir.interpret import regions_fit
    >>> def third_or_first(x, p):
    ...     return weft.cond(p, lambda x: x[2], lambda x: x[0], x)
    >>> types = weft.TensorType(("n",), weft.float32), weft.TensorType((), weft.bool)
    >>> graph = weft.make_graph(third_or_first)(*types)
    >>> regions_fit(graph, {"n": 3}), regions_fit(graph, {"n": 2})
    (True, False)
    """
    for node in graph.nodes:
        for region in node.regions:
            try:
                check_sizes(region, sizes)
            except WeftError:
                return False
            if not regions_fit(region, sizes):
                return False
    return True


class Run:
    """The values of one run.

    Attributes:
        graph: that runs.
        sizes: the values of named sizes that are known so far.
        values: the arrays that are known so far.
    """

    __slots__ = ("graph", "sizes", "values")

    def __init__(self, graph: Graph, sizes: Mapping[str, int]) -> None:
        self.graph = graph
        self.sizes = dict(sizes)
        self.values: dict[Value, Array] = dict(graph.constants)

    def bind_inputs(self, arrays: Sequence[Array]) -> None:
        """Give the inputs their arrays."""
        inputs = self.graph.inputs
        if len(arrays) != len(inputs):
            raise GraphError(self.graph.name, f"takes {len(inputs)} inputs, got {len(arrays)}")
        pairs = [(v, a, f"input {v.name or i}") for i, (v, a) in enumerate(zip(inputs, arrays, strict=True))]
        for value, array, what in pairs:
            self.bind(value, array, what)
        if self.sizes:  # a later input may have told the names that an earlier one left open
            for value, array, what in pairs:
                self.bind(value, array, what)

    def bind(self, value: Value, array: Array, what: str) -> None:
        """Give a value its array, and the sizes it names theirs."""
        wanted = value.type
        if array.dtype != wanted.dtype or array.ndim != wanted.ndim:
            got = f"{array.dtype.name}{list(array.shape)}"
            raise ShapeError(self.graph.name, f"{what} must be {wanted}, got {got}")
        for size, actual in zip(wanted.shape, array.shape, strict=True):
            if size == actual:
                continue
            known = bind(size, self.sizes)
            if isinstance(known, Size):
                solve(known, actual, self.sizes)
            elif known != actual:
                message = f"{what} must be {wanted} with {self._named()}, got {list(array.shape)}"
                raise ShapeError(self.graph.name, message)
        self.values[value] = array

    def _named(self) -> str:
        return ", ".join(f"{k}={v}" for k, v in self.sizes.items()) or "these sizes"

    def step(self, node: Node) -> None:
        """Run one node."""
        arrays = [self.values[v] for v in node.inputs]
        attrs = node.attrs
        try:
            if self.sizes:
                attrs = self.attrs_of(node)
                _check_types(node, arrays, attrs)
            with np.errstate(all="ignore"):
                result = node.op.eval(*arrays, **attrs)
        except WeftError as error:
            raise placed(error, node) from None
        except Exception:
            try:
                _check_types(node, arrays, attrs)  # raises in the user's terms if the types are at fault
                _check_not_negative(node, self.sizes)
            except WeftError as error:
                raise placed(error, node) from None
            raise
        self.take(node, (result,) if node.op.outputs == 1 else result)

    def take(self, node: Node, outs: Sequence[Any]) -> None:
        """Give the outputs of a node what it made."""
        for value, out in zip(node.outputs, outs, strict=True):
            array = out if type(out) is np.ndarray else np.asarray(out)
            self.bind(value, array, f"the result of {node.op.name}")

    def attrs_of(self, node: Node) -> Mapping[str, Any]:
        """The attributes of a node with numbers for sizes, in regions too."""
        if not node.regions and not has_sizes(node.attrs):
            return node.attrs
        return {k: bind_attr(a, self.sizes) for k, a in node.attrs.items()}


def placed(error: WeftError, node: Node) -> WeftError:
    """The error with the line of the user that made the node, unless a node inside of it gave its own.

    Whoever runs the whole graph then has ``explain_error`` name what went into the node.
    """
    if not getattr(error, "in_graph", False):
        error.location = error.location if node.location is None else node.location.place
        error.in_graph, error.node = True, node  # type: ignore[attr-defined]
    return error


def _check_types(node: Node, arrays: Sequence[Array], attrs: Mapping[str, Any]) -> None:
    """Let the type rule decide what it could not while sizes had names only."""
    if not node.op.accepts and not node.regions:
        node.op.type_rule(*[TensorType(a.shape, a.dtype) for a in arrays], **attrs)
