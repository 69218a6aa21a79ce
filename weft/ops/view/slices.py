"""Slices, their updates, and padding, the transpose of slicing.

Attributes have one entry for each axis. The public functions stand in ``padding``; indexing with
brackets is in ``weft.tensor.indexing``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.shapes import Shape
from weft.base.size_bounds import positive, range_length, size_min
from weft.base.sizes import is_known
from weft.errors import BoundsError, ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import batch_leading
from weft.ops.factors import Factors, Types, numbered, pieces_in, resize_pad, resize_slice
from weft.ops.families import linear, primitive
from weft.ops.op import Array, Attrs, Op, Operand, Sample, Tensor
from weft.ops.samples import complex_array, like_array, real_array
from weft.ops.size import filled

Ints = tuple[int, ...]

# Slices. On each axis the elements are those of range(start, stop, step): a stop of -1 with a negative
# step means "down to the first element".


def _as_key(starts: Ints, stops: Ints, steps: Ints) -> tuple[slice, ...]:
    return tuple([slice(a, None if b < 0 else b, s) for a, b, s in zip(starts, stops, steps, strict=True)])


def _sliced_shape(starts: Ints, stops: Ints, steps: Ints) -> Shape:
    return tuple(range_length(*bounds) for bounds in zip(starts, stops, steps, strict=True))


def _slice_type(x: TensorType, *, starts: Ints, stops: Ints, steps: Ints) -> TensorType:
    for axis, (size, start, stop, step) in enumerate(zip(x.shape, starts, stops, steps, strict=True)):
        if is_known((size, start, stop)) and len(range(start, stop, step)):
            last = range(start, stop, step)[-1]
            if not (0 <= start < size and 0 <= last < size):
                got = last if 0 <= start < size else start
                allowed = f"in 0..{size - 1} for axis {axis} of size {size}"
                raise BoundsError("slice", f"index must be {allowed}, got {got}")
    return TensorType(_sliced_shape(starts, stops, steps), x.dtype)


def _batch_slice(attrs: Attrs, inputs: Sequence[Tensor]) -> Attrs:
    return {
        "starts": (0, *attrs["starts"]),
        "stops": (inputs[0].shape[0], *attrs["stops"]),
        "steps": (1, *attrs["steps"]),
    }


def _slice_samples(*, with_part: bool = False) -> list[Sample]:
    """Samples of a slice, or of an op that takes the sliced part as well."""
    cases = [
        (real_array((4, 5)), (1, 0), (3, 5), (1, 2)),
        (real_array((4, 5)), (3, 4), (-1, 0), (-1, -2)),
        (real_array((4, 5)), (2, 0), (2, 5), (1, 1)),
        (real_array((0, 2)), (0, 0), (0, 2), (1, 1)),
        (real_array(()), (), (), ()),
        (real_array((5, 4)).T, (0, 1), (4, 5), (3, 3)),
        (complex_array((5,)), (4,), (-1,), (-3,)),
    ]
    return [
        Sample(
            (x, like_array(x, _sliced_shape(a, b, s), seed=3)) if with_part else (x,),
            {"starts": a, "stops": b, "steps": s},
        )
        for x, a, b, s in cases
    ]


def _unit_steps(attrs: Mapping[str, Any]) -> dict[str, Any]:
    starts = attrs.get("starts")
    return {"steps": (1,) * len(starts)} if isinstance(starts, tuple) else {}


def _slice_view(index: Sequence[Any], x: TensorType, starts: Ints, stops: Ints, steps: Ints) -> list[Any]:
    return [i * step + start for i, start, step in zip(index, starts, steps, strict=True)]


def _slice_factors(inputs: Types, outputs: Types, *, starts: Ints, stops: Ints, steps: Ints) -> Factors:
    """Of a slice: what is taken whole, and one of several equal pieces."""
    (x,), (out,) = inputs, outputs
    ins, outs = [""] * x.ndim, [""] * x.ndim
    for d, (name, size, taken) in enumerate(zip(numbered(x), x.shape, out.shape, strict=True)):
        count = pieces_in(size, taken)
        if steps[d] == 1 and size == taken and starts[d] == 0:
            ins[d] = outs[d] = name
        elif steps[d] == 1 and count > 1 and isinstance(starts[d], int) and starts[d] % taken == 0:
            ins[d], outs[d] = f"{count}*{name}", name
    return Factors((tuple(ins),), (tuple(outs),))


slice_axes: Op = linear(
    "slice",
    type_rule=_slice_type,
    eval=lambda x, *, starts, stops, steps: x[_as_key(starts, stops, steps)],
    transpose=(lambda g, x_type, starts, stops, steps: _unslice(g, x_type.shape, starts, stops, steps),),
    batch=batch_leading(_batch_slice),
    samples=_slice_samples,
    defaults=_unit_steps,
    view=_slice_view,
    factors=_slice_factors,
    resize=resize_slice,
)


def slice_axis(x: Tensor, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
    """The elements range(start, stop, step) along one axis, all along the others."""
    return slice_axes(x, **bounds_along(x, axis, start, stop, step))


def bounds_along(x: Tensor, axis: int, start: int, stop: int, step: int = 1) -> dict[str, Ints]:
    """The attributes of a slice along one axis."""
    starts, stops, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}


def flip_axes(x: Tensor, axes: Sequence[int]) -> Tensor:
    """x with the order of elements reversed along axes."""
    if not axes:
        return x
    flipped = [i in axes and s != 0 for i, s in enumerate(x.shape)]
    starts = tuple(s - 1 if f else 0 for f, s in zip(flipped, x.shape, strict=True))
    stops = tuple(-1 if f else s for f, s in zip(flipped, x.shape, strict=True))
    steps = tuple(-1 if f else 1 for f in flipped)
    return slice_axes(x, starts=starts, stops=stops, steps=steps)


def _unslice(g: Tensor, shape: Shape, starts: Ints, stops: Ints, steps: Ints) -> Tensor:
    """Zeros of a shape with g where the slice took its elements."""
    g = flip_axes(g, [i for i, s in enumerate(steps) if s < 0])
    low, high, interior = [], [], []
    for size, count, start, step in zip(shape, g.shape, starts, steps, strict=True):
        first = start if step > 0 else start + (count - 1) * step
        first = first if count != 0 else size
        first = size_min(first, size) if step < -1 else first  # of a slice that may turn out to be empty
        between = (step if step > 0 else -step) - 1 if count != 0 and count != 1 else 0
        low.append(first)
        high.append(size - first - count - positive(count - 1) * between)
        interior.append(between)
    if g.shape == shape:
        return g
    return pad_axes(g, low=tuple(low), high=tuple(high), interior=tuple(interior), value=0)


def _update_type(x: TensorType, v: TensorType, *, starts: Ints, stops: Ints, steps: Ints) -> TensorType:
    part = _slice_type(x, starts=starts, stops=stops, steps=steps)
    if v != part:
        raise ShapeError("update_slice", f"the new part must be of type {part}, got {v}")
    return x


def _update(x: Array, v: Array, *, starts: Ints, stops: Ints, steps: Ints) -> Array:
    out = np.array(x)
    out[_as_key(starts, stops, steps)] = v
    return out


def _update_factors(inputs: Types, outputs: Types, *, starts: Ints, stops: Ints, steps: Ints) -> Factors:
    """Of an update: what is written whole."""
    x, v = inputs
    names = tuple([n if a == b else "" for n, a, b in zip(numbered(x), x.shape, v.shape, strict=True)])
    free = tuple([n if s == 1 and at == 0 else "" for n, s, at in zip(names, steps, starts, strict=True)])
    return Factors((free, free), (free,))


update_slice: Op = linear(
    "update_slice",
    type_rule=_update_type,
    eval=_update,
    transpose=(
        lambda g, v_type, starts, stops, steps: update_slice(
            g, filled(v_type.shape, 0, v_type.dtype), starts=starts, stops=stops, steps=steps
        ),
        lambda g, starts, stops, steps: slice_axes(g, starts=starts, stops=stops, steps=steps),
    ),
    batch=batch_leading(_batch_slice),
    factors=_update_factors,
    resize=resize_slice,
    samples=lambda: _slice_samples(with_part=True),
    defaults=_unit_steps,
    over="joint",
    moves=True,
    in_place=True,
)

# Padding: low elements before, high after and interior between the elements of each axis


def _padded_shape(shape: Shape, low: Ints, high: Ints, interior: Ints) -> Shape:
    between = [positive(n - 1) * i if i != 0 else 0 for n, i in zip(shape, interior, strict=True)]
    return tuple(a + n + i + b for n, a, b, i in zip(shape, low, high, between, strict=True))


def _pad(x: Array, *, low: Ints, high: Ints, interior: Ints, value: Operand) -> Array:
    shape = _padded_shape(x.shape, low, high, interior)
    out = np.zeros(shape, x.dtype) if value == 0 else np.full(shape, value, x.dtype)
    out[tuple([slice(a, s - b, i + 1) for a, b, i, s in zip(low, high, interior, shape, strict=True)])] = x
    return out


def _unpad(g: Tensor, x_type: TensorType, low: Ints, high: Ints, interior: Ints) -> Tensor:
    steps = tuple(i + 1 for i in interior)
    stops = tuple(s - b for s, b in zip(g.shape, high, strict=True))
    if not is_known(g.shape):  # from the first on, so that the lengths are plain to see
        stops = tuple(a + n * s for a, n, s in zip(low, x_type.shape, steps, strict=True))
    return slice_axes(g, starts=low, stops=stops, steps=steps)


def _pad_tangent(
    primals: Sequence[Tensor],
    tangents: Sequence[Tensor | None],
    out: Tensor,
    *,
    low: Ints,
    high: Ints,
    interior: Ints,
    value: Operand,
) -> Tensor:
    return pad_axes(tangents[0], low=low, high=high, interior=interior, value=0)


def _batch_pad(attrs: Attrs, inputs: Sequence[Tensor]) -> Attrs:
    return {**attrs, **{name: (0, *attrs[name]) for name in ("low", "high", "interior")}}


def _pad_samples() -> list[Sample]:
    def attrs(low: Ints, high: Ints, interior: Ints, value: Operand = 0) -> Attrs:
        return {"low": low, "high": high, "interior": interior, "value": value}

    return [
        Sample((real_array((2, 3)),), attrs((1, 0), (2, 0), (0, 0))),
        Sample((real_array((2, 3)),), attrs((1, 0), (0, 1), (1, 2), -1.5)),
        Sample((real_array((2, 0)),), attrs((0, 1), (0, 2), (0, 3), 1.0)),
        Sample((real_array(()),), attrs((), (), ())),
        Sample((complex_array((3, 2)).T,), attrs((1, 1), (0, 0), (0, 0), 1j)),
        Sample((np.array([True, False]),), attrs((1,), (1,), (0,), True)),
    ]


def _pad_factors(
    inputs: Types, outputs: Types, *, low: Ints, high: Ints, interior: Ints, value: object
) -> Factors:
    """Of padding: what is left as it is, and what becomes one of several equal pieces."""
    (x,), (out,) = inputs, outputs
    ins, outs = [""] * x.ndim, [""] * x.ndim
    for d, (name, size, padded) in enumerate(zip(numbered(x), x.shape, out.shape, strict=True)):
        count = pieces_in(padded, size)
        if (low[d], high[d], interior[d]) == (0, 0, 0):
            ins[d] = outs[d] = name
        elif count > 1 and interior[d] == 0 and low[d] >= 0 and high[d] >= 0 and low[d] % size == 0:
            ins[d], outs[d] = name, f"{count}*{name}"
    return Factors((tuple(ins),), (tuple(outs),))


pad_axes: Op = primitive(
    "pad",
    type_rule=lambda x, *, low, high, interior, value: TensorType(
        _padded_shape(x.shape, low, high, interior), x.dtype
    ),
    eval=_pad,
    vjp=(_unpad,),
    jvp=_pad_tangent,
    batch=batch_leading(_batch_pad),
    samples=_pad_samples,
    moves=True,
    total=True,
    factors=_pad_factors,
    resize=resize_pad,
)
