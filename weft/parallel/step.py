"""Compiled functions on a mesh: from a graph of whole tensors to what a rank runs, and how it is called.

All ranks agree on the program before it runs, and once more before state is overwritten: either all of them
commit a call or none does. A rank that fails tells the others, which raise its error.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft.backends.backend import Arrays, Executable
from weft.base.digest import digest
from weft.base.ranks import Meeting, Mesh, World, mesh_text, world
from weft.base.sizes import Size
from weft.errors import ArgumentError, ParallelError
from weft.ir.graph import Graph, Node
from weft.ops import collective as ops
from weft.parallel.bucket import bucket
from weft.parallel.fold_shards import fold_shards
from weft.parallel.overlap import overlap
from weft.parallel.partition import partition
from weft.passes.base import Pass, graph_pass

_log = logging.getLogger("weft.parallel")
BATCH = "data"  # the axis along which results do not depend on the number of ranks
Rewrite = Callable[..., Graph]
Build = Callable[[Graph], Any]
# Unrolling a loop of one turn would let it be fused with what is around it: other bits than more turns have.
KEPT_APART = "unroll"


def mesh_builder(
    mesh: Mesh, reproducible: bool, limit: int
) -> tuple[Sequence[Pass], Callable[..., Executable]]:
    """The passes from a graph of whole tensors to that of a rank, and what makes its executable by them.

    That is a function of a graph, and of how graphs are rewritten and built otherwise.
    """
    if not isinstance(mesh, Mesh):
        raise ArgumentError("compile", f"mesh must be made by par.mesh, got {type(mesh).__name__}")
    own = passes_for(mesh, reproducible, limit)
    names = {p.name for p in own}

    def make(
        graph: Graph, rewrite: Rewrite, build: Build, passes: Sequence[Any] | None, off: Iterable[str]
    ) -> Executable:
        _need_sizes(graph)
        left_out = set(off)
        whole = rewrite(graph, passes, disable=left_out - names)
        if mesh.size > 1 and not any(node.op is ops.shard for node in whole.nodes):
            _log.warning("%s: nothing is cut: all ranks do all the work; see par.shard", graph.name)
        parts = rewrite(whole, [p for p in own if p.name not in left_out])
        last = rewrite(parts, passes, disable={*left_out - names, KEPT_APART})
        return OnRanks(build(last), last, mesh)

    return own, make


def _need_sizes(graph: Graph) -> None:
    """Raise for a graph with open sizes; the function is then captured for those of the call."""
    made = (v for node in graph.walk() for v in node.outputs)
    if any(isinstance(s, Size) for v in (*graph.inputs, *made) for s in v.type.shape):
        raise ParallelError("compile", "a program for a mesh must have known sizes")


def passes_for(mesh: Mesh, reproducible: bool, limit: int) -> list[Pass]:
    """The passes from a graph of whole tensors to that of a rank, in order."""
    committed = commit.using(mesh=mesh.text)
    if not reproducible or BATCH not in mesh.sizes:
        cut = partition.using(mesh=mesh.text, limit=limit, ordered=reproducible)
        return [cut, bucket, overlap, committed]
    count = mesh.sizes[BATCH]
    if mesh.shards % count:
        message = f"the {count} ranks along {BATCH!r} must divide the {mesh.shards} virtual shards of a batch"
        raise ParallelError("compile", message, hint="par.mesh(..., shards=...), or reproducible=False")
    virtual = mesh_text(tuple((n, mesh.shards if n == BATCH else s) for n, s in mesh.axes))
    cut = partition.using(mesh=virtual, limit=limit, ordered=True)
    checked = check_shards.using(shards=mesh.shards)
    return [checked, cut, fold_shards.using(mesh=mesh.text, axis=BATCH), bucket, overlap, committed]


@graph_pass(once=True)
def check_shards(graph: Graph, shards: int = 1) -> Graph:
    """Raise unless everything that is cut over the batch divides by the virtual shards."""
    for node in graph.nodes:
        if node.op is not ops.shard:
            continue
        for size, axes in zip(node.inputs[0].type.shape, node.attrs["cut"], strict=True):
            if BATCH in axes.split(",") and isinstance(size, int) and size % shards:
                message = f"a dimension that is cut over {BATCH!r} must divide by the {shards} virtual shards"
                hint = "par.mesh(..., shards=...) sets their number; or compile with reproducible=False"
                where = None if node.location is None else (node.location.file, node.location.line)
                raise ParallelError("compile", f"{message}, got {size}", hint=hint, location=where)
    return graph


@graph_pass(once=True)
def commit(graph: Graph, mesh: str = "") -> Graph:
    """Let all ranks meet at the end, where something outside is overwritten after that."""
    if not graph.updates or any(node.op is ops.commit for node in graph.nodes):
        return graph
    return graph.replace(nodes=[*graph.nodes, Node(ops.commit, [], {"mesh": mesh}, [])])


class OnRanks(Executable):
    """The program of a rank.

    Attributes:
        graph: of parts.
        run: what the backend made of it.
    """

    __slots__ = ("_compared", "_meeting", "_members", "donated", "graph", "run")

    def __init__(self, run: Any, graph: Graph, mesh: Mesh) -> None:
        self.run, self.graph = run, graph
        self.donated = run.donated
        self._members = tuple(range(mesh.size))
        signature = digest(graph.to_text(locations=False).encode()).hex()
        collectives = sum(node.op.effect for node in graph.walk())
        text = f"{graph.name}, {collectives} collectives, version {signature[:8]}"
        self._meeting = Meeting("call", "", text)
        self._compared = False

    def __call__(self, arrays: Arrays) -> Arrays:
        """Run on arrays, together with the other ranks."""
        return self._together(arrays, lambda: self.run(arrays))

    def donating(self, arrays: Arrays, flags: Sequence[bool]) -> Arrays:
        """Likewise; flags tell of each array whether it may be overwritten."""
        return self._together(arrays, lambda: self.run.donating(arrays, flags))

    def explain(self, arrays: Arrays | None = None) -> object:
        """What the backend says of it."""
        return self.run.explain() if arrays is None else self.run.explain(arrays)

    def _together(self, arrays: Arrays, call: Callable[[], Arrays]) -> Arrays:
        """Call after all ranks agreed on it; tell them if it fails."""
        here = world()
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
        places = [i for i, role in enumerate(roles) if role == "arg" or not self._compared]
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


def _checksum(array: Any, most: int | None) -> int:
    """A number that tells arrays apart, by all their bytes or by the first ones."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return zlib.crc32((flat if most is None else flat[:most]).data)
