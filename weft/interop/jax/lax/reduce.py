"""Lax primitives that reduce, accumulate, sort and multiply, and that work on windows."""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_lowercase
from typing import Any

import weft
from weft.base.dtypes import bool_
from weft.interop.forms.elements import highest, lowest, neutral
from weft.interop.forms.reduce import reduced, running
from weft.interop.forms.window import Windows, pooled, taps
from weft.interop.jax.calls import Call, lax
from weft.interop.rules import Rule
from weft.ops.conv.primitive import conv
from weft.ops.view.slices import pad_axes

COMBINED = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}  # by primitive, what it makes of many


def _reduction(how: str) -> Rule:
    return lambda call, x, *, axes, **rest: reduced(how, x, tuple(axes))


def _bitwise(how: str, function: Callable[[Any, Any], Any]) -> Rule:
    """Of bools a reduction; of integers their bits combined one after the other."""

    def rule(call: Call, x: Any, *, axes: Any, **rest: Any) -> Any:
        if x.dtype == bool_ or not axes:
            return reduced(how, x, tuple(axes)) if x.dtype == bool_ else x
        kept = [i for i in range(x.ndim) if i not in axes]
        rows = weft.reshape(weft.permute_dims(x, (*axes, *kept)), (-1, *[x.shape[i] for i in kept]))
        return weft.scan(lambda total, row: (function(total, row), None), rows[0], rows[1:])[0]

    return rule


@lax("reduce_xor")
def reduce_xor(call: Call, x: Any, *, axes: Any, **rest: Any) -> Any:
    """Whether an odd number holds; of integers the bits that an odd number has."""
    if x.dtype == bool_ and axes:
        return weft.remainder(weft.sum(x, axis=tuple(axes)), 2) == 1
    return x if not axes else _bitwise("", weft.bitwise_xor)(call, x, axes=axes)


@lax("reduce")
def reduce(call: Call, *operands: Any, jaxpr: Any, dimensions: Any, **rest: Any) -> Any:
    """Elements along axes combined by a function, which is one primitive."""
    known = {**COMBINED, "and": "all", "or": "any"}
    names = [e.primitive.name for e in jaxpr.eqns]
    if len(operands) != 2 or len(names) != 1 or names[0] not in known:
        raise call.error("must combine elements by one of add, mul, max, min, and, or", "use lax.scan")
    found = reduced(known[names[0]], operands[0], tuple(dimensions))
    return call.run(jaxpr, [call.cast(found), operands[1]])[0]


def _running(how: str) -> Rule:
    return lambda call, x, *, axis, reverse: running(how, x, axis, reverse=reverse)


lax.enter(
    {
        **{f"reduce_{how}": _reduction(how) for how in ("sum", "prod", "max", "min")},
        **{f"cum{how}": _running(how) for how in ("sum", "prod", "max", "min", "logsumexp")},
        "reduce_and": _bitwise("all", weft.bitwise_and),
        "reduce_or": _bitwise("any", weft.bitwise_or),
        "argmax": lambda call, x, *, axes, index_dtype: weft.argmax(x, axis=axes[0]),
        "argmin": lambda call, x, *, axes, index_dtype: weft.argmin(x, axis=axes[0]),
        "top_k": lambda call, x, *, k, axis=-1, **rest: weft.topk(x, k, axis=axis),
        "approx_top_k": lambda call, x, *, k, reduction_dimension=-1, is_max_k=True, **rest: weft.topk(
            x, k, axis=reduction_dimension, largest=is_max_k
        ),
    }
)


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
    letters = iter(ascii_lowercase)
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
def convolution(call: Call, x: Any, w: Any, *, dimension_numbers: Any, padding: Any, **settings: Any) -> Any:
    """A convolution of any layout."""
    x = weft.permute_dims(call.cast(x), tuple(dimension_numbers.lhs_spec))
    w = weft.permute_dims(call.cast(w), tuple(dimension_numbers.rhs_spec))
    parts = settings["batch_group_count"]
    if parts > 1:  # of the batch, as groups of channels
        n, c, *space = x.shape
        split = weft.reshape(x, (parts, n // parts, c, *space))
        x = weft.reshape(weft.moveaxis(split, 0, 1), (n // parts, parts * c, *space))
    out = conv(
        x,
        w,
        stride=tuple(settings["window_strides"]),
        padding=tuple((int(a), int(b)) for a, b in padding),
        dilation=tuple(settings["rhs_dilation"]),
        input_dilation=tuple(settings["lhs_dilation"]),
        groups=parts if parts > 1 else settings["feature_group_count"],
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


# Windows: sums, maxima and minima of them, and their gradients


def _read(x: Any, fill: Any, given: dict[str, Any]) -> tuple[Any, Windows]:
    """x with a border and gaps, and the windows that slide over it."""
    ones = (1,) * x.ndim
    low, high = (tuple(int(p[i]) for p in given["padding"]) for i in range(2))
    gaps = tuple(int(b) - 1 for b in given.get("base_dilation", ones))
    kernel, strides, dilations = (
        tuple(int(n) for n in given.get(name, ones))
        for name in ("window_dimensions", "window_strides", "window_dilation")
    )
    windows = Windows(kernel, strides, ((0, 0),) * x.ndim, dilations)
    return pad_axes(x, low=low, high=high, interior=gaps, value=fill), windows


def _over(how: str) -> Rule:
    return lambda call, x, **given: call.cast(pooled(how, *_read(x, neutral(how, x.dtype), given)))


lax.enter({f"reduce_window_{how}": _over(how) for how in ("sum", "max", "min")})


@lax("reduce_window")
def reduce_window(call: Call, *operands: Any, jaxpr: Any, consts: Any = (), **parameters: Any) -> Any:
    """Windows combined by a function, which is one primitive."""
    names = [e.primitive.name for e in jaxpr.eqns]
    if len(operands) != 2 or len(names) != 1 or names[0] not in COMBINED:
        raise call.error("must combine elements by one of add, mul, max, min")
    found = _over(COMBINED[names[0]])(call, operands[0], **parameters)
    return call.run(jaxpr, [found, operands[1]])[0]


def _rows(x: Any, fill: Any, given: dict[str, Any]) -> Any:
    """The windows of x, the elements of each in a row."""
    found = taps(*_read(x, fill, given))
    return weft.reshape(found, (*found.shape[: x.ndim], -1))


def _places(x: Any, select: Any, given: dict[str, Any]) -> Any:
    """In each window the place of the element that is selected."""
    largest = "ge" in str(getattr(select, "name", select))
    rows = _rows(x, lowest(x.dtype) if largest else highest(x.dtype), given)
    return weft.expand_dims((weft.argmax if largest else weft.argmin)(rows, axis=-1), axis=-1)


@lax("select_and_scatter_add")
def select_and_scatter_add(call: Call, source: Any, x: Any, *, select_prim: Any, **given: Any) -> Any:
    """Numbers added at the places of the elements that windows select: the gradient of their maximum."""
    rows, pull = weft.vjp(lambda x: _rows(x, 0, given), x)
    chosen = weft.arange(rows.shape[-1]) == _places(x, select_prim, given)
    zero = weft.zeros((), dtype=source.dtype)
    return pull(weft.where(chosen, weft.expand_dims(source, axis=-1), zero))[0]


@lax("select_and_gather_add")
def select_and_gather_add(call: Call, tangents: Any, x: Any, *, select_prim: Any, **given: Any) -> Any:
    """The numbers at the places of the elements that windows select."""
    rows = _rows(tangents, 0, given)
    return weft.squeeze(weft.take_along_axis(rows, _places(x, select_prim, given), axis=-1), axis=-1)
