"""The threads that kernels run on: a native pool, compiled once, of which none starts before it has work.

``weft_wave`` runs launches of kernels: whoever has nothing to do claims the next piece of work, the caller
from the front, the others from the back, so that from wave to wave a thread meets the same data in its cache.
Workers join a wave if they are awake while there is work; the caller waits for those who joined, for nobody
else. Idle workers spin for a moment, letting others have their processor now and then, and then sleep. A wave
that finds the pool in use runs in its own thread. In a wave workers compute in the caller's mode: whether the
processor takes numbers below the normal ones for zero.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from weft.backends.llvm.code import Code, Source, llvm_text, lock, shared
from weft.base.threads import get_num_threads, on_change, usable_processors

if TYPE_CHECKING:
    pass

FUNCTIONS = (
    "weft_wave",
    "weft_now",
    "weft_mode",
    "weft_set_mode",
    "weft_pool_set",
    "weft_pool_started",
    "weft_pool_reset",
)
_SPIN = 40_000  # nanoseconds that an idle worker spins before it sleeps


def pool_text(*, arm: bool, mac: bool) -> str:
    """The code of the pool for a kind of processor and of system.

    >>> from weft.backends.llvm.pool import pool_text
    >>> "fpcr" in pool_text(arm=True, mac=False), "fpcr" in pool_text(arm=False, mac=False)
    (True, False)
    """
    values = {
        "pause": "@llvm.aarch64.isb(i32 15)" if arm else "@llvm.x86.sse2.pause()",
        "pause_declared": "@llvm.aarch64.isb(i32)" if arm else "@llvm.x86.sse2.pause()",
        "clock": 6 if mac else 1,  # CLOCK_MONOTONIC
        "set_mask": 3 if mac else 2,  # SIG_SETMASK
    }
    mode = llvm_text("mode_arm" if arm else "mode_x86")
    return "\n".join(["", mode, llvm_text("pool", values)])


@lru_cache
def pool_source() -> Source:
    """The code of the pool for this machine; others wait for it, and little of it is in loops."""
    arm = platform.machine().lower() in ("aarch64", "arm64")
    return Source(pool_text(arm=arm, mac=sys.platform == "darwin"), quick=True)


class Pool:
    """The threads of this process that kernels run on; none is started before the first wave.

    Attributes:
        codes: its functions by name: ``weft_wave``, for kernels on the pool; ``weft_now``, nanoseconds of a
            clock that only goes forward; ``weft_mode`` and ``weft_set_mode``, how the processor treats
            floating-point numbers; and those that it is managed by.
    """

    def __init__(self, codes: Mapping[str, Code]) -> None:
        self.codes = {name: codes[name] for name in FUNCTIONS}
        self._set = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(codes["weft_pool_set"].address)
        self._started = ctypes.CFUNCTYPE(ctypes.c_int64)(codes["weft_pool_started"].address)
        self._reset = ctypes.CFUNCTYPE(None)(codes["weft_pool_reset"].address)
        self._reset()
        self._use(get_num_threads())
        on_change(self._use)
        os.register_at_fork(after_in_child=self._reset)

    @property
    def started(self) -> int:
        """How many threads have been started beside those that call."""
        return int(self._started())

    def _use(self, threads: int) -> None:
        # A thread that spins where there are too few processors keeps one from those that work.
        self._set(threads, _SPIN if threads <= usable_processors() else 0)


_pools: list[Pool] = []


def default_pool() -> Pool:
    """The pool of this process."""
    if not _pools:
        with lock:
            if not _pools:
                _pools.append(Pool(shared or _compiled()))
    return _pools[0]


def _compiled() -> dict[str, Code]:
    from weft.backends.llvm.engine import default_engine

    return default_engine().load([pool_source()])


def pool_address(name: str) -> int:
    """Where a function of the pool is."""
    return default_pool().codes[name].address
