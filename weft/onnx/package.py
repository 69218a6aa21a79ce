"""The ``onnx`` package, which is imported at first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from weft.errors import ArgumentError


def onnx_package(op: str) -> Any:
    """The package, or an error in the name of op that says how to install it."""
    try:
        return import_module("onnx")
    except ImportError:
        raise ArgumentError(op, "needs the package onnx, got none", hint="pip install weft[onnx]") from None
