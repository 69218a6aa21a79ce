"""How much memory this process uses, as the system tells."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def now() -> int:
    """Bytes in memory now; the most so far where the system does not tell."""
    return _status("VmRSS") or peak()


def peak() -> int:
    """The most bytes in memory since the last reset."""
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def reset_peak() -> None:
    """Begin a new peak, where the system can."""
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5")


def _status(name: str) -> int:
    if not _STATUS.exists():
        return 0
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024
