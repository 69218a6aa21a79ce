"""One epoch of a pipeline: the iterator of the training loop."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Self

from weft.base.tracebacks import hide_weft
from weft.data.stage import Element
from weft.data.stream import State, Stream
from weft.data.tree import to_tensors


@dataclass
class Progress:
    """How far an epoch is: the state after the last element that was given out, None before the first."""

    epoch: int
    state: State | None
    finished: bool = False


class Epoch:
    """An iterator over one epoch. Its workers end when it does, when it is closed, and when it is forgotten.

    >>> from weft import data
    >>> with iter(data.from_arrays([1, 2]).prefetch(2)) as epoch:
    ...     first = next(epoch)
    """

    def __init__(self, stream: Stream, progress: Progress, *, tensors: bool) -> None:
        self._stream = stream
        self._progress = progress
        self._tensors = tensors
        self._open = True
        self._end = weakref.finalize(self, stream.close)  # also when the program ends

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if not self._open:
            raise StopIteration
        try:
            element: Element = self._stream.next()
            self._progress.state = self._stream.state()
        except BaseException as error:
            self._progress.finished = isinstance(error, StopIteration)
            self.close()
            hide_weft(error)
            raise
        return to_tensors(element) if self._tensors else element

    def close(self) -> None:
        """End it, and the threads and processes that work for it."""
        self._open = False
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
