"""Sums of parts that do not overlap, as arrays that are put together."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, sweep
from weft.ops.arithmetic import add
from weft.ops.view.primitives import join
from weft.ops.view.slices import pad_axes
from weft.passes.base import graph_pass
from weft.passes.dce import dce

_MOST = 16  # parts


@graph_pass(regions=True, once=True)
def join_parts(graph: Graph) -> Graph:
    """Write ``pad(a) + pad(b)`` as a concatenation, where the parts fill the sum side by side.

    So is the gradient of ``x.chunk(3)``. A sum reads every part for each of its elements; a zero of a part
    keeps its sign.

    >>> import weft
    >>> from weft.passes.lowering.join_parts import join_parts
    >>> def f(x):
    ...     a, b = x.chunk(2)
    ...     return (a * weft.sin(b)).sum()
    >>> graph = weft.make_graph(weft.grad(f))(weft.ones(8)).optimize()
    >>> join_parts(graph).nodes[-1].op.name
    'concat'
    """
    found = sweep(graph, {add: [_joined]}, again=False)
    return graph if found is graph else dce(found)


def _joined(draft: Draft, node: Node) -> Sequence[Value] | None:
    parts = _parts(draft, node)
    axis = None if parts is None else _axis(parts)
    if parts is None or axis is None:
        return None
    parts = sorted(parts, key=lambda part: part.attrs["low"][axis])
    end = 0
    for part in parts:
        if part.attrs["low"][axis] != end:
            return None
        end += part.inputs[0].type.shape[axis]
    if end != node.outputs[0].type.shape[axis]:
        return None
    return draft.emit(join, [part.inputs[0] for part in parts], axis=axis)


def _parts(draft: Draft, node: Node) -> list[Node] | None:
    """The padded parts that a sum is made of; None where it is made of something else."""
    found: list[Node] = []
    for value in node.inputs:
        made = draft.made.get(value)
        if value.type != node.outputs[0].type or made is None:
            return None
        if made.op is add:
            inner = _parts(draft, made)
            if inner is None:
                return None
            found += inner
        elif made.op is pad_axes and made.attrs["value"] == 0 and not any(made.attrs["interior"]):
            found.append(made)
        else:
            return None
    return found if len(found) <= _MOST else None


def _axis(parts: Sequence[Node]) -> int | None:
    """The one axis along which parts are padded; None where that is not so."""
    sides = [(*p.attrs["low"], *p.attrs["high"]) for p in parts]
    known = all(isinstance(n, int) and n >= 0 for side in sides for n in side)
    axes = {i % (len(side) // 2) for side in sides for i, n in enumerate(side) if n != 0}
    return axes.pop() if len(axes) == 1 and known else None
