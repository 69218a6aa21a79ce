"""What memory accesses cannot overlap, as metadata for LLVM: each buffer is a scope.

The scopes are the same in all texts, by number, so that texts can be merged into one module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.backends.llvm.emit.lanes import statements
from weft.loop.index import Extent
from weft.loop.ir import Buffer, Function, Load, Program, Store


def function_aliases(function: Function) -> dict[Buffer, str]:
    """For each buffer of a kernel the metadata of accesses to it."""
    buffers = (*function.buffers, *function.scratch)
    reused = {frozenset((buffers[i], buffers[j])) for i, j in function.reuses}
    return _metadata(buffers, lambda x, y: frozenset((x, y)) in reused)


def unwritten(function: Function) -> frozenset[Buffer]:
    """The parameters of a kernel that nobody writes while it runs."""
    reused = {function.buffers[i] for pair in function.reuses for i in pair}
    return frozenset(function.buffers) - function.written - reused


def program_aliases(program: Program) -> dict[Buffer, str]:
    """For each buffer that the main function itself reads or writes the metadata of accesses to it."""
    accessed = {s.buffer: None for s in statements(program.main.body) if isinstance(s, Load | Store)}
    first = program.inputs
    buffers = program.main.buffers
    donated = {frozenset((buffers[i], buffers[first + o])) for i, o in program.donated}

    def meet(x: Buffer, y: Buffer) -> bool:
        if x in program.arena and y in program.arena:
            return _overlap(*_extent(program, x), *_extent(program, y))
        return frozenset((x, y)) in donated

    return _metadata(list(accessed), meet)


def _extent(program: Program, buffer: Buffer) -> tuple[Extent, Extent]:
    begin = program.arena[buffer]
    return begin, begin + buffer.size * buffer.dtype.itemsize


def _overlap(begin: Extent, end: Extent, other: Extent, other_end: Extent) -> bool:
    """Whether two pieces of the arena may overlap; where named sizes decide, they may."""
    if not all(isinstance(x, int) for x in (begin, end, other, other_end)):
        return True
    return bool(begin < other_end and other < end)


def _metadata(buffers: Sequence[Buffer], meet: Callable[[Buffer, Buffer], bool]) -> dict[Buffer, str]:
    out = {}
    for i, x in enumerate(buffers):
        apart = [f"!{j + 1}" for j, y in enumerate(buffers) if j != i and not meet(x, y)]
        noalias = f", !noalias !{{{', '.join(apart)}}}" if apart else ""
        out[x] = f", !alias.scope !{{!{i + 1}}}{noalias}"
    return out
