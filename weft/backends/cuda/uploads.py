"""Arrays sent to a device ahead of their use: a ring of pinned memory, and a stream for copies alone.

The host copies an array into a slot of the ring, and the device takes it from there by itself, beside what it
computes. A slot is used again when the device has read it; memory of the device when its last reader is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import numpy as np

from weft.backends.cuda.array import DeviceArray, Host, new_array
from weft.backends.cuda.card import Card
from weft.backends.cuda.memory import Block, Pinned
from weft.backends.cuda.streams import Event, Stream
from weft.tensor.dispatch import wrap

_GRAIN = 512  # bytes: arrays in a slot begin at multiples of it
_PIECE = 8 << 20  # bytes that are copied at a time: the device begins while the host goes on
_HELPERS = 4
_MOST_SPARE = 2  # rings that nobody uses, and that are kept


class _Slot:
    """Pinned memory for the arrays of one element, and the event after which it is free."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._memory: Pinned | None = None
        self.read = Event(timing=False)

    def room(self, nbytes: int) -> Any:
        """The memory as bytes, when the device has read what was there."""
        self.read.synchronize()
        if self._memory is None or self._memory.size < nbytes:
            self._memory = Pinned(self._card, 1 << max(nbytes - 1, 1).bit_length())
        memory: Any = self._memory.buffer()
        return np.frombuffer(memory, np.uint8)


_spare: dict[tuple[int, int], list[tuple[list[_Slot], Stream]]] = {}  # by device and number of slots
_lock = Lock()


def forget_rings() -> None:
    """Give pinned memory that nobody uses back to the host."""
    with _lock:
        _spare.clear()


class Sent:
    """Arrays on their way."""

    __slots__ = ("_arrays", "_card", "_event")

    def __init__(self, card: Card, arrays: list[DeviceArray], event: Event) -> None:
        self._card, self._arrays, self._event = card, arrays, event

    def receive(self) -> list[Any]:
        """The arrays as tensors, for which the current stream of this thread waits; the host does not."""
        self._card.enter()
        stream = self._card.current()
        stream.wait_event(self._event)
        for array in self._arrays:
            if isinstance(array.block, Block):
                array.block.writer = stream  # which comes after the copy, and not after those behind it
        return [wrap(array) for array in self._arrays]


class Uploads:
    """Sends arrays to a device; from one thread at a time.

    Args:
        card: the device.
        slots: how many elements may be on their way, or wait to be used.
    """

    def __init__(self, card: Card, slots: int) -> None:
        self._card = card
        with _lock:
            rings = _spare.get((id(card), slots))
            known = rings.pop() if rings else None
        self._slots, self._stream = known or ([_Slot(card) for _ in range(slots)], Stream(card))
        self._turn = 0
        self._helpers: ThreadPoolExecutor | None = None  # who lay large arrays into pinned memory

    def close(self) -> None:
        """Leave the ring to the next one who sends: it takes long to pin memory."""
        slots, self._slots = self._slots, []
        with _lock:
            rings = _spare.setdefault((id(self._card), len(slots)), [])
            if slots and len(rings) < _MOST_SPARE:
                rings.append((slots, self._stream))

    def send(self, arrays: Sequence[Host]) -> Sent:
        """Begin to copy arrays; they may be changed when this returns."""
        card, stream = self._card, self._stream
        card.enter()
        slot = self._slots[self._turn]
        self._turn = (self._turn + 1) % len(self._slots)
        starts = np.cumsum([0, *[-(-a.nbytes // _GRAIN) * _GRAIN for a in arrays]]).tolist()
        room = slot.room(starts[-1])
        out = []
        for array, start in zip(arrays, starts[:-1], strict=True):
            there = new_array(card, array.shape, array.dtype, stream)
            if array.nbytes:
                self._copy(array, room[start : start + array.nbytes], there.pointer)
            out.append(there)
        slot.read.record(stream)
        arrived = Event(timing=False)
        arrived.record(stream)
        return Sent(card, out, arrived)

    def _copy(self, array: Host, staged: Any, pointer: int) -> None:
        """Lay an array into pinned memory, and let the device take each piece as soon as it is there."""
        whole = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        pieces = [slice(i, i + _PIECE) for i in range(0, whole.size, _PIECE)]
        if len(pieces) == 1:
            np.copyto(staged, whole)
        else:
            self._helpers = self._helpers or ThreadPoolExecutor(_HELPERS, "weft-upload")
            laid = [self._helpers.submit(np.copyto, staged[piece], whole[piece]) for piece in pieces]
        for i, piece in enumerate(pieces):
            if len(pieces) > 1:
                laid[i].result()
            here, size = staged[piece].ctypes.data, staged[piece].size
            self._card.driver.cuMemcpyHtoDAsync(pointer + piece.start, here, size, self._stream.handle)
