"""Pipelines shared out among the ranks of a mesh: each rank makes its part of every batch.

Batches, their order and the draws of elements are those of one process, so a position in a pipeline means the
same for every number of ranks.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from weft.base.ranks import Mesh, axis_size, place_on
from weft.data import check
from weft.data.stage import TRANSFORMS, Batch, Prefetch, Repeat, Shuffle, Skip, Stage, Take, length_of
from weft.errors import ArgumentError

_BEHIND = (Prefetch, Repeat, Shuffle, Skip, Take, *TRANSFORMS)  # what may come between batches and a shard


def sharded(last: Stage, mesh: Any, axis: str) -> Stage:
    """The stages of a pipeline with the part of this rank along an axis in each batch."""
    if not isinstance(mesh, Mesh):
        raise ArgumentError("shard", f"mesh must be made by par.mesh, got {type(mesh).__name__}")
    count = axis_size("shard", mesh.text, axis)
    return _shared_out(last, (place_on("shard", mesh.text, axis), count))


def _shared_out(stage: Stage, part: tuple[int, int]) -> Stage:
    if isinstance(stage, Batch):
        if stage.part is not None:
            raise ArgumentError("shard", "a pipeline must be shared out once, got one that is already")
        _check(stage, part[1])
        return replace(stage, part=part)
    if not isinstance(stage, _BEHIND):
        message = f"must come after batch, of which each rank gets a part, got {stage.name}"
        raise ArgumentError(
            "shard", message, hint="pipeline.batch(n).shard(mesh): n is the size for all ranks"
        )
    return replace(stage, inputs=(_shared_out(stage.inputs[0], part),))


def _check(stage: Batch, ranks: int) -> None:
    check.parts(stage.size, ranks)
    elements = length_of(stage.inputs[0])
    if stage.last == "keep" and elements is not None and elements != inf:
        check.parts(int(elements) % stage.size, ranks)
