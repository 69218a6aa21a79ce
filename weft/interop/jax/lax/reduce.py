"""Lax primitives that reduce, accumulate, sort and multiply."""

from __future__ import annotations

from typing import Any

import weft
from weft.base.dtypes import bool_
from weft.interop.jax.calls import Call, astype, dtype_of, lax
from weft.ops.conv.primitive import conv

_LETTERS = "abcdefghijklmnopqrstuvwxyz"

lax("reduce_sum")(lambda call, x, *, axes, **rest: call.cast(weft.sum(x, axis=tuple(axes))) if axes else x)
lax("reduce_prod")(lambda call, x, *, axes, **rest: call.cast(weft.prod(x, axis=tuple(axes))) if axes else x)
lax("reduce_max")(lambda call, x, *, axes, **rest: weft.amax(x, axis=tuple(axes)) if axes else x)
lax("reduce_min")(lambda call, x, *, axes, **rest: weft.amin(x, axis=tuple(axes)) if axes else x)


@lax("reduce_and")
def reduce_and(call: Call, x: Any, *, axes: Any, **rest: Any) -> Any:
    """Whether all hold; of integers the bits that all have."""
    if not axes:
        return x
    return weft.all(x, axis=tuple(axes)) if x.dtype == bool_ else _folded(x, axes, weft.bitwise_and)


@lax("reduce_or")
def reduce_or(call: Call, x: Any, *, axes: Any, **rest: Any) -> Any:
    """Whether one holds; of integers the bits that one has."""
    if not axes:
        return x
    return weft.any(x, axis=tuple(axes)) if x.dtype == bool_ else _folded(x, axes, weft.bitwise_or)


@lax("reduce_xor")
def reduce_xor(call: Call, x: Any, *, axes: Any, **rest: Any) -> Any:
    """Whether an odd number holds; of integers the bits that an odd number has."""
    if not axes:
        return x
    if x.dtype == bool_:
        return weft.remainder(weft.sum(x, axis=tuple(axes)), 2) == 1
    return _folded(x, axes, weft.bitwise_xor)


def _folded(x: Any, axes: Any, combine: Any) -> Any:
    """Elements along axes combined one after the other."""
    kept = [i for i in range(x.ndim) if i not in axes]
    rows = weft.permute_dims(x, (*axes, *kept))
    rows = weft.reshape(rows, (-1, *[x.shape[i] for i in kept]))
    return weft.scan(lambda total, row: (combine(total, row), None), rows[0], rows[1:])[0]


@lax("reduce")
def reduce(call: Call, *operands: Any, jaxpr: Any, dimensions: Any, **rest: Any) -> Any:
    """Elements along axes combined by a function, which is one primitive."""
    x, initial = operands[0], operands[-1]
    known = {"add": weft.sum, "mul": weft.prod, "max": weft.amax, "min": weft.amin}
    known |= {"and": weft.all, "or": weft.any}
    names = [e.primitive.name for e in jaxpr.eqns]
    if len(operands) != 2 or len(names) != 1 or names[0] not in known:
        raise call.error("must combine elements by one of add, mul, max, min, and, or", "use lax.scan")
    (out,) = call.run(jaxpr, [call.cast(known[names[0]](x, axis=tuple(dimensions))), initial])
    return out


@lax("argmax")
def argmax(call: Call, x: Any, *, axes: Any, index_dtype: Any) -> Any:
    """The places of the largest elements along an axis."""
    return astype(weft.argmax(x, axis=axes[0]), dtype_of(index_dtype))


@lax("argmin")
def argmin(call: Call, x: Any, *, axes: Any, index_dtype: Any) -> Any:
    """The places of the smallest elements along an axis."""
    return astype(weft.argmin(x, axis=axes[0]), dtype_of(index_dtype))


# Along an axis


def _running(function: Any) -> Any:
    def rule(call: Call, x: Any, *, axis: int, reverse: bool) -> Any:
        given = weft.flip(x, axis=axis) if reverse else x
        out = call.cast(function(given, axis))
        return weft.flip(out, axis=axis) if reverse else out

    return rule


def _running_log_sum(x: Any, axis: int) -> Any:
    rows = weft.moveaxis(x, axis, 0)

    def step(total: Any, row: Any) -> Any:
        new = weft.logaddexp(total, row)
        return new, new

    _, out = weft.scan(step, weft.full(rows.shape[1:], -float("inf"), dtype=x.dtype), rows)
    return weft.moveaxis(out, 0, axis)


lax("cumsum")(_running(lambda x, axis: weft.cumsum(x, axis=axis)))
lax("cumprod")(_running(lambda x, axis: weft.cumprod(x, axis=axis)))
lax("cummax")(_running(lambda x, axis: weft.cummax(x, axis=axis)[0]))
lax("cummin")(_running(lambda x, axis: weft.cummin(x, axis=axis)[0]))
lax("cumlogsumexp")(_running(_running_log_sum))


