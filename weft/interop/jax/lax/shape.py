"""Lax primitives that make tensors and arrange elements anew."""

from __future__ import annotations

from typing import Any

import weft
from weft.interop.forms.elements import along, as_number, astype, clamped, numbers_below
from weft.interop.forms.window import padded
from weft.interop.jax.calls import Call, dtype_of, lax, size_of, sizes_of
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


@lax("iota")
def iota(call: Call, *sizes: Any, dtype: Any, shape: Any, dimension: int, **parameters: Any) -> Any:
    """The numbers of the places along an axis."""
    wanted = sizes_of(shape)
    row = numbers_below(wanted[dimension], len(wanted) - 1 - dimension)
    return weft.broadcast_to(astype(row, dtype_of(dtype)), wanted)


lax.enter(
    {
        "reshape": lambda call, x, *sizes, new_sizes, dimensions=None, **rest: weft.reshape(
            x if dimensions is None else weft.permute_dims(x, tuple(dimensions)), sizes_of(new_sizes)
        ),
        "slice": lambda call, x, *, start_indices, limit_indices, strides=None: slice_axes(
            x,
            starts=sizes_of(start_indices),
            stops=sizes_of(limit_indices),
            steps=(1,) * x.ndim if strides is None else tuple(strides),
        ),
        "transpose": lambda call, x, *, permutation: weft.permute_dims(x, tuple(permutation)),
        "squeeze": lambda call, x, *, dimensions: (
            weft.squeeze(x, axis=tuple(dimensions)) if dimensions else x
        ),
        "rev": lambda call, x, *, dimensions: weft.flip(x, axis=tuple(dimensions)) if dimensions else x,
        "expand_dims": lambda call, x, *, dimensions: weft.expand_dims(x, axis=tuple(dimensions)),
        "concatenate": lambda call, *xs, dimension: weft.concat(list(xs), axis=dimension),
        "split": lambda call, x, *, sizes, axis: weft.split(x, list(sizes), axis=axis),
        "tile": lambda call, x, *, reps: weft.tile(x, tuple(reps)),
        "empty empty2 create_token after_all": lambda call, *tokens, **rest: (  # whatever they hold
            weft.zeros(call.type.shape, dtype=call.type.dtype)
        ),
        "dim_as_value": lambda call, *, dim: weft.zeros((), dtype=weft.int64) + size_of(dim),
    }
)


@lax("pad")
def pad(call: Call, x: Any, value: Any, *, padding_config: Any) -> Any:
    """x with a border, and with elements between its own; where a width is negative it is cut."""
    low, high, gaps = (tuple(size_of(c[i]) for c in padding_config) for i in range(3))
    none = (0,) * x.ndim

    def extended(t: Any, fill: Any) -> Any:
        spaced = pad_axes(t, low=none, high=none, interior=gaps, value=fill) if any(gaps) else t
        return padded(spaced, list(zip(low, high, strict=True)), value=fill)

    if call.known[1] is not None:
        number = call.known[1].item()
        return extended(x, float(number) if type(number).__name__ == "bfloat16" else number)
    inside = extended(weft.ones(x.shape, dtype=weft.bool), False)  # the number is one that a run tells
    return weft.where(inside, extended(x, False if x.dtype == weft.bool else 0), value)


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
            x = x[along(axis, slice(begin, begin + size))]
        else:
            x = weft.take(x, _places(starts[axis], x.shape[axis], size), axis=axis)
    return x


def _places(start: Any, length: Any, size: Any) -> Any:
    return clamped(astype(start, weft.int64), 0, as_number(length - size)) + numbers_below(size)


@lax("dynamic_update_slice")
def dynamic_update_slice(call: Call, x: Any, update: Any, *starts: Any) -> Any:
    """x with other elements in a part of each axis, from places that tensors tell."""
    partial = [i for i in range(x.ndim) if update.shape[i] != x.shape[i]]
    if not partial:
        return update
    key: list[Any] = [slice(None)] * x.ndim
    for place, axis in enumerate(partial):
        places = _places(starts[axis], x.shape[axis], update.shape[axis])
        key[axis] = weft.reshape(places, (-1, *[1] * (len(partial) - 1 - place)))
    order = [*partial, *[i for i in range(x.ndim) if i not in partial]]
    moved = updated(
        weft.permute_dims(x, tuple(order)),
        tuple(key[i] for i in partial),
        weft.permute_dims(update, tuple(order)),
    )
    return weft.permute_dims(moved, tuple(order.index(i) for i in range(x.ndim)))
