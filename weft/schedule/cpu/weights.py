"""Weights of products in loops: brought once into the order in which every iteration reads them.

The gradient of ``x @ w`` is a product with the transpose of ``w``, whose neighbours in a row lie apart. Each
product would have to pack them; before the loop it is done once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.sizes import Size
from weft.ir.graph import Graph, Value
from weft.ops.contract import matrix_multiply as matmul
from weft.schedule.arrays import Array
from weft.schedule.region import Scope

STRIP = 16  # columns of a matrix that are copied together
WEIGHTS = 4 << 20  # bytes of a matrix that a loop gets in another order


def order_weights(scope: Scope, body: Graph, values: Sequence[Value]) -> list[Any]:
    """What stays the same in a loop; the weights of products in the order in which these read them."""
    inner = body.inputs[len(body.inputs) - len(values) :]
    weights = {n.inputs[1] for n in body.nodes if n.op is matmul and n.inputs[1].type.ndim == 2}
    places = [scope.place(v) for v in values]
    return [
        _turned(scope, place) if v in weights and _is_turned(place) else place
        for v, place in zip(inner, places, strict=True)
    ]


def _turned(scope: Scope, matrix: Array) -> Array:
    """A dense copy, a few columns at a time: these are read from lines that stay in the nearest cache."""
    out = scope.writer.temporary(matrix.shape, matrix.dtype)
    rows, columns = matrix.shape
    strips = columns // STRIP if columns % STRIP == 0 else 1
    with scope.writer.kernel("turn", [matrix], [out]) as k:
        b, (source,), (target,) = k.builder, k.reads, k.writes
        with b.parallel(strips) as s, b.loop(rows) as i, b.vector(columns // strips) as j:
            column = s * (columns // strips) + j
            b.store(target.buffer, target.at(i, column), b.load(source.buffer, source.at(i, column)))
    return out


def _is_turned(place: Any) -> bool:
    """Whether neighbours in a row of a matrix lie apart, so that each product would have to pack it."""
    if not isinstance(place, Array) or isinstance(place.size, Size) or isinstance(place.strides[1], Size):
        return False
    return bool(place.strides[1] > 1 and place.size * place.dtype.itemsize <= WEIGHTS)
