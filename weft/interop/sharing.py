"""Memory shared with tensors of other frameworks, by DLPack, both ways."""

from __future__ import annotations

from typing import Any

from weft.errors import ArgumentError
from weft.tensor.interop import from_dlpack
from weft.tensor.tensor import Tensor


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
