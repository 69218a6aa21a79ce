"""The threads that kernels run on: a native pool, compiled once, of which none starts before it has work."""

from __future__ import annotations

import ctypes
import os

from weft.backends.llvm.compiler import Source
from weft.backends.llvm.engine import Code, Engine, default_engine
from weft.backends.llvm.pool_code import POOL
from weft.base.threads import get_num_threads, on_change, usable_processors

SOURCE = Source(POOL, quick=True)  # others wait for it; little of it is in loops
_SPIN = 40_000  # nanoseconds that an idle worker spins before it sleeps


class Pool:
    """The threads of this process that kernels run on; none is started before the first wave.

    Attributes:
        wave: ``weft_wave``, for kernels on the pool.
        now: ``weft_now``, nanoseconds of a clock that only goes forward.
        mode, set_mode: ``weft_mode`` and ``weft_set_mode``, how the processor treats floating-point numbers.
    """

    def __init__(self, engine: Engine) -> None:
        codes = engine.load([SOURCE])
        self.wave: Code = codes["weft_wave"]
        self.now: Code = codes["weft_now"]
        self.mode: Code = codes["weft_mode"]
        self.set_mode: Code = codes["weft_set_mode"]
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
        engine = default_engine()
        with engine.lock:
            if not _pools:
                _pools.append(Pool(engine))
    return _pools[0]


def provide_pool(engine: Engine) -> None:
    """Let texts declare what the pool defines."""
    engine.provide("weft_wave", lambda: default_pool().wave.address)
    engine.provide("weft_now", lambda: default_pool().now.address)
    engine.provide("weft_mode", lambda: default_pool().mode.address)
    engine.provide("weft_set_mode", lambda: default_pool().set_mode.address)
