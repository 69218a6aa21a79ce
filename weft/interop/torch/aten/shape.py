"""ATen operators that arrange elements anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft.base.sizes import Size
from weft.interop.torch.aten.making import strides_of
from weft.interop.torch.calls import Call, astype, aten
from weft.tensor.indexing import updated

_END = 2**63 - 1  # what PyTorch writes for "up to the end"


# Views


@aten("view", "reshape", "_unsafe_view", "_reshape_alias")
def view(call: Call, x: Any, size: Any, *rest: Any) -> Any:
    """The elements in another shape."""
    return weft.reshape(x, tuple(size))


@aten("unflatten.int")
def unflatten(call: Call, x: Any, dim: int, sizes: Any) -> Any:
    """One axis as several."""
    return weft.unflatten(x, dim, tuple(sizes))


aten("flatten.using_ints")(lambda call, x, start=0, end=-1: weft.flatten(x, start, end))
aten("permute")(lambda call, x, dims: weft.permute_dims(x, tuple(dims)))
aten("unsqueeze")(lambda call, x, dim: weft.expand_dims(x, axis=dim))
aten("t")(lambda call, x: weft.matrix_transpose(x) if x.ndim == 2 else x)
aten("transpose.int")(lambda call, x, a, b: weft.swapaxes(x, a, b) if x.ndim else x)
aten("movedim.int", "movedim.intlist")(lambda call, x, a, b: weft.moveaxis(x, _tuple(a), _tuple(b)))


def _tuple(x: Any) -> Any:
    return tuple(x) if isinstance(x, list) else x


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


@aten("select.int")
def select(call: Call, x: Any, dim: int, index: Any) -> Any:
    """One slice of an axis."""
    return x[_at(x, dim, index)]


@aten("slice.Tensor")
def slice_(call: Call, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    """A part of an axis."""
    return x[_at(x, dim, _range(start, end, step))]


@aten("select_scatter")
def select_scatter(call: Call, x: Any, src: Any, dim: int, index: Any) -> Any:
    """x with another slice in the place of one."""
    return updated(x, _at(x, dim, index), astype(src, x.dtype))


@aten("slice_scatter")
def slice_scatter(
    call: Call, x: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    """x with other elements in the place of a part of an axis."""
    return updated(x, _at(x, dim, _range(start, end, step)), astype(src, x.dtype))


def _at(x: Any, dim: int, place: Any) -> tuple[Any, ...]:
    return (*[slice(None)] * (dim % x.ndim), place)


def _range(start: Any, end: Any, step: Any) -> slice:
    stop = None if isinstance(end, int) and end == _END else end
    return slice(start, stop, step)


@aten("diagonal")
def diagonal(call: Call, x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """A diagonal of two axes, as a last axis."""
    return weft.diagonal(x, offset, dim1, dim2)


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
        along = [1] * len(size)
        along[axis] = count
        places += (np.arange(count) * step).reshape(along)
    return weft.take(weft.reshape(x, (-1,)), weft.tensor(places), axis=0)


# Joining, splitting, repeating


@aten("cat")
def cat(call: Call, tensors: Any, dim: int = 0) -> Any:
    """Tensors one after the other; empty vectors do not count."""
    full = [call.cast(x) for x in tensors if not (x.ndim == 1 and x.shape[0] == 0)]
    return weft.concat(full, axis=dim) if full else call.cast(tensors[0])


aten("stack")(lambda call, tensors, dim=0: weft.stack([call.cast(x) for x in tensors], axis=dim))


@aten("split_with_sizes", "split.sizes")
def split_with_sizes(call: Call, x: Any, sizes: Any, dim: int = 0) -> Any:
    """Parts of an axis of given sizes."""
    out, start = [], 0
    for size in sizes:
        out.append(x[_at(x, dim, slice(start, start + size))])
        start = start + size
    return out


aten("split.Tensor")(lambda call, x, size, dim=0: list(weft.split(x, size, axis=dim)))
aten("chunk")(lambda call, x, chunks, dim=0: list(weft.chunk(x, chunks, axis=dim)))
aten("unbind.int")(lambda call, x, dim=0: list(weft.unbind(x, axis=dim)))
aten("flip")(lambda call, x, dims: weft.flip(x, axis=tuple(dims)) if x.ndim and dims else x)
aten("tril")(lambda call, x, diagonal=0: weft.tril(x, diagonal))
aten("triu")(lambda call, x, diagonal=0: weft.triu(x, diagonal))
aten("diag_embed")(lambda call, x, offset=0, dim1=-2, dim2=-1: _diag_embed(x, offset, dim1, dim2))
aten("repeat_interleave.self_int")(
    lambda call, x, repeats, dim=None, **rest: weft.repeat(x, repeats, axis=dim)
)


def _diag_embed(x: Any, offset: int, dim1: int, dim2: int) -> Any:
    return weft.moveaxis(weft.diag_embed(x, offset), (-2, -1), (dim1, dim2))


@aten("roll")
def roll(call: Call, x: Any, shifts: Any, dims: Any = ()) -> Any:
    """Elements moved along axes, around the end."""
    return weft.roll(x, _one(shifts), axis=_one(dims) if dims else None)


def _one(x: Any) -> Any:
    items = tuple(x) if isinstance(x, list | tuple) else (x,)
    return items[0] if len(items) == 1 else items


@aten("repeat", "tile")
def repeat(call: Call, x: Any, repeats: Any) -> Any:
    """Copies side by side."""
    missing = len(repeats) - x.ndim
    return weft.tile(weft.reshape(x, (*[1] * missing, *x.shape)), tuple(repeats))


# Padding


@aten("constant_pad_nd")
def constant_pad(call: Call, x: Any, pad: Any, value: Any = 0) -> Any:
    """x with a border of one number; where a width is negative the border is cut off."""
    widths = _widths(x, pad)
    cut = tuple(slice(max(-low, 0), _stop(x.shape[i], high)) for i, (low, high) in enumerate(widths))
    x = x[cut] if any(low < 0 or high < 0 for low, high in widths) else x
    return weft.pad(x, tuple((max(low, 0), max(high, 0)) for low, high in widths), value=value)


def _stop(size: Any, high: int) -> Any:
    return None if high >= 0 else size + high


def _widths(x: Any, pad: Sequence[int]) -> list[tuple[int, int]]:
    """The widths of each axis; PyTorch tells them from the last axis on."""
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    return [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]


@aten("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(call: Call, x: Any, padding: Any) -> Any:
    """x with a mirrored border."""
    return weft.pad(x, tuple(_widths(x, padding)), "reflect")


@aten("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(call: Call, x: Any, padding: Any) -> Any:
    """x with a border that repeats its edge."""
    return weft.pad(x, tuple(_widths(x, padding)), "replicate")


@aten("_pad_circular")
def circular_pad(call: Call, x: Any, padding: Any) -> Any:
    """x with a border that goes on at the other end."""
    return weft.pad(x, tuple(_widths(x, padding)), "circular")


# Blocks


aten("pixel_shuffle")(lambda call, x, factor: weft.pixel_shuffle(x, factor))
aten("pixel_unshuffle")(lambda call, x, factor: weft.pixel_unshuffle(x, factor))


@aten("col2im")
def col2im(
    call: Call, x: Any, output_size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any
) -> Any:
    """The sum of overlapping blocks."""
    return weft.fold(x, *[tuple(v) for v in (output_size, kernel, dilation, padding, stride)])


@aten("im2col")
def im2col(call: Call, x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """Overlapping blocks as columns."""
    return weft.unfold(x, *[tuple(v) for v in (kernel, dilation, padding, stride)])


@aten("unfold")
def unfold(call: Call, x: Any, dimension: int, size: int, step: int) -> Any:
    """All parts of an axis of one size, as a last axis."""
    count = (x.shape[dimension] - size) // step + 1
    if isinstance(count, Size):
        raise call.error("the axis must have a known size, got a named one")
    places = np.arange(count)[:, None] * step + np.arange(size)
    taken = weft.take(x, weft.tensor(places), axis=dimension % x.ndim)
    return weft.moveaxis(taken, dimension % x.ndim + 1, -1)
