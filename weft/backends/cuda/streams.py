"""Streams, in which work is done in its order, and events, which mark a place in one."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from weft.backends.cuda.card import Card, card, here
from weft.backends.cuda.driver import NOT_READY, Life
from weft.base.device import DeviceLike, index_of
from weft.errors import ArgumentError, DeviceError

if TYPE_CHECKING:
    from weft.backends.cuda.recorder import Recorder

_NON_BLOCKING = 1  # does not wait for the default stream of old programs
_NO_TIMING = 2


class Stream:
    """A queue of work on a device. In its ``with`` block, work of this thread goes to it.

    What one stream computes and another one reads is waited for by itself: nobody needs to say so.

    Attributes:
        card: the device.
        handle: of the driver.
        capture: what notes the work that comes in, instead of having it done; see ``weft.cuda.graph``.
        shelves: by size, small blocks of memory that were had in its order, and that nobody uses.
    """

    __slots__ = ("__weakref__", "_before", "_own", "capture", "card", "handle", "shelves")

    def __init__(self, on: Card | DeviceLike | None = None, *, handle: int | None = None) -> None:
        self.card = on if isinstance(on, Card) else card(index_of("Stream", on), "Stream")
        self._before: list[Any] = []
        self.capture: Recorder | None = None
        self.shelves: dict[int, list[int]] = {}
        self._own = handle is None
        self.card.enter()
        self.card.several_streams = True
        self.handle = int(self.card.driver.cuStreamCreate(_NON_BLOCKING)) if handle is None else handle

    def __repr__(self) -> str:
        return f"<Stream {self.handle:#x} of {self.card.device}>"

    def __del__(self, life: type[Life] = Life) -> None:
        if life.ending:
            return
        if hasattr(self, "handle"):
            self.clear_shelves()
            if self._own:
                self.card.driver.code("cuStreamDestroy", self.handle)  # the driver ends its work first

    def clear_shelves(self) -> None:
        """Give memory that nobody uses back to the driver."""
        for waiting in list(self.shelves.values()):
            while waiting:
                self.card.driver.code("cuMemFreeAsync", waiting.pop(), self.handle)

    def synchronize(self) -> None:
        """Wait until all its work is done."""
        if self.capture is not None:
            self.capture.refuse("a wait for the device", "read values after g.replay()")
        self.card.driver.cuStreamSynchronize(self.handle)

    def query(self) -> bool:
        """Whether all its work is done."""
        if self.capture is not None:
            self.capture.refuse("a question whether work is done")
        return _is_done(self.card, "cuStreamQuery", self.handle)

    def is_busy(self) -> bool:
        """Whether some of its work may not be done, as far as the driver says."""
        return self.card.driver.code("cuStreamQuery", self.handle) != 0

    def wait_event(self, event: Event) -> None:
        """Let work that comes next wait for an event."""
        if event.handle is None:
            return
        self.card.driver.cuStreamWaitEvent(self.handle, event.handle, 0)

    def wait_stream(self, other: Stream) -> None:
        """Let work that comes next wait for all that another stream has been given."""
        if other is not self:
            self.wait_event(other.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Mark the place after all that it has been given."""
        event = Event(timing=False) if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        if (noting := self.card.current().capture) is not None:
            noting.refuse("another stream", "capture the work of one stream")
        self._before.append(here.streams.get(self.card.index))
        here.choose(self.card.index, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        here.choose(self.card.index, self._before.pop())


class Event:
    """A place in a stream: it can be waited for, and times between two can be had.

    Args:
        timing: whether times are wanted; without, it costs less.
    """

    __slots__ = ("_card", "_timing", "handle")

    def __init__(self, *, timing: bool = True) -> None:
        self.handle: int | None = None
        self._timing = timing
        self._card: Card | None = None

    def __del__(self, life: type[Life] = Life) -> None:
        if life.ending:
            return
        if getattr(self, "handle", None) is not None and self._card is not None:
            self._card.driver.code("cuEventDestroy", self.handle)

    def record(self, stream: Stream | None = None) -> None:
        """Mark the place after all that a stream, the current one by default, has been given."""
        stream = card(0, "Event").current() if stream is None else stream
        if not isinstance(stream, Stream):
            raise ArgumentError("Event.record", f"must be given a Stream, got {type(stream).__name__}")
        if stream.capture is not None:
            stream.capture.refuse("an event", "record events around g.replay()")
        stream.card.enter()
        if self.handle is None:
            self._card = stream.card
            self.handle = int(stream.card.driver.cuEventCreate(0 if self._timing else _NO_TIMING))
        elif self._card is not stream.card:
            raise DeviceError("Event.record", f"must stay on one device, got {stream.card.device}")
        stream.card.driver.cuEventRecord(self.handle, stream.handle)

    def query(self) -> bool:
        """Whether all before it is done; an event that was never recorded waits for nothing."""
        return self._card is None or _is_done(self._card, "cuEventQuery", self.handle)

    def synchronize(self) -> None:
        """Wait until all before it is done."""
        if self._card is not None:
            self._card.driver.cuEventSynchronize(self.handle)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to a later one, when both are done."""
        if self._card is None or end._card is None or not (self._timing and end._timing):
            raise DeviceError(
                "elapsed_time",
                "both events must be recorded, and made with timing",
                hint="use weft.cuda.Event() and record()",
            )
        return float(self._card.driver.cuEventElapsedTime(self.handle, end.handle))


def _is_done(on: Card, ask: str, handle: object) -> bool:
    code = on.driver.code(ask, handle)
    if code not in (0, NOT_READY):
        raise on.driver.failure(ask, code)
    return code == 0
