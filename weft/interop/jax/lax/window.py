"""Lax primitives over windows: sums, maxima and minima of them, and their gradients."""

from __future__ import annotations

from typing import Any

import weft
from weft.interop.forms.elements import highest, lowest, neutral
from weft.interop.forms.window import Windows, pooled, taps
from weft.interop.jax.calls import Call, lax
from weft.interop.jax.lax.reduce import COMBINED
from weft.interop.rules import Rule
from weft.ops.view.slices import pad_axes


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
