"""Elementwise methods of Tensor that are not just an op: with more arguments, or of several ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.concrete import is_on_device
from weft.base.dtypes import scalar_dtype
from weft.base.hooks import hooks
from weft.ops import arithmetic, compound
from weft.ops import complex as complexes
from weft.ops.op import WeakNumber
from weft.ops.select import cast
from weft.ops.view.axes import broadcast_to
from weft.tensor.creation import as_tensor
from weft.tensor.dispatch import wrap
from weft.tensor.mode import thread
from weft.tensor.published import attach, in_place
from weft.tensor.tensor import Tensor

Function = Callable[..., Any]


def _zeros(self: Tensor) -> Tensor:
    """Zero everywhere."""
    return _copied(self, 0)


def _copied(self: Tensor, source: object) -> Tensor:
    """A source as it fits into a tensor: cast and broadcast."""
    if isinstance(source, WeakNumber):
        source = source.in_dtype(scalar_dtype(source.example, self.dtype))
    source = cast(source if isinstance(source, Tensor) else as_tensor(source), dtype=self.dtype)
    if _is_number(source) and is_on_device(self._data) and thread.capture is None:
        return wrap(hooks.new_filled(self.shape, source._data, self.dtype, self.device))
    return broadcast_to(source, self.shape)


def _is_number(tensor: Tensor) -> bool:
    """Whether a tensor is one number of the host, through which no gradient flows."""
    return type(tensor._data) is np.ndarray and not tensor._data.shape and tensor._node is None


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
