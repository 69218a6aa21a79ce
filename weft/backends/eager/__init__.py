"""Kernels for large arrays outside of graphs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.tensor.large import Layer


def load_kernels() -> Layer | None:
    """What runs kernels on large arrays outside of graphs; None where nothing can be compiled."""
    if any(find_spec(package) is None for package in ("llvmlite", "scipy_openblas32")):
        return None
    from weft.backends.eager import kernels

    return kernels
