"""Several processes and machines: meshes of ranks, collectives as ops, sharding as passes.

See docs/parallel.md. Worlds of more than one process need ``pip install 'weft[mpi]'``.
"""

from weft.base.ranks import Mesh
from weft.parallel.auto import Placement, auto
from weft.parallel.bucket import bucket
from weft.parallel.checkpoint import load
from weft.parallel.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    axis_index,
    broadcast,
    copy_to_ranks,
    permute_ranks,
    reduce_scatter,
    shard,
    take_shard,
)
from weft.parallel.cuts import Shardings
from weft.parallel.fold_shards import fold_shards
from weft.parallel.mesh import P, mesh
from weft.parallel.overlap import overlap
from weft.parallel.partition import partition
from weft.parallel.pipeline import next_stage
from weft.parallel.place_state import place_state
from weft.parallel.placing import from_parts, held_bytes, place
from weft.parallel.planner.world import planned
from weft.parallel.propagate import propagate
from weft.parallel.ring import ring_attention
from weft.parallel.schedules import Action, Schedule, Slot, schedule
from weft.parallel.threads import simulate
from weft.parallel.turn_sums import turn_sums
from weft.parallel.world import barrier, rank, size
from weft.parallel.write_out import write_out

__all__ = [
    "Action",
    "Mesh",
    "P",
    "Placement",
    "Schedule",
    "Shardings",
    "Slot",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "auto",
    "axis_index",
    "barrier",
    "broadcast",
    "bucket",
    "copy_to_ranks",
    "fold_shards",
    "from_parts",
    "held_bytes",
    "load",
    "mesh",
    "next_stage",
    "overlap",
    "partition",
    "permute_ranks",
    "place",
    "place_state",
    "planned",
    "propagate",
    "rank",
    "reduce_scatter",
    "ring_attention",
    "schedule",
    "shard",
    "simulate",
    "size",
    "take_shard",
    "turn_sums",
    "write_out",
]
