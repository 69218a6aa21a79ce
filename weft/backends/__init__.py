"""Backends: what makes a callable of a graph. All others are compared with ``interpret``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from weft.errors import DomainError
from weft.ir.graph import Graph

Run = Callable[[Sequence[Any]], Sequence[Any]]
Build = Callable[[Graph], Run]

_MODULES = {"interpret": "weft.backends.interpret"}  # each has a function `build`
_registered: dict[str, Build] = {}


def register_backend(name: str, build: Build) -> Build:
    """Enter a backend: a function from a graph to a function from arrays to arrays.

    >>> from weft.backends import backend_named, register_backend
    >>> _ = register_backend("mine", backend_named("interpret"))
    """
    _registered[name] = build
    return build


def backend_named(name: str) -> Build:
    """The backend with a name, imported at first use."""
    if name not in _registered:
        if name not in _MODULES:
            known = ", ".join(sorted({*_MODULES, *_registered}))
            raise DomainError("backend", f"must be one of {known}, got {name!r}")
        _registered[name] = import_module(_MODULES[name]).build
    return _registered[name]
