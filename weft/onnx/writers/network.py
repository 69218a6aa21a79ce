"""Writers of composites of networks that ONNX has itself: activations, attention, losses, images."""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import float32, int32, int64, kind
from weft.base.sizes import is_known
from weft.onnx.writers.registry import Write, composite_writer
from weft.onnx.writers.writer import Ref, Writer, is_float, same_dtype

# Activations


def _activation(operator: str, *, since: int = 13, **attrs: Any) -> Write:
    """One operator on floats, from an opset on."""
    return lambda w, x: w.emit(operator, x, **attrs) if w.opset >= since and is_float(x) else None


composite_writer("selu")(_activation("Selu", alpha=1.6732632423543772, gamma=1.0507009873554805))
composite_writer("softsign")(_activation("Softsign"))
composite_writer("hardsigmoid")(_activation("HardSigmoid", alpha=1 / 6, beta=0.5))
composite_writer("hardswish")(_activation("HardSwish", since=14))
composite_writer("mish")(_activation("Mish", since=18))


@composite_writer("gelu")
def write_gelu(w: Writer, x: Ref, approximate: str) -> Any:
    """One operator from opset 20 on."""
    return _activation("Gelu", since=20, approximate=approximate)(w, x)


@composite_writer("leaky_relu")
def write_leaky_relu(w: Writer, x: Ref, negative_slope: float) -> Any:
    """x, times a slope where it is negative."""
    return _activation("LeakyRelu", alpha=negative_slope)(w, x)


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


@composite_writer("pixel_shuffle")
def write_pixel_shuffle(w: Writer, x: Ref, upscale_factor: int) -> Any:
    """Channels as pixels between."""
    return w.emit("DepthToSpace", x, blocksize=upscale_factor, mode="CRD") if x.ndim == 4 else None


_RESIZES = {"linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


@composite_writer("interpolate")
def write_interpolate(w: Writer, x: Ref, size: Any, scale_factor: Any, mode: str, **settings: Any) -> Any:
    """An image in another size, where sizes and scale are one thing and ONNX rounds alike."""
    shape, same = w.type.shape, size is not None or settings["recompute_scale_factor"]
    known = x.dtype == float32 and is_known((*x.shape[2:], *shape[2:]))
    if mode not in _RESIZES or settings["antialias"] or not known:
        return None
    if not same and not _is_exact(x.shape[2:], shape[2:], scale_factor):
        return None
    where = "align_corners" if settings["align_corners"] else "pytorch_half_pixel"
    attrs: dict[str, Any] = {
        "mode": _RESIZES[mode],
        "coordinate_transformation_mode": where,
        "cubic_coeff_a": -0.75,
    }
    return w.emit("Resize", x, None, None, w.ints(shape), **attrs)


def _is_exact(sizes: Any, counts: Any, factor: Any) -> bool:
    factors = factor if isinstance(factor, tuple | list) else (factor,) * len(sizes)
    return all(n * f == c for n, c, f in zip(sizes, counts, factors, strict=True))


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
