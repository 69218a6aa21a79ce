"""Hooks on modules: functions that run before and after ``forward``."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from weft.errors import ArgumentError

Hook = Callable[..., Any]
NO_HOOKS: dict[int, Hook] = {}  # of every module without hooks, so that a capture knows that nothing changed
_numbers = itertools.count()


class HookHandle:
    """What registering a hook returns; ``remove()``, or the end of a ``with``, takes the hook off again."""

    def __init__(self, module: Any, place: str, number: int) -> None:
        self._module = weakref.ref(module)
        self._place = place
        self._number = number

    def remove(self) -> None:
        """Take the hook off; doing it twice is harmless."""
        module = self._module()
        if module is not None:
            hooks = getattr(module, self._place)
            left = {k: h for k, h in hooks.items() if k != self._number}
            setattr(module, self._place, left or NO_HOOKS)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def add_hook(module: Any, place: str, hook: Hook) -> HookHandle:
    """Add a hook to those of a module; they run in the order they were added."""
    if not callable(hook):
        raise ArgumentError("register_hook", f"a hook must be callable, got {type(hook).__name__}")
    number = next(_numbers)
    setattr(module, place, {**getattr(module, place), number: hook})
    return HookHandle(module, place, number)
