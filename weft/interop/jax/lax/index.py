"""Gather and scatter of lax, by weft's: from and to places of the first axes, which indices tell.

The axes of an operand that an index or a window moves along come first, those that are taken whole last. An
index then has the axes of the batch, and after them one for each axis that a window runs along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import weft
from weft.base.dtypes import bool_, kind
from weft.interop.forms.elements import as_number, astype, highest, lowest, neutral, numbers_below
from weft.interop.forms.scatter import scatter_at
from weft.interop.jax.calls import Call, lax, sizes_of
from weft.ops.index import gather_nd


class _Plan(NamedTuple):
    """How an operand meets its indices.

    Attributes:
        moved: its axes that indices or windows move along.
        whole: its other axes.
        windows: those of ``moved`` that a window runs along.
        indices: for each of ``moved``, where it is read or written.
        valid: for each place of the batch whether its window lies inside, or None if all do.
        batch: the shape of the batch.
    """

    moved: tuple[int, ...]
    whole: tuple[int, ...]
    windows: tuple[int, ...]
    indices: tuple[Any, ...]
    valid: Any
    batch: tuple[Any, ...]


def _plan(
    x: Any,
    starts: Any,
    sizes: Sequence[Any],
    index_map: Sequence[int],
    dropped: Sequence[int],
    batching: Sequence[tuple[int, int]],
    mode: Any,
) -> _Plan:
    """The plan of a gather, or of a scatter.

    Args:
        x: the operand.
        starts: where windows begin, along the last axis one number for each of ``index_map``.
        sizes: of a window.
        index_map: the axes that the numbers are for.
        dropped: axes that the result or the update does not have.
        batching: axes of the operand, each with the axis of ``starts`` that runs along with it.
        mode: what becomes of windows that do not lie inside.
    """
    batch = starts.shape[:-1]
    together = dict(batching)
    moved = tuple(
        d for d in range(x.ndim) if d in index_map or d in together or d in dropped or sizes[d] != x.shape[d]
    )
    windows = tuple(d for d in moved if d not in dropped and d not in together)
    starts = astype(starts, weft.int64)
    firsts = {d: starts[..., k] for k, d in enumerate(index_map)}
    firsts, valid = _inside(x, firsts, sizes, mode)
    full = len(batch) + len(windows)
    indices = []
    for d in moved:
        index: Any = weft.zeros((1,) * full, dtype=weft.int64)
        if d in firsts:
            index = weft.reshape(firsts[d], (*batch, *[1] * len(windows)))
        elif d in together:
            index = numbers_below(x.shape[d], full - 1 - together[d])
        if d in windows:
            index = index + numbers_below(sizes[d], len(windows) - 1 - windows.index(d))
        indices.append(index)
    shape = (*batch, *[sizes[d] for d in windows])
    whole = tuple(d for d in range(x.ndim) if d not in moved)
    return _Plan(moved, whole, windows, tuple(weft.broadcast_to(i, shape) for i in indices), valid, batch)


def _inside(x: Any, firsts: dict[int, Any], sizes: Sequence[Any], mode: Any) -> tuple[dict[int, Any], Any]:
    """Where windows begin, moved inside, and which of them were there before."""
    if "PROMISE" in str(mode):
        return firsts, None
    valid: Any = None
    moved = {}
    for d, first in firsts.items():
        last = as_number(x.shape[d] - sizes[d])
        ok = weft.logical_and(first >= 0, weft.less_equal(first, last))
        valid = ok if valid is None else weft.logical_and(valid, ok)
        moved[d] = weft.minimum(weft.maximum(first, 0), last)
    return moved, None if "CLIP" in str(mode) else valid


@lax("gather")
def gather(call: Call, x: Any, starts: Any, *, dimension_numbers: Any, mode: Any, **given: Any) -> Any:
    """Windows of x at places."""
    d = dimension_numbers
    batching = list(zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True))
    mode = "CLIP" if "PROMISE" in str(mode) else mode  # what XLA does with a promise that is not kept
    plan = _plan(
        x, starts, sizes_of(given["slice_sizes"]), d.start_index_map, d.collapsed_slice_dims, batching, mode
    )
    out = gather_nd(weft.permute_dims(x, (*plan.moved, *plan.whole)), *plan.indices) if plan.moved else x
    if plan.valid is not None:
        mask = weft.reshape(plan.valid, (*plan.batch, *[1] * (out.ndim - len(plan.batch))))
        out = weft.where(mask, out, weft.full((), _fill(x.dtype, given["fill_value"]), dtype=x.dtype))
    return weft.permute_dims(out, _result_order(plan, d, out.ndim))


def _result_order(plan: _Plan, d: Any, rank: int) -> tuple[int, ...]:
    """For each axis of the result, the one it is of (batch, windows, whole)."""
    count = len(plan.batch)
    own = {axis: count + k for k, axis in enumerate((*plan.windows, *plan.whole))}
    kept = iter(sorted(own))
    batch = iter(range(count))
    return tuple(own[next(kept)] if p in d.offset_dims else next(batch) for p in range(rank))


def _fill(dtype: Any, value: Any) -> Any:
    if value is not None:
        return value
    if kind(dtype) in "fc":
        return float("nan")
    return lowest(dtype) if kind(dtype) == "i" else highest(dtype)


# Scatter


def _scatter(how: str) -> Any:
    def rule(
        call: Call, x: Any, starts: Any, update: Any, *, dimension_numbers: Any, mode: Any, **rest: Any
    ) -> Any:
        d = dimension_numbers
        batching = list(zip(d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True))
        sizes = _window_sizes(x, update, d)
        plan = _plan(x, starts, sizes, d.scatter_dims_to_operand_dims, d.inserted_window_dims, batching, mode)
        order = (*plan.moved, *plan.whole)
        given = weft.permute_dims(update, _update_order(plan, d, update.ndim))
        out = _written(how, weft.permute_dims(x, order), given, plan)
        return weft.permute_dims(out, tuple(order.index(i) for i in range(x.ndim)))

    return rule


def _window_sizes(x: Any, update: Any, d: Any) -> list[Any]:
    """The sizes of a window along each axis of the operand."""
    rest = iter(d.update_window_dims)
    gone = (*d.inserted_window_dims, *d.operand_batching_dims)
    return [1 if axis in gone else update.shape[next(rest)] for axis in range(x.ndim)]


def _update_order(plan: _Plan, d: Any, rank: int) -> tuple[int, ...]:
    """The axes of the update in the order (batch, windows, whole)."""
    batch = [p for p in range(rank) if p not in d.update_window_dims]
    kept = sorted((*plan.windows, *plan.whole))
    place = dict(zip(kept, d.update_window_dims, strict=True))
    return (*batch, *[place[axis] for axis in (*plan.windows, *plan.whole)])


def _written(how: str, x: Any, given: Any, plan: _Plan) -> Any:
    """x, moved axes first, with an update."""
    if plan.moved and plan.valid is not None:
        if how == "set":
            return _written_inside(x, given, plan)
        mask = weft.reshape(plan.valid, (*plan.batch, *[1] * (given.ndim - len(plan.batch))))
        given = weft.where(mask, given, weft.full((), neutral(how, x.dtype), dtype=x.dtype))
    return scatter_at(x, plan.indices, given, how)


def _written_inside(x: Any, given: Any, plan: _Plan) -> Any:
    """Windows that do not lie inside are written to one more place, which is then cut off."""
    more = weft.pad(x, ((0, 1), *[(0, 0)] * (x.ndim - 1)), value=False if x.dtype == bool_ else 0)
    shape = plan.indices[0].shape
    valid = weft.reshape(plan.valid, (*plan.batch, *[1] * (len(shape) - len(plan.batch))))
    first = weft.where(valid, plan.indices[0], as_number(x.shape[0]))
    return scatter_at(more, (first, *plan.indices[1:]), given)[: x.shape[0]]


_KINDS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}

lax("scatter")(_scatter("set"))
for _name, _how in _KINDS.items():
    lax(f"scatter-{_name}", f"scatter_{_name}")(_scatter(_how))
lax("scatter-sub", "scatter_sub")(
    lambda call, x, starts, update, **parameters: _scatter("sum")(call, x, starts, -update, **parameters)
)
