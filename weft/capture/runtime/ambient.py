"""What surrounds captured code and is read by calls: the environment, context variables, results in caches.

Each read is a guard of just what was read.
"""

from __future__ import annotations

import functools
import os
from contextvars import ContextVar
from typing import Any

from weft.base.trees import tree_leaves, tree_map
from weft.capture.program.slots import MISSING, cached_slot, context_slot
from weft.capture.runtime.number import Number
from weft.capture.runtime.text import looked_at
from weft.capture.runtime.whole import whole
from weft.errors import WeftError
from weft.tensor.mode import thread
from weft.tensor.tensor import Tensor
from weft.transform.captured import not_capturing


def note_environment(key: Any) -> None:
    """Note that captured code asked for a variable of the environment."""
    root, held = thread.capture.root, getattr(os.environ, "_data", None)
    if not isinstance(held, dict) or not isinstance(key, str) or not root.guards_reads:
        whole(os.environ)
        return
    encoded = os.environ.encodekey(key)
    if encoded in held:
        root.read_item(held, encoded, held[encoded])
    else:
        root.read_member(held, encoded, False)


def call_ambient(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call that reads the surroundings, with its guard; ``MISSING`` if it is none."""
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if function is os.getenv or (owner is os.environ and name in ("get", "__getitem__")):
        args = tuple(map(looked_at, args))
        note_environment(args[0] if args else kwargs.get("key"))
        return function(*args, **kwargs)
    if isinstance(owner, ContextVar) and name == "get":
        return _read(context_slot(owner, args), function(*args))
    if isinstance(function, functools._lru_cache_wrapper):
        return _call_cached(function, args, kwargs)
    return MISSING


def _read(slot: Any, value: Any) -> Any:
    thread.capture.root.read_slot(slot, value)
    return value


def _call_cached(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The cached result for plain arguments, which calls ask for again; ``MISSING`` where there is none."""
    if not thread.capture.root.is_named(function):  # captured code made it
        return MISSING
    args, kwargs = tree_map(looked_at, (args, kwargs))
    if any(isinstance(x, Tensor | Number) or not _is_hashable(x) for x in tree_leaves((args, kwargs))):
        return MISSING
    try:
        with not_capturing():
            value = function(*args, **kwargs)
    except WeftError:  # it uses tensors that the capture holds
        return MISSING
    return _read(cached_slot(function, args, kwargs), value)


def _is_hashable(x: Any) -> bool:
    try:
        hash(x)
    except TypeError:
        return False
    return True
