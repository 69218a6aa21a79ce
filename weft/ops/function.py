"""A ``weft.Function`` in a region: its forward and the gradient that the user wrote, two graphs of one node.

Outside regions the tape keeps the user's backward. A region is differentiated by its graph, which must know
it too.
"""

from __future__ import annotations

from weft.base.hooks import hooks
from weft.ir.graph import Graph
from weft.ir.interpret import run_nodes
from weft.ir.types import TensorType
from weft.ops.families import primitive
from weft.ops.op import Array

Places = tuple[int, ...]


def _type(
    *xs: TensorType, name: str, body: Graph, backward: Graph, arguments: int, used: int, seeded: Places
) -> tuple[TensorType, ...]:
    return tuple(v.type for v in body.outputs)


def _run(
    *xs: Array, name: str, body: Graph, backward: Graph, arguments: int, used: int, seeded: Places
) -> tuple[Array, ...]:
    return tuple(run_nodes(body, xs[:used]))


function = primitive(
    "function",
    type_rule=_type,
    eval=_run,
    vjp=lambda g, xs, outs, backward, arguments, used, seeded: hooks.function_vjp(
        g, xs, outs, backward, arguments, used, seeded
    ),
    batch=None,
    samples=None,
    outputs=0,
)
"""``function(*xs, name, body, backward, arguments, used, seeded)``: a user's function with its own gradient.

Operands are its ``arguments``, and what its two graphs use from around. ``body`` takes the first ``used`` and
gives the results, and then what backward keeps. ``backward`` takes what body takes, what it gives, a gradient
for each output in ``seeded``, and the other operands; it gives one for each argument that can have one.
"""
