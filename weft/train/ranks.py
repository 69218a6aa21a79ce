"""A trainer on a mesh: how a batch is shared out, and who writes."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft import parallel
from weft.base.ranks import Meeting, world
from weft.errors import ArgumentError, ParallelError

BATCH, PIPE = "data", "pipe"


class Ranks:
    """The ranks that train a model together; all of them read the same batches.

    Args:
        mesh: that they are on.
        zero: what they share, see ``weft.compile``.
        reproducible: whether the bits do not depend on their number.
        microbatches: in how many parts each works on its part of a batch.
        schedule: of a pipeline.
        stages: of a pipeline.

    Attributes:
        settings: with which steps are compiled.
        is_first: whether this one writes logs and shows how far it is.
    """

    def __init__(
        self,
        mesh: parallel.Mesh,
        zero: int = 0,
        reproducible: bool = True,
        microbatches: int | None = None,
        schedule: str | parallel.Schedule = "1f1b",
        stages: int | None = None,
    ) -> None:
        if not isinstance(mesh, parallel.Mesh):
            raise ArgumentError("Trainer", f"mesh must be made by par.mesh, got {type(mesh).__name__}")
        self.mesh = mesh
        self.settings: dict[str, Any] = {"mesh": mesh, "zero": zero, "reproducible": reproducible}
        self.settings |= {"microbatches": microbatches, "schedule": schedule, "stages": stages}
        self.is_first = parallel.rank() == 0
        ranks = mesh.sizes.get(BATCH, 1)
        if isinstance(schedule, parallel.Schedule) and microbatches is None:
            microbatches = schedule.microbatches
        one_by_one = reproducible or PIPE in mesh.sizes
        self._parts = ranks * microbatches if microbatches else mesh.shards if one_by_one else ranks

    def meet_after(self, error: BaseException | None, step: int, is_broken: bool) -> bool:
        """Whether all ranks are here after one has failed, none in the midst of a change, at one step.

        All of them ask, each with the error that it got.
        """
        here = world()
        if here.size > 1 and not here.goes_on:
            return False  # ranks that are threads leave at once
        if error is not None:
            here.fail(error)
        try:
            meeting = Meeting("rescue", "", "the last step that was complete")
            found = here.group(tuple(range(here.size))).gather(meeting, np.array([step, is_broken]))
        except ParallelError:
            return False  # somebody has gone
        return bool((found == found[0]).all() and not found[0, 1])

    def shared(self, batch: Any) -> Any:
        """A batch with a note that it is cut; one that does not divide is worked on whole by every rank."""
        if BATCH not in self.mesh.sizes:
            return batch
        return weft.tree_map(lambda x: self._cut(x) if isinstance(x, weft.Tensor) else x, batch)

    def _cut(self, x: Any) -> Any:
        whole = not x.ndim or x.shape[0] == 0 or x.shape[0] % self._parts
        return x if whole else parallel.shard(x, BATCH)
