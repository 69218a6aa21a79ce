"""Whose code runs: weft's, Python's own, or the user's; and at which line of it the user's code is.

Errors tell it, nodes of graphs keep it.
"""

from __future__ import annotations

import linecache
import os
import sys

from weft.base.notebook import place_text

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = os.path.join(_LIBRARY, "site-packages") + os.sep
_MOST_FILES = 10_000

WEFT, PYTHON, USER = range(3)
_owners: dict[str, int] = {}  # by name of a file, whose code it is


def owner_of(name: str) -> int:
    """Whose code a file is: weft's, that of Python's own library, or the user's."""
    if name.startswith((PACKAGE, "<frozen", "<weft ")):  # the last: code that weft has generated
        owner = WEFT
    else:
        owner = PYTHON if name.startswith(_LIBRARY) and not name.startswith(_INSTALLED) else USER
    if len(_owners) < _MOST_FILES:
        _owners[name] = owner
    return owner


def user_location(depth: int = 1) -> tuple[str, int] | None:
    """File and line of the nearest caller outside weft and Python's own library, or None."""
    frame = sys._getframe(depth)
    nearest = None
    while frame is not None:
        name = frame.f_code.co_filename
        owner = owner_of(name)
        if owner == USER:
            return name, frame.f_lineno
        if owner == PYTHON:
            nearest = nearest or (name, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return nearest


def user_frame(depth: int = 1) -> tuple[str, int, str] | None:
    """File, line and function of the nearest caller outside weft and Python's own library, or None."""
    frame = sys._getframe(depth)
    while frame is not None:
        name = frame.f_code.co_filename
        owner = _owners.get(name)  # written out: this runs for each node of a graph that is captured
        if (owner_of(name) if owner is None else owner) == USER:
            return name, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back  # type: ignore[assignment]
    return None


def format_location(location: tuple[str, int]) -> str:
    """``model.py:18: h = x @ self.w`` for a location, with the source text where it can be read.

    A location in a cell of a notebook is ``Cell In[15], line 3: h = x @ self.w``.
    """
    name, line = location
    source = linecache.getline(name, line).strip()
    where = place_text(name, line)
    return f"{where}: {source}" if source else where
