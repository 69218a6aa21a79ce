"""A search along a line for a point that satisfies the strong Wolfe conditions.

Nocedal and Wright, "Numerical optimization", 2006, algorithms 3.5 and 3.6, with cubic interpolation.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

_DECREASE, _CURVATURE = 1e-4, 0.9  # c1 and c2 of the conditions


class Point(NamedTuple):
    """A place on the line: how far it is, the value there, the gradient, and the slope along the line."""

    at: float
    value: float
    gradient: Any
    slope: float


class _Search:
    """Looks at points and knows the conditions at the start."""

    def __init__(self, look: Callable[[float], Point], start: Point, most: int) -> None:
        self.look = look
        self.start = start
        self.most = most
        self.steps = 0  # of bracketing and zooming together
        self.looks = 0

    def at(self, place: float) -> Point:
        self.looks += 1
        return self.look(place)

    def is_too_high(self, point: Point) -> bool:
        return point.value > self.start.value + _DECREASE * point.at * self.start.slope

    def is_flat(self, point: Point) -> bool:
        return abs(point.slope) <= -_CURVATURE * self.start.slope


def strong_wolfe(
    look: Callable[[float], Point], start: Point, first: float, *, size: float, tolerance: float, most: int
) -> tuple[Point, int]:
    """The best point found, and how often it looked.

    Args:
        look: evaluates at a place on the line.
        start: the point at 0, from which the line leads down.
        first: the place to try first.
        size: the largest change of a coordinate for a step of 1.
        tolerance: the change of coordinates below which the search ends.
        most: how many steps it makes at most.
    """
    search = _Search(look, start, most)
    bracket = _bracket(search, first)
    if len(bracket) == 2:
        found = _zoom(search, bracket, size, tolerance)
    else:
        found = bracket[0]
    return found, search.looks


def _bracket(search: _Search, first: float) -> list[Point]:
    """Two points with a good one between them, or a good one alone."""
    before, point = search.start, search.at(first)
    while search.steps < search.most:
        if search.is_too_high(point) or (search.steps > 1 and point.value >= before.value):
            return [before, point]
        if search.is_flat(point):
            return [point]
        if point.slope >= 0:
            return [before, point]
        limits = (point.at + 0.01 * (point.at - before.at), point.at * 10)
        before, point = point, search.at(_lowest(before, point, limits))
        search.steps += 1
    return [search.start, point]


def _zoom(search: _Search, bracket: list[Point], size: float, tolerance: float) -> Point:
    """The good point in a bracket, which shrinks around it; the lower end if there is no time left."""
    one, two = bracket
    was_near_end = False
    while search.steps < search.most and abs(two.at - one.at) * size >= tolerance:
        place, was_near_end = _away_from_ends(_lowest(one, two), one.at, two.at, was_near_end)
        point = search.at(place)
        search.steps += 1
        low_is_one = one.value <= two.value
        low, high = (one, two) if low_is_one else (two, one)
        if search.is_too_high(point) or point.value >= low.value:
            high = point
        elif search.is_flat(point):
            return point
        else:
            high = low if point.slope * (high.at - low.at) >= 0 else high
            low = point
        one, two = (low, high) if low_is_one else (high, low)
    return one if one.value <= two.value else two


def _away_from_ends(place: float, one: float, two: float, was_near: bool) -> tuple[float, bool]:
    """A place to look at, moved into the bracket if it is near an end a second time."""
    least, most = min(one, two), max(one, two)
    margin = 0.1 * (most - least)
    if min(most - place, place - least) >= margin:
        return place, False
    if not was_near and least < place < most:
        return place, True
    return (most - margin if abs(place - most) < abs(place - least) else least + margin), False


def _lowest(one: Point, two: Point, limits: tuple[float, float] | None = None) -> float:
    """Where the cubic through two points with their slopes is lowest, within limits."""
    least, most = limits or (min(one.at, two.at), max(one.at, two.at))
    if one.at == two.at:
        return (least + most) / 2
    left, right = (one, two) if one.at <= two.at else (two, one)
    bend = one.slope + two.slope - 3 * (one.value - two.value) / (one.at - two.at)
    square = bend * bend - one.slope * two.slope
    if not square >= 0:
        return (least + most) / 2
    root = sqrt(square)
    below = right.slope - left.slope + 2 * root
    if below == 0:
        return (least + most) / 2
    place = right.at - (right.at - left.at) * ((right.slope + root - bend) / below)
    return min(max(place, least), most)
