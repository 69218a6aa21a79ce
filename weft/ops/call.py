"""A call of a graph by name: how a composite, or a captured function that calls another, stands in a graph.

Text shows it as ``gelu(%x, approximate="tanh")``; the pass ``inline`` puts its body in its place.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from weft.errors import GraphError, ShapeError
from weft.ir.graph import Graph, operands_of
from weft.ir.types import TensorType
from weft.ops.control_run import Ask, driven, prepare
from weft.ops.families import primitive
from weft.ops.op import Array, no_gradient


def _type(*xs: TensorType, function: str, arguments: tuple[Any, ...], body: Graph) -> tuple[TensorType, ...]:
    _check_arguments(function, arguments, len(xs))
    wanted = [v.type for v in body.inputs]
    if list(xs) != wanted:
        types = [", ".join(map(str, ts)) or "none" for ts in (wanted, xs)]
        raise ShapeError(function, f"operands must be of the types {types[0]}, got {types[1]}")
    return tuple(v.type for v in body.outputs)


def _check_arguments(function: str, arguments: Any, count: int) -> None:
    if not isinstance(function, str):
        raise GraphError("call", f"the function must be a name, got {function!r}")
    pairs = isinstance(arguments, tuple) and all(isinstance(a, tuple) and len(a) == 2 for a in arguments)
    if not pairs or not all(isinstance(name, str) for name, _ in arguments):
        raise GraphError(function, f"arguments must be pairs of a name and a literal, got {arguments!r}")
    for index in operands_of(arguments):
        if not 0 <= index < count:
            raise GraphError(function, f"arguments must name its {count} operands, got number {index}")


def _call(
    *xs: Array, function: str, arguments: tuple[Any, ...], body: Graph
) -> Generator[Ask, list[Array], tuple[Array, ...]]:
    return tuple((yield Ask(body, prepare(body, xs), "body", xs)))


call = primitive(
    "call",
    type_rule=_type,
    eval=driven("call", _call),
    vjp=no_gradient("on tensors a call runs its body, op by op"),
    batch=None,
    samples=None,
    outputs=0,
)
