"""A call of a graph by name: how a composite, or a captured function that calls another, stands in a graph.

Text shows it as ``gelu(%x, approximate="tanh")``; the pass ``inline`` puts its body in its place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.ops.families import primitive
from weft.ops.op import Array, no_gradient


class Operand(NamedTuple):
    """Stands for the input with a number, where the arguments of a call name it."""

    index: int


def _type(*xs: TensorType, function: str, arguments: tuple[Any, ...], body: Graph) -> tuple[TensorType, ...]:
    return tuple(v.type for v in body.outputs)


def _call(*xs: Array, function: str, arguments: tuple[Any, ...], body: Graph) -> tuple[Array, ...]:
    return tuple(interpret(body, xs))


call = primitive(
    "call",
    type_rule=_type,
    eval=_call,
    vjp=no_gradient("on tensors a call runs its body, op by op"),
    batch=None,
    samples=None,
    outputs=0,
)
