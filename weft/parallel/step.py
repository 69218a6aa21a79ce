"""Compiled functions on a mesh: from a graph of whole tensors to what a rank runs, and how it is called.

All ranks agree on the program before it runs, and once more before state is overwritten: either all of them
commit a call or none does. A rank that fails tells the others, which raise its error.
"""

from __future__ import annotations

import functools
import logging
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from weft.backends.backend import Arrays, Executable
from weft.base.digest import digest
from weft.base.parts import Cut, Parts, home_of
from weft.base.ranks import Meeting, Mesh, World, mesh_text, place_on, world
from weft.base.records import NamedTuple
from weft.base.sizes import Size
from weft.capture.program.donation import held_count, is_lease
from weft.capture.program.program import Program
from weft.errors import ArgumentError, ParallelError
from weft.ir.graph import Graph, Node, Value
from weft.ops import collective as ops
from weft.parallel.bucket import bucket
from weft.parallel.cuts import whole_cut
from weft.parallel.fold_shards import fold_shards
from weft.parallel.layout import (
    BATCH,
    Layout,
    along_batch,
    beside_batch,
    check_zero,
    layout_of,
    whole_layout,
)
from weft.parallel.overlap import overlap
from weft.parallel.padding import with_padding
from weft.parallel.partition import partition
from weft.parallel.pipeline import check_count, check_pipeline, homed, table_for
from weft.parallel.place_state import place_state
from weft.parallel.placing import as_parts, made_parts, whole_array
from weft.parallel.schedules import Schedule
from weft.parallel.stage import PIPE, stage
from weft.parallel.stage_plan import PIECES, StagePlan
from weft.parallel.staged import Staged
from weft.parallel.turn_sums import turn_sums
from weft.parallel.write_out import has_open_sizes, write_out
from weft.passes.base import Pass, graph_pass

_log = logging.getLogger("weft.parallel")
Rewrite = Callable[..., Graph]
Build = Callable[[Graph], Any]
# Unrolling a loop of one turn would let it be fused with what is around it: other bits than more turns have.
KEPT_APART = "unroll"
_MICROBATCH = "microbatch"


class MeshSettings(NamedTuple):
    """How a function is compiled for a mesh.

    Attributes:
        mesh: of the ranks there are.
        reproducible: whether bits must not depend on their number.
        limit: bytes that a rank may get by a reshard that nobody asked for.
        zero: what is cut over the ranks of the batch, see ``weft.compile``.
        microbatches: of a rank's part of the batch; by default as many as it has virtual shards.
        schedule: of a pipeline, by name or as a table.
        stages: of a pipeline; by default as many as the table has.
    """

    mesh: Mesh
    reproducible: bool = True
    limit: int = 1 << 20
    zero: int = 0
    microbatches: int | None = None
    schedule: str | Schedule = "1f1b"
    stages: int | None = None

    @property
    def shards(self) -> int:
        """In how many parts a batch is cut."""
        ranks = self.mesh.sizes.get(BATCH, 1)
        return self.mesh.shards if self.microbatches is None else ranks * self.microbatches

    @property
    def folds(self) -> bool:
        """Whether ranks work on one part of their batch after another."""
        return BATCH in self.mesh.sizes and (self.reproducible or self.microbatches is not None)


class Pipeline(NamedTuple):
    """What a planner must know of a pipeline.

    Attributes:
        build: what built it.
        plan: what runs where.
        graphs: makes what each rank along the pipeline runs.
        gradients: by number of a result that is the gradient of an input, the number of that.
    """

    build: MeshBuild
    plan: StagePlan
    graphs: Callable[[], list[Graph]]
    gradients: Mapping[int, int]


