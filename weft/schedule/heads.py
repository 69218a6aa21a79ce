"""Products with what follows them: elementwise ops on a matrix product or a convolution, in its own kernel.

Each element is still in a register when a bias is added to it, an activation applied, a residual added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.shapes import size_of
from weft.ir.graph import Node, Value
from weft.loop.builder import Builder
from weft.loop.ir import Buffer
from weft.schedule.arrays import Array
from weft.schedule.band import Band
from weft.schedule.convolution import lower_conv
from weft.schedule.groups import Group, Grouping
from weft.schedule.matmul import lower_matmul
from weft.schedule.matmul_tail import Finish, Tail
from weft.schedule.points import Indices
from weft.schedule.region import Scope
from weft.schedule.units import Web
from weft.schedule.views import reshape_index

Head = Callable[[Any, Node, Sequence[Array], Array, Tail], None]

HEADS: dict[str, Head] = {
    "matmul": lambda writer, node, inputs, out, tail: lower_matmul(writer, inputs[0], inputs[1], out, tail),
    "conv": lambda writer, node, inputs, out, tail: lower_conv(
        writer, inputs[0], inputs[1], out, node.attrs, tail
    ),
}


MOST_NODES = 24  # that go on with a product


def attach_heads(grouping: Grouping) -> None:
    """Let groups that work on the elements of a product be part of its kernel, where they can."""
    web = grouping.web
    new_states = {web.root(new) for _, new in web.graph.updates}
    for group in {id(g): g for g in grouping.groups.values()}.values():
        updates = any(web.nodes[i].outputs[0] in new_states for i in group.members)
        if group.frame.split is not None or len(group.members) > MOST_NODES or updates:
            continue  # updates come last, after all that may fail; the product need not wait for that
        for j in sorted({j for i in group.members for j in web.needs[i]} - set(group.members), reverse=True):
            if web.nodes[j].op.name in HEADS and _fits(grouping, group, j):
                group.head = j
                grouping.groups[j] = group
                group.members.insert(0, j)
                break


def _fits(grouping: Grouping, group: Group, j: int) -> bool:
    web = grouping.web
    (out,) = web.nodes[j].outputs
    if size_of(out.type.shape) != size_of(group.frame.shape) or j in grouping.groups:
        return False
    if not web.needs[j].isdisjoint(group.members):
        return False
    return grouping.is_aligned_with([j, *group.members], group.frame, out) and grouping.merge(
        j, group.members[0]
    )


def lower_with_head(scope: Scope, web: Web, group: Group, name: str) -> None:
    """Write the kernel of a product whose elements a group goes on with."""
    assert group.head is not None
    node = web.nodes[group.head]
    (product,) = node.outputs
    inputs = [scope.array(v) for v in node.inputs]
    outputs, reads, finish = following(scope, web, group, product)
    writes = [scope.output(v) for v in outputs]
    out = Array(Buffer("product", product.type.dtype, size_of(product.type.shape)), product.type.shape)
    HEADS[node.op.name](scope.writer, node, inputs, out, Tail(reads, writes, finish))


def following(
    scope: Scope, web: Web, group: Group, product: Value
) -> tuple[list[Value], list[Array], Finish]:
    """What a group makes of the elements of a product, what it reads for it, and the code for an element."""
    band = Band(scope, web, Group([i for i in group.members if i != group.head], group.frame), head=product)
    memory = band.memory()
    outputs = [*band.outputs, *[v for v in web.used_outside(group.members) if v is product]]

    def finish(
        b: Builder, reads: Sequence[Array], writes: Sequence[Array], index: Indices, value: Any
    ) -> None:
        sources: dict[Value, Any] = {v: scope.place(v) for v in band.external}
        sources |= dict(zip(memory, reads, strict=True))
        sources[product] = value
        reader = scope.reader(b, sources, band.inlined)
        for v, target in zip(outputs, writes, strict=True):
            same = v.type.shape == product.type.shape
            at = index if same else reshape_index(reader, index, product.type.shape, v.type.shape)
            b.store(target.buffer, target.at(*at), reader.read(v, at))

    return outputs, [scope.array(v) for v in memory], finish
