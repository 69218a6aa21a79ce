"""How many threads weft may use: as many as the machine lets this process run at once, or as it was told."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import lru_cache

from weft.base.public import public
from weft.config import positive, settings
from weft.errors import ArgumentError, DomainError

_MOST = 256

_chosen: list[int] = []
_listeners: list[Callable[[int], None]] = []


@public
def set_num_threads(n: int) -> None:
    """Use so many threads from now on, the calling one among them; with 1, no other thread is used.

    Results do not depend on it. At first it is what the environment variable WEFT_NUM_THREADS says; without
    it, the number of processors that this process may use, and at most what OMP_NUM_THREADS says.

    >>> import weft
    >>> before = weft.get_num_threads()
    >>> weft.set_num_threads(2)
    >>> weft.get_num_threads()
    2
    >>> weft.set_num_threads(before)
    """
    if not isinstance(n, int) or isinstance(n, bool):
        raise ArgumentError("set_num_threads", f"the number must be an int, got {n!r}")
    if not 1 <= n <= _MOST:
        raise DomainError("set_num_threads", f"the number must be in 1..{_MOST}, got {n}")
    _chosen[:] = [n]
    settings.num_threads = n
    for listener in _listeners:
        listener(n)


@public
def get_num_threads() -> int:
    """The number of threads that weft uses.

    >>> import weft
    >>> weft.get_num_threads() >= 1
    True
    """
    if not _chosen:
        _chosen.append(_default_number())
    return _chosen[0]


def on_change(listener: Callable[[int], None]) -> None:
    """Have a function called with each number that is set."""
    _listeners.append(listener)


def _default_number() -> int:
    if settings.num_threads is not None:
        return min(settings.num_threads, _MOST)
    at_most = positive(os.environ.get("OMP_NUM_THREADS", "").split(",")[0])
    return min(_MOST, usable_processors(), at_most or _MOST)


@lru_cache
def usable_processors() -> int:
    """How many processors this process may use at once, as it was found first."""
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    return min(allowed, _quota())


def _quota(root: str = "/sys/fs/cgroup", group: str = "/proc/self/cgroup") -> int:
    """How many processors the control groups around this process grant, rounded up; many if they do not say.

    Version 2 has one file with quota and period in each group, version 1 two files in a tree of their own.
    """
    granted = [float(_MOST)]
    for line in _read(group).splitlines():
        _, kinds, name = line.split(":", 2)
        tree = root if not kinds else os.path.join(root, kinds)
        if kinds and "cpu" not in kinds.split(","):
            continue
        place = os.path.join(tree, name.lstrip("/")).rstrip("/")
        while place == root or place.startswith(f"{root}/"):
            granted.append(_granted(place))
            place = os.path.dirname(place)
    return max(1, math.ceil(min(granted)))


def _granted(place: str) -> float:
    words = _read(f"{place}/cpu.max").split()
    if not words:
        words = [*_read(f"{place}/cpu.cfs_quota_us").split(), *_read(f"{place}/cpu.cfs_period_us").split()]
    quota, period = [*map(positive, words), None, None][:2]
    return quota / period if quota and period else float(_MOST)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
