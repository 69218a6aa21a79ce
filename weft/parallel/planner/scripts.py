"""Plans of scripts and of saved graphs: what ``weft plan`` takes."""

from __future__ import annotations

import functools
import runpy
import sys
from collections.abc import Sequence
from typing import Any

from weft.base.ranks import Mesh, enter_world, mesh_axes
from weft.base.sizes import bind
from weft.errors import ArgumentError
from weft.ir.graph import Graph
from weft.parallel.layout import whole_layout
from weft.parallel.planner.clusters import Cluster
from weft.parallel.planner.plan import Plan
from weft.parallel.planner.program import (
    as_mesh,
    kinds_by_roles,
    plan_places,
    plan_works,
    rank_arrays,
    rank_memory,
)
from weft.parallel.planner.works import measured_works, processors_here, rated_works
from weft.parallel.planner.world import PlannedWorld
from weft.parallel.staged import Staged
from weft.parallel.step import MeshBuild, MeshSettings, OnRanks, Pipeline


class _Planned(BaseException):
    """Ends a script whose step has been planned."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan


def plan_script(path: str, args: Sequence[str], mesh: str, cluster: Cluster, ranks: int = 0) -> Plan:
    """Run a script as the first rank of a world, up to the first call of a step on a mesh: the plan of that.

    Args:
        path: of the script.
        args: for it.
        mesh: that the script is to get instead of its own; "" for its own.
        cluster: where it is to run.
        ranks: how many there are, where the script's own mesh is taken.
    """
    axes = dict(mesh_axes(as_mesh(mesh, Mesh("")).text)) if mesh else None
    world = PlannedWorld(Mesh(mesh).size if mesh else max(1, ranks), axes)
    world.on_call = functools.partial(_plan_run, cluster)
    before, arguments = enter_world(world), sys.argv
    sys.argv = [path, *args]
    try:
        runpy.run_path(path, run_name="__main__")
    except _Planned as planned:
        return planned.plan
    finally:
        sys.argv = arguments
        enter_world(before)
    hint = "weft.compile(step, mesh=par.mesh(data=-1)), then call it"
    raise ArgumentError("plan", f"{path} must call a function compiled with a mesh, got none", hint=hint)


def _plan_run(cluster: Cluster, run: OnRanks, arrays: Sequence[Any]) -> None:
    """Plan what a rank is about to run."""
    graph, mesh = run.graph, Mesh(run.mesh)
    if isinstance(run.run, Staged):
        raise _Planned(_plan_pipeline(run.run.planned, cluster, run.whole))
    works = rated_works(graph, cluster.device, "f32")
    if cluster.processors:
        works = measured_works(run, run.placed(arrays), mesh.size, cluster.processors or processors_here())
    held = rank_memory(graph, kinds_by_roles(graph))
    flops = mesh.size * int(bind(graph.stats().flops, {}))
    raise _Planned(
        plan_works(graph, works, mesh, cluster, flops, held, ["operations are counted on all ranks"])
    )


def _plan_pipeline(made: Pipeline, cluster: Cluster, whole: Graph) -> Plan:
    """The plan of a pipeline, of which this process would be the first rank."""
    flops = int(bind(whole.stats().flops, {}))
    kinds = kinds_by_roles(whole)
    return plan_places(made.build, made.graphs(), made.plan, kinds, made.gradients, cluster, flops)


def plan_graph(graph: Graph, wholes: Sequence[Any], mesh: str, cluster: Cluster) -> Plan:
    """The plan of a graph of whole tensors with notes of ``par.shard`` in it."""
    from weft.backends import builder
    from weft.passes.pipeline import optimize
    from weft.passes.simplify import load_rules

    load_rules()
    planned = as_mesh(mesh, Mesh(""))
    settings = MeshSettings(planned, reproducible=False)
    build = MeshBuild(settings, optimize, builder("plan", None, {}, {}), None, ())
    last, cuts = build.of_rank(graph, whole_layout(graph))
    if cluster.processors:
        arrays = rank_arrays(last, cuts, wholes, planned)
        run = OnRanks(build.build(last), last, planned, graph, cuts)
        works = measured_works(run, run.placed(arrays), planned.size, cluster.processors)
    else:
        works = rated_works(last, cluster.device, "f32")
    held = rank_memory(last, kinds_by_roles(last))
    return plan_works(last, works, planned, cluster, int(bind(graph.stats().flops, {})), held)