class MeshBuild:
    """From graphs of whole tensors to what a rank runs; see ``weft.compile``.

    Attributes:
        settings: the mesh, and how it is used.
        rewrite: how graphs are rewritten otherwise.
        build: how they are built.
        passes: to rewrite graphs with; None for the usual ones.
        off: names of passes to leave out.
    """

    def __init__(
        self,
        settings: MeshSettings,
        rewrite: Rewrite,
        build: Build,
        passes: Sequence[Any] | None,
        off: Iterable[str],
    ) -> None:
        self.settings, self.rewrite, self.build = settings, rewrite, build
        self.passes, self.off = passes, set(off)

    def __call__(self, graph: Graph, layout: Layout | None = None) -> Executable:
        """What runs a graph on this rank."""
        whole, cuts, homes = self._whole(graph, layout)
        if self.is_staged:
            return self._staged(graph, whole, cuts, [None if h is None else h[1] for h in homes])
        last = self._of_rank(whole, cuts)
        return OnRanks(self.build(last), last, self.settings.mesh, graph, cuts)

    @property
    def is_staged(self) -> bool:
        """Whether ranks run the stages of a pipeline."""
        return PIPE in self.settings.mesh.sizes and stage.name not in self.off

    def of_rank(self, graph: Graph, layout: Layout | None = None) -> tuple[Graph, Layout]:
        """What a rank runs of a graph, where all run the same; and how its inputs and outputs are cut."""
        whole, cuts, _ = self._whole(graph, layout)
        return self._of_rank(whole, cuts), cuts

    def _whole(self, graph: Graph, layout: Layout | None) -> tuple[Graph, Layout, list[Any]]:
        """A graph of whole tensors that is ready to be cut, how, and where inputs are along a pipeline."""
        _need_sizes(graph.inputs)
        mesh, usual = self.settings.mesh, self.off - {p.name for p in OWN_PASSES}
        whole = self.rewrite(graph, self.passes, disable=usual)
        if write_out.name not in self.off and write_out(whole) is not whole:
            whole = self.rewrite(self.rewrite(whole, [write_out]), self.passes, disable=usual)
        _need_sizes(v for node in whole.walk() if has_open_sizes(node) for v in node.outputs)
        for node in whole.nodes if mesh.size > 1 else ():
            if any(n.op is ops.shard for region in node.regions for n in region.walk()):
                message = "%s: all ranks do all the work of the %s at %s: what it cuts inside stays whole"
                _log.warning(message, graph.name, node.op.name, node.location)
        cuts = layout or whole_layout(whole)
        if place_state.name in self.off:
            cuts = cuts.without_batch()
        if mesh.size > 1 and cuts.is_whole and not any(node.op is ops.shard for node in whole.nodes):
            _log.warning("%s: nothing is cut: all ranks do all the work; see par.shard", graph.name)
        homes = [home_of(cut) for cut in cuts.inputs]
        cuts = cuts.without_homes()
        return with_padding(whole, cuts.inputs, cuts.results(whole), mesh.text), cuts, homes

    def _of_rank(self, whole: Graph, cuts: Layout) -> Graph:
        own = {p.name for p in OWN_PASSES}
        steps = passes_for(self.settings, cuts.inputs, cuts.results(whole))
        parts = self.rewrite(whole, [p for p in steps if p.name not in self.off])
        return self.rewrite(parts, self.passes, disable={*self.off - own, KEPT_APART})

    def on(self, settings: MeshSettings) -> MeshBuild:
        """The same for other settings, such as another mesh."""
        return MeshBuild(settings, self.rewrite, self.build, self.passes, self.off)

    def of_places(self, graph: Graph, layout: Layout | None = None) -> tuple[list[Graph], StagePlan]:
        """What each rank along a pipeline runs of a graph, and how that is cut into stages."""
        whole, cuts, homes = self._whole(graph, layout)
        plan, parts, rest = self._cut(whole, cuts, [None if h is None else h[1] for h in homes])
        return self._graphs(plan, parts, rest), plan

    def _graphs(self, plan: StagePlan, parts: Graph, rest: Sequence[Pass]) -> list[Graph]:
        """What each rank along a pipeline runs."""
        count = self.settings.mesh.sizes[PIPE]
        return [self.rewrite(parts, [stage.using(plan=plan, place=p), *rest]) for p in range(count)]

    def rewritten(self, body: Graph) -> Graph:
        """What the backend gets of a graph that a stage calls."""
        usual = {*self.off - {p.name for p in OWN_PASSES}, KEPT_APART}
        joined = body if bucket.name in self.off else self.rewrite(body, [bucket])
        return self.rewrite(joined, self.passes, disable=usual)

    def _cut(
        self, whole: Graph, cuts: Layout, places: Sequence[int | None]
    ) -> tuple[StagePlan, Graph, list[Pass]]:
        """A graph cut into stages, the graph of parts, and the passes that come after ``stage``."""
        steps = passes_for(self.settings, cuts.inputs, cuts.results(whole))
        names = [p.name for p in steps]
        at = names.index(bucket.name)
        first, rest = [p for p in steps[:at] if p.name != fold_shards.name], steps[at:]
        parts = self.rewrite(whole, first)
        table, text = table_for(self.settings), self.settings.mesh.text
        sums = self.settings.reproducible or self.settings.mesh.sizes[BATCH] > 1
        plan = StagePlan(parts, table, text, BATCH, cuts.gradients, places, PIECES if sums else 1)
        return plan, parts, [p for p in rest if p.name not in self.off]

    def _staged(self, graph: Graph, whole: Graph, cuts: Layout, places: Sequence[int | None]) -> Executable:
        """What runs the stages of this rank; inputs may be in one place along the pipeline already."""
        mesh = self.settings.mesh
        plan, parts, rest = self._cut(whole, cuts, places)
        mine = stage.using(plan=plan, place=place_on("compile", mesh.text, PIPE))
        last = self.rewrite(parts, [mine, *rest])
        table = plan.table

        def build(body: Graph) -> Any:
            return self.build(self.rewritten(body))

        text = f"{table}\nbytes kept for backward: {', '.join(f'{n:,}' for n in plan.kept_bytes())}"
        agreed = f"{parts.to_text(locations=False)}{text}"
        run = Staged(last, build, mesh.text, text)
        run.planned = Pipeline(self, plan, lambda: self._graphs(plan, parts, rest), cuts.gradients)
        return OnRanks(run, last, mesh, graph, homed(cuts, parts, plan, mesh), agreed)

    def for_program(self, program: Program, tensors: Sequence[Any]) -> Build:
        """What builds the graphs of a program, for the parts of its tensors that ranks hold now."""
        layout = layout_of(program, tensors, self.settings.mesh, self.settings.zero)

        def build(graph: Graph) -> Executable:
            if graph.roles != program.graph.roles or len(graph.updates) != len(program.graph.updates):
                return self(graph)  # a backward graph
            more = len(graph.outputs) - len(program.graph.outputs)  # what is saved for one
            whole = [whole_cut(v.type) for v in graph.outputs[len(graph.outputs) - more :]]
            return self(graph, layout._replace(outputs=(*layout.outputs, *whole)))

        return build


