"""ATen operators that make tensors, random ones too, that tell their sizes, and that arrange elements anew.

Random numbers come from weft's generator, so they are others than PyTorch draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft.base.dtypes import DType
from weft.base.shapes import size_of
from weft.base.sizes import Size
from weft.interop.forms.elements import along, as_number, astype, cut
from weft.interop.forms.window import padded
from weft.interop.rules import Rule, plain
from weft.interop.torch.calls import Call, as_tuple, aten
from weft.tensor.indexing import updated
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


aten.enter(
    {
        "randint": lambda call, high, size, **options: weft.randint(0, high, tuple(size), dtype=call.dtype),
        "randint.low": lambda call, low, high, size, **options: weft.randint(
            low, high, tuple(size), dtype=call.dtype
        ),
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


# Views

_END = 2**63 - 1  # what PyTorch writes for "up to the end"


# Views


@aten("expand")
def expand(call: Call, x: Any, size: Any, *, implicit: bool = False) -> Any:
    """x repeated along axes of size 1; -1 leaves a size as it is."""
    missing = len(size) - x.ndim
    shape = [x.shape[i - missing] if isinstance(s, int) and s == -1 else s for i, s in enumerate(size)]
    return weft.broadcast_to(x, tuple(shape))


@aten("squeeze", "squeeze.dim", "squeeze.dims")
def squeeze(call: Call, x: Any, dim: Any = None) -> Any:
    """x without axes of size 1."""
    dims = range(x.ndim) if dim is None else dim if isinstance(dim, list | tuple) else [dim]
    single = tuple(d % x.ndim for d in dims if x.ndim and x.shape[d] == 1)
    return weft.squeeze(x, axis=single) if single else x


def _range(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> tuple[Any, ...]:
    stop = None if isinstance(end, int) and end == _END else end
    return along(dim % x.ndim, slice(start, stop, step))


@aten("diagonal_scatter")
def diagonal_scatter(call: Call, x: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """x with other elements on a diagonal of two axes."""
    rows, columns = x.shape[dim1], x.shape[dim2]
    mask = weft.eye(rows, columns, k=offset, dtype=weft.bool)
    front = weft.moveaxis(x, (dim1, dim2), (-2, -1))
    places = weft.arange(columns) - max(offset, 0)
    spread = weft.take(src, weft.clip(places, 0, src.shape[-1] - 1), axis=src.ndim - 1)
    return weft.moveaxis(weft.where(mask, weft.expand_dims(spread, axis=-2), front), (-2, -1), (dim1, dim2))


@aten("as_strided")
def as_strided(call: Call, x: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    """Elements at equal distances in memory, where x is one row of elements in their order."""
    if any(isinstance(s, Size) for s in (*size, *stride, *x.shape)):
        raise call.error("sizes and strides must be known, got named ones")
    if tuple(call.strides[0] or ()) != tuple(strides_of(x.shape)):
        raise call.error(f"must be given a contiguous tensor, got strides {call.strides[0]}")
    places = np.full(tuple(size), storage_offset or 0, np.int64)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        places += (np.arange(count) * step).reshape(-1, *[1] * (len(size) - axis - 1))
    return weft.take(weft.reshape(x, (-1,)), weft.tensor(places), axis=0)


aten.enter(
    {
        "view reshape _unsafe_view _reshape_alias": lambda call, x, size, *rest: weft.reshape(x, tuple(size)),
        "unflatten.int": lambda call, x, dim, sizes: weft.unflatten(x, dim, tuple(sizes)),
        "flatten.using_ints": lambda call, x, start=0, end=-1: weft.flatten(x, start, end),
        "permute": lambda call, x, dims: weft.permute_dims(x, tuple(dims)),
        "unsqueeze": lambda call, x, dim: weft.expand_dims(x, axis=dim),
        "t": lambda call, x: weft.matrix_transpose(x) if x.ndim == 2 else x,
        "transpose.int": lambda call, x, a, b: weft.swapaxes(x, a, b) if x.ndim else x,
        "movedim.int movedim.intlist": lambda call, x, a, b: weft.moveaxis(x, as_tuple(a), as_tuple(b)),
        "select.int": lambda call, x, dim, index: x[along(dim % x.ndim, index)],
        "slice.Tensor": lambda call, x, *part, **named: x[_range(x, *part, **named)],
        "select_scatter": lambda call, x, src, dim, index: updated(
            x, along(dim % x.ndim, index), astype(src, x.dtype)
        ),
        "slice_scatter": lambda call, x, src, *part, **named: updated(
            x, _range(x, *part, **named), astype(src, x.dtype)
        ),
        "diagonal": lambda call, x, offset=0, dim1=0, dim2=1: weft.diagonal(x, offset, dim1, dim2),
    }
)

# Joining, splitting, repeating


@aten("cat")
def cat(call: Call, tensors: Any, dim: int = 0) -> Any:
    """Tensors one after the other; empty vectors do not count."""
    full = [call.cast(x) for x in tensors if not (x.ndim == 1 and x.shape[0] == 0)]
    return weft.concat(full, axis=dim) if full else call.cast(tensors[0])


def _one(x: Any) -> Any:
    items = tuple(x) if isinstance(x, list | tuple) else (x,)
    return items[0] if len(items) == 1 else items


aten.enter(
    {
        "repeat tile": lambda call, x, repeats: weft.tile(
            weft.reshape(x, (*[1] * (len(repeats) - x.ndim), *x.shape)), tuple(repeats)
        ),
        "stack": lambda call, tensors, dim=0: weft.stack([call.cast(x) for x in tensors], axis=dim),
        "split_with_sizes split.sizes": lambda call, x, sizes, dim=0: cut(x, dim, sizes),
        "split.Tensor": lambda call, x, size, dim=0: list(weft.split(x, size, axis=dim)),
        "chunk": lambda call, x, chunks, dim=0: list(weft.chunk(x, chunks, axis=dim)),
        "unbind.int": lambda call, x, dim=0: list(weft.unbind(x, axis=dim)),
        "flip": lambda call, x, dims: weft.flip(x, axis=tuple(dims)) if x.ndim and dims else x,
        "tril": plain(weft.tril),
        "triu": plain(weft.triu),
        "diag_embed": lambda call, x, offset=0, dim1=-2, dim2=-1: weft.moveaxis(
            weft.diag_embed(x, offset), (-2, -1), (dim1, dim2)
        ),
        "repeat_interleave.self_int": lambda call, x, repeats, dim=None, **rest: weft.repeat(
            x, repeats, axis=dim
        ),
        "roll": lambda call, x, shifts, dims=(): weft.roll(
            x, _one(shifts), axis=_one(dims) if dims else None
        ),
    }
)

# Padding; PyTorch tells widths from the last axis on, and where one is negative the border is cut off


def _padding(mode: str) -> Rule:
    return lambda call, x, pad, value=0: padded(
        x, [*zip(pad[::2], pad[1::2], strict=True)][::-1], mode, value
    )


aten.enter(
    {
        "constant_pad_nd": _padding("constant"),
        "reflection_pad1d reflection_pad2d reflection_pad3d": _padding("reflect"),
        "replication_pad1d replication_pad2d replication_pad3d": _padding("replicate"),
        "_pad_circular": _padding("circular"),
    }
)

# Blocks


@aten("unfold")
def unfold(call: Call, x: Any, dimension: int, size: int, step: int) -> Any:
    """All parts of an axis of one size, as a last axis."""
    count = (x.shape[dimension] - size) // step + 1
    if isinstance(count, Size):
        raise call.error("the axis must have a known size, got a named one")
    places = np.arange(count)[:, None] * step + np.arange(size)
    taken = weft.take(x, weft.tensor(places), axis=dimension % x.ndim)
    return weft.moveaxis(taken, dimension % x.ndim + 1, -1)


aten.enter(
    {
        "pixel_shuffle": plain(weft.pixel_shuffle),
        "pixel_unshuffle": plain(weft.pixel_unshuffle),
        "col2im": lambda call, x, *settings: weft.fold(x, *map(tuple, settings)),
        "im2col": lambda call, x, *settings: weft.unfold(x, *map(tuple, settings)),
    }
)
