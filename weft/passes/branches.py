"""Simplification of ``cond``: outputs for which its branches do no work are chosen by ``where``.

What a jump out of a loop leaves behind, a flag that is true on one way and false on the other, becomes the
predicate itself.
"""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import bool_
from weft.base.shapes import size_of
from weft.base.sizes import is_known
from weft.ir.graph import Graph, Node, Value
from weft.ir.rewrite import Draft, Results, Rule
from weft.ops.compare import logical_not
from weft.ops.control import cond
from weft.ops.select import select

LIMIT = 1 << 10  # elements: a branch gives a larger array without a copy


def choose_without_branches(draft: Draft, node: Node) -> Results | None:
    """Outputs that are inputs or constants of both branches are chosen outside of them."""
    if not node.outputs or not all(n.is_pure for branch in node.attrs["branches"] for n in branch.nodes):
        return None
    found = [_chosen(draft, node, i) for i in range(len(node.outputs))]
    kept = [i for i, value in enumerate(found) if value is None]
    if len(kept) == len(found):
        return None
    if kept:
        branches = tuple([b.replace(outputs=[b.outputs[i] for i in kept]) for b in node.attrs["branches"]])
        rest = iter(draft.emit(cond, node.inputs, branches=branches))
        return [next(rest) if value is None else value for value in found]
    return [value for value in found if value is not None]


def _chosen(draft: Draft, node: Node, i: int) -> Value | None:
    """An output as a value outside of the branches; None where they compute it, or it is large."""
    ends = [_end(node, branch, branch.outputs[i]) for branch in node.attrs["branches"]]
    shape = node.outputs[i].type.shape
    if any(end is None for end in ends):
        return None
    if ends[0] is ends[1] and isinstance(ends[0], Value):
        return ends[0]
    if not is_known(shape) or size_of(shape) > LIMIT:
        return None
    predicate = node.inputs[0]
    if node.outputs[i].type.dtype == bool_ and not shape and not any(isinstance(e, Value) for e in ends):
        a, b = (bool(e) for e in ends)
        if a is not b:
            return predicate if a else draft.emit(logical_not, [predicate])[0]
    values = [e if isinstance(e, Value) else draft.constant(e) for e in ends]
    return draft.emit(select, [predicate, *values])[0]


def _end(node: Node, branch: Graph, value: Value) -> Any:
    """What an output of a branch is outside of it: an operand, the array of a constant, else None."""
    if value in branch.constants:
        return branch.constants[value]
    return node.inputs[1 + branch.inputs.index(value)] if value in branch.inputs else None


BRANCHES: list[tuple[Any, Rule]] = [(cond, choose_without_branches)]
