"""Elements of classes taken before elementwise work instead of after it, and rows of one such element.

A loss takes one of a row's log-probabilities. Taken from the logits, and made a log-probability then, the
whole array of these need not lie in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.base.dtypes import int32
from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, sweep
from weft.ops.classes import pick_class, put_class, take_class
from weft.ops.compare import equal
from weft.ops.reduce import reduce_sum
from weft.ops.select import cast, select
from weft.ops.view.primitives import reshape
from weft.passes.base import graph_pass, is_elementwise
from weft.passes.dce import dce

DEEP = 6  # elementwise ops in a row


@graph_pass(regions=True, once=True)
def pick_classes(graph: Graph) -> Graph:
    """Write ``take_class(f(x, row), i)`` as ``f(take_class(x, i), row)``, f working element by element.

    >>> import weft
    >>> from weft.passes.lowering.pick_classes import pick_classes
    >>> loss = weft.nn.functional.cross_entropy
    >>> graph = weft.make_graph(loss)(weft.ones((4, 9)), weft.zeros(4, dtype=weft.int64))
    >>> made = pick_classes(graph.optimize(passes=["inline", "decompose"]))
    >>> [str(node.outputs[0].type) for node in made.nodes if node.op.name == "sub"]
    ['f32[4,9]', 'f32[4]', 'f32[4]']
    """
    put = _Put()
    rules = {take_class: [_taken], put_class: [put.compared], reduce_sum: [put.summed]}
    found = sweep(graph, rules, again=False)
    return graph if found is graph else dce(found)


def _taken(draft: Draft, node: Node) -> Sequence[Value] | None:
    x, target = node.inputs
    if x.type.ndim != 2 or node.attrs["axis"] != 1 or _source(draft, x, DEEP) is None:
        return None
    # of those that do not count nothing is taken: 0, whatever the ops make of it
    return [_counted(draft, _early(draft, x, node, DEEP, {}), target, node.attrs["ignore"])]


class _Put:
    """Rewrites rows that have one number in them, and zeros.

    Attributes:
        rows: by value, the node that put a number into each row.
    """

    def __init__(self) -> None:
        self.rows: dict[Value, Node] = {}

    def compared(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        """The rows as a comparison, where something else looks whether classes are there."""
        value, target = node.inputs
        classes, ignore = node.attrs["classes"], node.attrs["ignore"]
        is_row = value.type.ndim == 1 and node.attrs["axis"] == 1
        if not is_row or isinstance(classes, Size) or classes >= 1 << 31:
            return None
        if not any(_looks(made, target, classes, ignore) for made in draft.nodes):
            return None
        numbers = draft.constant(np.arange(classes, dtype=np.int32))
        column = (value.type.shape[0], 1)
        (at,) = draft.emit(reshape, draft.emit(cast, [target], dtype=int32), shape=column)
        (chosen,) = draft.emit(equal, [numbers, at])
        (found,) = draft.emit(reshape, [_counted(draft, value, target, ignore)], shape=column)
        out = draft.emit(select, [chosen, found, draft.constant(np.zeros((), value.type.dtype))])
        self.rows[out[0]] = node
        return out

    def summed(self, draft: Draft, node: Node) -> Sequence[Value] | None:
        """Such a row sums up to its number."""
        put = self.rows.get(node.inputs[0])
        if put is None or node.attrs["axes"] != (1,):
            return None
        (value, target), out = put.inputs, node.outputs[0].type
        if out.dtype != value.type.dtype:
            return None
        # Not those of the comparison: what waits for both could not be one kernel.
        found = _counted(draft, value, target, put.attrs["ignore"])
        return draft.emit(reshape, [found], shape=out.shape)


def _looks(made: Node, target: Value, classes: int, ignore: int) -> bool:
    """Whether a node fails where a class is not there."""
    if (
        made.op not in (take_class, pick_class)
        or made.inputs[1] is not target
        or made.attrs["ignore"] != ignore
    ):
        return False
    return bool(made.inputs[0].type.shape[made.attrs["axis"]] == classes)


def _counted(draft: Draft, value: Value, target: Value, ignore: int) -> Value:
    """A value, and 0 for what does not count."""
    (is_ignored,) = draft.emit(equal, [target, draft.constant(np.asarray(ignore, target.type.dtype))])
    zero = draft.constant(np.zeros((), value.type.dtype))
    return draft.emit(select, [is_ignored, zero, value])[0]


def _source(draft: Draft, value: Value, depth: int) -> Node | None:
    """The node that a value is made by, if it can be computed for single elements of rows.

    What it uses must be as large, a number for each row, or a number.
    """
    made = draft.made.get(value)
    if made is None or not is_elementwise(made) or not depth:
        return None
    shapes = (value.type.shape, (value.type.shape[0], 1), ())
    return made if all(v.type.shape in shapes for v in made.inputs) else None


def _early(draft: Draft, value: Value, node: Node, depth: int, known: dict[Value, Value]) -> Value:
    """The elements of a value at the classes, computed from those of what it is made of."""
    if value in known or value.type.shape == ():
        return known.get(value, value)
    x, target = node.inputs
    if value.type.shape != x.type.shape:
        (found,) = draft.emit(reshape, [value], shape=target.type.shape)
    else:
        made = _source(draft, value, depth)
        if made is None:
            (found,) = draft.emit(pick_class, [value, target], **node.attrs)
        else:
            inputs = [_early(draft, v, node, depth - 1, known) for v in made.inputs]
            (found,) = draft.emit(made.op, inputs, **made.attrs)
    known[value] = found
    return found
