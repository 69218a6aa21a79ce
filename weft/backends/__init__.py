"""Backends: what makes a callable of a graph. All others are compared with ``interpret``.

A backend is a function ``build(graph, **options)`` that gives a function ``run`` from a list of arrays to a
list of arrays of the types of the results. What ``run`` may have besides:

- ``run.explain()``: what it does, as text or as an object with a text; ``run.explain(arrays)`` may say how
  long it takes on arrays.
- ``run.donated``: pairs (input, result) by number where the result may be written over the input, and
  ``run.donating(arrays, flags)``, to which flags tell of each input whether it may be overwritten. The result
  of a pair whose input may be is that very array. A run that fails leaves all inputs as they were.

The module of a backend may have ``prepare()``, which begins with what the first graph will need, and returns
at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from weft.errors import ArgumentError, DomainError

Run = Callable[[Sequence[Any]], Sequence[Any]]
Build = Callable[..., Run]  # of a Graph, and options

DEFAULT_BACKEND = "llvm"  # of weft.compile, weft.jit and Session
_MODULES = {"interpret": "weft.backends.interpret", "llvm": "weft.backends.llvm"}  # each has a `build`
_NEEDED = {"llvm": ("llvmlite", "scipy_openblas32")}  # packages, by backend
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


def default_backend() -> str:
    """The name of the backend that is used where none is named.

    >>> from weft.backends import backend_named, default_backend
    >>> callable(backend_named(default_backend()))
    True
    """
    missing = _missing(DEFAULT_BACKEND)
    return "interpret" if missing else DEFAULT_BACKEND


@functools.cache
def _missing(name: str) -> list[str]:
    """The packages that a backend lacks here; said once."""
    missing = [package for package in _NEEDED.get(name, ()) if find_spec(package) is None]
    if missing:
        import logging

        logging.getLogger("weft.compile").warning(
            "the %s backend needs %s, which is not installed: graphs are interpreted", name, missing[0]
        )
    return missing


def builder(
    op: str, backend: Any = None, options: Mapping[str, Any] = {}, hints: Mapping[str, Any] = {}
) -> Build:
    """What makes functions of graphs by a backend, with options that are on.

    Args:
        op: that the options were given to, for errors.
        backend: a name, a function ``build``, or None for the default.
        options: by name, whether each is on, or how.
        hints: by name, values that are not None or False; a backend that does not take one does without.

    >>> from weft.backends import builder
    >>> build = builder("compile", "interpret", {"check_nan": True})
    """
    name = default_backend() if backend is None else backend
    build = name if callable(name) else backend_named(name)
    if isinstance(name, str) and name in _MODULES:
        getattr(import_module(_MODULES[name]), "prepare", _nothing)()
    wanted = {option: on for option, on in options.items() if on}
    for option in wanted:
        if not _takes(build, option):
            shown = name if isinstance(name, str) else getattr(name, "__name__", type(name).__name__)
            raise ArgumentError(op, f"the backend must take {option}, got {shown}, which does not")
    wanted |= {
        hint: value for hint, value in hints.items() if value not in (None, False) and _takes(build, hint)
    }
    return functools.partial(build, **wanted) if wanted else build


def keeps_programs(backend: Any = None) -> bool:
    """Whether a backend keeps compiled programs on disk, see ``weft.backends.llvm.programs``.

    >>> from weft.backends import keeps_programs
    >>> keeps_programs("interpret")
    False
    """
    name = default_backend() if backend is None else backend
    own = _registered.get("llvm")
    return name == "llvm" and (own is None or own.__module__ == _MODULES["llvm"])


def _nothing() -> None: ...


def _takes(build: Callable[..., Any], option: str) -> bool:
    import inspect

    parameters = inspect.signature(build).parameters
    return option in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
