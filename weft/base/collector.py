"""The search for garbage, paused while many objects are made of which nearly all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Look for no garbage in this block, in any thread; memory that is counted is freed all the same.

    >>> import gc
    >>> from weft.base.collector import collector_paused
    >>> with collector_paused():
    ...     gc.isenabled()
    False
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
