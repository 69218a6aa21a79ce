"""Products with what follows them: elementwise ops on a matrix product or a convolution, in its own kernel.

Each element is still in a register when a bias is added to it, an activation applied, a residual added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.shapes import size_of
from weft.ir.graph import Value
from weft.loop.builder import Builder
from weft.loop.ir import Buffer
from weft.schedule.arrays import Array
from weft.schedule.cpu.matmul.epilogue import ANCHORS, Epilogue, Finish
from weft.schedule.cpu.row_kernel import RowKernel
from weft.schedule.fusion import Group, Grouping
from weft.schedule.pointwise.rules import Indices
from weft.schedule.region import Scope
from weft.schedule.strides import reshape_index
from weft.schedule.use_def import UseDef

MOST_NODES = 24  # that go on with a product


def attach_epilogues(grouping: Grouping) -> None:
    """Let groups that work on the elements of a product be part of its kernel, where they can."""
    use_def = grouping.use_def
    new_states = {use_def.root(new) for _, new in use_def.graph.updates}
    for group in {id(g): g for g in grouping.groups.values()}.values():
        updates = any(use_def.nodes[i].outputs[0] in new_states for i in group.members)
        # A product's tiles come in no order of rows, so nothing that folds rows can follow in its kernel.
        if group.frame.split is not None or len(group.members) > MOST_NODES or updates:
            continue  # updates come last, after all that may fail; the product need not wait for that
        for j in sorted(
            {j for i in group.members for j in use_def.needs[i]} - set(group.members), reverse=True
        ):
            if use_def.nodes[j].op.name in ANCHORS and _fits(grouping, group, j):
                group.anchor = j
                grouping.groups[j] = group
                group.members.insert(0, j)
                break


def _fits(grouping: Grouping, group: Group, j: int) -> bool:
    use_def = grouping.use_def
    (out,) = use_def.nodes[j].outputs
    if size_of(out.type.shape) != size_of(group.frame.shape) or j in grouping.groups:
        return False
    if not use_def.needs[j].isdisjoint(group.members):
        return False
    return grouping.is_aligned_with([j, *group.members], group.frame, out) and grouping.merge(
        j, group.members[0]
    )


def lower_with_epilogue(scope: Scope, use_def: UseDef, group: Group) -> None:
    """Write the kernel of a product whose elements a group goes on with."""
    assert group.anchor is not None
    node = use_def.nodes[group.anchor]
    (product,) = node.outputs
    inputs = [scope.array(v) for v in node.inputs]
    outputs, reads, finish = following(scope, use_def, group, product)
    writes = [scope.output(v) for v in outputs]
    out = Array(Buffer("product", product.type.dtype, size_of(product.type.shape)), product.type.shape)
    ANCHORS[node.op.name](scope.writer, node, inputs, out, Epilogue(reads, writes, finish))


def following(
    scope: Scope, use_def: UseDef, group: Group, product: Value
) -> tuple[list[Value], list[Array], Finish]:
    """What a group makes of the elements of a product, what it reads for it, and the code for an element."""
    row_kernel = RowKernel(
        scope, use_def, Group([i for i in group.members if i != group.anchor], group.frame), anchor=product
    )
    memory = row_kernel.memory()
    outputs = [*row_kernel.outputs, *[v for v in use_def.used_outside(group.members) if v is product]]

    def finish(
        b: Builder, reads: Sequence[Array], writes: Sequence[Array], index: Indices, value: Any
    ) -> None:
        sources: dict[Value, Any] = {v: scope.place(v) for v in row_kernel.external}
        sources |= dict(zip(memory, reads, strict=True))
        sources[product] = value
        reader = scope.reader(b, sources, row_kernel.inlined)
        for v, target in zip(outputs, writes, strict=True):
            same = v.type.shape == product.type.shape
            at = index if same else reshape_index(b, index, product.type.shape, v.type.shape)
            b.store(target.buffer, target.at(*at), reader.read(v, at))

    return outputs, [scope.array(v) for v in memory], finish
