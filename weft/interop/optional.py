"""Frameworks that need not be installed: they are imported where something asks for them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from weft.errors import ArgumentError


def need(op: str, package: str, extra: str = "") -> Any:
    """A package of another framework, or an error that says how to install it."""
    try:
        return import_module(package)
    except ImportError:
        top = package.partition(".")[0]
        raise ArgumentError(
            op, f"{top} must be installed, got no such package", hint=f"pip install {extra or top}"
        ) from None
