"""Collectives as a library of devices (NCCL) has them: rows of all ranks, moved or summed in any order.

The pass ``collectives_by_library`` puts them into graphs for devices, in place of ``weft.ops.collective``.
All that weft promises of sums, such as their order, is written with other ops around them.
"""

from __future__ import annotations

import numpy as np

from weft.base.ranks import axis_size, group_of, tree_fold
from weft.ir.types import TensorType
from weft.ops.collective import IN_STEP, broadcast, commit, meeting_of, permute_ranks
from weft.ops.families import lowered
from weft.ops.op import Array


def _gather(x: Array, *, axis: str, mesh: str) -> Array:
    group = group_of("library_gather", mesh, axis)
    return np.array(group.gather(meeting_of("library_gather", x.shape, x.dtype, axis), x))


def _exchange(x: Array, *, axis: str, mesh: str) -> Array:
    group = group_of("library_exchange", mesh, axis)
    return np.array(group.exchange(meeting_of("library_exchange", x.shape, x.dtype, axis), x))


def _sum(x: Array, *, axis: str, mesh: str) -> Array:
    return np.array(tree_fold(list(_gather(x, axis=axis, mesh=mesh)), np.add))


def _sum_parts(x: Array, *, axis: str, mesh: str) -> Array:
    return np.array(tree_fold(list(_exchange(x, axis=axis, mesh=mesh)), np.add))


library_gather = lowered(
    "library_gather",
    type_rule=lambda x, *, axis, mesh: TensorType(
        (axis_size("library_gather", mesh, axis), *x.shape), x.dtype
    ),
    eval=_gather,
    **IN_STEP,
)
"""``library_gather(x, axis, mesh)``: the arrays of all ranks, along a new first axis."""

library_exchange = lowered(
    "library_exchange", type_rule=lambda x, *, axis, mesh: x, eval=_exchange, **IN_STEP
)
"""``library_exchange(x, axis, mesh)``: row j of the result is what rank j has in the row of this rank."""

library_sum = lowered("library_sum", type_rule=lambda x, *, axis, mesh: x, eval=_sum, **IN_STEP)
"""``library_sum(x, axis, mesh)``: the sum over ranks, in whatever order is fastest."""

library_sum_parts = lowered(
    "library_sum_parts",
    type_rule=lambda x, *, axis, mesh: TensorType(x.shape[1:], x.dtype),
    eval=_sum_parts,
    **IN_STEP,
)
"""``library_sum_parts(x, axis, mesh)``: of that sum, the row of this rank."""

library_permute = lowered(
    "library_permute", type_rule=permute_ranks.type_rule, eval=permute_ranks.eval, **IN_STEP
)
"""``library_permute(x, axis, to, mesh)``: as ``permute_ranks``."""

library_broadcast = lowered(
    "library_broadcast", type_rule=broadcast.type_rule, eval=broadcast.eval, **IN_STEP
)
"""``library_broadcast(x, axis, root, mesh)``: as ``broadcast``."""

library_commit = lowered(
    "library_commit",
    type_rule=lambda *, axis, mesh: (),
    eval=lambda *, axis, mesh: commit.eval(mesh=mesh),
    outputs=0,
    **IN_STEP,
)
"""``library_commit(axis, mesh)``: as ``commit``, which the devices tell each other of."""

LIBRARY_COLLECTIVES = (
    library_gather, library_exchange, library_sum, library_sum_parts, library_permute, library_broadcast,
    library_commit,
)  # fmt: skip
