"""Windows of convolutions and pools, as attributes tell them; pools over these and over all of an image.

Sizes of the input may be named; so may then be what "SAME" pads. Pools whose windows weft's own functions do
not know (uneven or named padding, the last windows of ``ceil_mode``) run on an input that is padded first.
"""

from __future__ import annotations

from math import prod
from typing import Any

import weft
from weft import Tensor
from weft.base.size_bounds import size_max
from weft.base.sizes import is_known
from weft.interop.forms.elements import lowest
from weft.interop.forms.window import Ints, Sides, Windows, of_rank, padded, pooled
from weft.onnx.operators.registry import Call, enter_handlers, operator

# Windows


def read_windows(call: Call, x: Tensor, kernel: Ints | None = None) -> Windows:
    """What the attributes of a call say of windows over the last axes of x (N, C, *S)."""
    windows = plain_windows(call, tuple(call.attribute("kernel_shape", kernel)))
    mode = call.attribute("auto_pad", "NOTSET")
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return windows
    axes = zip(x.shape[2:], windows.stride, windows.reach, strict=True)
    return windows._replace(padding=tuple([halves(_missing(*axis), mode) for axis in axes]))


def plain_windows(call: Call, kernel: Ints) -> Windows:
    """The same where ``auto_pad`` is left to the caller; nothing is padded if it is "VALID"."""
    rank = len(kernel)
    ones, zeros = (1,) * rank, (0,) * 2 * rank
    pads = zeros if call.attribute("auto_pad", "NOTSET") == "VALID" else call.attribute("pads", zeros)
    sides = tuple(zip(pads[:rank], pads[rank:], strict=True))
    strides, dilations = (tuple(call.attribute(name, ones)) for name in ("strides", "dilations"))
    return Windows(kernel, strides, sides, dilations)


