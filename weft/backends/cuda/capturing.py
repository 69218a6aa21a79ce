"""Calls of libraries as graphs: what they give to a stream that captures becomes nodes, and is not run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from weft.backends.cuda.card import Card
from weft.backends.cuda.streams import Stream

_RELAXED = 2  # of CUstreamCaptureMode: what other threads do meanwhile is their own affair


class _Streams(threading.local):
    """Streams that nothing ever runs on, one for each thread and device."""

    def __init__(self) -> None:
        self.by_card: dict[int, Stream] = {}

    def of(self, card: Card) -> Stream:
        """The stream of this thread."""
        stream = self.by_card.get(id(card))
        if stream is None or stream.card is not card:
            stream = self.by_card[id(card)] = Stream(card)
        return stream


_streams = _Streams()


def captured(card: Card, work: Callable[[Stream], None]) -> Any:
    """The graph of what a function gives to a stream; whoever has it destroys it."""
    stream, driver = _streams.of(card), card.driver
    mode = getattr(driver.api, "CUstreamCaptureMode", int)(_RELAXED)
    driver.cuStreamBeginCapture(stream.handle, mode)
    try:
        work(stream)
    except BaseException:
        _, graph = driver.api.cuStreamEndCapture(stream.handle)  # type: ignore[attr-defined]
        if graph:
            driver.code("cuGraphDestroy", graph)
        raise
    return driver.cuStreamEndCapture(stream.handle)
