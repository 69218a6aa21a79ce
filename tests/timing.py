"""How tests measure time: what else the machine does must not decide.

A limit is met once, or it is not met at all: work that takes too long takes it every time, while a busy
machine only disturbs some of the measurements. So what is measured is repeated until it is quick enough.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def least_seconds(run: Callable[[], object], enough: float = 0.0, tries: int = 20) -> float:
    """The least processor time that ``run()`` took, once it is below ``enough`` or after ``tries``.

    The collector of garbage is off meanwhile: what it costs depends on all that other tests have made.
    """
    least = float("inf")
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(tries):
            start = time.process_time()
            run()
            least = min(least, time.process_time() - start)
            if least < enough:
                break
    finally:
        if enabled:
            gc.enable()
    return least
