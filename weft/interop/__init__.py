"""Tensors, functions and models of other frameworks: ``weft.interop.torch`` and ``weft.interop.jax``.

Neither framework is needed to install or import weft; what needs one says so when it is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft.interop.weights import weights

if TYPE_CHECKING:
    from weft.interop import jax, torch

__all__ = ["jax", "torch", "weights"]


def __getattr__(name: str) -> Any:
    if name in ("jax", "torch"):
        return import_module(f"weft.interop.{name}")
    raise AttributeError(f"module 'weft.interop' has no attribute {name!r}")
