"""Writers of composites of networks that ONNX has itself: activations, attention, losses, images, pools."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from weft.base.dtypes import float32, int32, int64, kind
from weft.base.size_bounds import same_size
from weft.base.sizes import is_known
from weft.interop.forms.elements import lowest
from weft.interop.forms.window import Windows
from weft.onnx.writers.registry import Write, composite_writer, writer
from weft.onnx.writers.view import count_to, cut, pad_axis, padded, write_pad
from weft.onnx.writers.writer import Ref, Writer, is_float, same_dtype
from weft.ops.conv.layers import per_axis
from weft.ops.windows import window_positions

# Activations


def _activation(operator: str, *, since: int = 13, **attrs: Any) -> Write:
    """One operator on floats, from an opset on."""
    return lambda w, x: w.emit(operator, x, **attrs) if w.opset >= since and is_float(x) else None


composite_writer("selu")(_activation("Selu", alpha=1.6732632423543772, gamma=1.0507009873554805))
composite_writer("softsign")(_activation("Softsign"))
composite_writer("hardsigmoid")(_activation("HardSigmoid", alpha=1 / 6, beta=0.5))
composite_writer("hardswish")(_activation("HardSwish", since=14))
composite_writer("mish")(_activation("Mish", since=18))
composite_writer("gelu")(lambda w, x, **settings: _activation("Gelu", since=20, **settings)(w, x))
composite_writer("leaky_relu")(
    lambda w, x, negative_slope: _activation("LeakyRelu", alpha=negative_slope)(w, x)
)
composite_writer("pixel_shuffle")(
    lambda w, x, upscale_factor: (
        w.emit("DepthToSpace", x, blocksize=upscale_factor, mode="CRD") if x.ndim == 4 else None
    )
)


# Attention


@composite_writer("scaled_dot_product_attention")
def write_attention(
    w: Writer, query: Ref, key: Ref, value: Ref, is_causal: bool, scale: float | None, **more: Any
) -> Any:
    """One operator from opset 23 on; not with a mask, since rows that see nothing are another thing there."""
    plain = not any(more.values()) and same_dtype(query, key, value)
    if w.opset < 23 or not plain or any(x.ndim != 4 for x in (query, key, value)):
        return None
    return w.emit("Attention", query, key, value, is_causal=int(is_causal), scale=scale)


# Losses of class numbers


def _class_loss(operator: str) -> Write:
    def write(
        w: Writer, x: Ref, target: Ref, weight: Ref | None, label_smoothing: float = 0.0, **settings: Any
    ) -> Any:
        fits = is_float(x) and same_dtype(x, weight) and kind(target.dtype) in "iu" and x.ndim >= 2
        if label_smoothing or not fits:
            return None
        classes = target if target.dtype in (int32, int64) else w.cast(target, int64)
        given = (x, classes) if weight is None else (x, classes, weight)
        return w.emit(operator, *given, **settings)  # of the same names

    return write


composite_writer("cross_entropy")(_class_loss("SoftmaxCrossEntropyLoss"))
composite_writer("nll_loss")(_class_loss("NegativeLogLikelihoodLoss"))


# Images


_RESIZES = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
}


@composite_writer("interpolate")
def write_interpolate(w: Writer, x: Ref, size: Any, scale_factor: Any, mode: str, **settings: Any) -> Any:
    """An image in another size, where sizes tell the scale or the scale is exact, and ONNX rounds alike."""
    shape, sizes = w.type.shape, x.shape[2:]
    if x.dtype != float32 or mode not in _RESIZES or settings["antialias"]:
        return None
    attrs: dict[str, Any] = {"mode": _RESIZES[mode], "cubic_coeff_a": -0.75}
    if mode == "nearest":
        if scale_factor is None or is_known((*sizes, *shape[2:])) or not _are_powers(scale_factor):
            return None
        attrs |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    else:
        where = "align_corners" if settings["align_corners"] else "half_pixel"
        attrs["coordinate_transformation_mode"] = where
    if size is not None or settings["recompute_scale_factor"] or _is_exact(sizes, shape[2:], scale_factor):
        return w.emit("Resize", x, None, None, w.ints(shape), **attrs)
    if is_known((*sizes, *shape[2:])) or settings["align_corners"]:
        return None
    factors = [1.0, 1.0, *_factors(scale_factor, len(sizes))]
    return w.emit("Resize", x, None, w.constant(np.array(factors), float32), **attrs)


def _factors(factor: Any, rank: int) -> list[float]:
    return [float(f) for f in (factor if isinstance(factor, tuple | list) else (factor,) * rank)]


def _are_powers(factor: Any) -> bool:
    """Whether places divided by factors are exact: these are powers of two."""
    return all(np.frexp(f)[0] == 0.5 for f in _factors(factor, 1))


def _is_exact(sizes: Any, counts: Any, factor: Any) -> bool:
    """Whether factors are what sizes and counts tell: for open sizes, a whole number."""
    axes = zip(sizes, counts, _factors(factor, len(sizes)), strict=True)
    return all(same_size(c, n * int(f)) if f.is_integer() else _is_product(n, f, c) for n, c, f in axes)


def _is_product(size: Any, factor: float, count: Any) -> bool:
    return is_known((size, count)) and size * factor == count


_SAMPLES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}


@composite_writer("grid_sample")
def write_grid_sample(w: Writer, x: Ref, grid: Ref, mode: str, padding_mode: str, align_corners: bool) -> Any:
    """Elements at places between pixels."""
    if w.opset < 16 or not is_float(x) or x.dtype != grid.dtype or (x.ndim != 4 and w.opset < 20):
        return None
    name = _SAMPLES[mode] if w.opset >= 20 else mode
    return w.emit(
        "GridSample", x, grid, mode=name, padding_mode=padding_mode, align_corners=int(align_corners)
    )


# Windows: pooling, sums over windows, and windows themselves


def _sides(windows: Windows, lead: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What is padded before and after all axes, of which so many come before the windowed ones."""
    low, high = ((*(0,) * lead, *[p[i] for p in windows.padding]) for i in (0, 1))
    return low, high


