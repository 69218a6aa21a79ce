"""Scalars that nothing uses: the quotient and the remainder of an index, say, that was put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from weft.loop.index import Index
from weft.loop.ir import (
    Accumulate,
    Allocate,
    Bind,
    Block,
    Copy,
    Declare,
    Fail,
    Free,
    Get,
    If,
    Leave,
    Load,
    Loop,
    Matmul,
    Measure,
    Scalar,
    Set,
    Statement,
    Store,
    While,
)
from weft.loop.walk import blocks_of

# What a statement of a kernel names besides buffers and locals.
_OPERANDS: dict[type, Callable[[Any], Iterable[Any]]] = {
    Scalar: lambda s: s.args,
    Load: lambda s: (s.index, s.mask),
    Get: lambda s: (),
    Measure: lambda s: (),
    Declare: lambda s: (s.value,),
    Set: lambda s: (s.value,),
    Accumulate: lambda s: (s.value,),
    Store: lambda s: (s.index, s.value, s.mask),
    Loop: lambda s: (s.start, s.stop),
    If: lambda s: (s.condition,),
    While: lambda s: (s.condition,),
    Copy: lambda s: (s.target_index, s.source_index, s.count),
    Matmul: lambda s: (s.a[1], s.b[1], s.c[1], s.m, s.n, s.k, *s.rows),
    Fail: lambda s: (s.condition, *s.values),
    Leave: lambda s: (),
    Allocate: lambda s: (s.count,),
    Free: lambda s: (),
    Bind: lambda s: (s.value,),
}


def drop_unused(block: Block) -> None:
    """Take scalars that nothing uses out of the body of a kernel.

    >>> import numpy as np
    >>> from weft.loop.builder import Builder
    >>> from weft.schedule.dead_scalars import drop_unused
    >>> b = Builder()
    >>> x = b.buffer("x", np.dtype("f4"), 4)
    >>> with b.loop(4) as i:
    ...     _ = b.exp(b.load(x, i))
    ...     b.store(x, i, 1.0)
    >>> drop_unused(b.block)
    >>> [type(s).__name__ for s in b.block.statements[0].body.statements]
    ['Load', 'Store']
    """
    _drop(block, set())


def _drop(block: Block, used: set[Any]) -> None:
    """From the last statement to the first: nothing is used before it is computed."""
    kept: list[Statement] = []
    for s in reversed(block.statements):
        if type(s) is Scalar and s not in used:
            continue
        inner = blocks_of(s)
        if len(inner) == 2:
            _drop(inner[1], used)
        for x in _OPERANDS[type(s)](s):
            if type(x) is Index:
                used.update([v.value for v in x.terms])
            else:
                used.add(x)
        if inner:
            _drop(inner[0], used)
        kept.append(s)
    if len(kept) < len(block.statements):
        block.statements[:] = reversed(kept)
