"""Pipelines: what ``weft.compile`` takes for them, checked; and which stage holds which tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.base.parts import with_home
from weft.base.public import public
from weft.base.ranks import Mesh
from weft.errors import DomainError, ParallelError
from weft.ir.graph import Graph
from weft.ops import pipeline as ops
from weft.ops.op import Tensor
from weft.parallel.layout import BATCH, Layout
from weft.parallel.schedules import Schedule, schedule
from weft.parallel.stage import PIPE
from weft.parallel.stage_plan import StagePlan
from weft.parallel.world import asked, mesh_now
from weft.tensor.creation import asarray
from weft.tensor.mode import thread

if TYPE_CHECKING:
    from weft.parallel.step import MeshSettings


@public
def next_stage(x: Tensor) -> Tensor:
    """x itself, with a note that a new stage of a pipeline begins with it.

    Without notes a step is cut so that stages cost alike. Without a mesh that has the axis "pipe", and
    outside of graphs, it does nothing.

    >>> import weft
    >>> from weft import parallel as par
    >>> _ = par.mesh(data=1, pipe=1)
    >>> graph = weft.make_graph(lambda x: par.next_stage(x) * 2.0, name="f")(weft.ones(4))
    >>> print(graph.to_text(locations=False), end="")
    graph f(%x: f32[4]) {
      %0: f32[4] = next_stage(%x)
      %1: f32[4] = mul(%0, f32(2.0))
      return %1
    }
    """
    x, mesh = asarray(x), asked(mesh_now)
    if thread.capture is None or PIPE not in Mesh(mesh).sizes:
        return x
    return ops.next_stage(x)


def check_count(what: str, number: object) -> None:
    """Raise unless a setting is a positive int."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise DomainError("compile", f"{what} must be a positive int, got {number!r}")


def check_pipeline(settings: MeshSettings) -> MeshSettings:
    """The settings of a pipeline; raises for those that cannot be."""
    mesh = settings.mesh
    if isinstance(settings.schedule, Schedule) and settings.microbatches is None:
        settings = settings._replace(microbatches=settings.schedule.microbatches)
    if BATCH not in mesh.sizes:
        message = (
            f"a mesh with the axis {PIPE!r} must have {BATCH!r}, too: its batch is cut into microbatches"
        )
        raise ParallelError("compile", f"{message}, got {mesh!r}", hint=f"par.mesh({BATCH}=1, {PIPE}=...)")
    if settings.microbatches is not None:
        check_count("microbatches", settings.microbatches)
    if settings.stages is not None:
        check_count("stages", settings.stages)
    if settings.microbatches is not None or mesh.shards % mesh.sizes[BATCH] == 0:
        table_for(settings)
    return settings


def table_for(settings: MeshSettings) -> Schedule:
    """The table of a pipeline, checked."""
    mesh = settings.mesh
    ranks, microbatches = mesh.sizes[PIPE], settings.shards // mesh.sizes[BATCH]
    wanted = settings.schedule
    if isinstance(wanted, str):
        return schedule(wanted, ranks=ranks, microbatches=microbatches, stages=settings.stages)
    if not isinstance(wanted, Schedule):
        message = f"schedule must be a name or made by par.schedule, got {type(wanted).__name__}"
        raise DomainError("compile", message)
    sizes = len(wanted.rows), wanted.microbatches, wanted.stages
    expected = ranks, microbatches, settings.stages or wanted.stages
    if sizes != expected:
        told = [f"{r} ranks, {m} microbatches and {s} stages" for r, m, s in (expected, sizes)]
        raise ParallelError("compile", f"the table must be for {told[0]}, got one for {told[1]}")
    return wanted.check()


def homed(cuts: Layout, graph: Graph, plan: StagePlan, mesh: Mesh) -> Layout:
    """A layout in which what belongs to a stage is on its rank alone."""
    if mesh.sizes[PIPE] == 1:
        return cuts
    homes = plan.table.homes
    inputs, outputs = list(cuts.inputs), list(cuts.outputs)
    for i, v in enumerate(graph.inputs):
        if v in plan.homes:
            inputs[i] = with_home(inputs[i], PIPE, homes[plan.homes[v]])
    for number, stage in plan.targets.items():
        outputs[number] = with_home(outputs[number], PIPE, homes[stage])
    return cuts._replace(inputs=tuple(inputs), outputs=tuple(outputs))
