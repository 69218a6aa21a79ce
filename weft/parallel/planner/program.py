"""Plans of compiled functions and of graphs: what a rank runs is built by the same passes, and followed.

Memory is that of the program's own plan, to the byte. Times are measured on this machine for ranks that run
on it, with collectives that take no time, or follow from what a device can do; to these come messages by the
links of the cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from weft.base.ranks import Mesh, enter_world, mesh_axes
from weft.base.sizes import bind
from weft.capture.call.replaying import input_tensors
from weft.capture.program.sources import Argument, Fixed
from weft.errors import ArgumentError, DomainError
from weft.ir.graph import Graph
from weft.ir.types import TensorType
from weft.parallel.layout import BATCH, Layout, check_zero, layout_of
from weft.parallel.placing import as_parts, whole_array
from weft.parallel.planner.clusters import Cluster, find_cluster
from weft.parallel.planner.follow import follow
from weft.parallel.planner.plan import Plan
from weft.parallel.planner.staged import called_bytes, follow_places
from weft.parallel.planner.works import Work, measured_works, processors_here, rated_works
from weft.parallel.planner.world import PlannedWorld
from weft.parallel.stage_plan import StagePlan
from weft.parallel.step import MeshBuild, OnRanks
from weft.schedule.memory_report import memory
from weft.tensor.node import Leaf
from weft.tensor.tensor import wrap

HERE = "laptop"  # the cluster for ranks on this machine, until somebody measures it


def plan_call(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    mesh: Any = None,
    cluster: Any = None,
    zero: int | None = None,
    reproducible: bool | None = None,
    measure: bool | None = None,
) -> Plan:
    """The plan of a call of a function that was compiled with a mesh; see ``GraphFunction.plan``."""
    build = function._build
    if not isinstance(build, MeshBuild):
        hint = "weft.compile(step, mesh=par.mesh(data=-1)); plan(mesh=...) may then be of any size"
        raise ArgumentError("plan", "the function must be compiled with a mesh, got one without", hint=hint)
    version, tensors = function._kept.newest, None
    if args or kwargs:
        version, tensors = function._version_for(args, kwargs)
    if version is None:
        raise function._no_graph()
    program = version.program
    given = _arguments(program) if tensors is None else tensors
    own = build.settings.mesh
    planned = own if mesh is None else as_mesh(mesh, own)
    chosen = build.settings.zero if zero is None else zero
    notes: list[str] = []
    ordered = _ordered(planned, build.settings.reproducible if reproducible is None else reproducible, notes)
    settings = build.settings._replace(mesh=planned, reproducible=ordered, zero=check_zero(chosen, planned))
    layout = layout_of(program, given, planned, settings.zero, own)
    on_mesh = build.on(settings)
    where = find_cluster(HERE if cluster is None else cluster)
    if on_mesh.is_staged:
        return _plan_staged(on_mesh, program, layout, where)
    last, cuts = on_mesh.of_rank(program.graph, layout)
    is_here = where.processors > 0 if measure is None else measure
    wholes = [whole_array(t._data) for t in input_tensors(program, given)]
    if is_here:
        arrays = rank_arrays(last, cuts, wholes, planned)
        run = OnRanks(on_mesh.build(last), last, planned, program.graph, cuts)
        works = measured_works(run, run.placed(arrays), planned.size, where.processors or processors_here())
    else:
        works = rated_works(last, where.device, "f32")
    gradients = [i for i, u in _gradient_results(program) if u]
    flops = int(bind(program.graph.stats().flops, {}))
    held = rank_memory(last, _kinds(program), gradients)
    return plan_works(last, works, planned, where, flops, held, notes, settings.zero)


def _plan_staged(build: MeshBuild, program: Any, layout: Layout, cluster: Cluster) -> Plan:
    graphs, stages = build.of_places(program.graph, layout)
    gradients = [i for i, u in _gradient_results(program) if u]
    flops = int(bind(program.graph.stats().flops, {}))
    return plan_places(build, graphs, stages, _kinds(program), gradients, cluster, flops)


def plan_places(
    build: MeshBuild,
    graphs: Sequence[Graph],
    stages: StagePlan,
    kinds: Sequence[str],
    gradients: Collection[int],
    cluster: Cluster,
    flops: float,
) -> Plan:
    """The plan of a pipeline; memory is that of the rank that needs most.

    Args:
        build: what built it.
        graphs: what each rank along it runs.
        stages: what runs where.
        kinds: for each input what it is.
        gradients: the numbers of results that are gradients.
        cluster: where it is to run.
        flops: of a step, on all ranks.
    """
    mesh, zero = build.settings.mesh, build.settings.zero
    events, parts, traffic = follow_places(graphs, build, mesh, cluster)
    memories = []
    for graph, kept in zip(graphs, stages.kept_bytes(), strict=True):
        sizes = dict.fromkeys(("weights", "optimizer", "arguments"), 0.0)
        for value, kind in zip(graph.inputs, kinds, strict=True):
            sizes[kind] += _bytes(value.type)
        sizes["gradients"] = sum(_bytes(v.type) for i, v in enumerate(graph.outputs) if i in gradients)
        memories.append({**sizes, "activations": float(kept), "working": float(called_bytes(graph, build))})
    told = f"{mesh.text}, {stages.table.name}, {stages.table.microbatches} microbatches"
    return Plan(
        graphs[0].name,
        told + f", zero={zero}" * (zero > 0),
        cluster.name,
        mesh.size,
        sum(parts.values()),
        parts,
        traffic,
        max(memories, key=lambda held: sum(held.values())),
        cluster.device.memory,
        flops,
        cluster.device.flops.get("f32", 0.0),
        events,
        ["pipelines are planned by operations and bytes, on processors, too"],
    )


def plan_works(
    graph: Graph,
    works: Sequence[Work],
    mesh: Mesh,
    cluster: Cluster,
    flops: float,
    held: dict[str, float],
    notes: Sequence[str] = (),
    zero: int = 0,
) -> Plan:
    """The plan of what a rank runs."""
    events, parts, traffic = follow(works, mesh, cluster, results=len(graph.results))
    text = mesh.text or "one rank"
    return Plan(
        graph.name,
        text + f", zero={zero}" * (zero > 0),
        cluster.name,
        mesh.size,
        sum(parts.values()),
        parts,
        traffic,
        held,
        cluster.device.memory,
        flops,
        cluster.device.flops.get("f32", 0.0),
        events,
        notes,
    )


def as_mesh(given: Any, own: Mesh) -> Mesh:
    """A mesh to plan for, of any number of ranks.

    >>> from weft import parallel as par
    >>> from weft.parallel.planner.program import as_mesh
    >>> as_mesh("data=64,model=8", par.mesh(data=1, model=1))
    mesh(data=64, model=8)
    """
    if isinstance(given, Mesh):
        return given
    if isinstance(given, dict):
        given = ",".join(f"{name}={size}" for name, size in given.items())
    if not isinstance(given, str):
        raise ArgumentError(
            "plan", f"a mesh must be text such as 'data=8,model=4', got {type(given).__name__}"
        )
    for part in given.split(","):
        name, _, size = part.partition("=")
        if not (name.isidentifier() and size.isdecimal() and int(size) > 0):
            raise DomainError("plan", f"a mesh must be text such as 'data=8,model=4', got {given!r}")
    known = set(own.sizes)
    for name in dict(mesh_axes(given)):
        if known and name not in known:
            message = f"the axes must be those of the compiled mesh ({', '.join(own.sizes)}), got {name!r}"
            raise DomainError("plan", message, hint=f"compile with par.mesh({name}=1, ...)")
    missing = [f"{name}=1" for name in own.sizes if name not in dict(mesh_axes(given))]
    return Mesh(",".join([given, *missing]) if missing else given, own.shards)


def _ordered(mesh: Mesh, wanted: bool, notes: list[str]) -> bool:
    if wanted and mesh.shards % mesh.sizes.get(BATCH, 1):
        notes.append(
            f"planned with reproducible=False: {mesh.shards} virtual shards do not divide by the ranks"
        )
        return False
    return wanted


def _arguments(program: Any) -> list[Any]:
    """Tensors of zeros for the arguments of a call."""
    types = {
        s.number: v.type
        for s, v in zip(program.sources, program.graph.inputs, strict=True)
        if isinstance(s, Argument)
    }
    empty = TensorType((), np.dtype(np.float32))
    made = [types.get(i, empty) for i in range(len(program.arguments))]
    return [wrap(np.zeros(t.shape, t.dtype)) for t in made]


def _gradient_results(program: Any) -> list[tuple[int, bool]]:
    """Of each result of a graph whether it becomes the gradient of a tensor."""
    grads = {
        program.made[leaf.number].result
        for update in program.updates
        if update.kind == "grad"
        for leaf in update.content.leaves
        if hasattr(leaf, "number")
    }
    return [(i, i in grads) for i in range(len(program.graph.outputs))]


def rank_arrays(graph: Graph, cuts: Layout, wholes: Sequence[Any], mesh: Mesh) -> list[Any]:
    """What the first rank of a mesh works on."""
    before = enter_world(PlannedWorld(mesh.size))
    try:
        found = [
            as_parts(x, cut, mesh.text).part if any(cut) else np.asarray(x)
            for x, cut in zip(wholes, cuts.inputs, strict=True)
        ]
    finally:
        enter_world(before)
    for x, value in zip(found, graph.inputs, strict=True):
        assert x.shape == tuple(value.type.shape), (value, x.shape)
    return found


def rank_memory(graph: Graph, kinds: Sequence[str], gradients: Sequence[int] = ()) -> dict[str, float]:
    """Bytes that a rank holds while it runs a graph, by what they are for.

    Args:
        graph: of the parts of a rank.
        kinds: for each input what it is: "weights", "optimizer" or "arguments".
        gradients: the numbers of results that are gradients.
    """
    report = memory(graph)
    sizes = dict.fromkeys(("weights", "optimizer", "arguments"), 0.0)
    for value, kind in zip(graph.inputs, kinds, strict=True):
        sizes[kind] += _bytes(value.type)
    kept = sum(_bytes(v.type) for i, v in enumerate(graph.outputs) if i in gradients)
    rest = int(bind(report.outputs, {})) - int(bind(report.donated, {})) - kept
    return {
        **sizes,
        "gradients": kept,
        "results": max(0, rest),
        "constants": report.constants,
        "activations": int(bind(report.arena, {})),
    }


def _kinds(program: Any) -> list[str]:
    """What each input of a program is: numbers such as the learning rate belong to the optimizer."""
    return [
        _kind(*row) for row in zip(program.sources, program.graph.roles, program.graph.inputs, strict=True)
    ]


def _kind(source: Any, role: str, value: Any) -> str:
    if role == "arg":
        return "arguments"
    is_leaf = isinstance(source, Fixed) and type(source.held._node) is Leaf
    return "weights" if is_leaf or (role == "param" and value.type.ndim) else "optimizer"


def kinds_by_roles(graph: Graph) -> list[str]:
    """What each input of a graph is, as far as its roles tell: what it changes counts as weights."""
    return ["arguments" if role == "arg" else "weights" for role in graph.roles]


def _bytes(t: Any) -> int:
    return int(np.prod(t.shape, dtype=np.int64)) * int(t.dtype.itemsize)
