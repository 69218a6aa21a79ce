"""Writers of composites of networks that ONNX has itself: activations, attention, losses, images."""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import float32, int32, int64, kind
from weft.base.sizes import is_known
from weft.onnx.writers.registry import composite_writer
from weft.onnx.writers.writer import Ref, Writer, is_float

# Activations


@composite_writer("gelu")
def write_gelu(w: Writer, x: Ref, approximate: str) -> Any:
    """One operator from opset 20 on."""
    return w.emit("Gelu", x, approximate=approximate) if w.opset >= 20 and is_float(x) else None


@composite_writer("leaky_relu")
def write_leaky_relu(w: Writer, x: Ref, negative_slope: float) -> Any:
    """x, times a slope where it is negative."""
    return w.emit("LeakyRelu", x, alpha=negative_slope) if is_float(x) else None


@composite_writer("selu")
def write_selu(w: Writer, x: Ref) -> Any:
    """The scaled exponential linear unit."""
    if not is_float(x):
        return None
    return w.emit("Selu", x, alpha=1.6732632423543772, gamma=1.0507009873554805)


@composite_writer("softsign")
def write_softsign(w: Writer, x: Ref) -> Any:
    """x / (1 + |x|)."""
    return w.emit("Softsign", x) if is_float(x) else None


@composite_writer("hardsigmoid")
def write_hardsigmoid(w: Writer, x: Ref) -> Any:
    """A line between 0 and 1."""
    return w.emit("HardSigmoid", x, alpha=1 / 6, beta=0.5) if is_float(x) else None


@composite_writer("hardswish")
def write_hardswish(w: Writer, x: Ref) -> Any:
    """x times its hard sigmoid."""
    return w.emit("HardSwish", x) if w.opset >= 14 and is_float(x) else None


@composite_writer("mish")
def write_mish(w: Writer, x: Ref) -> Any:
    """x tanh(softplus(x))."""
    return w.emit("Mish", x) if w.opset >= 18 and is_float(x) else None


# Attention


@composite_writer("scaled_dot_product_attention")
def write_attention(
    w: Writer,
    query: Ref,
    key: Ref,
    value: Ref,
    attn_mask: Ref | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    drop: Any,
) -> Any:
    """One operator from opset 23 on; not with a mask, since rows that see nothing are another thing there."""
    same = len({x.dtype for x in (query, key, value)}) == 1
    plain = attn_mask is None and drop is None and same and not enable_gqa
    if w.opset < 23 or not plain or any(x.ndim != 4 for x in (query, key, value)):
        return None
    return w.emit("Attention", query, key, value, is_causal=int(is_causal), scale=scale)


# Losses of class numbers


@composite_writer("cross_entropy")
def write_cross_entropy(
    w: Writer,
    x: Ref,
    target: Ref,
    weight: Ref | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> Any:
    """The softmax and the loss in one operator."""
    if label_smoothing or not _is_class_loss(x, target, weight):
        return None
    return _class_loss(w, "SoftmaxCrossEntropyLoss", x, target, weight, ignore_index, reduction)


@composite_writer("nll_loss")
def write_nll_loss(
    w: Writer, x: Ref, target: Ref, weight: Ref | None, ignore_index: int, reduction: str
) -> Any:
    """The negative logarithm of the probability of a class."""
    if not _is_class_loss(x, target, weight):
        return None
    return _class_loss(w, "NegativeLogLikelihoodLoss", x, target, weight, ignore_index, reduction)


def _is_class_loss(x: Ref, target: Ref, weight: Ref | None) -> bool:
    same = weight is None or weight.dtype == x.dtype
    return is_float(x) and same and kind(target.dtype) in "iu" and x.ndim >= 2


def _class_loss(
    w: Writer, operator: str, x: Ref, target: Ref, weight: Ref | None, ignore_index: int, reduction: str
) -> Any:
    classes = target if target.dtype in (int32, int64) else w.cast(target, int64)
    given = (x, classes) if weight is None else (x, classes, weight)
    return w.emit(operator, *given, ignore_index=ignore_index, reduction=reduction)


# Images


@composite_writer("pixel_shuffle")
def write_pixel_shuffle(w: Writer, x: Ref, upscale_factor: int) -> Any:
    """Channels as pixels between."""
    if x.ndim != 4:
        return None
    return w.emit("DepthToSpace", x, blocksize=upscale_factor, mode="CRD")


_RESIZES = {"linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


@composite_writer("interpolate")
def write_interpolate(
    w: Writer,
    x: Ref,
    size: Any,
    scale_factor: Any,
    mode: str,
    align_corners: bool | None,
    recompute_scale_factor: bool,
    antialias: bool,
) -> Any:
    """An image in another size, where sizes and scale are one thing and ONNX rounds alike."""
    shape = w.type.shape
    if mode not in _RESIZES or antialias or x.dtype != float32 or not is_known((*x.shape[2:], *shape[2:])):
        return None
    if size is None and not recompute_scale_factor and not _is_exact(x.shape[2:], shape[2:], scale_factor):
        return None
    return w.emit(
        "Resize",
        x,
        None,
        None,
        w.ints(shape),
        mode=_RESIZES[mode],
        coordinate_transformation_mode="align_corners" if align_corners else "pytorch_half_pixel",
        cubic_coeff_a=-0.75,
    )


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
