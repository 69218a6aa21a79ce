"""Backends: what makes executables of graphs. All others are compared with ``interpret``.

``Backend`` says what one is; a function ``build(graph)`` that gives a function of arrays is one too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NoReturn

from weft.backends.backend import Array, Arrays, Backend, Executable, FunctionBackend, Option, Run
from weft.errors import ArgumentError, DomainError

__all__ = [
    "Array",
    "Arrays",
    "Backend",
    "Executable",
    "backend_named",
    "builder",
    "default_backend",
    "find_backend",
    "known_backends",
    "register_backend",
]

Build = Callable[..., Executable]  # of a graph
Chosen = str | Backend | Callable[..., Run]

DEFAULT_BACKEND = "llvm"  # of weft.compile, weft.jit and Session
_MODULES = {  # each has a BACKEND
    "cuda": "weft.backends.cuda.compiling",
    "interpret": "weft.backends.interpret",
    "llvm": "weft.backends.llvm",
}
_registered: dict[str, Backend] = {}


def register_backend(name: str, backend: Backend | Callable[..., Run]) -> Backend:
    """Enter a backend, or a function from a graph to a function from arrays to arrays.

    >>> from weft.backends import backend_named, register_backend
    >>> register_backend("mine", lambda graph: backend_named("interpret").build(graph)).name
    'mine'
    """
    made = backend if isinstance(backend, Backend) else FunctionBackend(backend, name)
    _registered[name] = made
    return made


def backend_named(name: str) -> Backend:
    """The backend with a name, imported at first use."""
    if name not in _registered:
        if name not in _MODULES:
            known = ", ".join(sorted({*_MODULES, *_registered}))
            raise DomainError("backend", f"must be one of {known}, got {name!r}")
        _registered[name] = import_module(_MODULES[name]).BACKEND
    return _registered[name]


def find_backend(chosen: Chosen | None = None) -> Backend:
    """The backend that is meant by a name, by itself, by a function ``build``, or by None for the default.

    >>> from weft.backends import find_backend
    >>> find_backend("interpret").name
    'interpret'
    """
    if chosen is None or isinstance(chosen, str):
        return backend_named(default_backend() if chosen is None else chosen)
    return chosen if isinstance(chosen, Backend) else FunctionBackend(chosen)


def known_backends() -> list[Backend]:
    """The default one, and all that are in use."""
    backend_named(default_backend())
    return list(dict.fromkeys(_registered.values()))


def default_backend() -> str:
    """The name of the backend that is used where none is named.

    >>> from weft.backends import backend_named, default_backend
    >>> backend_named(default_backend()).missing()
    []
    """
    return "interpret" if _missing(DEFAULT_BACKEND) else DEFAULT_BACKEND


@functools.cache
def _missing(name: str) -> list[str]:
    """The packages that a backend lacks here; said once."""
    missing = backend_named(name).missing()
    if missing:
        import logging

        logging.getLogger("weft.compile").warning(
            "the %s backend needs %s, which is not installed: graphs are interpreted", name, missing[0]
        )
    return missing


def builder(
    op: str, backend: Chosen | None = None, options: Mapping[str, Option] = {}, hints: Mapping[str, Any] = {}
) -> Build:
    """What makes executables of graphs by a backend, with options that are on.

    Args:
        op: that the options were given to, for errors.
        backend: a name, a ``Backend``, a function ``build``, or None for the default.
        options: by name, whether each is on, or how.
        hints: by name, values that are not None or False; a backend that does not take one does without.

    >>> from weft.backends import builder
    >>> build = builder("compile", "interpret", {"check_nan": True})
    """
    found = find_backend(backend)
    found.prepare()
    wanted: dict[str, Any] = {option: on for option, on in options.items() if on}
    for option in wanted:
        if not found.takes(option):
            raise ArgumentError(op, f"the backend must take {option}, got {found.name}, which does not")
    wanted |= {hint: on for hint, on in hints.items() if on not in (None, False) and found.takes(hint)}
    return functools.partial(found.build, **wanted) if wanted else found.build


def __getattr__(name: str) -> NoReturn:
    from weft.base.elsewhere import unknown

    raise unknown(__name__, name, __all__)
