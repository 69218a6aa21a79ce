"""Which threads do not record what they run, or tell somebody of it.

The hot path asks a thread what it does only while ``switch.off`` holds some thread, so code that uses neither
pays one attribute read.
"""

from __future__ import annotations


class _Switch:
    __slots__ = ("off",)

    def __init__(self) -> None:
        self.off: set[int] = set()  # threads that do not record, or that have an observer


switch = _Switch()
