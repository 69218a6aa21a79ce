"""Arrays that lie the other way round: square tiles go through shared memory.

Neighbouring threads must reach neighbouring memory, in what they read and in what they write. Where the two
do not have the same order of axes, a block brings a tile of an array into shared memory along the one axis,
and takes it from there along the other. A row of a tile has one element more than it needs: so neither way
do threads meet in one bank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.ir.graph import Value
from weft.loop.builder import Builder
from weft.loop.index import Index
from weft.loop.ir import Buffer
from weft.loop.ir import Value as Scalar
from weft.schedule.arrays import Array
from weft.schedule.extents import ceil_div, is_number
from weft.schedule.writer import Kernel, Writer, unflattened

if TYPE_CHECKING:
    from weft.schedule.gpu.group_kernel import GroupKernel

SIDE = 32  # of a tile
_ROWS = 8  # that are brought at once
_LEAST = 4096  # elements from which on it is worth it


def turned_axis(shape: Sequence[Any], array: Array) -> int | None:
    """The axis along which the elements of an array lie side by side, if it is not the last; else None."""
    if len(shape) < 2 or array.shape != tuple(shape) or is_number(array.strides[-1], 1):
        return None
    size = size_of(tuple(s for s in shape if not isinstance(s, Size)))
    if size < _LEAST and not any(isinstance(s, Size) for s in shape):
        return None
    ones = [i for i, s in enumerate(array.strides) if is_number(s, 1) and _is_long(shape[i])]
    return ones[0] if len(ones) == 1 and _is_long(shape[-1]) else None


def _is_long(size: Any) -> bool:
    return isinstance(size, Size) or bool(size >= SIDE // 2)


Write = Callable[[tuple[Index, ...], list[Scalar]], None]


class Tiles:
    """Writes a kernel in tiles, of an axis and the last one."""

    def __init__(self, b: Builder, shape: Sequence[Any], axis: int, turned: Sequence[Array]) -> None:
        self.b, self.shape, self.axis, self.turned = b, tuple(shape), axis, list(turned)
        self.others = [i for i in range(len(shape) - 1) if i != axis]
        self.tiles = [ceil_div(shape[i], SIDE) for i in (axis, -1)]

    def write(self, element: Write) -> None:
        """Write the grid: ``element`` is given an index, and what the turned arrays have there."""
        b, room = self.b, SIDE * (SIDE + 1)
        held = [b.scratch(f"tile{i}", x.dtype, room, "shared") for i, x in enumerate(self.turned)]
        tasks = (*[self.shape[i] for i in self.others], *self.tiles)
        with b.parallel(size_of(tasks)) as block, b.threads(SIDE * _ROWS) as thread:
            *lead, down, across = unflattened(b, block, tasks)
            y, x = b.quotient(thread, SIDE), b.remainder(thread, SIDE)
            for k in range(0, SIDE, _ROWS):
                self._bring(held, lead, (down * SIDE + x, across * SIDE + (y + k)), (y + k) * (SIDE + 1) + x)
            b.barrier()
            for k in range(0, SIDE, _ROWS):
                at = x * (SIDE + 1) + (y + k)
                self._take(held, lead, (down * SIDE + (y + k), across * SIDE + x), at, element)

    def _bring(self, held: list[Buffer], lead: list[Index], place: tuple[Index, Index], at: Index) -> None:
        with self._inside(place):
            index = self._index(lead, place)
            for x, buffer in zip(self.turned, held, strict=True):
                self.b.store(buffer, at, self.b.load(x.buffer, x.at(*index)))

    def _take(
        self, held: list[Buffer], lead: list[Index], place: tuple[Index, Index], at: Index, element: Write
    ) -> None:
        with self._inside(place):
            element(self._index(lead, place), [self.b.load(buffer, at) for buffer in held])

    def _index(self, lead: list[Index], place: tuple[Index, Index]) -> tuple[Index, ...]:
        known = dict(zip(self.others, lead, strict=True)) | {self.axis: place[0]}
        return (*[known[i] for i in range(len(self.shape) - 1)], place[1])

    def _inside(self, place: tuple[Index, Index]) -> Any:
        b, conditions = self.b, []
        for at, size in zip(place, (self.shape[self.axis], self.shape[-1]), strict=True):
            if not (is_number(size) and size % SIDE == 0):
                conditions.append(b.lt(at, Index.of(size)))
        if not conditions:
            return nullcontext()
        return b.if_(conditions[0] if len(conditions) == 1 else b.and_(*conditions))


def copy_turned(writer: Writer, source: Array, target: Array) -> bool:
    """Copy an array into another of its shape, whose rows lie side by side; False where it is no use."""
    axis = turned_axis(source.shape, source)
    if axis is None or not is_number(target.strides[-1], 1):
        return False
    key = ("turned", source.dtype, source.shape, source.strides, target.strides)
    if writer.launch_again(key, [source, target]):
        return True
    with writer.kernel("turn", [source], [target], inline=False, key=key) as k:
        (x,), (out,) = k.reads, k.writes

        def element(index: tuple[Index, ...], values: list[Scalar]) -> None:
            k.builder.store(out.buffer, out.at(*index), values[0])

        Tiles(k.builder, x.shape, axis, [x]).write(element)
    return True


def find_turned(group: GroupKernel, arrays: dict[Value, Array]) -> tuple[int, list[Value]] | None:
    """What a group without reductions reads the other way round, and along which axis; None for nothing."""
    shape = group.frame.shape
    if (
        set(group.kinds.values()) != {"full"}
        or group.breaks
        or any(v.type.shape != shape for v in group.made)
    ):
        return None
    found = {v: turned_axis(shape, arrays[v]) for v in group.in_place}
    axes = {axis for axis in found.values() if axis is not None}
    if len(axes) != 1:
        return None
    return axes.pop(), [v for v, axis in found.items() if axis is not None]


def write_turned(
    group: GroupKernel, k: Kernel, sources: dict[Value, Any], targets: dict[Value, Array], axis: int,
    turned: Sequence[Value],
) -> None:  # fmt: skip
    """The body of a group that reads arrays the other way round."""
    reader = group.scope.reader(k.builder, sources, group.inlined)

    def element(index: tuple[Index, ...], values: list[Scalar]) -> None:
        known = dict(sources)
        sources.update(zip(turned, values, strict=True))
        found = {v: reader.read(v, index) for v in targets}
        for v, value in found.items():
            k.builder.store(targets[v].buffer, targets[v].at(*index), value)
        sources.clear()
        sources.update(known)

    Tiles(k.builder, group.frame.shape, axis, [sources[v] for v in turned]).write(element)
