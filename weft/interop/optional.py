"""Frameworks that need not be installed: imported where something asks for them, memory shared by DLPack."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from weft.errors import ArgumentError
from weft.tensor.interop import from_dlpack
from weft.tensor.tensor import Tensor


def need(op: str, package: str, extra: str = "") -> Any:
    """A package of another framework, or an error that says how to install it."""
    try:
        return import_module(package)
    except ImportError:
        top = package.partition(".")[0]
        raise ArgumentError(
            op, f"{top} must be installed, got no such package", hint=f"pip install {extra or top}"
        ) from None


def exported(op: str, tensor: Any) -> Tensor:
    """A tensor of weft without its place in the dynamic graph."""
    if not isinstance(tensor, Tensor):
        raise ArgumentError(op, f"must be given a tensor of weft, got {type(tensor).__name__}")
    return tensor._value()


def imported(op: str, x: Any, kind: type, name: str, requires_grad: bool) -> Tensor:
    """A tensor of another framework, whose type is called by a name, as one of weft with its memory."""
    if not isinstance(x, kind):
        raise ArgumentError(op, f"must be given a {name}, got {type(x).__name__}")
    out: Tensor = from_dlpack(x)
    return out.requires_grad_() if requires_grad else out
