"""Kernels for large arrays outside of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.tensor.large import Layer


def load_kernels() -> Layer | None:
    """What runs kernels on large arrays outside of graphs; None where nothing can be compiled."""
    from weft.backends import DEFAULT_BACKEND, backend_named

    backend = backend_named(DEFAULT_BACKEND)
    if not backend.runs_eager or backend.missing():
        return None
    from weft.backends.eager import kernels

    return kernels