# Max pooling


@writer("max_pool")
def write_max_pool(w: Writer, x: Ref, **attrs: Any) -> Any:
    """The largest element of each window."""
    if 0 in w.type.shape:
        return w.full(w.type.shape, 0, x.dtype)
    window = Windows(**attrs)
    if not is_known(window.kernel):
        return _max_pool_of_all(w, x, window)
    out = _max_pool(w, x, window, outputs=1)
    return w.cast(_with_lead(w, out, w.type.shape), w.type.dtype)


def _max_pool_of_all(w: Writer, x: Ref, window: Windows) -> Any:
    """The largest element of all: what an operator can say of a window of an open size."""
    rank = len(window.kernel)
    whole = all(map(same_size, window.kernel, x.shape[-rank:])) and not any(map(any, window.padding))
    if not whole or x.ndim != rank + 2 or not is_float(x):
        w.fail("a window must have a known size, or be the whole input", hint="fix the size of the input")
    return w.emit("GlobalMaxPool", x)


@writer("max_pool_indices")
def write_max_pool_indices(w: Writer, x: Ref, **attrs: Any) -> Any:
    """Where the largest element of each window is, counted over the windowed axes."""
    if 0 in w.type.shape:
        return w.full(w.type.shape, 0, int64)
    _, places = _max_pool(w, x, Windows(**attrs), outputs=2)
    sizes = prod(x.shape[x.ndim - len(attrs["kernel"]) :])
    inside = w.emit("Mod", places, w.scalar_size(sizes))
    return _with_lead(w, inside, w.type.shape)


def _max_pool(w: Writer, x: Ref, window: Windows, outputs: int) -> Any:
    kernel, lead = window.kernel, x.ndim - len(window.kernel)
    lows, highs = _sides(window, 0)
    inside = all(0 <= n < k for ns in (lows, highs) for n, k in zip(ns, kernel, strict=True))
    if not inside:
        if outputs > 1:
            w.fail("padding must be smaller than the window, where ONNX tells places", hint="pad x before")
        sizes = [n + a + b for n, a, b in zip(x.shape[lead:], lows, highs, strict=True)]
        wider = padded(w, x, *_sides(window, lead), lowest(x.dtype))
        x = wider._replace(shape=(*x.shape[:lead], *sizes))
        lows = highs = (0,) * len(kernel)
    attrs: dict[str, Any] = {"strides": window.stride, "pads": (*lows, *highs), "dilations": window.dilation}
    return w.emit("MaxPool", _as_images(w, x, len(kernel)), kernel_shape=kernel, outputs=outputs, **attrs)


def _as_images(w: Writer, x: Ref, rank: int) -> Ref:
    """x with two axes before the windowed ones."""
    if x.ndim == rank + 2:
        return x
    lead = x.shape[: x.ndim - rank]
    return w.reshape(x, (prod(lead), 1, *x.shape[x.ndim - rank :]))


def _with_lead(w: Writer, x: Ref, shape: tuple[Any, ...]) -> Ref:
    """x in the shape that the op gives."""
    rank = len(shape) - 2
    return x if w.node is not None and rank == len(w.node.attrs["kernel"]) else w.reshape(x, shape)


# Average pooling


@composite_writer("avg_pool1d", "avg_pool2d", "avg_pool3d")
def write_avg_pool(w: Writer, x: Ref, stride: Any, count_include_pad: bool, **given: Any) -> Any:
    """The average of each window."""
    assert w.node is not None
    rank = int(w.node.attrs["function"][-2])
    plain = not given["ceil_mode"] and given.get("divisor_override") is None
    if x.ndim != rank + 2 or not plain or not is_float(x):
        return None
    kernel = per_axis("onnx.export", "kernel_size", given["kernel_size"], rank, 1)
    steps = kernel if stride is None else per_axis("onnx.export", "stride", stride, rank, 1)
    pads = per_axis("onnx.export", "padding", given["padding"], rank, 0)
    include = int(count_include_pad and any(pads))
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": steps, "pads": (*pads, *pads)}
    return w.emit("AveragePool", x, **attrs, count_include_pad=include)