def _missing(size: Any, stride: int, reach: int) -> Any:
    """How much must be added so that one window starts at every stride-th element."""
    if reach == 1:
        return 0
    total = ((size + stride - 1) // stride - 1) * stride + reach - size
    if reach >= stride:
        return total  # never negative, which a named size may not be able to tell
    return size_max(total, 0)


def halves(total: Any, mode: str) -> tuple[Any, Any]:
    """What to pad on both sides; an odd one is at the end for "SAME_UPPER"."""
    half = total // 2
    return (half, total - half) if mode == "SAME_UPPER" else (total - half, half)


def need_rank(call: Call, rank: int) -> None:
    """Raise where weft has no function for a number of sizes."""
    if not 1 <= rank <= 3:
        raise call.error(f"the input must have 1 to 3 sizes after batch and channels, got {rank}")


# Pools


def _covered(call: Call, x: Tensor, windows: Windows) -> Sides:
    """What to pad so that whole windows cover what the operator pools."""
    if not call.attribute("ceil_mode", 0):
        return windows.padding
    axes = zip(x.shape[2:], windows.stride, windows.reach, windows.padding, strict=True)
    return tuple([(lo, _after(n, s, reach, lo, hi)) for n, s, reach, (lo, hi) in axes])


def _after(size: Any, stride: int, reach: int, lo: Any, hi: Any) -> Any:
    """What to pad after an axis for the last window, which must not start in that padding."""
    last = (size + lo + min(hi - reach + stride - 1, -1)) // stride
    total = last * stride + reach - size - lo
    if reach >= stride:
        return total  # never negative, which a named size may not be able to tell
    return size_max(total, 0)


def _own_padding(windows: Windows, sides: Sides) -> Ints | None:
    """The padding, if weft's own pools can do it: even, known, and not more than half a window."""
    padding = windows.even
    if padding is None or sides != windows.padding:
        return None
    return padding if all(2 * p <= k for p, k in zip(padding, windows.kernel, strict=True)) else None


# Largest elements


@operator("MaxPool")
def max_pool(call: Call, x: Tensor) -> Any:
    """The largest element of each window, and where it is."""
    windows = read_windows(call, x)
    sides, zeros = _covered(call, x, windows), (0,) * len(windows.kernel)
    indexed = len(call.outputs) > 1 and call.outputs[1]
    padding = _own_padding(windows, sides)
    given = padded(x, sides, value=lowest(x.dtype)) if padding is None else x
    need_rank(call, len(zeros))
    steps = windows.stride, padding or zeros, windows.dilation
    found = of_rank("max_pool", len(zeros))(given, windows.kernel, *steps, False, indexed)
    if not indexed:
        return found
    lows = [lo for lo, _ in sides] if padding is None else list(zeros)
    return found[0], _flat_places(found[1], x, given, lows, call.attribute("storage_order", 0))


def _flat_places(places: Tensor, x: Tensor, wide: Tensor, lows: list[Any], columns: int) -> Any:
    """Places in each padded channel as places in all of x, flattened; the last axis first if ``columns``."""
    sizes, at = x.shape[2:], []
    for size in reversed(wide.shape[2:]):
        at.append(places % size)
        places = places // size
    coordinates = [c - lo for c, lo in zip(reversed(at), lows, strict=True)]
    ordered = list(zip(coordinates, sizes, strict=True))
    flat: Any = 0
    for c, size in reversed(ordered) if columns else ordered:
        flat = flat * size + c
    channels = weft.arange(x.shape[0] * x.shape[1]).reshape((*x.shape[:2], *(1,) * len(sizes)))
    return flat + channels * prod(sizes)


@operator("MaxUnpool")
def max_unpool(call: Call, x: Tensor, places: Tensor, output_shape: Tensor | None = None) -> Any:
    """What a max pool kept, put back to where it was in a tensor of zeros."""
    windows = read_windows(call, x)
    axes = zip(x.shape[2:], windows.stride, windows.reach, windows.padding, strict=True)
    shape = (*x.shape[:2], *[(n - 1) * s + reach - lo - hi for n, s, reach, (lo, hi) in axes])
    flat = weft.zeros(prod(shape), dtype=x.dtype)
    out = weft.put_along_axis(flat, places.reshape(-1), x.reshape(-1), axis=0).reshape(shape)
    if output_shape is None:
        return out
    wanted = call.ints(output_shape, "output_shape")
    return padded(out, tuple((0, n - m) for n, m in zip(wanted, shape, strict=True)))


# Averages and norms


def _summed(call: Call, x: Tensor, windows: Windows) -> Any:
    """The sum of each window of x, which has been padded."""
    sizes = x.shape[x.ndim - len(windows.kernel) :]
    if any(is_known((n,)) and n < reach for n, reach in zip(sizes, windows.reach, strict=True)):
        raise call.error(f"the window {windows.kernel} must fit into the padded input, got sizes {sizes}")
    return pooled("sum", x, windows)


@operator("AveragePool")
def average_pool(call: Call, x: Tensor) -> Any:
    """The mean of each window, with or without the padding."""
    windows = read_windows(call, x)
    need_rank(call, len(windows.kernel))
    sides, included = _covered(call, x, windows), bool(call.attribute("count_include_pad", 0))
    padding = _own_padding(windows, sides)
    if padding is not None and all(d == 1 for d in windows.dilation):
        function = of_rank("avg_pool", len(padding))
        return function(x, windows.kernel, windows.stride, padding, False, included)
    mean = _summed(call, padded(x, sides), windows) / prod(windows.kernel)
    own = windows.padding if included else ((0, 0),) * len(sides)
    if own == sides:
        return mean
    return mean / _counted(call, x, windows, sides, own)


def _counted(call: Call, x: Tensor, windows: Windows, sides: Sides, own: Sides) -> Any:
    """Which part of each window counts, if only so much of what is padded does; it is a product over axes."""
    out: Any = 1
    for axis, ((lo, hi), (before, after)) in enumerate(zip(sides, own, strict=True)):
        size = x.shape[2 + axis]
        line = weft.arange(lo + size + hi)
        counts = weft.greater_equal(line, lo - before) & weft.less(line, lo + size + after)
        share = _summed(call, counts.astype(x.dtype), windows.along(axis)) / windows.kernel[axis]
        out = out * share.reshape((-1, *(1,) * (len(sides) - axis - 1)))
    return out


@operator("LpPool")
def lp_pool(call: Call, x: Tensor, *, p: int = 2) -> Any:
    """The p-norm of each window."""
    windows = read_windows(call, x)
    powers = weft.abs(padded(x, _covered(call, x, windows))) ** p
    return _summed(call, powers, windows) ** (1 / p)


# Over all of a channel


def _whole(function: Any, x: Tensor) -> Any:
    return function(x, axis=tuple(range(2, x.ndim)), keepdims=True)


enter_handlers(
    {
        "GlobalAveragePool": lambda call, x: _whole(weft.mean, x),
        "GlobalMaxPool": lambda call, x: _whole(weft.max, x),
        "GlobalLpPool": lambda call, x, *, p=2: _whole(weft.sum, weft.abs(x) ** p) ** (1 / p),
    }
)
