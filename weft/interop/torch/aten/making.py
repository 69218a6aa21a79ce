"""ATen operators that make tensors, random ones too, and that tell their sizes.

Random numbers come from weft's generator, so they are others than PyTorch draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft.base.dtypes import DType
from weft.base.shapes import size_of
from weft.interop.forms.elements import as_number, astype
from weft.interop.torch.calls import Call, aten
from weft.tensor.tensor import Tensor


def _size(args: Sequence[Any]) -> tuple[Any, ...]:
    """The shape that is asked for; before it there may be a tensor that tells a dtype."""
    return tuple(args[1] if isinstance(args[0], Tensor) else args[0])


@aten("full", "new_full")
def full(call: Call, *args: Any, **options: Any) -> Any:
    """One number in a shape."""
    size, value = args[-2:]
    if isinstance(value, Tensor):
        return weft.broadcast_to(call.cast(value), tuple(size))
    return weft.full(tuple(size), value, dtype=call.dtype)


def as_scalar(value: Any, dtype: DType) -> Tensor:
    """A number, or a size that a run tells, as a tensor of one element."""
    value = as_number(value)
    return astype(value, dtype) if isinstance(value, Tensor) else weft.full((), value, dtype=dtype)


# What PyTorch would leave as it is in memory is zeros, too
_ZEROS = "zeros empty.memory_format new_zeros new_empty empty_strided new_empty_strided empty_permuted"
aten.enter(
    {
        _ZEROS: lambda call, *args, **options: weft.zeros(_size(args), dtype=call.dtype),
        "ones new_ones": lambda call, *args, **options: weft.ones(_size(args), dtype=call.dtype),
        "zeros_like empty_like": lambda call, x, **options: weft.zeros(x.shape, dtype=call.dtype),
        "ones_like": lambda call, x, **options: weft.ones(x.shape, dtype=call.dtype),
        "full_like": lambda call, x, value, **options: weft.full(x.shape, value, dtype=call.dtype),
        "scalar_tensor": lambda call, value, **options: as_scalar(value, call.dtype),
        "arange arange.start arange.start_step": lambda call, *limits, **options: weft.arange(
            *limits, dtype=call.dtype
        ),
        "linspace": lambda call, start, end, steps, **options: weft.linspace(
            start, end, steps, dtype=call.dtype
        ),
        "eye eye.m": lambda call, n, m=None, **options: weft.eye(n, m, dtype=call.dtype),
    }
)

# Random numbers


@aten("randint", "randint.low")
def randint(call: Call, *args: Any, **options: Any) -> Any:
    """Whole numbers within limits."""
    low, high, size = (0, *args) if len(args) == 2 else args
    return weft.randint(low, high, tuple(size), dtype=call.dtype)


aten.enter(
    {
        "rand": lambda call, size, **options: weft.rand(tuple(size), dtype=call.dtype),
        "randn": lambda call, size, **options: weft.randn(tuple(size), dtype=call.dtype),
        "rand_like": lambda call, x, **options: weft.rand(x.shape, dtype=call.dtype),
        "randn_like": lambda call, x, **options: weft.randn(x.shape, dtype=call.dtype),
        "randperm": lambda call, n, **options: weft.randperm(n, dtype=call.dtype),
        "bernoulli bernoulli.p": lambda call, x, p=None, **options: call.cast(
            weft.rand(x.shape) < (x if p is None else p)
        ),
    }
)

# Sizes


def strides_of(shape: Sequence[Any]) -> list[Any]:
    """The distances of neighbours along each axis, where elements are in one row in their order."""
    return [size_of(tuple(shape[i + 1 :])) for i in range(len(shape))]


aten.enter(
    {
        "sym_size.int": lambda call, x, dim: x.shape[dim],
        "sym_numel": lambda call, x: size_of(x.shape),
        "sym_storage_offset": lambda call, x: 0,
        "sym_is_contiguous": lambda call, x, *rest, **options: True,
        "sym_stride.int": lambda call, x, dim: strides_of(x.shape)[dim],
        "_local_scalar_dense item": lambda call, x: weft.reshape(x, ()),  # which a run tells
    }
)
