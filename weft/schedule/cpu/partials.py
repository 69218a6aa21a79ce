"""Partial results of a reduction: what they begin with, what they are kept in, how they are combined."""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import DType
from weft.base.sizes import Size
from weft.ir.graph import Value
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.schedule.accumulation import sum_dtype
from weft.schedule.writer import Kernel


def combine(k: Kernel, instruction: str) -> None:
    """Combine the rows of an array, from the first to the last."""
    b = k.builder
    (x,), (out,) = k.reads, k.writes
    count, width = x.shape
    lanes = 256
    tasks = 1 if isinstance(width, Size) or width <= lanes else -(-width // lanes)
    with b.parallel(tasks) as t:
        stop: Any = width if tasks == 1 else clipped(b, (t + 1) * lanes, width)
        with b.vector(stop, t * lanes if tasks > 1 else 0) as c:
            total = b.local(b.load(x.buffer, x.at(0, c)))
            with b.loop(count, 1) as i:
                b.set(total, getattr(b, instruction)(b.get(total), b.load(x.buffer, x.at(i, c))))
            b.store(out.buffer, out.flat(c), b.cast(b.get(total), out.dtype))


def clipped(b: Builder, index: Index, stop: Any) -> Index:
    """An index, or the end that it must not go beyond."""
    return b.term(b.min(index, Index.of(stop)))


def accumulator(value: Value) -> DType:
    """What a reduction is accumulated in: half precision in float32."""
    return sum_dtype(value.type.dtype)
