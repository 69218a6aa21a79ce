"""Oracles of collectives in a world of one, where a sum over ranks is what the one rank holds.

Worlds of more ranks are in tests/parallel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _same(x: Any, **attrs: Any) -> Any:
    return x


ORACLES: dict[str, Callable[..., Any]] = {
    "all_gather": _same,
    "all_reduce": _same,
    "all_reduce_max": _same,
    "all_reduce_min": _same,
    "all_to_all": _same,
    "axis_index": lambda **attrs: np.int64(0),
    "broadcast": _same,
    "gather_shards": lambda x, axis, dim, mesh: np.concatenate(list(x), axis=dim),
    "take_shards": lambda x, axis, dim, count, mesh: np.stack(np.split(x, count, axis=dim)),
    "shards_here": lambda count, mesh: np.int64(count),
    "copy_to_ranks": _same,
    "next_stage": _same,
    "permute_ranks": _same,
    "reduce_scatter": _same,
    "shard": _same,
    "start_all_gather": _same,
    "start_all_reduce": _same,
    "start_reduce_scatter": _same,
    "take_shard": _same,
    "wait_all_gather": lambda started, x, **attrs: started,
    "wait_all_reduce": lambda started, x, **attrs: started,
    "wait_reduce_scatter": lambda started, x, **attrs: started,
}
