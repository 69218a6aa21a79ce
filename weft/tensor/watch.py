"""Ops under watch: while a profile runs, each op that this process runs on arrays is handed to it.

It costs nothing while nobody watches. The flat paths ask anyway whether a thread is intercepted; while ops
are watched the answer is yes, and the way that is taken then hands on the op, with a twin of its flat path
that does not ask again. So what is watched is what runs without.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft.ops.op import Op, intercepted
from weft.tensor.mode import thread

Run = Callable[..., Any]
Watcher = Callable[[str, Run, Sequence[Any], dict[str, Any]], Any]
Path = Callable[[Op, Run, Run, Any], Run]


class _Capturing:
    """Stands for the set of threads that capture, and is true though none may."""

    __slots__ = ("add", "discard", "real")

    def __init__(self, real: Any) -> None:
        self.real = real
        self.add, self.discard = real.add, real.discard

    def __contains__(self, ident: int) -> bool:
        return ident in self.real


class _Nobody:
    """Stands for ``intercepted`` where it is known that this thread does not capture."""

    __slots__ = ()
    threads = frozenset[int]()


class _Watching:
    __slots__ = ("watcher",)

    def __init__(self) -> None:
        self.watcher: Watcher | None = None


class _Here(threading.local):
    inside = False  # an op that is watched: what it runs is a part of it


watching = _Watching()
here = _Here()
NOBODY = _Nobody()


def watch_ops(watcher: Watcher | None) -> None:
    """Have ``watcher(name, run, inputs, attrs)`` called for each op; None ends it. ``run`` runs the op.

    The watcher sets ``here.inside`` while it runs the op.
    """
    watching.watcher = watcher
    real = intercepted.threads.real if isinstance(intercepted.threads, _Capturing) else intercepted.threads
    intercepted.threads = real if watcher is None else _Capturing(real)  # type: ignore[assignment]


def watched_by() -> Watcher | None:
    """Who is to be told of an op that this thread is about to run; asked in intercepted threads."""
    return None if here.inside or thread.capture is not None else watching.watcher


@contextmanager
def seen_again() -> Iterator[None]:
    """Have ops be watched in a block that a watched op runs: they are not a part of what it computes."""
    before, here.inside = here.inside, False
    try:
        yield
    finally:
        here.inside = before


def with_watch(op: Op, general: Run, path: Path) -> Run:
    """The function of an op with a flat path, made by ``path(op, general, staged, intercepted)``.

    ``general`` takes what the flat path cannot, ``staged`` everything while a thread captures.
    """
    twin: list[Run] = []

    def staged(*inputs: object, **attrs: object) -> Any:
        if watching.watcher is None or thread.capture is not None or thread.evaluated is not None:
            return general(*inputs, **attrs)
        if not twin:
            twin.append(path(op, general, general, NOBODY))
        watcher = watched_by()
        if watcher is None:
            return twin[0](*inputs, **attrs)
        return watcher(op.name, twin[0], inputs, attrs)

    return path(op, general, staged, intercepted)
