"""Parts of what is computed element by element, taken before it is computed.

The gates of a recurrent cell are one sum, of which four functions take a quarter each. A kernel goes along
arrays of one shape, so the sum would be a kernel of its own. Where parts are taken of what is added instead,
sum and functions are one kernel, and nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.shapes import size_of
from weft.base.sizes import is_known
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, sweep
from weft.ops.view.slices import slice_axes
from weft.passes.base import graph_pass, is_elementwise
from weft.passes.dce import dce


@graph_pass(once=True)
def early_parts(graph: Graph) -> Graph:
    """Write ``f(x, y)[a:b]`` as ``f(x[a:b], y[a:b])``, where parts are all that is used of it.

    >>> import weft
    >>> from weft.passes.lowering.early_parts import early_parts
    >>> def gates(x, y):
    ...     i, o = (x + y).chunk(2, 1)
    ...     return weft.tanh(i) * weft.sigmoid(o)
    >>> graph = weft.make_graph(gates)(weft.ones(2, 8), weft.ones(2, 8)).optimize()
    >>> [node.op.name for node in graph.nodes]
    ['add', 'slice', 'slice', 'tanh', 'sigmoid', 'mul']
    >>> [node.op.name for node in early_parts(graph).nodes]
    ['slice', 'slice', 'add', 'slice', 'slice', 'add', 'tanh', 'sigmoid', 'mul']
    """
    found = sweep(graph, {slice_axes: [_Parts().taken]})
    return graph if found is graph else dce(found)


class _Parts:
    """Knows of each graph what only parts are used of."""

    def __init__(self) -> None:
        self._known: dict[Graph, set[Value]] = {}

    def taken(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        """The part of each operand, and the op on these."""
        (x,) = node.inputs
        if draft.graph not in self._known:
            self._known[draft.graph] = _only_parts(draft.graph)
        made = draft.made.get(x)
        if made is None or x not in self._known[draft.graph]:
            return None
        parts = [_part(draft, v, x, node) for v in made.inputs]
        return draft.emit(made.op, parts, **made.attrs)


def _part(draft: Draft, v: Value, whole: Value, node: Node) -> Value:
    """The part of an operand that a part of the result is made of; what is broadcast stays."""
    lead, shape = whole.type.ndim - v.type.ndim, v.type.shape
    bounds = zip(*[node.attrs[name][lead:] for name in ("starts", "stops", "steps")], strict=True)
    own = [(0, 1, 1) if size == 1 else bound for size, bound in zip(shape, bounds, strict=True)]
    if own == [(0, size, 1) for size in shape]:
        return v
    starts, stops, steps = zip(*own, strict=True)
    return draft.emit(slice_axes, [v], starts=starts, stops=stops, steps=steps)[0]


def _only_parts(graph: Graph) -> set[Value]:
    """Values that are computed element by element, and of which others see parts, for such work, alone."""
    users: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for v in node.inputs:
            users.setdefault(v, []).append(node)
    results, found = {*graph.results}, set[Value]()
    for node in reversed(graph.nodes):
        if not is_elementwise(node) or len(node.outputs) != 1:
            continue
        (x,) = node.outputs
        using = users.get(x, [])
        if x in results or not using or not is_known(x.type.shape) or not x.type.ndim:
            continue
        if all(n.outputs[0] in found and n.outputs[0].type.shape == x.type.shape for n in using) or (
            all(n.op is slice_axes for n in using) and _are_apart(x, using, users, results)
        ):
            found.add(x)
    return found


def _are_apart(x: Value, parts: Sequence[Node], users: dict[Value, list[Node]], results: set[Value]) -> bool:
    """Whether parts are no more than the whole, and are gone on with element by element."""
    outs = [n.outputs[0] for n in parts]
    total = sum(size_of(v.type.shape) for v in outs)
    fuse = all(v not in results and all(map(is_elementwise, users.get(v, []))) for v in outs)
    return fuse and total <= size_of(x.type.shape)
