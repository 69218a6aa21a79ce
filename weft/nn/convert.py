"""What ``Module.to`` does: other dtypes and devices for the same parameters and buffers."""

from __future__ import annotations

from typing import Any, TypeVar

import weft
from weft import Tensor
from weft.base.device import DeviceLike
from weft.base.dtypes import DTypeLike
from weft.errors import DtypeError

M = TypeVar("M")


def convert(module: M, target: tuple[Any, ...], device: DeviceLike | None, dtype: DTypeLike | None) -> M:
    """Cast floating state to a dtype, and move all of it; integers, such as counts, keep their dtype."""
    for t in target:
        if weft.is_tensor(t):
            device, dtype = t.device, t.dtype
        elif isinstance(t, weft.Device) or (isinstance(t, str) and t.partition(":")[0] in ("cpu", "cuda")):
            device = t
        elif t is not None:
            dtype = t
    like = weft.empty(0, device="cpu").to(device=device, dtype=dtype)
    if not weft.is_floating_point(like):
        raise DtypeError("to", f"the dtype of a module must be floating, got {like.dtype.name}")
    held: Any = module
    for tensor in [*held.parameters(), *held.buffers()]:
        casts = dtype is not None and weft.is_floating_point(tensor) and tensor.dtype != like.dtype
        moves = device is not None and tensor.device != like.device
        if casts or moves:
            _change(tensor, like.device if moves else None, like.dtype if casts else None)
    return module


def _change(tensor: Tensor, device: DeviceLike | None, dtype: DTypeLike | None) -> None:
    grad = tensor.grad
    tensor.grad = None
    with weft.no_grad():
        tensor._rebind("to", tensor._value().to(device=device, dtype=dtype))
    if grad is not None:
        tensor.grad = grad.to(device=device, dtype=dtype)
