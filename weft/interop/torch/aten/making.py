"""ATen operators that make tensors, and that tell their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft.base.dtypes import int64
from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.interop.torch.calls import Call, astype, aten
from weft.tensor.tensor import Tensor

# Making tensors


@aten("full", "new_full")
def full(call: Call, *args: Any, **options: Any) -> Any:
    """One number in a shape."""
    size, value = args[-2:]
    if isinstance(value, Tensor):
        return weft.broadcast_to(call.cast(value), tuple(size))
    return weft.full(tuple(size), value, dtype=call.dtype)


@aten("full_like")
def full_like(call: Call, x: Any, value: Any, **options: Any) -> Any:
    """One number in the shape of x."""
    return weft.full(x.shape, value, dtype=call.dtype)


@aten(
    "zeros",
    "empty.memory_format",
    "new_zeros",
    "new_empty",
    "empty_strided",
    "new_empty_strided",
    "empty_permuted",
)
def zeros(call: Call, *args: Any, **options: Any) -> Any:
    """Zeros in a shape, also where PyTorch would leave what is in memory."""
    size = args[1] if isinstance(args[0], Tensor) else args[0]
    return weft.zeros(tuple(size), dtype=call.dtype)


@aten("ones", "new_ones")
def ones(call: Call, *args: Any, **options: Any) -> Any:
    """Ones in a shape."""
    size = args[1] if isinstance(args[0], Tensor) else args[0]
    return weft.ones(tuple(size), dtype=call.dtype)


aten("zeros_like", "empty_like")(lambda call, x, **options: weft.zeros(x.shape, dtype=call.dtype))
aten("ones_like")(lambda call, x, **options: weft.ones(x.shape, dtype=call.dtype))


@aten("scalar_tensor")
def scalar_tensor(call: Call, value: Any, **options: Any) -> Any:
    """One number as a tensor."""
    return as_scalar(value, call.dtype)


def as_scalar(value: Any, dtype: Any) -> Any:
    """A number, or a size that a run tells, as a tensor of one element."""
    if isinstance(value, Tensor):
        return astype(value, dtype)
    if isinstance(value, Size):
        return astype(weft.zeros((), dtype=int64) + value, dtype)
    return weft.full((), value, dtype=dtype)


@aten("arange", "arange.start", "arange.start_step")
def arange(call: Call, *limits: Any, **options: Any) -> Any:
    """Numbers in a row."""
    return weft.arange(*limits, dtype=call.dtype)


@aten("linspace")
def linspace(call: Call, start: Any, end: Any, steps: int, **options: Any) -> Any:
    """Numbers at equal distances."""
    return weft.linspace(start, end, steps, dtype=call.dtype)


@aten("eye", "eye.m")
def eye(call: Call, n: int, m: int | None = None, **options: Any) -> Any:
    """A matrix with ones on its diagonal."""
    return weft.eye(n, m, dtype=call.dtype)


# Sizes


@aten("sym_size.int")
def sym_size(call: Call, x: Any, dim: int) -> Any:
    """A size."""
    return x.shape[dim]


aten("sym_numel")(lambda call, x: size_of(x.shape))
aten("sym_storage_offset")(lambda call, x: 0)
aten("sym_is_contiguous")(lambda call, x, *rest, **options: True)
aten("sym_stride.int")(lambda call, x, dim: strides_of(x.shape)[dim])


def strides_of(shape: Sequence[Any]) -> list[Any]:
    """The distances of neighbours along each axis, where elements are in one row in their order."""
    return [size_of(tuple(shape[i + 1 :])) for i in range(len(shape))]


@aten("_local_scalar_dense", "item")
def local_scalar(call: Call, x: Any) -> Any:
    """The number that a tensor holds, which a run tells: a tensor without axes."""
    return weft.reshape(x, ())
