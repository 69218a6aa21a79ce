"""Lax primitives over windows: sums, maxima and minima of them, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft.base.dtypes import kind
from weft.interop.jax.calls import Call, lax
from weft.ops.view.slices import pad_axes
from weft.ops.windows import windows


def _taps(
    x: Any, sizes: Sequence[int], strides: Any, padding: Any, base: Any, dilation: Any, fill: Any
) -> tuple[Any, int]:
    """All windows of x, their elements along last axes, and how many of these there are."""
    low, high = (tuple(int(p[i]) for p in padding) for i in range(2))
    padded = pad_axes(x, low=low, high=high, interior=tuple(int(b) - 1 for b in base), value=fill)
    rank = x.ndim
    out = windows(
        padded,
        kernel=tuple(int(s) for s in sizes),
        stride=tuple(int(s) for s in strides),
        padding=((0, 0),) * rank,
        dilation=tuple(int(d) for d in dilation),
    )
    return out, rank


def _lowest(dtype: Any) -> Any:
    return -float("inf") if kind(dtype) in "fc" else False if kind(dtype) == "b" else int(np.iinfo(dtype).min)


def _highest(dtype: Any) -> Any:
    return float("inf") if kind(dtype) in "fc" else True if kind(dtype) == "b" else int(np.iinfo(dtype).max)


def _over(function: Any, fill: Any) -> Any:
    def rule(
        call: Call,
        x: Any,
        *,
        window_dimensions: Any,
        window_strides: Any,
        padding: Any,
        base_dilation: Any,
        window_dilation: Any,
    ) -> Any:
        out, rank = _taps(
            x, window_dimensions, window_strides, padding, base_dilation, window_dilation, fill(x.dtype)
        )
        return call.cast(function(out, axis=tuple(range(-rank, 0))))

    return rule


_SUM = _over(weft.sum, lambda dtype: 0)
_PRODUCT = _over(weft.prod, lambda dtype: 1)
_MAX = _over(weft.amax, _lowest)
_MIN = _over(weft.amin, _highest)

lax("reduce_window_sum")(_SUM)
lax("reduce_window_max")(_MAX)
lax("reduce_window_min")(_MIN)


@lax("reduce_window")
def reduce_window(call: Call, *operands: Any, jaxpr: Any, consts: Any = (), **parameters: Any) -> Any:
    """Windows combined by a function, which is one primitive."""
    names = [e.primitive.name for e in jaxpr.eqns]
    rules = {"add": _SUM, "mul": _PRODUCT, "max": _MAX, "min": _MIN}
    if len(operands) != 2 or len(names) != 1 or names[0] not in rules:
        raise call.error("must combine elements by one of add, mul, max, min")
    found = rules[names[0]](call, operands[0], **parameters)
    (out,) = call.run(jaxpr, [found, operands[1]])
    return out


def _places(
    x: Any, select: Any, sizes: Any, strides: Any, padding: Any, base: Any, dilation: Any
) -> tuple[Any, Any, tuple[int, ...]]:
    """The windows of x as rows, and in each the place of the element that is selected."""
    largest = "ge" in str(getattr(select, "name", select))
    fill = _lowest(x.dtype) if largest else _highest(x.dtype)
    taps, rank = _taps(x, sizes, strides, padding, base, dilation, fill)
    shape = tuple(taps.shape[: taps.ndim - rank])
    rows = weft.reshape(taps, (*shape, -1))
    return rows, (weft.argmax if largest else weft.argmin)(rows, axis=-1), shape


@lax("select_and_scatter_add")
def select_and_scatter_add(
    call: Call,
    source: Any,
    x: Any,
    *,
    select_prim: Any,
    window_dimensions: Any,
    window_strides: Any,
    padding: Any,
) -> Any:
    """Numbers added at the places of the elements that windows select: the gradient of their maximum."""
    ones = (1,) * x.ndim
    rows, places, shape = _places(x, select_prim, window_dimensions, window_strides, padding, ones, ones)
    chosen = weft.arange(rows.shape[-1]) == weft.expand_dims(places, axis=-1)
    spread = weft.where(chosen, weft.expand_dims(source, axis=-1), weft.zeros((), dtype=source.dtype))

    def read(x: Any) -> Any:
        taps, _ = _taps(x, window_dimensions, window_strides, padding, ones, ones, 0)
        return weft.reshape(taps, (*shape, -1))

    _, pull = weft.vjp(read, x)
    return pull(spread)[0]


@lax("select_and_gather_add")
def select_and_gather_add(
    call: Call,
    tangents: Any,
    x: Any,
    *,
    select_prim: Any,
    window_dimensions: Any,
    window_strides: Any,
    padding: Any,
    base_dilation: Any,
    window_dilation: Any,
) -> Any:
    """The numbers at the places of the elements that windows select."""
    given = (window_dimensions, window_strides, padding, base_dilation, window_dilation)
    _, places, shape = _places(x, select_prim, *given)
    taps, _ = _taps(tangents, *given, 0)
    rows = weft.reshape(taps, (*shape, -1))
    return weft.squeeze(weft.take_along_axis(rows, weft.expand_dims(places, axis=-1), axis=-1), axis=-1)
