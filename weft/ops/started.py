"""Sums over ranks in two halves: one that starts, and one that waits until the sum is there.

What stands between the two runs while the sum goes on; the pass ``overlap`` puts it there. The array that the
start gives is where the sum will be, and nobody may look at it before the wait, which gives the same array.
The wait takes what is summed, too: until then it must stay as it is.
"""

from __future__ import annotations

import time

import numpy as np

from weft.base.ranks import group_of, hiding, world
from weft.errors import ParallelError
from weft.ir.types import TensorType
from weft.ops.collective import meeting_of, same_type
from weft.ops.families import primitive
from weft.ops.op import Array, Op, Sample, no_gradient
from weft.ops.samples import real_array

_ONE = {"axis": "data", "mesh": "data=1", "ordered": True, "number": 0}


def _start_into(out: Array, x: Array, *, axis: str, mesh: str, ordered: bool, number: int) -> None:
    group = group_of("start_all_reduce", mesh, axis)
    if group.size == 1:
        out[...] = x
        return
    begin = time.perf_counter()
    meeting = meeting_of("all_reduce", x.shape, x.dtype, axis, "" if ordered else "in any order")
    pending = group.start(meeting, x, np.add, out, ordered)
    pending.spent = time.perf_counter() - begin
    world().under_way[mesh, axis, number] = out, pending


def _start(x: Array, *, axis: str, mesh: str, ordered: bool, number: int) -> Array:
    out = np.empty(x.shape, x.dtype)
    _start_into(out, x, axis=axis, mesh=mesh, ordered=ordered, number=number)
    return out


def _wait(started: Array, x: Array, *, axis: str, mesh: str, ordered: bool, number: int) -> Array:
    if group_of("wait_all_reduce", mesh, axis).size == 1:
        return started
    found = world().under_way.pop((mesh, axis, number), None)
    if found is None:
        message = f"the sum must have been started, got none of number {number} along {axis!r}"
        raise ParallelError("wait_all_reduce", message)
    out, pending = found
    begin = time.perf_counter()
    pending.finish()
    hiding.add(pending.seconds, pending.spent + time.perf_counter() - begin)
    return out


def _wait_into(
    out: Array, started: Array, x: Array, *, axis: str, mesh: str, ordered: bool, number: int
) -> None:
    found = _wait(started, x, axis=axis, mesh=mesh, ordered=ordered, number=number)
    if found.ctypes.data != out.ctypes.data:
        out[...] = found


def _waited_type(started: TensorType, x: TensorType, **attrs: object) -> TensorType:
    return started


start_all_reduce: Op = primitive(
    "start_all_reduce",
    type_rule=same_type("start_all_reduce"),
    eval=_start,
    into=_start_into,
    vjp=no_gradient("it comes after derivatives"),
    batch=None,
    samples=lambda: [Sample((real_array((2, 3)),), _ONE)],
    defaults={"ordered": True},
    effect=True,
    sequence="axis",
    host=True,
    when="early",
)
"""``start_all_reduce(x, axis, mesh, ordered, number)``: begin a sum over ranks; gives where it will be."""

wait_all_reduce: Op = primitive(
    "wait_all_reduce",
    type_rule=_waited_type,
    eval=_wait,
    into=_wait_into,
    vjp=no_gradient("it comes after derivatives"),
    batch=None,
    samples=lambda: [Sample((real_array((2, 3)), real_array((2, 3))), _ONE)],
    defaults={"ordered": True},
    effect=True,
    sequence="axis",
    host=True,
    in_place=True,
    when="late",
)
"""``wait_all_reduce(started, x, ...)``: wait for the sum of x that was started under a number."""
