"""Ctrl-C while a trainer runs: the first lets the step end, the second is the usual error."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """Notes Ctrl-C inside a ``with`` block; outside the main thread it leaves signals alone.

    Attributes:
        asked: whether there was one.

    >>> from weft.train.interrupt import Interrupt
    >>> with Interrupt() as interrupt:
    ...     interrupt.asked
    False
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *reason: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