def mesh_builder(
    settings: Mapping[str, Any],
) -> tuple[Sequence[Pass], Callable[..., MeshBuild], frozenset[str]]:
    """The passes from a graph of whole tensors to that of a rank, what makes a builder, choices to leave out.

    Parameters that are gathered may lie otherwise in memory than whole ones, which must not change sums.
    """
    mesh = settings["mesh"]
    if not isinstance(mesh, Mesh):
        raise ArgumentError("compile", f"mesh must be made by par.mesh, got {type(mesh).__name__}")
    ordered = settings["reproducible"]
    if world().planned and mesh.shards % mesh.sizes.get(BATCH, 1):
        ordered = False  # of a script that is planned for more ranks than it knows
    zero = check_zero(settings["zero"], mesh)
    checked = MeshSettings(**{**settings, "zero": zero, "reproducible": ordered})
    if ordered != settings["reproducible"] and PIPE in mesh.sizes and checked.microbatches is None:
        checked = checked._replace(microbatches=mesh.sizes[PIPE])  # no virtual shards tell how many
    if PIPE in mesh.sizes:
        checked = check_pipeline(checked)
    elif checked.stages is not None:
        message = f"stages need a mesh with the axis {PIPE!r}, got {mesh!r}"
        raise ParallelError("compile", message, hint=f"par.mesh(data=..., {PIPE}=1)")
    if checked.microbatches is not None:
        check_count("microbatches", checked.microbatches)
    passes_for(checked, (), ())  # raises for a mesh that cannot be
    return OWN_PASSES, functools.partial(MeshBuild, checked), frozenset({"dots"} if ordered else ())


