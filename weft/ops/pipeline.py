"""Stages of a pipeline: where a program may be cut, and what goes from one rank to another.

``send`` does not wait until the other rank has it, ``receive`` waits until it is there; ``start_receive``
lets it come while something else runs, and ``wait_receive`` waits for that. Messages between two ranks have
numbers, so that they may come in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import as_dtype
from weft.base.ranks import Meeting, axis_size, group_of, world
from weft.errors import DomainError, ParallelError
from weft.ir.types import TensorType
from weft.ops.batching import batch_leading
from weft.ops.collective import IN_STEP, meeting_of
from weft.ops.factors import aligned
from weft.ops.families import linear, lowered
from weft.ops.op import Array, Op, Sample
from weft.ops.samples import real_array

next_stage: Op = linear(
    "next_stage",
    type_rule=lambda x: x,
    eval=lambda x: x,
    transpose=(lambda g: g,),
    batch=batch_leading(lambda attrs, inputs: attrs),
    samples=lambda: [Sample((real_array((2, 3)),))],
    view=lambda index, x: index,
    factors=lambda inputs, outputs: aligned(inputs, outputs),
)
"""``next_stage(x)``: x itself, with a note that a new stage of a pipeline begins with it."""


def _check_rank(op: str, mesh: str, axis: str, rank: int) -> None:
    count = axis_size(op, mesh, axis)
    if not 0 <= rank < count:
        raise DomainError(op, f"the other rank must be in 0..{count - 1}, got {rank}")


def _send(x: Array, *, to: int, number: int, axis: str, mesh: str) -> tuple[Array, ...]:
    _check_rank("send", mesh, axis, to)
    group_of("send", mesh, axis).send(number, np.ascontiguousarray(x), to)
    return ()


def _send_type(x: TensorType, *, to: int, number: int, axis: str, mesh: str) -> tuple[TensorType, ...]:
    _check_rank("send", mesh, axis, to)
    return ()


def _receive_type(
    *, shape: tuple[int, ...], dtype: str, source: int, number: int, axis: str, mesh: str
) -> TensorType:
    _check_rank("receive", mesh, axis, source)
    return TensorType(shape, as_dtype(dtype))


def received(
    *, shape: tuple[int, ...], dtype: Any, source: int, number: int, axis: str, mesh: str
) -> tuple[Array, Meeting]:
    """An array for what is received, and what ranks are told who wait for it."""
    _check_rank("receive", mesh, axis, source)
    out = np.empty(shape, as_dtype(dtype))
    return out, meeting_of("receive", out.shape, out.dtype, axis, f"from {source}, number {number}")


def _receive(*, source: int, number: int, axis: str, mesh: str, **given: Any) -> Array:
    out, meeting = received(source=source, number=number, axis=axis, mesh=mesh, **given)
    group_of("receive", mesh, axis).receive(meeting, number, out, source)
    return out


def _start_receive(*, source: int, number: int, axis: str, mesh: str, **given: Any) -> Array:
    out, meeting = received(source=source, number=number, axis=axis, mesh=mesh, **given)
    pending = group_of("start_receive", mesh, axis).expect(meeting, number, out, source)
    world().under_way["receive", mesh, axis, source, number] = out, pending, lambda out: None
    return out


def _wait_receive(started: Array, *, source: int, number: int, axis: str, mesh: str) -> Array:
    found = world().under_way.pop(("receive", mesh, axis, source, number), None)
    if found is None:
        message = f"the message must have been started, got none of number {number} from {source}"
        raise ParallelError("wait_receive", message)
    out, pending, _ = found
    pending.finish()
    return out


send: Op = lowered(
    "send",
    type_rule=_send_type,
    eval=_send,
    outputs=0,
    **IN_STEP,
)
"""``send(x, to, number, axis, mesh)``: begin to send x to another rank along an axis; does not wait."""

receive: Op = lowered(
    "receive",
    type_rule=_receive_type,
    eval=_receive,
    **IN_STEP,
)
"""``receive(shape, dtype, source, number, axis, mesh)``: wait for what another rank along an axis sent."""

start_receive: Op = lowered(
    "start_receive",
    type_rule=_receive_type,
    eval=_start_receive,
    **IN_STEP,
)
"""``start_receive(shape, dtype, source, number, axis, mesh)``: let what another rank sent come; gives
where it will be, which nobody may look at before ``wait_receive(started, source, number, axis, mesh)``."""

wait_receive: Op = lowered(
    "wait_receive",
    type_rule=lambda started, **attrs: started,
    eval=_wait_receive,
    **IN_STEP,
)
"""``wait_receive(started, source, number, axis, mesh)``: wait for what was started."""
