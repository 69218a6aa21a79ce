"""The world of this process: found by what its launcher left in the environment, a world of one without."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import TypeVar

import numpy as np

from weft.base.ranks import ALONE, Meeting, World, axis_size, place_on, world
from weft.errors import ParallelError
from weft.tensor.mode import thread

# What launchers tell each process: how many there are.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS", "PALS_SIZE")


def launched_size() -> int:
    """How many processes a launcher started, 1 without one."""
    return max([int(os.environ[name]) for name in _SIZES if os.environ.get(name, "").isdecimal()], default=1)


def process_world() -> World:
    """The world of this process."""
    count = launched_size()
    if count == 1:
        return ALONE
    if find_spec("mpi4py") is None:
        message = f"a world of {count} processes needs mpi4py, which is not installed"
        raise ParallelError("parallel", message, hint="pip install 'weft[mpi]'")
    from weft.parallel.mpi import mpi_world

    return mpi_world(count)


T = TypeVar("T")


def asked(question: Callable[[], T]) -> T:
    """What a question about the world gives; graphs that are captured now hold where it gives the same."""
    answer = question()
    capture = thread.capture
    if capture is not None and capture.root.guards_reads:
        capture.root.read_call(question, answer)
    return answer


def mesh_now() -> str:
    """The text of the mesh that this world made last, "" without one."""
    return world().mesh


def rank_now() -> int:
    """The number of this rank."""
    return world().rank


def size_now() -> int:
    """The number of ranks."""
    return world().size


def rank(axis: str | None = None) -> int:
    """The number of this rank in the world, or its place along an axis of the mesh.

    >>> from weft import parallel as par
    >>> par.rank(), par.size()
    (0, 1)
    """
    number = asked(rank_now)
    return number if axis is None else place_on("rank", asked(mesh_now), axis)


def size(axis: str | None = None) -> int:
    """How many ranks the world has, or the mesh along an axis.

    >>> from weft import parallel as par
    >>> _ = par.mesh(data=1)
    >>> par.size("data")
    1
    """
    return asked(size_now) if axis is None else axis_size("size", asked(mesh_now), axis)


def barrier() -> None:
    """Wait until all ranks are here.

    >>> from weft import parallel as par
    >>> par.barrier()
    """
    here = world()
    if here.size > 1:
        group = here.group(tuple(range(here.size)))
        group.gather(Meeting("barrier", "", f"{here.size} ranks"), np.zeros(1, np.uint8))