def _need_sizes(values: Iterable[Value]) -> None:
    """Raise for open sizes; the function is then captured for those of the call."""
    if any(isinstance(s, Size) for v in values for s in v.type.shape):
        raise ParallelError("compile", "a program for a mesh must have known sizes")


def passes_for(settings: MeshSettings, inputs: Sequence[Cut], results: Sequence[Cut]) -> list[Pass]:
    """The passes from a graph of whole tensors to that of a rank, in order.

    Args:
        settings: the mesh, and how it is used.
        inputs: for each input of the graph how it is cut.
        results: likewise.
    """
    mesh, ordered = settings.mesh, settings.reproducible
    beside = [[beside_batch(cut) for cut in cuts] for cuts in (inputs, results)]
    along = [[along_batch(cut) for cut in cuts] for cuts in (inputs, results)]
    given = {"inputs": beside[0], "outputs": beside[1]} if any(map(any, (*beside[0], *beside[1]))) else {}
    state: list[Pass] = []
    if any(map(any, (*along[0], *along[1]))):
        state = [
            place_state.using(mesh=mesh.text, axis=BATCH, inputs=along[0], outputs=along[1], ordered=ordered)
        ]
    committed = commit.using(mesh=mesh.text)
    if not settings.folds and PIPE not in mesh.sizes:
        cut = partition.using(mesh=mesh.text, limit=settings.limit, ordered=ordered, **given)
        return [cut, turn_sums, *state, bucket, overlap, committed]
    count = mesh.sizes[BATCH]
    if settings.shards % count:
        message = f"the {count} ranks along {BATCH!r} must divide the {mesh.shards} virtual shards of a batch"
        raise ParallelError("compile", message, hint="par.mesh(..., shards=...), or reproducible=False")
    virtual = mesh_text(tuple((n, settings.shards if n == BATCH else s) for n, s in mesh.axes))
    if virtual == mesh.text and PIPE in mesh.sizes:
        virtual += f",{_MICROBATCH}=1"  # collectives of microbatches are told from those of ranks
    cut = partition.using(mesh=virtual, limit=settings.limit, ordered=ordered, **given)
    each = settings.shards // count if PIPE in mesh.sizes else settings.microbatches
    checked = check_shards.using(shards=settings.shards, microbatches=each)
    folded = fold_shards.using(mesh=mesh.text, axis=BATCH)
    return [checked, cut, turn_sums, folded, *state, bucket, overlap, committed]


@graph_pass(once=True)
def check_shards(graph: Graph, shards: int = 1, microbatches: int | None = None) -> Graph:
    """Raise unless everything that is cut over the batch divides by the virtual shards."""
    for node in graph.nodes:
        if node.op is not ops.shard:
            continue
        for size, axes in zip(node.inputs[0].type.shape, node.attrs["cut"], strict=True):
            if BATCH in axes.split(",") and isinstance(size, int) and size % shards:
                message = f"a dimension that is cut over {BATCH!r} must divide by the {shards} virtual shards"
                hint = "par.mesh(..., shards=...) sets their number; or compile with reproducible=False"
                if microbatches is not None:
                    ranks = shards // microbatches
                    of = f"{microbatches} microbatches of {ranks} rank{'s' * (ranks != 1)}"
                    message = f"a dimension that is cut over {BATCH!r} must divide by the {of}"
                    hint = f"another batch, or weft.compile(..., microbatches=...) that divide {size}"
                where = None if node.location is None else (node.location.file, node.location.line)
                raise ParallelError("compile", f"{message}, got {size}", hint=hint, location=where)
    return graph


