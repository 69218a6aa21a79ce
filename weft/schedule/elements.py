"""One element of an array changed, as in ``x[i, j] = v``: a store in the main function.

The copy of the array that comes before it goes away where the array is not used any more (``elide_copies``).
"""

from __future__ import annotations

from weft.ir.graph import Node
from weft.ops.index import scatter_add_nd, scatter_nd
from weft.schedule.arrays import Array
from weft.schedule.pointwise.lookups import bounds_values, place_on_axis
from weft.schedule.region import Failure, Scope


def changes_element(node: Node) -> bool:
    """Whether a node changes one element of an array."""
    if node.op not in (scatter_nd, scatter_add_nd):
        return False
    x, v, *indices = node.inputs
    return v.type.shape == () and len(indices) == len(x.type.shape) > 0


def change_element(scope: Scope, node: Node) -> None:
    """Write the change into the main function."""
    x, v, *indices = node.inputs
    b = scope.writer.main
    value = scope.scalar(v)
    places = []
    for axis, index in enumerate(indices):
        number, size = scope.scalar(index), x.type.shape[axis]
        place, outside = place_on_axis(b, number, size)
        failure = scope.writer.failure(Failure(node, "bounds"))
        b.fail(outside, failure, *bounds_values(b, axis, size, number))
        places.append(place)
    source, out = scope.array(x), scope.output(node.outputs[0])
    scope.writer.copy(source, out)
    at = Array(out.buffer, out.shape, out.strides, out.offset).at(*places)
    if node.op is scatter_add_nd:
        value = b.add(b.load(out.buffer, at), value)
    b.store(out.buffer, at, value)
