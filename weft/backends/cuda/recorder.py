"""Work that eager code gives to a stream, captured as one CUDA graph: what ``weft.cuda.graph()`` is made of.

While a *recorder* is at work, the current stream is one of its own, which notes work instead of doing it.
Memory comes from the graph's own: the pointers in a graph are fixed, so nobody else may get what lies there
while the graph, or a tensor in it, lives. What is read from outside is held, and waited for by each replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from weft.backends.cuda.card import Card
from weft.backends.cuda.driver import Life
from weft.backends.cuda.memory import Block, Borrowed
from weft.backends.cuda.streams import Stream
from weft.errors import DeviceError

if TYPE_CHECKING:
    from weft.backends.cuda.array import DeviceArray
    from weft.backends.cuda.execute import CudaExecutable

_RELAXED = 2  # of CUstreamCaptureMode: modules are loaded, and memory is had, beside what is captured


class GraphBlock(Block):
    """Memory of a graph. It has no content before the first replay."""

    __slots__ = ()
    pool: Any

    def read_on(self, stream: Stream) -> None:
        """Let a stream see what the last replay wrote."""
        if stream.capture is None:
            self.pool.read_on(stream)
        else:
            stream.capture.read(self)

    def write_on(self, stream: Stream) -> None:
        """Let a stream overwrite it, until the next replay."""
        if stream.capture is None:
            self.pool.write_on(stream)
        else:
            stream.capture.write(self)


class GraphMemory:
    """The memory of one graph; given back when neither the graph nor a tensor in it lives any more.

    Attributes:
        card: the device.
        size: in bytes, all pieces together.
        ran: whether the graph was replayed: before, there is nothing to read.
        writer: the stream that replayed it last, or in whose order the memory was had.
        readers: streams that read it since.
    """

    def __init__(self, card: Card, outer: Stream) -> None:
        self.card = card
        self.size = 0
        self.ran = False
        self.writer = outer
        self.readers: list[Stream] = []
        self._pieces: list[int] = []
        self._free: dict[int, list[int]] = {}
        self._outer = outer
        self._open = True

    def take(self, size: int, stream: Stream) -> Block:
        """A block of a size that is rounded already: what an earlier step gave back, or a new one."""
        waiting = self._free.get(size)
        if waiting:
            return GraphBlock(self, waiting.pop(), size, stream)  # type: ignore[arg-type]
        pool = self.card.pool
        pointer = pool.ask(size, self._outer)
        self._pieces.append(pointer)
        self.size += size
        pool.count(size)
        return GraphBlock(self, pointer, size, stream)  # type: ignore[arg-type]

    def give(self, block: Block) -> None:
        """Let a later step of the capture have a block; after the capture they stay as they are."""
        if self._open:
            self._free.setdefault(block.size, []).append(block.pointer)

    def close(self) -> None:
        """Hand out nothing any more."""
        self._open = False
        self._free.clear()

    def read_on(self, stream: Stream) -> None:
        """Let a stream see what the last replay wrote."""
        if not self.ran:
            raise DeviceError(
                "cuda.graph",
                "a graph must be replayed before its results are read, got none",
                hint="capturing computes nothing: call g.replay() first",
            )
        if self.writer is not stream:
            stream.wait_stream(self.writer)
            if stream not in self.readers:
                self.readers.append(stream)

    def write_on(self, stream: Stream) -> None:
        """Let a stream overwrite it: after all who wrote or read it."""
        for other in (self.writer, *self.readers):
            if other is not stream:
                stream.wait_stream(other)
        self.writer = stream
        self.readers.clear()

    def __del__(self, life: type[Life] = Life) -> None:
        if life.ending or not self._pieces:
            return
        self.write_on(self._outer)
        for pointer in self._pieces:
            self.card.driver.code("cuMemFreeAsync", pointer, self._outer.handle)
        self.card.pool.count(-self.size)


class Recorder:
    """Captures what this thread gives to a device, from ``begin`` to ``end``.

    Attributes:
        card: the device.
        outer: the stream that was current before: what is not captured is done there.
        stream: the one that notes work.
        memory: of the graph.
        reads: memory from outside that the work reads, by identity.
        writes: memory from outside that it writes in place, by identity.
        checks: programs that may fail, with the words where their kernels note it.
        calls_libraries: whether the work has calls of libraries, which share memory with those of others.
    """

    def __init__(self, card: Card) -> None:
        self.card = card
        self.outer = card.current()
        if self.outer.capture is not None:
            raise DeviceError(
                "cuda.graph", "graphs must be captured one after another, got one inside another"
            )
        self.stream = Stream(card)
        self.memory = GraphMemory(card, self.outer)
        self.reads: dict[int, Block | Borrowed] = {}
        self.writes: dict[int, Block] = {}
        self.checks: list[tuple[CudaExecutable, Block]] = []
        self.calls_libraries = False

    def begin(self) -> None:
        """Let work of this thread be noted, from here on."""
        mode = getattr(self.card.driver.api, "CUstreamCaptureMode", int)(_RELAXED)
        self.card.enter()
        self.card.driver.cuStreamBeginCapture(self.stream.handle, mode)
        self.stream.__enter__()
        self.stream.capture = self

    def leave(self) -> None:
        """Let work of this thread be done again; what was noted waits for ``end`` or ``drop``."""
        self.stream.capture = None
        self.stream.__exit__(None, None, None)
        self.memory.close()

    def end(self) -> Any:
        """The graph of what was noted."""
        return self.card.driver.cuStreamEndCapture(self.stream.handle)

    def drop(self) -> None:
        """Forget what was noted; it may be broken."""
        result = self.card.driver.api.cuStreamEndCapture(self.stream.handle)  # type: ignore[attr-defined]
        if not result[0] and len(result) > 1 and int(result[1]):
            self.card.driver.code("cuGraphDestroy", result[1])

    # What memory and streams ask

    def take(self, size: int) -> Block:
        """Memory for a step that is captured."""
        return self.memory.take(size, self.stream)

    def read(self, block: Any) -> None:
        """Note that the work reads a block: it is held, and each replay waits for who writes it."""
        if getattr(block, "pool", None) is not self.memory:
            self.reads[id(block)] = block

    def write(self, block: Block) -> None:
        """Note that the work writes to a block."""
        if block.pool is not self.memory:  # type: ignore[comparison-overlap]
            self.writes[id(block)] = block

    def own_copy(self, array: DeviceArray) -> DeviceArray:
        """An array in memory of the graph: one from outside is copied, as it may be written to afterwards."""
        return array if getattr(array.block, "pool", None) is self.memory else array.copy()

    def refuse(self, what: str, hint: str | None = None) -> NoReturn:
        """The error of what cannot be a part of a graph."""
        raise DeviceError(
            "cuda.graph",
            f"work must stay on {self.card.device} while a graph is captured, got {what}",
            hint=hint,
        )

    def fails(self, executable: CudaExecutable, context: Block) -> None:
        """Note that a program may fail: each replay looks at what its kernels have noted."""
        self.checks.append((executable, context))