@composite_writer("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
@composite_writer("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def write_adaptive_pool(w: Writer, x: Ref, output_size: Any, return_indices: bool = False) -> Any:
    """The average or the largest of everything, where that is asked for."""
    assert w.node is not None
    name, rank = w.node.attrs["function"], int(w.node.attrs["function"][-2])
    whole = all(s == 1 for s in w.type.shape[-rank:]) and not return_indices
    if not whole or x.ndim != rank + 2 or not is_float(x):
        return None
    return w.emit("GlobalAveragePool" if "avg" in name else "GlobalMaxPool", x)


# Windows, one axis after another


@writer("windows")
def write_windows(w: Writer, x: Ref, **attrs: Any) -> Any:
    """All windows: along each axis the elements at start + tap."""
    window = Windows(**attrs)
    rank, lead = len(window.kernel), x.ndim - len(window.kernel)
    out = padded(w, x, *_sides(window, lead))
    counts = window_positions(x.shape[lead:], *window)
    for i in range(rank):  # an axis of windows and one of taps take the place of each
        starts = w.emit("Mul", count_to(w, counts[i], 1), window.stride[i])
        taps = np.arange(window.kernel[i]) * window.dilation[i]
        places = w.emit("Add", starts, w.constant(taps, int64))
        out = w.emit("Gather", out, places, axis=lead + 2 * i)
    order = (*range(lead), *[lead + 2 * i for i in range(rank)], *[lead + 2 * i + 1 for i in range(rank)])
    return w.emit("Transpose", out, perm=order)


@writer("window_sum")
def write_window_sum(w: Writer, x: Ref, **attrs: Any) -> Any:
    """The sum of each window: along each axis the sum of its taps."""
    window = Windows(**attrs)
    lead = x.ndim - len(window.kernel)
    counts = window_positions(x.shape[lead:], *window)
    out = padded(w, x, *_sides(window, lead))
    axes = zip(window.kernel, window.stride, window.dilation, counts, strict=True)
    for i, (k, s, d, n) in enumerate(axes):
        if k == s == 1:
            continue
        taps = [cut(w, out, lead + i, t * d, t * d + (n - 1) * s + 1, s) for t in range(k)]
        out = _added(w, taps)
    if 0 in counts:  # windows that do not fit leave nothing
        return w.full(w.type.shape, 0, x.dtype)
    return out


@writer("window_spread")
def write_window_spread(w: Writer, x: Ref, *, sizes: tuple[Any, ...], **attrs: Any) -> Any:
    """One value spread over each window, and overlaps added up: the transpose of ``window_sum``."""
    lead = x.ndim - len(sizes)
    if any(isinstance(s, int) and s == 0 for s in x.shape):
        return w.full(w.type.shape, 0, x.dtype)
    out = x
    for i, axis in enumerate(zip(sizes, *Windows(**attrs), strict=True)):
        out = _spread(w, [out] * axis[1], lead + i, *axis)
    return out


@writer("overlap_add")
def write_overlap_add(w: Writer, x: Ref, *, sizes: tuple[Any, ...], **attrs: Any) -> Any:
    """Windows put back where they were, and overlaps added up: the transpose of ``windows``."""
    lead = x.ndim - 2 * len(sizes)
    if any(isinstance(s, int) and s == 0 for s in x.shape):
        return w.full(w.type.shape, 0, x.dtype)
    out = x
    axes = list(zip(sizes, *Windows(**attrs), strict=True))
    for i in reversed(range(len(axes))):  # the taps of the last axis are the last axis
        taps = []
        for t in range(attrs["kernel"][i]):
            tap: Ref = w.emit("Gather", out, w.constant(t, int64), axis=out.ndim - 1)
            taps.append(tap._replace(shape=out.shape[:-1]))
        out = _spread(w, taps, lead + i, *axes[i])
    return out


def _spread(w: Writer, taps: Sequence[Ref], axis: int, size: Any, *window: Any) -> Ref:
    """Along an axis, each tap of all windows where it belongs, added up."""
    _, stride, (low, high), dilation = window
    shape = taps[0].shape
    reach = (shape[axis] - 1) * stride + 1
    total = size + low + high
    parts = []
    for t, tap in enumerate(taps):
        gaps = tuple(stride - 1 if a == axis else 0 for a in range(len(shape)))
        none = (0,) * len(shape)
        apart = write_pad(w, tap, low=none, high=none, interior=gaps, value=0)._replace(shape=shape)
        parts.append(pad_axis(w, apart, axis, t * dilation - low, total - t * dilation - reach - high))
    return _added(w, parts)._replace(shape=(*shape[:axis], size, *shape[axis + 1 :]))


def _added(w: Writer, parts: Sequence[Ref]) -> Ref:
    out = parts[0]
    for part in parts[1:]:
        out = w.emit("Add", out, part)
    return out
