"""Memory of devices: blocks, the pool that they come from, pinned memory of the host.

Memory is had and given back in the order of a stream, so nobody waits. Small blocks go through lists of
weft's own, one for each stream and size: the next one who asks there gets what the last one gave back, and
work that still reads it was given to the stream before. Large ones go to the driver's pool, which keeps them.

A block knows which stream wrote it last, and which others read it. Whoever uses it on another stream lets
that wait; so programs with several streams are right without a word about it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from weft.backends.cuda.driver import OUT_OF_MEMORY, Life
from weft.errors import DeviceMemoryError

if TYPE_CHECKING:
    from weft.backends.cuda.card import Card
    from weft.backends.cuda.streams import Stream

_GRAIN = 512  # bytes: what the driver aligns to, and sizes are rounded to
_SMALL = 1 << 20  # bytes up to which blocks are kept in lists
_MANY = 8  # streams that have read a block
_RELEASE_THRESHOLD = 4  # of CUmemPool_attribute
_KEEP_ALL = (1 << 64) - 1


class Block:
    """Memory of a device, given back when nobody holds it.

    Attributes:
        pool: where it comes from.
        pointer: where it is.
        size: in bytes, as it was had.
        home: the stream in whose order it was had, and is given back.
        writer: the stream that wrote it last.
        readers: other streams that read it since.
        shelf: the list that it goes back to if nobody is to be waited for; None if its pool is to be asked.
    """

    __slots__ = ("__weakref__", "home", "pointer", "pool", "readers", "shelf", "size", "writer")

    def __init__(self, pool: Pool, pointer: int, size: int, home: Stream) -> None:
        self.pool = pool
        self.pointer = pointer
        self.size = size
        self.home = home
        self.writer = home
        self.readers: list[Stream] | None = None
        self.shelf: list[int] | None = None

    def __del__(self, life: type[Life] = Life) -> None:
        if life.ending or not self.size:
            return
        if self.shelf is None or self.readers is not None or self.writer is not self.home:
            self.pool.give(self)
        else:
            self.pool.allocated -= self.size
            self.shelf.append(self.pointer)

    def read_on(self, stream: Stream) -> None:
        """Let a stream see what was written, and remember that it reads."""
        if self.writer is not stream:
            if stream.capture is not None:
                stream.capture.read(self)
                return
            stream.wait_stream(self.writer)
        if stream is not self.home:
            self.readers = self.readers or []
            if stream not in self.readers:
                if len(self.readers) >= _MANY:  # who is done with all of its work has read it
                    self.readers = [s for s in self.readers if s.capture or s.is_busy()]
                self.readers.append(stream)

    def write_on(self, stream: Stream) -> None:
        """Let a stream overwrite it: after all who wrote or read it."""
        if stream.capture is not None:
            stream.capture.write(self)
            return
        for other in (self.writer, self.home, *(self.readers or ())):
            if other is not stream:
                stream.wait_stream(other)
        self.writer = stream
        self.readers = None if stream is self.home else [stream]


_blank = partial(object.__new__, Block)  # without the constructor, whose call costs as much as the rest


class Borrowed:
    """Memory that belongs to another library; ``owner`` keeps it alive.

    It has the face of a ``Block``; who wrote it was waited for when it came in.
    """

    __slots__ = ("__weakref__", "owner", "pointer", "size", "writer")

    def __init__(self, pointer: int, size: int, owner: object, writer: Stream) -> None:
        self.pointer = pointer
        self.size = size
        self.owner = owner
        self.writer = writer

    def read_on(self, stream: Stream) -> None:
        """Let a stream see what was there when it came in."""
        if stream.capture is not None:
            stream.capture.read(self)
        elif self.writer is not stream:
            stream.wait_stream(self.writer)

    def write_on(self, stream: Stream) -> None:
        """Nobody writes to memory of others."""
        raise AssertionError("memory of another library is never written to")


class Pool:
    """The memory of one device.

    Attributes:
        allocated: bytes that somebody holds.
        peak: the most that ``allocated`` was.
    """

    def __init__(self, card: Card) -> None:
        self.card = card
        self.allocated = self.peak = 0
        self._streams: WeakSet[Stream] = WeakSet()  # that have had small blocks; see ``Stream.shelves``
        driver = card.driver
        if not card.has_pools:
            raise DeviceMemoryError("cuda", f"the device must have memory pools, got {card.name}")
        self.handle = driver.cuDeviceGetDefaultMemPool(card.handle)
        self._attribute = getattr(driver.api, "CUmemPool_attribute", int)
        value = getattr(driver.api, "cuuint64_t", int)(_KEEP_ALL)
        driver.cuMemPoolSetAttribute(self.handle, self._attribute(_RELEASE_THRESHOLD), value)

    def take(self, nbytes: int, stream: Stream) -> Block:
        """Memory of at least so many bytes, to be used on a stream."""
        size = -(-nbytes // _GRAIN) * _GRAIN
        pointer = 0
        if size <= _SMALL:
            waiting = stream.shelves.get(size)
            try:
                pointer = waiting.pop() if waiting else 0
            except IndexError:  # another thread was faster
                pointer = 0
        if not pointer and size:
            if stream.capture is not None:
                return stream.capture.take(size)
            pointer = self.ask(size, stream)
        self.allocated += size
        if self.allocated > self.peak:
            self.peak = self.allocated
        return Block(self, pointer, size, stream)

    def taker(self, nbytes: int, stream: Stream) -> Callable[[], Block]:
        """A function that gives what ``take`` would, with nothing to look up."""
        size = -(-nbytes // _GRAIN) * _GRAIN
        if not 0 < size <= _SMALL:
            return lambda: self.take(nbytes, stream)
        shelf = self._shelf(stream, size)

        def taken() -> Block:
            try:
                pointer = shelf.pop()
            except IndexError:
                block = self.take(nbytes, stream)
                if type(block) is Block:  # not that of a graph
                    block.shelf = shelf
                return block
            block = _blank()
            block.pool, block.pointer, block.size, block.shelf = self, pointer, size, shelf
            block.home = block.writer = stream
            block.readers = None
            self.allocated = held = self.allocated + size
            if held > self.peak:
                self.peak = held
            return block

        return taken

    def _shelf(self, stream: Stream, size: int) -> list[int]:
        """The list of a stream for blocks of a size."""
        shelf = stream.shelves.get(size)
        if shelf is None:
            self._streams.add(stream)
            shelf = stream.shelves.setdefault(size, [])
        return shelf

    def count(self, size: int) -> None:
        """Note that somebody holds so many bytes more, or fewer."""
        self.allocated += size
        self.peak = max(self.peak, self.allocated)

    def give(self, block: Block) -> None:
        """Take memory back, after all streams that read it."""
        home, size = block.home, block.size
        self.allocated -= size
        others = [block.writer, *block.readers] if block.readers else (block.writer,)
        for other in others:
            if other is not home:
                home.wait_stream(other)
        if size <= _SMALL:
            self._shelf(home, size).append(block.pointer)
        else:
            self.card.driver.code("cuMemFreeAsync", block.pointer, home.handle)

    def ask(self, size: int, stream: Stream) -> int:
        """Memory from the driver; where there is none, all that nobody holds is given back first."""
        code, *rest = self.card.driver.api.cuMemAllocAsync(size, stream.handle)  # type: ignore[attr-defined]
        if code == OUT_OF_MEMORY:
            self.card.synchronize()
            for keeper in list(self.card.keepers):
                keeper.forget()
            self.empty()
            code, *rest = self.card.driver.api.cuMemAllocAsync(size, stream.handle)  # type: ignore[attr-defined]
        if code == OUT_OF_MEMORY:
            free, total = self.info()
            raise DeviceMemoryError(
                "cuda",
                f"{_text(size)} must be left on {self.card.device}, got {_text(free)} of {_text(total)}; "
                f"tensors hold {_text(self.allocated)}",
                hint="use smaller batches, or del tensors that are not needed",
            )
        if code:
            raise self.card.driver.failure("cuMemAllocAsync", int(code))
        return int(rest[0])

    def empty(self) -> None:
        """Give all that nobody holds back to the driver, and by it to other processes."""
        self.card.enter()
        driver = self.card.driver
        for stream in list(self._streams):
            stream.clear_shelves()
            stream.synchronize()
        driver.cuMemPoolTrimTo(self.handle, 0)

    def info(self) -> tuple[int, int]:
        """Bytes that the device has left, and bytes that it has."""
        self.card.enter()
        free, total = self.card.driver.cuMemGetInfo()
        return int(free), int(total)

    def reserved(self) -> int:
        """Bytes that this process has from the device, held or kept."""
        return int(self.card.driver.cuMemPoolGetAttribute(self.handle, self._attribute(5)))


def _text(nbytes: int) -> str:
    """A number of bytes for people."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} bytes"


class Pinned:
    """Memory of the host that a device copies to and from by itself, while the host goes on.

    Attributes:
        pointer: where it is.
        size: in bytes.
    """

    __slots__ = ("_card", "pointer", "size")

    def __init__(self, card: Card, size: int) -> None:
        card.enter()
        self._card = card
        self.size = size
        self.pointer = int(card.driver.cuMemHostAlloc(max(size, 1), 1))  # portable: of all devices

    def __del__(self, life: type[Life] = Life) -> None:
        if life.ending:
            return
        if hasattr(self, "pointer"):
            self._card.driver.code("cuMemFreeHost", self.pointer)

    def buffer(self) -> ctypes.Array[ctypes.c_char]:
        """The bytes, for NumPy; they live as long as this object, so hold it beside."""
        return (ctypes.c_char * self.size).from_address(self.pointer)
