"""Elementwise methods of Tensor that are not just an op: with more arguments, or of several ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ops import arithmetic, compound
from weft.ops import complex as complexes
from weft.ops.select import cast
from weft.ops.view.axes import broadcast_to
from weft.tensor.creation import as_tensor
from weft.tensor.published import attach, in_place
from weft.tensor.tensor import Tensor

Function = Callable[..., Any]


def _zeros(self: Tensor) -> Tensor:
    """Zero everywhere."""
    return _copied(self, 0)


def _copied(self: Tensor, source: object) -> Tensor:
    """A source as it fits into a tensor: cast and broadcast."""
    source = source if isinstance(source, Tensor) else as_tensor(source)
    return broadcast_to(cast(source, dtype=self.dtype), self.shape)


_METHODS: dict[str, Function] = {
    "clip": arithmetic.clip,
    "clamp": arithmetic.clip,
    "lerp": compound.lerp,
    "nan_to_num": compound.nan_to_num,
}
_CHANGES: dict[str, Function] = {"fill_": _copied, "zero_": _zeros, "copy_": _copied}
for _name, _function in _METHODS.items():
    attach(_name, _function)
for _name, _function in _CHANGES.items():
    setattr(Tensor, _name, in_place(_name, _function))
for _function in (complexes.conj, compound.isclose, compound.allclose):
    setattr(Tensor, _function.__name__, _function)
for _function in (complexes.real, complexes.imag):
    setattr(Tensor, _function.__name__, property(_function))
