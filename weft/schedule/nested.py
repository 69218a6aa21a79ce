"""Regions of control flow, lowered in the place where they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.ir.graph import Graph, Value
from weft.loop.ir import Const
from weft.schedule.arrays import Array, Progression
from weft.schedule.region import Scope
from weft.schedule.writer import over

Lower = Callable[[Scope], None]


def lower_region(
    scope: Scope, graph: Graph, inputs: Sequence[Any], wanted: Sequence[Array | None], lower: Lower
) -> list[Any]:
    """Lower a region here; gives the places of its outputs, which are the wanted ones where that is easy."""
    inner = Scope(scope.writer, graph, inputs)
    given = {*graph.inputs, *graph.constants}
    for value, array in zip(graph.outputs, wanted, strict=True):
        if array is not None and value not in given:
            inner.wanted.setdefault(value, array)
    lower(inner)
    return [_place(inner, v) for v in graph.outputs]


def _place(scope: Scope, value: Value) -> Any:
    """Where an output is: a scalar where it is one element, else an array."""
    if value.type.shape == ():
        return scope.scalar(value)
    place = scope.place(value)
    return place if isinstance(place, Const) else scope.array(value)


def put(scope: Scope, place: Any, target: Array) -> None:
    """Make an array hold a value, unless it does already."""
    if isinstance(place, Progression):
        place = scope.writer.counted(place)
    if isinstance(place, Array):
        if not is_same(place, target):
            scope.writer.copy(place, target)
    elif target.shape == ():
        scope.writer.main.store(target.buffer, target.offset, place)
    else:
        with scope.writer.kernel("fill", [], [target]) as k:
            _fill(k, place)


def _fill(k: Any, number: Const) -> None:
    (out,) = k.writes
    over(k.builder, out.shape, lambda *i: k.builder.store(out.buffer, out.at(*i), number))


def is_same(a: Array, b: Array) -> bool:
    """Whether two arrays are one in memory."""
    same_start = a.offset is b.offset or repr(a.offset) == repr(b.offset)
    return a.buffer is b.buffer and same_start and a.strides == b.strides
