"""Names of sizes that only a run tells, fresh where a graph is captured or replayed.

Names count from 1 in each outermost capture, so that the same program gives the same text. A graph that is
replayed may have been captured elsewhere, or be replayed twice: what it names gets names that are new here.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from weft.base.sizes import Size, bind, named_size
from weft.ir.graph import Attrs, Node, Value, bind_attr, has_sizes
from weft.ir.interpret import solve
from weft.ir.order import TRIPS, sizes_defined, sizes_of
from weft.tensor.mode import thread


class _Thread(threading.local):
    def __init__(self) -> None:
        self.numbers = itertools.count(1)


_thread = _Thread()


@contextmanager
def counting_sizes_anew() -> Iterator[None]:
    """Let names count from 1, for an outermost capture."""
    before, _thread.numbers = _thread.numbers, itertools.count(1)
    try:
        yield
    finally:
        _thread.numbers = before


def fresh_size() -> Size:
    """A named size that nothing in the capture has."""
    taken, capture = set[str](), thread.capture
    while capture is not None:
        taken |= sizes_of(capture.inputs)
        capture = capture.parent
    while (name := f"n{next(_thread.numbers)}") in taken:
        pass
    return named_size(name)


def learn_sizes(value: Value, shape: tuple[Any, ...], sizes: dict[str, Any]) -> None:
    """Enter what the named sizes of a value are where it is replayed: numbers, or other named sizes."""
    for size, actual in zip(value.type.shape, shape, strict=True):
        if not isinstance(size, Size) or isinstance(known := bind(size, sizes), int) or known == actual:
            continue
        if isinstance(actual, int):
            solve(known, actual, sizes)
        elif str(size) in size.names():
            sizes[str(size)] = actual


def replayed_attrs(node: Node, sizes: Mapping[str, Any]) -> Attrs:
    """The attributes of a node where it is replayed."""
    attrs, regions = node.attrs, node.regions
    inside = {name: fresh_size() for region in regions for n in region.walk() for name in sizes_defined(n)}
    if inside or (sizes and (regions or has_sizes(attrs))):
        known = {**sizes, **inside}
        attrs = {k: bind_attr(a, known) for k, a in attrs.items()}
    trips = attrs.get(TRIPS)
    if isinstance(trips, Size) and trips == node.attrs[TRIPS]:  # the first node that tells this size
        attrs = {**attrs, TRIPS: fresh_size()}
    return attrs
