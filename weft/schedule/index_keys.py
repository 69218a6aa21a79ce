"""What equal indices have in common."""

from __future__ import annotations

from typing import Any

from weft.loop.index import Index


def index_key(index: Index) -> Any:
    """The same for two indices that are always equal, as far as their terms show."""
    if not index.terms:
        return index.offset
    return (frozenset(index.terms.items()), index.offset)
