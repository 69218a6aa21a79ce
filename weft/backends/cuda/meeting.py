"""Programs in which ranks meet: which of their collectives devices do themselves, and what ranks agree on.

A rank that runs another program than the others would leave them waiting on their devices for good. So before
each call outside of steps that ranks agreed on already, they compare what they are about to run.
"""

from __future__ import annotations

from ast import literal_eval
from typing import Any, NoReturn

import numpy as np

from weft.backends.cuda.card import Card
from weft.backends.cuda.libraries import collectives_of, commit_of
from weft.backends.cuda.nccl import communicator, serves
from weft.backends.cuda.program import CudaProgram
from weft.base.digest import digest
from weft.base.ranks import Meeting, axis_size, group_of, world
from weft.errors import ParallelError, RankError
from weft.ir.graph import Graph
from weft.ops.collective import commit
from weft.ops.op import Op
from weft.passes.lowering.collectives_by_library import (
    LOCAL,
    MOVING,
    all_axes,
    collective_pairs,
    collectives_by_library,
)


def shared_graph(graph: Graph, card: Card, *, commits: bool = False) -> Graph:
    """A graph with the collectives that devices can do themselves as calls of NCCL; itself where none can."""
    pairs = collective_pairs(graph)
    if not pairs:
        return graph
    served = [pair for pair, moves in pairs.items() if pair[1] and _is_served(card, *pair, ask=moves)]
    if len(served) == sum(bool(axis) for _, axis in pairs):
        ask, whole = bool(served), [mesh for mesh, axis in pairs if not axis]
        served += [(mesh, "") for mesh in whole if _is_served(card, mesh, all_axes(mesh), ask=ask)]
    return collectives_by_library(graph, pairs=tuple(served), commits=commits)


def is_shared(op: Op, card: Card, attrs: dict[str, Any]) -> bool:
    """Whether an op is a collective that devices can do themselves."""
    along = op in MOVING or op in LOCAL
    return along and _is_served(card, attrs["mesh"], attrs["axis"], ask=op in MOVING)


def _is_served(card: Card, mesh: str, axis: str, *, ask: bool) -> bool:
    return _fits(mesh) and serves(card, mesh, axis, ask=ask)


def _fits(mesh: str) -> bool:
    """Whether this world is that of a mesh; who runs it elsewhere gets the error that the op has."""
    return _size(mesh) == world().size


def _size(mesh: str) -> int:
    return axis_size("mesh", mesh, all_axes(mesh))


class Meetings:
    """What ranks agree on before they run a program.

    Args:
        card: the device.
        program: of this rank.
    """

    def __init__(self, card: Card, program: CudaProgram) -> None:
        here = world()
        self._name, self._card, self._at = program.name, card, (here.rank, here.size)
        calls = collectives_of(program.steps)
        pairs = dict.fromkeys([(call.attrs["mesh"], call.attrs["axis"]) for call in calls])
        version = digest(repr(calls).encode()).hex()[:8]
        text = f"{program.name}, {len(calls)} collectives by NCCL, version {version}"
        self._meetings = [(*pair, Meeting("call", pair[1], text)) for pair in pairs]

    def check(self) -> None:
        """Raise unless this is the rank that the program is for, and all others are about to run theirs."""
        here = world()
        if (here.rank, here.size) != self._at:
            message = "a program must run on the rank {} of {} that it was compiled for".format(*self._at)
            raise ParallelError(self._name, f"{message}, got {here.rank} of {here.size}")
        for mesh, axis, meeting in self._meetings:
            if not here.trusted:
                group_of(self._name, mesh, axis).gather(meeting, np.zeros(1, np.uint8))
            communicator(self._card, self._name, mesh, axis).check(self._name)


def meetings_of(card: Card, program: CudaProgram, graph: Graph | None) -> Meetings | None:
    """What ranks agree on before they run the program of a graph; None where it is nobody else's concern."""
    if collectives_of(program.steps):
        return Meetings(card, program)
    if graph is None or shared_graph(graph, card) is graph:
        return None
    return Meetings(card, program)


def raise_elsewhere(program: CudaProgram) -> NoReturn:
    """Raise the error of another rank, of which this one's device has told."""
    step = commit_of(program.steps)
    assert step is not None, "only a program that commits knows of others"
    commit.eval(mesh=literal_eval(step.attrs)["mesh"])  # where ranks hear of each other's errors
    raise RankError(program.name, "all ranks must succeed, another one failed")
