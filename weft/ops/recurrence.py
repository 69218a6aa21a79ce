"""A value carried along an axis whose size may have a name: ``carry = step(carry, *rows)``, all of them kept.

Where the size is known doubling is faster, as every step of it is one pass over whole arrays; how many
steps it takes is what a size with a name does not tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir.graph import Graph, Node, Value
from weft.ir.types import TensorType
from weft.ops.batching import move_axis
from weft.ops.op import Op, Tensor
from weft.ops.size import filled


def carried(
    ops: Sequence[Op], init: Tensor | None, xs: Sequence[Tensor], axis: int, *, reverse: bool = False
) -> Any:
    """The values of a carry along an axis: each op takes one of xs and what the op before it gave.

    The first op of ``(mul, add)`` takes the first array and the carry, the second one the second array.
    Without ``init`` the carry is 0 at first.
    """
    from weft.ops.control import scan  # which runs graphs, and is imported after the ops that they hold

    rows = [move_axis(x, axis, 0) for x in xs]
    row = TensorType(tuple(rows[0].shape[1:]), rows[0].dtype)
    init = filled(row.shape, 0, row.dtype) if init is None else init
    attrs = {"carries": 1, "mapped": len(rows), "length": xs[0].shape[axis], "reverse": reverse}
    _, out = scan(init, *rows, body=_chain(ops, row), counted=False, checkpoint_every=None, **attrs)
    return move_axis(out, 0, axis)


def _chain(ops: Sequence[Op], row: TensorType) -> Graph:
    """``ops[-1](..., ops[0](carry, x0), ...)`` as a graph that gives it twice: as carry, and to keep."""
    carry, *xs = inputs = [Value(row) for _ in range(len(ops) + 1)]
    nodes = []
    for op, x in zip(ops, xs, strict=True):
        out = Value(row)
        nodes.append(Node(op, (carry, x), {}, (out,)))
        carry = out
    return Graph("step", inputs, nodes, (carry, carry))
