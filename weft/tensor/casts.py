"""Changing dtype and device: ``astype``, ``to_device`` and the short casts such as ``x.double()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.device import CPU, Device, DeviceLike, as_device, index_of
from weft.base.dtypes import (
    DType,
    DTypeLike,
    as_dtype,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int16,
    int32,
    int64,
)
from weft.base.public import public
from weft.errors import ArgumentError, DomainError
from weft.ops.select import cast
from weft.tensor.convert import check_complex
from weft.tensor.moving import move
from weft.tensor.tensor import Tensor


def _astype(
    self: Tensor, dtype: DTypeLike | None, /, *, copy: bool = True, device: DeviceLike | None = None
) -> Tensor:
    """The tensor in another dtype; a copy even in the same one unless copy is False."""
    target = as_dtype(dtype)
    if device is not None and (there := move(self, as_device(device))) is not self:
        return _astype(there, target, copy=False)
    if target == self.dtype and not copy:
        return self
    check_complex("astype", self.dtype, target)
    out: Tensor = cast(self, dtype=target)
    return out


@public
def astype(
    x: Tensor, dtype: DTypeLike | None, /, *, copy: bool = True, device: DeviceLike | None = None
) -> Tensor:
    """A tensor in another dtype; a copy even in the same one unless copy is False.

    >>> import weft
    >>> weft.astype(weft.tensor([1.7, -2.2]), weft.int64)
    tensor([ 1, -2])
    """
    if not isinstance(x, Tensor):
        raise ArgumentError("astype", f"must be a tensor, got {type(x).__name__}")
    return _astype(x, dtype, copy=copy, device=device)


def _to_device(self: Tensor, device: DeviceLike | None, /, stream: object = None) -> Tensor:
    """The tensor on another device."""
    if stream is not None:
        raise DomainError(
            "to_device", f"stream must be None, got {stream!r}", hint="use a stream's with block"
        )
    return move(self, as_device(device))


def _cpu(self: Tensor) -> Tensor:
    """The tensor on the cpu."""
    return move(self, CPU)


def _cuda(self: Tensor, device: DeviceLike | int | None = None) -> Tensor:
    """The tensor on a CUDA device, the first one unless another is named."""
    return move(self, as_device(Device("cuda", index_of("cuda", device))))


def _type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor in the dtype of another."""
    return _astype(self, other.dtype, copy=False)


def _cast_to(dtype: DType) -> Callable[[Tensor], Tensor]:
    def method(self: Tensor) -> Tensor:
        return _astype(self, dtype, copy=False)

    method.__doc__ = f"The tensor as {dtype.name}."
    return method


_METHODS: dict[str, Any] = {
    "astype": astype,
    "to_device": _to_device,
    "cpu": _cpu,
    "cuda": _cuda,
    "type_as": _type_as,
}
_SHORT = {
    "bfloat16": bfloat16,
    "bool": bool_,
    "double": float64,
    "float": float32,
    "half": float16,
    "int": int32,
    "long": int64,
    "short": int16,
}
for _name, _method in (_METHODS | {name: _cast_to(dtype) for name, dtype in _SHORT.items()}).items():
    _method.__name__ = _name
    setattr(Tensor, _name, _method)
