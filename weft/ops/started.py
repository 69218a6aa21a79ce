"""Collectives in two halves: one that starts, and one that waits until the result is there.

What stands between the two runs while the sum goes on; the pass ``overlap`` puts it there. The array that the
start gives is where the sum will be, and nobody may look at it before the wait, which gives the same array.
The wait takes what is summed, too: until then it must stay as it is. So it is with what is scattered and
gathered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.base.ranks import Group, Pending, group_of, hiding, tree_fold_into, world
from weft.errors import ParallelError
from weft.ir.types import TensorType
from weft.ops.collective import IN_STEP, all_gather, all_reduce, meeting_of, reduce_scatter, split_parts
from weft.ops.families import lowered
from weft.ops.op import Array, Attrs, Op, Sample
from weft.ops.samples import real_array

_ONE = {"axis": "data", "mesh": "data=1"}


Begin = Callable[..., tuple[Pending, Callable[[Array], None]]]


def _begin_sum(group: Group, out: Array, x: Array, *, axis: str, ordered: bool) -> Any:
    """Begin a sum; what is left to do when all has come."""
    meeting = meeting_of("all_reduce", x.shape, x.dtype, axis, "" if ordered else "in any order")
    return group.start(meeting, x, np.add, out, ordered), lambda out: None


def _begin_scatter(group: Group, out: Array, x: Array, *, axis: str, dim: int, ordered: bool) -> Any:
    meeting = meeting_of("reduce_scatter", x.shape, x.dtype, axis, f"dim={dim}")
    given = split_parts(x.copy(), dim, group.size)
    rows = np.empty_like(given)

    def last(out: Array) -> None:
        tree_fold_into(list(rows), np.add, out)

    return group.start_rows(meeting, given, rows, exchanged=True), last


def _begin_gather(group: Group, out: Array, x: Array, *, axis: str, dim: int) -> Any:
    meeting = meeting_of("all_gather", x.shape, x.dtype, axis, f"dim={dim}")
    x = x.copy()  # a part of what comes; where it was may be written over
    whole = dim == 0 and out.flags.c_contiguous
    rows = out.reshape(group.size, *x.shape) if whole else np.empty((group.size, *x.shape), x.dtype)

    def last(out: Array) -> None:
        if not whole:
            np.concatenate(list(rows), axis=dim, out=out)

    return group.start_rows(meeting, x, rows, exchanged=False), last


def _halves(of: Op, begin: Begin, more: Attrs, shown: str) -> tuple[Op, Op]:
    """The op that starts a collective, and the one that waits for it."""
    start_name, wait_name = f"start_{of.name}", f"wait_{of.name}"

    def start_into(out: Array, x: Array, *, axis: str, mesh: str, number: int, **attrs: Any) -> None:
        group = group_of(start_name, mesh, axis)
        if group.size == 1:
            out[...] = x
            return
        now = time.perf_counter()
        pending, last = begin(group, out, x, axis=axis, **attrs)
        pending.spent = time.perf_counter() - now
        world().under_way[mesh, axis, number] = out, pending, last

    def start_type(x: TensorType, *, number: int, **attrs: Any) -> TensorType:
        found: TensorType = of.type_rule(x, **attrs)
        return found

    def start(x: Array, **attrs: Any) -> Array:
        t = start_type(TensorType(x.shape, x.dtype), **attrs)
        out = np.empty(t.shape, t.dtype)
        start_into(out, x, **attrs)
        return out

    def wait(started: Array, x: Array, *, axis: str, mesh: str, number: int, **attrs: Any) -> Array:
        if group_of(wait_name, mesh, axis).size == 1:
            return started
        found = world().under_way.pop((mesh, axis, number), None)
        if found is None:
            message = f"the {shown} must have been started, got none of number {number} along {axis!r}"
            raise ParallelError(wait_name, message)
        out, pending, last = found
        now = time.perf_counter()
        pending.finish()
        last(out)
        hiding.add(pending.seconds, pending.spent + time.perf_counter() - now)
        return out

    def wait_into(out: Array, started: Array, x: Array, **attrs: Any) -> None:
        found = wait(started, x, **attrs)
        if found.ctypes.data != out.ctypes.data:
            out[...] = found

    def wait_type(started: TensorType, x: TensorType, **attrs: object) -> TensorType:
        return started

    attrs, defaults = {**_ONE, **more, "number": 0}, {"ordered": True} if "ordered" in more else {}
    starts = lowered(
        start_name,
        type_rule=start_type,
        eval=start,
        into=start_into,
        samples=lambda: [Sample((real_array((2, 3)),), attrs)],
        when="early",
        defaults=defaults,
        **IN_STEP,
    )
    waits = lowered(
        wait_name,
        type_rule=wait_type,
        eval=wait,
        into=wait_into,
        samples=lambda: [Sample((real_array((2, 3)), real_array((2, 3))), attrs)],
        in_place=True,
        when="late",
        defaults=defaults,
        **IN_STEP,
    )
    return starts, waits


start_all_reduce, wait_all_reduce = _halves(all_reduce, _begin_sum, {"ordered": True}, "sum")
"""``start_all_reduce(x, axis, mesh, ordered, number)``: begin a sum over ranks; gives where it will be.
``wait_all_reduce(started, x, ...)`` waits for the sum of x that was started under a number."""

start_reduce_scatter, wait_reduce_scatter = _halves(
    reduce_scatter, _begin_scatter, {"dim": 0, "ordered": True}, "sum"
)
"""Likewise for a sum over ranks of which each gets its part."""

start_all_gather, wait_all_gather = _halves(all_gather, _begin_gather, {"dim": 0}, "gathering")
"""Likewise for the tensors of all ranks, joined."""

HALVES: Mapping[Op, tuple[Op, Op]] = {
    all_reduce: (start_all_reduce, wait_all_reduce),
    reduce_scatter: (start_reduce_scatter, wait_reduce_scatter),
    all_gather: (start_all_gather, wait_all_gather),
}
