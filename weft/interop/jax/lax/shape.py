"""Lax primitives that make tensors and arrange elements anew."""

from __future__ import annotations

from typing import Any

import weft
from weft.base.dtypes import kind
from weft.interop.jax.calls import Call, astype, dtype_of, lax, numbers_below, size_of, sizes_of
from weft.ops.view.slices import pad_axes, slice_axes
from weft.tensor.indexing import updated


@lax("broadcast_in_dim")
def broadcast_in_dim(
    call: Call, x: Any, *sizes: Any, shape: Any, broadcast_dimensions: Any, **parameters: Any
) -> Any:
    """x along some axes of a shape."""
    wanted = sizes_of(shape)
    spread = [1] * len(wanted)
    for axis, place in enumerate(broadcast_dimensions):
        spread[int(place)] = x.shape[axis]
    return weft.broadcast_to(weft.reshape(x, tuple(spread)), wanted)


@lax("reshape")
def reshape(
    call: Call, x: Any, *sizes: Any, new_sizes: Any, dimensions: Any = None, **parameters: Any
) -> Any:
    """The elements in another shape."""
    x = x if dimensions is None else weft.permute_dims(x, tuple(dimensions))
    return weft.reshape(x, sizes_of(new_sizes))


lax("transpose")(lambda call, x, *, permutation: weft.permute_dims(x, tuple(permutation)))
lax("squeeze")(lambda call, x, *, dimensions: weft.squeeze(x, axis=tuple(dimensions)) if dimensions else x)
lax("concatenate")(lambda call, *xs, dimension: weft.concat(list(xs), axis=dimension))
lax("rev")(lambda call, x, *, dimensions: weft.flip(x, axis=tuple(dimensions)) if dimensions else x)


@lax("expand_dims")
def expand_dims(call: Call, x: Any, *, dimensions: Any) -> Any:
    """x with new axes of size 1."""
    return weft.expand_dims(x, axis=tuple(dimensions))


@lax("split")
def split(call: Call, x: Any, *, sizes: Any, axis: int) -> Any:
    """Parts of an axis."""
    return list(weft.split(x, list(sizes), axis=axis))


@lax("tile")
def tile(call: Call, x: Any, *, reps: Any) -> Any:
    """Copies side by side."""
    return weft.tile(x, tuple(reps))


@lax("iota")
def iota(call: Call, *sizes: Any, dtype: Any, shape: Any, dimension: int, **parameters: Any) -> Any:
    """The numbers of the places along an axis."""
    wanted = sizes_of(shape)
    along = [1] * len(wanted)
    along[dimension] = wanted[dimension]
    row = numbers_below(wanted[dimension])
    return weft.broadcast_to(weft.reshape(astype(row, dtype_of(dtype)), tuple(along)), wanted)


@lax("empty", "empty2", "create_token", "after_all")
def empty(call: Call, *tokens: Any, **parameters: Any) -> Any:
    """Zeros, where JAX leaves open what there is."""
    return weft.zeros(call.type.shape, dtype=call.type.dtype)


@lax("dim_as_value")
def dim_as_value(call: Call, *, dim: Any) -> Any:
    """A size as a number."""
    size = size_of(dim)
    return astype(weft.zeros((), dtype=weft.int64) + size, call.type.dtype)


@lax("slice")
def slice_(call: Call, x: Any, *, start_indices: Any, limit_indices: Any, strides: Any = None) -> Any:
    """A part of each axis."""
    steps = (1,) * x.ndim if strides is None else tuple(strides)
    return slice_axes(x, starts=sizes_of(start_indices), stops=sizes_of(limit_indices), steps=steps)


@lax("pad")
def pad(call: Call, x: Any, value: Any, *, padding_config: Any) -> Any:
    """x with a border, and with elements between its own; where a width is negative it is cut."""
    low, high, interior = (tuple(size_of(c[i]) for c in padding_config) for i in range(3))
    grow = [tuple(max(w, 0) for w in side) for side in (low, high)]
    number = None if call.known[1] is None else call.known[1].item()
    if number is not None:
        out = pad_axes(x, low=grow[0], high=grow[1], interior=interior, value=_plain(number))
    else:
        out = _padded_with(x, value, grow, interior)
    if all(w >= 0 for w in (*low, *high)):
        return out
    starts = tuple(max(-w, 0) for w in low)
    stops = tuple(n - max(-w, 0) for n, w in zip(out.shape, high, strict=True))
    return slice_axes(out, starts=starts, stops=stops, steps=(1,) * x.ndim)


def _plain(number: Any) -> Any:
    return float(number) if type(number).__name__ == "bfloat16" else number


def _padded_with(x: Any, value: Any, grow: Any, interior: Any) -> Any:
    """x with a border of a number that a run tells."""
    zero = False if kind(x.dtype) == "b" else 0
    out = pad_axes(x, low=grow[0], high=grow[1], interior=interior, value=zero)
    inside = weft.ones(x.shape, dtype=weft.bool)
    mask = pad_axes(inside, low=grow[0], high=grow[1], interior=interior, value=False)
    return weft.where(mask, out, value)


# Parts that tensors tell


@lax("dynamic_slice")
def dynamic_slice(call: Call, x: Any, *starts: Any, slice_sizes: Any) -> Any:
    """A part of each axis, from places that tensors tell; it is moved into the tensor."""
    sizes = sizes_of(slice_sizes)
    for axis, size in enumerate(sizes):
        if size == x.shape[axis]:
            continue
        first = call.known[axis + 1]
        if first is not None and isinstance(x.shape[axis], int):
            begin = min(max(int(first), 0), x.shape[axis] - size)
            x = x[(*[slice(None)] * axis, slice(begin, begin + size))]
        else:
            x = weft.take(x, _places(starts[axis], x.shape[axis], size), axis=axis)
    return x


def _places(start: Any, length: Any, size: Any) -> Any:
    first = weft.minimum(weft.maximum(astype(start, weft.int64), 0), _number(length - size))
    return first + numbers_below(size)


def _number(size: Any) -> Any:
    return size if isinstance(size, int) else weft.zeros((), dtype=weft.int64) + size


@lax("dynamic_update_slice")
def dynamic_update_slice(call: Call, x: Any, update: Any, *starts: Any) -> Any:
    """x with other elements in a part of each axis, from places that tensors tell."""
    partial = [i for i in range(x.ndim) if update.shape[i] != x.shape[i]]
    if not partial:
        return update
    key: list[Any] = [slice(None)] * x.ndim
    for place, axis in enumerate(partial):
        along = [1] * len(partial)
        along[place] = update.shape[axis]
        key[axis] = weft.reshape(_places(starts[axis], x.shape[axis], update.shape[axis]), tuple(along))
    order = [*partial, *[i for i in range(x.ndim) if i not in partial]]
    moved = updated(
        weft.permute_dims(x, tuple(order)),
        tuple(key[i] for i in partial),
        weft.permute_dims(update, tuple(order)),
    )
    return weft.permute_dims(moved, tuple(order.index(i) for i in range(x.ndim)))
