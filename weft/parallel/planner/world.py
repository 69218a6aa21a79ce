"""A world of as many ranks as one likes, of which this process is the first, and nobody else is there.

What the others would send is taken to be what this rank has, and takes no time. So the program of a rank can
be built and run for its time and memory, though not for its results.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.base.ranks import Array, Group, Meeting, Pending, World, enter_world
from weft.errors import DomainError


class PlannedGroup(Group):
    """Some ranks, of which one is here."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def gather(self, meeting: Meeting, x: Array) -> Array:
        """The array as often as there are ranks."""
        return np.broadcast_to(x, (self.size, *x.shape))

    def exchange(self, meeting: Meeting, x: Array) -> Array:
        """From each rank the row that this one would send to itself."""
        return np.broadcast_to(x[self.rank], x.shape)

    def pass_on(self, meeting: Meeting, x: Array, target: int | None, source: int | None) -> Array | None:
        """The same array, where one would come."""
        return None if source is None else x

    def fold(self, meeting: Meeting, x: Array, fold: np.ufunc, out: Array) -> None:
        """What this rank has, in the place of a sum."""
        out[...] = x

    def start(self, meeting: Meeting, x: Array, fold: np.ufunc, out: Array, ordered: bool) -> Pending:
        """Likewise."""
        out[...] = x
        return Pending(lambda: None)


class PlannedWorld(World):
    """The first of so many ranks.

    Args:
        size: how many ranks there are.
        axes: of the mesh that programs are to get, whatever mesh they ask for; None for the one they ask for.
    """

    def __init__(self, size: int, axes: dict[str, int] | None = None) -> None:
        self.rank, self.size, self.mesh = 0, size, ""
        self.planned = axes
        self._groups: dict[Any, PlannedGroup] = {}

    def group(self, members: tuple[int, ...]) -> Group:
        """The group of some ranks, this one among them."""
        if members not in self._groups:
            self._groups[members] = PlannedGroup(members.index(0), len(members))
        return self._groups[members]


@contextmanager
def planned(ranks: int) -> Iterator[None]:
    """Be the first of so many ranks inside a block, without the others: to plan what they would do.

    Meshes, placed tensors and compiled steps are as on that rank. Calls run, too, but what others would send
    is made up.

    >>> import weft
    >>> from weft import nn, parallel as par
    >>> with par.planned(64):
    ...     mesh = par.mesh(data=8, model=8)
    ...     layer = par.place(nn.Linear(16, 64), {"*": par.P("model")}, mesh)
    ...     step = weft.compile(lambda x: layer(par.shard(x, "data")).square().mean(), mesh=mesh)
    ...     plan = step.plan(weft.ones(32, 16), cluster="dgx-h100")
    >>> plan.ranks, plan.memory["weights"]
    (64, 544.0)
    """
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise DomainError("planned", f"the number of ranks must be a positive int, got {ranks!r}")
    before = enter_world(PlannedWorld(ranks))
    try:
        yield
    finally:
        enter_world(before)