@graph_pass(once=True)
def commit(graph: Graph, mesh: str = "") -> Graph:
    """Let all ranks meet at the end, where something outside is overwritten after that."""
    if not graph.updates or any(node.op is ops.commit for node in graph.nodes):
        return graph
    return graph.replace(nodes=[*graph.nodes, Node(ops.commit, [], {"mesh": mesh}, [])])


OWN_PASSES: tuple[Pass, ...] = (
    write_out, check_shards, partition, turn_sums, fold_shards, place_state, stage, bucket, overlap, commit,
)  # fmt: skip


class OnRanks(Executable):
    """The program of a rank.

    Attributes:
        graph: of parts.
        whole: of whole tensors.
        run: what the backend made of it.
        form_of: what tells the form of a result; None where that follows from its type.
        sole_arrays: what tells whether inputs may be written over; None where their arrays tell.
    """

    __slots__ = (
        "_compared", "_inputs", "_meeting", "_members", "_mesh", "_results", "_shapes",
        "donated", "form_of", "graph", "run", "sole_arrays", "whole",
    )  # fmt: skip

    def __init__(
        self, run: Any, graph: Graph, mesh: Mesh, whole: Graph, cuts: Layout, agreed: str = ""
    ) -> None:
        self.run, self.graph, self.whole = run, graph, whole
        self.donated = run.donated
        self._members = tuple(range(mesh.size))
        signature = digest((agreed or graph.to_text(locations=False)).encode()).hex()
        collectives = "stages" if agreed else f"{sum(node.op.effect for node in graph.walk())} collectives"
        text = f"{graph.name}, {collectives}, version {signature[:8]}"
        self._meeting = Meeting("call", "", text)
        self._compared = False
        self._mesh = mesh.text
        self._inputs = [cut if any(cut) else None for cut in cuts.inputs]
        self._results = [cut if any(cut) else None for cut in cuts.results(whole)]
        self._shapes = [v.type.shape for v in whole.results]
        self.form_of = getattr(run, "form_of", None) if cuts.is_whole else (lambda kind: None)
        self.sole_arrays = getattr(run, "sole_arrays", None) if cuts.is_whole else self._sole_arrays

    def __call__(self, arrays: Arrays) -> Arrays:
        """Run on arrays, together with the other ranks."""
        given = self._given(arrays)
        return self._made(arrays, self._together(given, lambda: self.run(given)))

    def donating(self, arrays: Arrays, flags: Sequence[bool]) -> Arrays:
        """Likewise; flags tell of each array whether it may be overwritten."""
        given = self._given(arrays)
        return self._made(arrays, self._together(given, lambda: self.run.donating(given, flags)))

    def explain(self, arrays: Arrays | None = None) -> object:
        """What the backend says of it."""
        return self.run.explain() if arrays is None else self.run.explain(self._given(arrays))

    @property
    def mesh(self) -> str:
        """Of the ranks that run it, as text."""
        return self._mesh

    # Parts

    def placed(self, arrays: Arrays) -> list[Any]:
        """What a caller would give where this rank works on arrays: those that are cut as parts."""
        rows = zip(arrays, self._inputs, self.whole.inputs, strict=True)
        return [x if cut is None else made_parts(x, v.type.shape, cut, self._mesh) for x, cut, v in rows]

    def _given(self, arrays: Arrays) -> list[Any]:
        """What this rank works on: its part of what is cut, the whole of all else."""
        return [
            whole_array(x) if cut is None else as_parts(x, cut, self._mesh).part
            for x, cut in zip(arrays, self._inputs, strict=True)
        ]

    def _made(self, given: Sequence[Any], results: Arrays) -> list[Any]:
        """The results, those that are cut as parts; what overwrites a placed tensor is placed like it."""
        found: list[Any] = list(results)
        for i, cut in enumerate(self._results):
            if cut is not None:
                found[i] = made_parts(found[i], self._shapes[i], cut, self._mesh)
        if any(type(x) is Parts for x in given):
            places = {v: i for i, v in enumerate(self.graph.inputs)}
            for i, (old, _) in enumerate(self.graph.updates, len(self.graph.outputs)):
                data = given[places[old]]
                if type(data) is Parts and type(found[i]) is not Parts:
                    found[i] = as_parts(found[i], data.cut, data.mesh)
        return found

    def _sole_arrays(self, places: Sequence[int]) -> Callable[[list[Any]], bool]:
        """What tells of the inputs of a call whether those at places are held by their tensors alone."""
        cuts, held = [(i, self._inputs[i]) for i in places], held_count()

        def sole(arrays: list[Any]) -> bool:
            for i, cut in cuts:
                x = arrays[i]
                alone = x.is_sole if type(x) is Parts else x.base is None or is_lease(x.base)
                fits = (type(x) is Parts and x.cut == cut) if cut is not None else type(x) is np.ndarray
                del x
                if not (alone and fits and getrefcount(arrays[i]) == held):
                    return False
            return True

        return sole

    # Calls

    def _together(self, arrays: Arrays, call: Callable[[], Arrays]) -> Arrays:
        """Call after all ranks agreed on it; tell them if it fails."""
        here = world()
        if here.on_call is not None:
            here.on_call(self, arrays)
        if here.size == 1:
            return call()
        self._agree(here, arrays)
        here.trusted = True
        try:
            return call()
        except BaseException as error:
            here.fail(error)
            raise
        finally:
            here.trusted = False

    def _agree(self, here: World, arrays: Arrays) -> None:
        """Raise unless all ranks run this program, on inputs that are alike: all of them before the first
        run, then of each argument the beginning.
        """
        if here.size != len(self._members):
            message = f"a program for {len(self._members)} ranks must run in a world of so many"
            raise ParallelError("call", f"{message}, got {here.size}")
        roles = self.graph.roles
        wanted = [
            self._inputs[i] is None and (role == "arg" or not self._compared) for i, role in enumerate(roles)
        ]
        if self._compared:  # to look at what is on a device would wait for all that it has to do
            wanted = [w and not _is_elsewhere(x) for w, x in zip(wanted, arrays, strict=True)]
        places = [i for i, is_wanted in enumerate(wanted) if is_wanted]
        most = _LOOKED_AT if self._compared else None
        words = np.array([_checksum(arrays[i], most) for i in places], np.uint32)
        meeting = self._meeting._replace(axis="" if self._compared else "all inputs compared")
        found = here.group(self._members).gather(meeting, words)
        for number, column in enumerate(found.T):
            if (column != column[0]).any():
                raise self._unlike(places[number], int(np.argmax(column != column[0])))
        self._compared = True

    def _unlike(self, number: int, rank: int) -> ParallelError:
        role, value = self.graph.roles[number], self.graph.inputs[number]
        what = "argument" if role == "arg" else "tensor"
        name = f"{what} {value.name}" if value.name else what
        hint = "give all ranks the whole batch; each takes its part by itself"
        if role != "arg":
            hint = "seed all ranks alike before models are made, or par.broadcast what they hold"
        message = f"the {name} ({value.type}) must be the same on all ranks, got other values on rank {rank}"
        return ParallelError(self.graph.name, message, hint=hint)


_LOOKED_AT = 1 << 12  # bytes of an argument that are compared at each call


def _is_elsewhere(array: Any) -> bool:
    """Whether an array is on a device."""
    return hasattr(array, "to_host")


def _checksum(array: Any, most: int | None) -> int:
    """A number that tells arrays apart, by all their bytes or by the first ones."""
    array = array.to_host() if _is_elsewhere(array) else array
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return zlib.crc32((flat if most is None else flat[:most]).data)
