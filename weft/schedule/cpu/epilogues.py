"""Products with what follows them: elementwise ops on a matrix product or a convolution, in its own kernel.

A lowering of products computes elements in registers and hands each to an ``Epilogue``, which writes the code
that uses it: so a bias, an activation or a residual costs no pass over memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.dtypes import DType
from weft.base.records import dataclass
from weft.base.shapes import size_of
from weft.ir.graph import Node, Value
from weft.loop import ir
from weft.loop.builder import Builder
from weft.schedule.arrays import Array, reshape_index
from weft.schedule.cpu.row_kernel import RowKernel
from weft.schedule.extents import sum_instruction
from weft.schedule.fusion import Group, Grouping
from weft.schedule.group_code import array_key, key_of
from weft.schedule.pointwise.rules import Indices
from weft.schedule.region import Scope
from weft.schedule.target import lowers
from weft.schedule.use_def import UseDef
from weft.schedule.writer import Writer, unflattened

Anchor = Callable[[Writer, Node, Sequence[Array], Array, "Epilogue | None"], None]
Finish = Callable[[Builder, Sequence[Array], Sequence[Array], Indices, ir.Value], None]


@dataclass(frozen=True)
class Epilogue:
    """Code for each element of a product.

    A product that is stored with a bias added:

    >>> from weft.schedule.cpu.epilogues import Epilogue
    >>> def biased(out, bias):
    ...     def finish(b, reads, writes, index, value):
    ...         value = b.add(value, b.load(reads[0].buffer, reads[0].at(index[-1])))
    ...         b.store(writes[0].buffer, writes[0].at(*index), value)
    ...     return Epilogue([bias], [out], finish)

    Attributes:
        reads, writes: arrays that it uses; the kernel of the product gets them as parameters.
        finish: ``finish(builder, reads, writes, index, value)`` writes the code for one element: it gets the
            arrays as they are in the kernel, the index of the element in the product's result, one term for
            each axis, and its value, of the result's dtype. One of the axes, mostly the last, may go by the
            variable of a vector loop.
        key: what tells all about that code, and about the arrays; None where nobody can tell.
    """

    reads: Sequence[Array]
    writes: Sequence[Array]
    finish: Finish
    key: Any = None


ANCHORS: dict[str, Anchor] = {}


def anchors(name: str) -> Callable[[Anchor], Anchor]:
    """Enter the lowering of an op whose elements an epilogue may take; without one they are stored."""

    def enter(anchor: Anchor) -> Anchor:
        ANCHORS[name] = anchor
        lowers(name, target="cpu", any_layout=True)(
            lambda writer, node, inputs, outputs: anchor(writer, node, inputs, outputs[0], None)
        )
        return anchor

    return enter


def storing(out: Array) -> Epilogue:
    """The epilogue that stores the product."""

    def finish(
        b: Builder, reads: Sequence[Array], writes: Sequence[Array], index: Indices, value: ir.Value
    ) -> None:
        b.store(writes[0].buffer, writes[0].at(*index), value)

    return Epilogue([], [out], finish, ("store", array_key(out)))


def add_parts(writer: Writer, parts: Array, epilogue: Epilogue, dtype: DType) -> None:
    """Add parts of a product, which lie along the first axis, in order; an epilogue gets the sums."""
    count, shape = parts.shape[0], parts.shape[1:]
    key = None if epilogue.key is None else ("add_parts", array_key(parts), dtype, epilogue.key)
    if writer.launch_again(key, [parts, *epilogue.reads, *epilogue.writes]):
        return
    with writer.kernel("add_parts", [parts, *epilogue.reads], epilogue.writes, key=key) as kernel:
        b, source = kernel.builder, kernel.reads[0]
        with b.parallel(size_of(shape[:-1])) as row, b.vector(shape[-1]) as j:
            index = (*unflattened(b, row, shape[:-1]), j)
            total = b.local(0, source.dtype)
            with b.loop(count) as c:
                part = b.load(source.buffer, source.at(c, *index))
                b.set(total, getattr(b, sum_instruction(part.dtype))(b.get(total), part))
            epilogue.finish(b, kernel.reads[1:], kernel.writes, index, b.cast(b.get(total), dtype))


MOST_NODES = 24  # that go on with a product


def attach_epilogues(grouping: Grouping, takes: Callable[[Node], bool] | None = None) -> None:
    """Let groups that work on the elements of a product be part of its kernel, where they can.

    ``takes`` tells whether the kernel of a node does; else all do whose op has an anchor.
    """
    takes = takes or _is_anchor
    use_def = grouping.use_def
    for group in {id(g): g for g in grouping.groups.values()}.values():
        # A product's tiles come in no order of rows, so nothing that folds rows can follow in its kernel.
        if group.frame.split is not None or len(group.members) > MOST_NODES:
            continue
        if makes_states(use_def, group):
            continue  # updates come last, after all that may fail; the product need not wait for that
        for j in sorted(
            {j for i in group.members for j in use_def.needs[i]} - set(group.members), reverse=True
        ):
            if takes(use_def.nodes[j]) and fits(grouping, group, j):
                group.anchor = j
                grouping.groups[j] = group
                group.members.insert(0, j)
                break


def _is_anchor(node: Node) -> bool:
    return node.op.name in ANCHORS


def makes_states(use_def: UseDef, group: Group) -> bool:
    """Whether a group makes new values of what a graph updates."""
    new_states = {use_def.root(new) for _, new in use_def.graph.updates}
    return any(use_def.nodes[i].outputs[0] in new_states for i in group.members)


def fits(grouping: Grouping, group: Group, j: int) -> bool:
    """Whether a group can go on with the elements of a node; their clusters are one then."""
    use_def = grouping.use_def
    (out,) = use_def.nodes[j].outputs
    if size_of(out.type.shape) != size_of(group.frame.shape) or j in grouping.groups:
        return False
    if not use_def.needs[j].isdisjoint(group.members):
        return False
    aligned = grouping.is_aligned_with([j, *group.members], group.frame, out)
    return aligned and grouping.merge(j, group.members[0])


def lower_with_epilogue(scope: Scope, use_def: UseDef, group: Group, anchor: Anchor | None = None) -> None:
    """Write the kernel of a product whose elements a group goes on with; by default with its op's anchor."""
    assert group.anchor is not None
    node = use_def.nodes[group.anchor]
    (product,) = node.outputs
    inputs = [scope.array(v) for v in node.inputs]
    outputs, reads, finish, key = following(scope, use_def, group, product)
    writes = [scope.output(v) for v in outputs]
    out = Array(ir.Buffer("product", product.type.dtype, size_of(product.type.shape)), product.type.shape)
    epilogue = Epilogue(reads, writes, finish, key(writes))
    write = anchor or ANCHORS[node.op.name]
    write(scope.writer, node, inputs, out, epilogue)


def following(
    scope: Scope, use_def: UseDef, group: Group, product: Value
) -> tuple[list[Value], list[Array], Finish, Callable[[Sequence[Array]], Any]]:
    """What a group makes of the elements of a product, what it reads for it, and the code for an element.

    And what tells all about that code, by the arrays that it writes.
    """
    others = Group([i for i in group.members if i != group.anchor], group.frame)
    row_kernel = RowKernel(scope, use_def, others, anchor=product)
    memory = row_kernel.memory()
    outputs = [*row_kernel.outputs, *[v for v in use_def.used_outside(group.members) if v is product]]
    arrays = [scope.array(v) for v in memory]

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

    def key(writes: Sequence[Array]) -> Any:
        targets = dict(zip(outputs, writes, strict=True))
        found = key_of(row_kernel, dict(zip(memory, arrays, strict=True)), targets)
        return None if found is None else (*found, product.type.shape, product.type.dtype)

    return outputs, arrays, finish, key
