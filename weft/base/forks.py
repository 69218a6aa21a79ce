"""Locks at a fork: the child finds all of them free, and what they guard whole.

A process that forks keeps one thread; a lock that another one held would stay held in the child for ever. So
whoever forks takes all locks first, in one order, the order in which they are taken inside each other: what
is taken first comes first. A lock that somebody does not give back soon is waited for without the others.
llvmlite has a lock around all of its calls, which comes last: code that nobody holds any more is freed by any
thread at any time. Modules that another thread is importing are waited for, too: Python itself leaves their
locks as they are. Where one began in the last moment, the child forgets it, and imports it anew.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from enum import IntEnum
from typing import Any
from weakref import WeakSet

Lock = Any  # what threading.RLock gives

_SOON = 1.0  # seconds
_LONG = 0.05  # seconds: more than it takes from here to the fork; a busy thread makes it wait as long
_IMPORTING = 10.0  # seconds that others have to finish what they import


class Level(IntEnum):
    """What locks guard, in the order in which a thread takes them inside each other."""

    CAPTURE = 0
    VERSIONS = 1
    GRADIENTS = 2
    CONTENTS = 3
    CODE = 4
    EARLY = 5
    LIBRARY = 6
    GENERATOR = 7


_locks: dict[Level, WeakSet[Lock]] = {level: WeakSet() for level in Level}
_taken: list[Lock] = []
_interval: list[float] = []  # of turns of threads, before the fork


def lock_of(level: Level) -> Lock:
    """A new lock, which nobody holds in the child of a fork.

    >>> from weft.base.forks import Level, lock_of
    >>> with lock_of(Level.GENERATOR):
    ...     pass
    """
    lock = threading.RLock()
    _locks[level].add(lock)
    return lock


def _take_all() -> None:
    end = time.monotonic() + _IMPORTING
    while True:
        taken: list[Lock] = []
        late = next((lock for lock in _in_order() if not _take(lock, taken)), None)
        if late is None:
            _hold_turn()
            if not _others_import() or time.monotonic() > end:
                _taken[:] = taken
                return
            _give_turn()
        _release(taken)
        if late is None:
            _wait_for_imports()
        else:
            with late:  # whoever has it may be waiting for one that was taken here
                pass


def _wait_for_imports() -> None:
    """Wait a little; without the lock of ``logging`` too, which its own hook may have taken before."""
    lock = getattr(sys.modules.get("logging"), "_lock", None)
    held = lock is not None and getattr(lock, "_is_owned", bool)()
    if lock is not None and held:
        lock.release()
    time.sleep(0.02)
    if lock is not None and held:
        lock.acquire()


def _hold_turn() -> None:
    """Keep other threads from running Python from here on, but where this one waits."""
    _interval[:] = [sys.getswitchinterval()]
    sys.setswitchinterval(_LONG)
    time.sleep(2 * _interval[0])  # so that those who wait by the old interval have had their turn


def _give_turn() -> None:
    sys.setswitchinterval(_interval.pop())


def _others_import() -> list[str]:
    """The modules that other threads are in the middle of importing."""
    held = [(name, lock()) for name, lock in list(_module_locks().items())]
    mine = (None, threading.get_ident())
    return [name for name, lock in held if getattr(lock, "owner", None) not in mine]


def _module_locks() -> dict[str, Any]:
    return getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})


def _in_order() -> list[Lock]:
    locks = [lock for level in Level for lock in list(_locks[level])]
    ffi = sys.modules.get("llvmlite.binding.ffi")
    own = getattr(getattr(getattr(ffi, "lib", None), "_lock", None), "_lock", None)
    return locks if own is None else [*locks, own]


def _take(lock: Lock, taken: list[Lock]) -> bool:
    if lock.acquire(timeout=_SOON):
        taken.append(lock)
        return True
    return False


def _release(taken: list[Lock]) -> None:
    while taken:
        taken.pop().release()


def _give_back() -> None:
    _give_turn()
    _release(_taken)


def _begin_child() -> None:
    """Forget modules that threads were importing which are not here any more."""
    for name in _others_import():
        sys.modules.pop(name, None)
        _module_locks().pop(name, None)
    _give_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_take_all,
        after_in_parent=_give_back,
        after_in_child=_begin_child,
    )
