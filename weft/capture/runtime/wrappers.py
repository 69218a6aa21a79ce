"""Wrappers that weft or Python's library made around functions of the user before the capture.

``weft.no_grad()`` as a decorator, ``weft.vmap(f)``, ``weft.grad(f)`` and ``functools.cache`` give functions
whose own code is no user's. Called in a capture, what they wrap is converted all the same: a wrapper is made
again, around the converted function.
"""

from __future__ import annotations

import functools
from types import CellType, FunctionType, MethodType
from typing import Any

from weft.capture.convert.functions import convert_function
from weft.capture.convert.source import is_library
from weft.capture.runtime.handed import handed_over
from weft.tensor.mode import thread


def unwrapped(function: Any, around: tuple[Any, ...] = ()) -> Any:
    """The same wrapper around converted functions; the function itself if it is no wrapper.

    Wrappers may hold themselves, so those ``around`` this one are told.
    """
    if isinstance(function, functools._lru_cache_wrapper):
        return function.__wrapped__  # what it keeps from a capture would be of no use after it
    if isinstance(function, MethodType):
        inside = unwrapped(function.__func__, around)
        return function if inside is function.__func__ else MethodType(inside, function.__self__)
    if not isinstance(function, FunctionType) or not is_library(function.__code__.co_filename):
        return function
    if function in _ORDERINGS:
        return convert_function(function, _runtime()) or function
    cells = function.__closure__ or ()
    contents = [_content(cell) for cell in cells]
    around = (*around, function)
    inner = [content if _is_one_of(content, around) else _converted(content, around) for content in contents]
    if all(a is b for a, b in zip(contents, inner, strict=True)):
        return function
    pairs = zip(cells, contents, inner, strict=True)
    own = CellType()
    closure = tuple(own if a is function else cell if a is b else CellType(b) for cell, a, b in pairs)
    made = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, closure
    )
    made.__kwdefaults__ = function.__kwdefaults__
    own.cell_contents = made
    return made


# What ``functools.total_ordering`` gives a class, by the comparisons that the user wrote.
_ORDERINGS = frozenset(
    f
    for row in functools._convert.values()  # type: ignore[attr-defined]
    for _, f in row
)


def _runtime() -> Any:
    from weft.capture.runtime import interface

    return interface


def _is_one_of(x: Any, objects: tuple[Any, ...]) -> bool:
    return any(x is one for one in objects)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _converted(content: Any, around: tuple[Any, ...]) -> Any:
    """What a wrapper holds, converted if it is a function of the user, or a wrapper of one."""
    if not isinstance(content, FunctionType | MethodType | functools._lru_cache_wrapper):
        return content
    again = unwrapped(content, around)
    if again is not content:
        return again
    thread.capture.root.read_function(content)
    return handed_over(content)
