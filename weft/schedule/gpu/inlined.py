"""What is folded along axes in the middle, computed in the kernel of the fold.

Such a fold is no part of a group, which goes through memory in its order. If what it folds is used by nobody
else, nobody has to write it: the fold computes each element where it would have read it.
"""

from __future__ import annotations

from weft.ir.graph import Node
from weft.loop.index import Index
from weft.loop.ir import Const, Value
from weft.passes.base import is_elementwise
from weft.schedule.arrays import Array
from weft.schedule.folding import fold_of
from weft.schedule.fusion import Grouping, is_reduction
from weft.schedule.gpu.folds import fold_array
from weft.schedule.region import Scope
from weft.schedule.use_def import UseDef
from weft.schedule.writer import Kernel


def find_inlined(grouping: Grouping) -> dict[int, int]:
    """By number of a fold, that of the node which it computes itself; those are in no group any more."""
    use_def, found = grouping.use_def, dict[int, int]()
    for i, node in enumerate(use_def.nodes):
        if i in grouping.groups or not is_reduction(node) or not node.attrs["axes"]:
            continue
        j = use_def.producer.get(node.inputs[0])
        if j is not None and _is_free(grouping, j, i):
            group = grouping.groups.pop(j)
            group.members.remove(j)
            found[i] = j
    return found


def _is_free(grouping: Grouping, j: int, i: int) -> bool:
    """Whether a node can leave its group, as one fold alone uses it, and the others do not need its shape."""
    use_def, node = grouping.use_def, grouping.use_def.nodes[j]
    group = grouping.groups.get(j)
    if group is None or not is_elementwise(node) or use_def.users[j] != {i}:
        return False
    if use_def.results.intersection(node.outputs):
        return False
    others = [use_def.nodes[m] for m in group.members if m != j]
    shape = node.outputs[0].type.shape
    return all(not is_reduction(n) and n.outputs[0].type.shape == shape for n in others)


def lower_inlined(scope: Scope, use_def: UseDef, fold: int, node: Node) -> None:
    """Write a fold that computes what a node gives."""
    folded, (out,) = use_def.nodes[fold], use_def.nodes[fold].outputs
    (x,) = node.outputs
    places = {v: scope.place(v) for v in node.inputs}
    memory = [v for v, p in places.items() if isinstance(p, Array) or v.type.shape == ()]
    memory = [v for v in memory if not isinstance(places[v], Const)]
    reads = [scope.array(v) for v in memory]
    axes = folded.attrs["axes"]
    kept = tuple(s for i, s in enumerate(x.type.shape) if i not in axes)
    target = scope.output(out).with_shape(kept)

    def read(k: Kernel, index: tuple[Index, ...]) -> Value:
        sources = places | dict(zip(memory, k.reads, strict=True))
        return scope.reader(k.builder, sources, {x: node}).read(x, index)

    kind = fold_of(folded.op.fold, x.type.dtype)
    name = f"{node.op.name}_{folded.op.name}"
    fold_array(scope.writer, name, reads, x.type.shape, axes, kind, target, read)
