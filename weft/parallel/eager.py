"""Ops on placed tensors outside of graphs: by the rules of compiled steps, one op at a time.

An op becomes a graph of one node, which is partitioned for the cuts of its operands; so its result is cut as
in a compiled step, and where data must move all ranks move it together. Gradients are left to compiled steps,
which see all of a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from weft.base.parts import Cut, Parts, home_of
from weft.errors import GradientError, ParallelError
from weft.ir.graph import Graph, Node, Value
from weft.ir.interpret import interpret
from weft.ir.types import TensorType
from weft.ops.op import Op
from weft.parallel.cuts import whole_cut
from weft.parallel.padding import with_padding
from weft.parallel.partition import partition
from weft.parallel.placing import made_parts
from weft.parallel.propagate import propagate
from weft.tensor.dispatch import recording

_HINT = "compile the step, weft.compile(step, mesh=mesh), or use x.full()"


def evaluate_placed(
    op: Op, inputs: Sequence[Any], datas: Sequence[Any], attrs: dict[str, Any]
) -> tuple[Any, ...]:
    """The data of an op's results, of operands some of which are placed."""
    placed = [d for d in datas if type(d) is Parts]
    meshes = {d.mesh for d in placed}
    if len(meshes) > 1:
        raise ParallelError(op.name, f"operands must be on one mesh, got {', '.join(sorted(meshes))}")
    if recording() and any(t._node is not None for t in inputs):
        message = f"gradients of placed tensors are left to compiled steps, got {placed[0]}"
        raise GradientError(op.name, message, hint=f"{_HINT}; or weft.no_grad()")
    if op.effect or op.ambient or any(home_of(d.cut) for d in placed):
        raise ParallelError(op.name, f"the tensor must be whole, got {placed[0]}", hint=_HINT)
    types = tuple([TensorType(tuple(d.shape), d.dtype) for d in datas])
    cuts = tuple([d.cut if type(d) is Parts else ("",) * d.ndim for d in datas])
    (mesh,) = meshes
    try:
        graph, outs = _program(op, types, cuts, tuple(sorted(attrs.items())), mesh)
    except TypeError:  # attributes that have no hash
        graph, outs = _program.__wrapped__(op, types, cuts, tuple(sorted(attrs.items())), mesh)
    arrays = [d.part if type(d) is Parts else d for d in datas]
    results = interpret(graph, arrays)
    pairs = zip(results, outs, strict=True)
    return tuple([made_parts(x, t.shape, cut, mesh) if any(cut) else x for x, (t, cut) in pairs])


@lru_cache(1024)
def _program(
    op: Op,
    types: tuple[TensorType, ...],
    cuts: tuple[Cut, ...],
    attrs: tuple[tuple[str, Any], ...],
    mesh: str,
) -> tuple[Graph, tuple[tuple[TensorType, Cut], ...]]:
    """The graph of an op on parts, and the types and cuts of what it gives."""
    inputs = [Value(t) for t in types]
    found = op.type_rule(*types, **dict(attrs))
    outs = [Value(t) for t in ((found,) if op.outputs == 1 else found)]
    graph = Graph(op.name, inputs, [Node(op, inputs, dict(attrs), outs, None)], outs)
    graph = with_padding(graph, cuts, [whole_cut(v.type) for v in outs], mesh)
    given = {v: cut for v, cut in zip(graph.inputs, cuts, strict=True) if any(cut)}
    known = propagate(graph, mesh, given)
    ends = [known.cuts.get(v, whole_cut(v.type)) for v in known.graph.outputs]
    local = partition(graph, mesh=mesh, inputs=cuts, outputs=ends)
    return local, tuple([(v.type, cut) for v, cut in zip(outs, ends, strict=True)])
