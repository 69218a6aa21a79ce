"""Which exceptions the ``try`` statements and context managers around captured code may handle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.tensor.mode import thread

Kinds = tuple[type[BaseException], ...]


def is_handled(kinds: Kinds) -> bool:
    """Whether code around may handle an exception of one of some classes."""
    handlers = thread.capture.root.notes.handlers
    return any(_meets(kind, handler) for known in handlers for handler in _flat(known()) for kind in kinds)


def _meets(kind: type[BaseException], handler: Any) -> bool:
    return isinstance(handler, type) and (issubclass(kind, handler) or issubclass(handler, kind))


def _flat(kinds: Any) -> Iterator[Any]:
    if isinstance(kinds, tuple):
        for kind in kinds:
            yield from _flat(kind)
    else:
        yield kinds
