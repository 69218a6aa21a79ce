"""Memory that replays of a graph write to: who may see that, and who keeps the values that are there.

A graph of the user's code writes to the same memory each time. Tensors that it changes or makes show what it
writes; so do their views, and what the block itself has kept for a backward pass. All others who have arrays
there (a graph for backward that was recorded outside, a copy that shares memory) hold values, as elsewhere:
before a replay they get memory of their own. CPython counts who holds a block; only where that has changed
since the last replay are they looked for.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from sys import getrefcount
from typing import Any
from weakref import WeakSet

from weft.backends.cuda.array import DeviceArray, same_place
from weft.backends.cuda.copies import packed_copy
from weft.backends.cuda.exchange import given_count, is_given
from weft.backends.cuda.recorder import GraphBlock
from weft.tensor.alias import is_aliased, members, root_of


def is_at(array: Any, home: DeviceArray) -> bool:
    """Whether an array has the elements of another one, in the same memory."""
    if type(array) is not DeviceArray or array.pointer != home.pointer or array.block is not home.block:
        return False
    return array.shape == home.shape and array.dtype == home.dtype and array.gaps == home.gaps


def move_out(array: DeviceArray) -> None:
    """Give an array memory of its own, with the values that it has."""
    if type(array.block) is GraphBlock and not array.block.pool.ran:  # there are no values yet
        return
    moved = packed_copy(array)
    array.block, array.pointer, array.gaps = moved.block, moved.pointer, None


def arrays_shown(tensor: Any, shared: list[DeviceArray]) -> Iterator[DeviceArray]:
    """The arrays of a tensor and its views, none of which others have from here on; ``shared`` are theirs."""
    for member in members(root_of(tensor)) if is_aliased(tensor) else (tensor,):
        data = getattr(member, "_data", None)
        if type(data) is DeviceArray:
            del data
            if _held(member) > _ALONE:
                shared.append(member._data)
                member._data = same_place(member._data)
            yield member._data


def _held(tensor: Any) -> int:
    return getrefcount(tensor._data)


class _Probe:
    _data: object


def _alone() -> int:
    probe = _Probe()
    probe._data = _Probe()
    return _held(probe)


_ALONE = _alone()


class Holders:
    """Who may see what replays of a graph write.

    Args:
        inner: arrays that the block of code has made, and keeps.
    """

    def __init__(self, inner: Iterable[DeviceArray]) -> None:
        self._inner = WeakSet(inner)
        self._others: dict[int, int] = {}  # by block, how often it is held, but for arrays of ours
        self._before = (-1, -1)

    def have_changed(self) -> bool:
        """Whether counts do not tell any more who holds memory, as others may be in the place of some."""
        before, self._before = self._before, (len(self._inner), given_count())
        return before != self._before

    def part(self, shown: Sequence[DeviceArray], shared: Iterable[DeviceArray]) -> None:
        """Before a replay writes there: whoever else has arrays in the memory of these gets other memory.

        Args:
            shown: all arrays that show what it writes.
            shared: arrays that are known to be of others.
        """
        arrays = {id(a): a for a in (*shown, *self._inner)}
        for array in shared:
            if id(array) not in arrays and not is_given(array):
                move_out(array)
        blocks = {id(a.block): a.block for a in shown if a.block.size}
        counts = Counter([id(a.block) for a in arrays.values()])
        news = [key for key in blocks if getrefcount(blocks[key]) - counts[key] != self._others.get(key)]
        if news:
            _move_others([blocks[key] for key in news], arrays)
            self._others |= {key: getrefcount(blocks[key]) - counts[key] for key in news}


def _move_others(blocks: Sequence[Any], own: Container[int]) -> None:
    """Move all arrays out of blocks, but for own ones."""
    gc.unfreeze()  # what is frozen is not listed
    for other in gc.get_referrers(*blocks):
        if type(other) is DeviceArray and id(other) not in own and not is_given(other):
            move_out(other)
