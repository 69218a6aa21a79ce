"""Names of sizes that only a run tells, fresh where a graph is captured or replayed.

Names count from 1 in each outermost capture, so that the same program gives the same text. A graph that is
replayed may have been captured elsewhere, or be replayed twice: what it names gets names that are new here.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterator, Mapping
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
        else:
            _learn_name(known, actual, sizes)


def _learn_name(size: Size, actual: Size, sizes: dict[str, Any]) -> None:
    """Enter what the only name in a size stands for, if ``a * name + b`` is the other size for it."""
    if len(size.names()) != 1:
        return
    (name,) = size.names()
    offset = bind(size, {name: 0})
    factor = bind(size, {name: 1}) - offset
    found = (actual - offset) // factor if factor else actual
    if bind(size, {name: found}) == actual:
        sizes[name] = found


def replayed_attrs(node: Node, sizes: Mapping[str, Any], given: Collection[str] = ()) -> Attrs:
    """The attributes of a node where it is replayed; what it tells again of sizes that are given stays so."""
    attrs, regions = node.attrs, node.regions
    told = {name for region in regions for n in region.walk() for name in sizes_defined(n)}
    inside = {name: fresh_size() for name in sorted(told.difference(given))}
    if inside or (sizes and (regions or has_sizes(attrs))):
        known = {**sizes, **inside}
        attrs = {k: bind_attr(a, known) for k, a in attrs.items()}
    trips = attrs.get(TRIPS)
    is_first = isinstance(trips, Size) and trips == node.attrs[TRIPS]  # node that tells this size
    if is_first and sizes_defined(node).isdisjoint(given):
        attrs = {**attrs, TRIPS: fresh_size()}
    return attrs
