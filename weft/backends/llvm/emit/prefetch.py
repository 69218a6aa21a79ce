"""What a vector loop asks for that a later one will write, so that memory works while functions are computed.

Before a line of memory is written, the processor must have it. A row kernel such as that of softmax computes
for long without memory, and then waits for the lines of its results; so they are asked for meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

from weft.base.sizes import Size
from weft.loop.index import Index
from weft.loop.ir import Block, Buffer, Load, Loop, Scalar, Store
from weft.ops.cost import is_function

LINE = 64  # bytes
_LEAST = 1024  # bytes of a row, for what is shorter overlaps anyway
Place = tuple[Buffer, Index]


def prefetches(block: Block) -> dict[Loop, list[Place]]:
    """For loops of a block, the places that the lanes which are computed will be written to.

    >>> import numpy as np
    >>> from weft.backends.llvm.emit.prefetch import prefetches
    >>> from weft.loop.builder import Builder
    >>> b = Builder()
    >>> x, y = b.buffer("x", np.dtype("f4"), 4096), b.buffer("y", np.dtype("f4"), 9999)
    >>> with b.vector(4096) as i:
    ...     b.store(x, i, b.exp(b.load(x, i)))
    >>> with b.vector(4096) as j:
    ...     b.store(y, j + 7, b.neg(b.load(x, j)))
    >>> [buffer for places in prefetches(b.block).values() for buffer, index in places]
    [y: float32[9999]]
    """
    loops = [s for s in block.statements if type(s) is Loop and s.kind == "vector"]
    found: dict[Loop, list[Place]] = {}
    if len(loops) < 2:
        return found
    touched: set[Buffer] = set()
    busy: Loop | None = None
    for loop in loops:
        if busy is not None and _alike(busy, loop):
            variable = busy.variable
            places = [(b, i.without(loop.variable) + Index.of(variable)) for b, i in _rows(loop, touched)]
            found[busy] = found.get(busy, []) + places
        touched |= {s.buffer for s in loop.body.statements if isinstance(s, Load | Store)}
        busy = loop if _has_functions(loop) else busy
    return found


def _has_functions(loop: Loop) -> bool:
    return any(isinstance(s, Scalar) and is_function(s.instruction) for s in loop.body.statements)


def _alike(first: Loop, second: Loop) -> bool:
    """Whether two loops count alike."""
    ends = (first.start, first.stop, second.start, second.stop)
    return all(i.is_fixed for i in ends) and [i.offset for i in ends[:2]] == [i.offset for i in ends[2:]]


def _rows(loop: Loop, touched: set[Buffer]) -> Iterator[Place]:
    """The rows of memory that a loop writes, and that no loop before has touched."""
    extent = (loop.stop - loop.start).offset
    for s in loop.body.statements:
        if not isinstance(s, Store) or s.buffer in touched or s.index.stride(loop.variable) != 1:
            continue
        long = not isinstance(extent, Size) and extent * s.buffer.dtype.itemsize >= _LEAST
        if long and s.buffer.size != extent and all(v.value is None for v in s.index.terms):
            yield s.buffer, s.index