@lax("sort")
def sort(call: Call, *xs: Any, dimension: int, is_stable: bool, num_keys: int) -> Any:
    """Tensors in the order of the first ones."""
    if len(xs) == 1:
        return weft.sort(xs[0], axis=dimension)
    order = weft.argsort(xs[num_keys - 1], axis=dimension, stable=True)
    for key in reversed(xs[: num_keys - 1]):
        again = weft.argsort(weft.take_along_axis(key, order, axis=dimension), axis=dimension, stable=True)
        order = weft.take_along_axis(order, again, axis=dimension)
    return [weft.take_along_axis(x, order, axis=dimension) for x in xs]


@lax("top_k")
def top_k(call: Call, x: Any, *, k: int, axis: int = -1, **rest: Any) -> Any:
    """The k largest elements, and their places."""
    values, places = weft.topk(x, k, axis=axis)
    return values, astype(places, call.types[1].dtype)


@lax("approx_top_k")
def approx_top_k(
    call: Call, x: Any, *, k: int, reduction_dimension: int = -1, is_max_k: bool = True, **rest: Any
) -> Any:
    """The k largest or smallest elements, all of them found."""
    values, places = weft.topk(x, k, axis=reduction_dimension, largest=is_max_k)
    return values, astype(places, call.types[1].dtype)


# Products


@lax("dot_general")
def dot_general(call: Call, x: Any, y: Any, *, dimension_numbers: Any, **rest: Any) -> Any:
    """The sum of products over axes; the result has the batch axes first, then those of both sides."""
    (x_sum, y_sum), (x_batch, y_batch) = [
        [tuple(map(int, axes)) for axes in pair] for pair in dimension_numbers
    ]
    x, y = call.cast(x), call.cast(y)
    count = len(x_batch)
    leading = x_batch == y_batch == tuple(range(count)) and y.ndim == count + 2
    if leading and x_sum == (x.ndim - 1,) and y_sum == (count,) and (not count or x.ndim == count + 2):
        return weft.matmul(x, y)
    letters = iter(_LETTERS)
    left, right = [""] * x.ndim, [""] * y.ndim
    for a, b in [*zip(x_batch, y_batch, strict=True), *zip(x_sum, y_sum, strict=True)]:
        left[a] = right[b] = next(letters)
    left = [c or next(letters) for c in left]
    right = [c or next(letters) for c in right]
    batch = [left[a] for a in x_batch]
    free = [c for i, c in enumerate(left) if i not in (*x_batch, *x_sum)]
    others = [c for i, c in enumerate(right) if i not in (*y_batch, *y_sum)]
    equation = f"{''.join(left)},{''.join(right)}->{''.join([*batch, *free, *others])}"
    return weft.einsum(equation, x, y)


@lax("conv_general_dilated")
def convolution(
    call: Call,
    x: Any,
    w: Any,
    *,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any,
    rhs_dilation: Any,
    dimension_numbers: Any,
    feature_group_count: int,
    batch_group_count: int,
    **rest: Any,
) -> Any:
    """A convolution of any layout."""
    x = weft.permute_dims(call.cast(x), tuple(dimension_numbers.lhs_spec))
    w = weft.permute_dims(call.cast(w), tuple(dimension_numbers.rhs_spec))
    groups = feature_group_count
    if batch_group_count > 1:  # parts of the batch as groups of channels
        n, c, *space = x.shape
        parts = weft.reshape(x, (batch_group_count, n // batch_group_count, c, *space))
        x = weft.reshape(weft.moveaxis(parts, 0, 1), (n // batch_group_count, batch_group_count * c, *space))
        groups = batch_group_count
    out = conv(
        x,
        w,
        stride=tuple(window_strides),
        padding=tuple((int(a), int(b)) for a, b in padding),
        dilation=tuple(rhs_dilation),
        input_dilation=tuple(lhs_dilation),
        groups=groups,
    )
    spec = tuple(dimension_numbers.out_spec)
    return weft.permute_dims(out, tuple(spec.index(i) for i in range(len(spec))))


@lax("fft")
def fft(call: Call, x: Any, *, fft_type: Any, fft_lengths: Any) -> Any:
    """A Fourier transform over the last axes."""
    name = ("fft", "ifft", "rfft", "irfft")[int(fft_type)]
    axes = tuple(range(-len(fft_lengths), 0))
    if name in ("irfft", "rfft"):
        return call.cast(getattr(weft.fft, f"{name}n")(x, s=tuple(fft_lengths), axes=axes))
    return call.cast(getattr(weft.fft, f"{name}n")(x, axes=axes))
