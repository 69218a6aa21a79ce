"""Layouts: values that are written with their axes in another order, because they are read that way.

A reshape of a permuted value would have to copy it; if it is written in the permuted order, it is a view. And
a large convolution that only pools read is written with its channels last: in that order it is computed
fastest, and pools bring them back into theirs (``convolution.pooled``).

And weights of products in loops are brought once into the order in which every iteration reads them: the
gradient of ``x @ w`` is a product with the transpose of ``w``, whose neighbours in a row lie apart, so that
each product would have to pack them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from weft.base.sizes import Size
from weft.ir.graph import Graph, Node, Value
from weft.ops.affine import matmul_halves
from weft.ops.contract import matrix_multiply as matmul
from weft.ops.conv.biased import conv_halves
from weft.ops.conv.primitive import conv
from weft.ops.view.primitives import permute
from weft.schedule.arrays import Array
from weft.schedule.cpu.machine import Machine
from weft.schedule.cpu.matmul.plan import known
from weft.schedule.extents import sum_dtype
from weft.schedule.fusion import Group, is_reduction
from weft.schedule.region import Scope
from weft.schedule.target import Target
from weft.schedule.use_def import UseDef

MANY_POSITIONS = 512
LINE_BYTES = 1 << 17  # of a line with all channels, which a pool has on its stack
WIDE = 64  # bytes of a vector: for narrower ones we have not measured it


def find_layouts(
    use_def: UseDef, groups: Mapping[int, Group], target: Target, machine: Machine
) -> dict[Value, tuple[int, ...]]:
    """By value, the order of axes in which it is best written; those not named are written as they are."""
    found: dict[Value, tuple[int, ...]] = {}
    for node in use_def.nodes:
        permuted = node.inputs[0] if node.op.view == "flat" else None
        maker = _maker(use_def, permuted)
        if maker is None or maker.op is not permute:
            continue
        value = maker.inputs[0]
        i = use_def.producer.get(value)
        if (
            i is not None
            and value not in use_def.results
            and _can_choose(use_def.nodes[i], groups.get(i), target)
        ):
            found.setdefault(value, maker.attrs["axes"])
    for node in use_def.nodes:
        if is_pool(node) and _is_for_pools(use_def, groups, node.inputs[0], machine):
            found.setdefault(node.inputs[0], (0, *range(2, node.inputs[0].type.ndim), 1))
    return found


def is_pool(node: Node) -> bool:
    """Whether a node makes one element of each window."""
    return bool(node.op.fold_over == "windows")


def _is_for_pools(use_def: UseDef, groups: Mapping[int, Group], value: Value, machine: Machine) -> bool:
    """Whether a value is a large convolution, or computed from its elements, and read by lone pools alone."""
    i = use_def.producer.get(value)
    if i is None or value in use_def.results or value.type.ndim < 3:
        return False
    members, anchor = (groups[i].members, groups[i].anchor) if i in groups else ([i], i)
    if (
        anchor is None
        or use_def.nodes[anchor].op not in (conv, conv_halves)
        or use_def.nodes[anchor].attrs["groups"] != 1
    ):
        return False
    if use_def.nodes[anchor].outputs[0].type.shape != value.type.shape or not _is_large(value, machine):
        return False
    return all(
        is_pool(use_def.nodes[j])
        and use_def.nodes[j].inputs[0] is value
        and (j not in groups or groups[j].members == [j])
        for j in use_def.users[i] - set(members)
    )


def _is_large(value: Value, machine: Machine) -> bool:
    """Whether channels fill vectors, and positions are many beside the weights, which are turned first."""
    n, channels, *positions = value.type.shape
    if any(isinstance(s, Size) for s in (channels, *positions)):
        return False
    dtype = value.type.dtype
    fills = channels % machine.lanes(sum_dtype(dtype)) == 0
    fits = positions[-1] * channels * dtype.itemsize <= LINE_BYTES
    many = known(n) * prod(positions) >= MANY_POSITIONS
    return bool(fills and fits and many and machine.vector_bytes >= WIDE)


def _maker(use_def: UseDef, value: Value | None) -> Node | None:
    i = None if value is None else use_def.producer.get(value)
    return None if i is None else use_def.nodes[i]


def _can_choose(node: Node, group: Group | None, target: Target) -> bool:
    """Whether a node's kernel stores each element where it is told to."""
    lowering = target.lowering_of(node)
    if lowering is not None and lowering.any_layout:
        return True
    return group is not None and not is_reduction(node)


STRIP = 16  # columns of a matrix that are copied together
WEIGHTS = 1 << 18  # bytes of a matrix that a loop gets in another order: larger ones are better packed


def order_weights(scope: Scope, body: Graph, values: Sequence[Value]) -> list[Any]:
    """What stays the same in a loop; the weights of products in the order in which these read them."""
    inner = body.inputs[len(body.inputs) - len(values) :]
    products = [n for n in body.nodes if n.op in (matmul, matmul_halves)]
    weights = {n.inputs[1] for n in products if n.inputs[1].type.ndim == 2}
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
