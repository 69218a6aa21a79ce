"""Writers of normalisation: softmax, and what has mean 0 and variance 1."""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import bfloat16, float16, float32
from weft.base.shapes import normalize_shape, reduce_shape
from weft.base.sizes import is_known
from weft.onnx.writers.fuse import PLAIN_NORM
from weft.onnx.writers.reduce import reduced
from weft.onnx.writers.registry import composite_writer, emitted, enter_writers, writer
from weft.onnx.writers.writer import Ref, Writer, is_float, same_dtype

Ints = tuple[Any, ...]


enter_writers({"softmax": emitted("Softmax"), "log_softmax": emitted("LogSoftmax")})


@writer("standardize")
def write_standardize(w: Writer, x: Ref, *, axes: Ints, eps: float, center: bool) -> list[Any]:
    """x with mean 0 and variance 1 over axes, and what it had before; half precision in single."""
    wide = w.cast(x, float32) if x.dtype in (float16, bfloat16) else x
    mean = w.full(reduce_shape(x.shape, axes, True), 0, wide.dtype)
    centred = wide
    if center:
        mean = reduced(w, "ReduceMean", wide, axes, True)
        centred = w.emit("Sub", wide, mean)
        rest = reduced(w, "ReduceMean", centred, axes, True)  # what rounding of the mean left over
        centred = w.emit("Sub", centred, rest)
    variance = reduced(w, "ReduceMean", w.emit("Mul", centred, centred), axes, True)
    out = w.emit("Div", centred, w.emit("Sqrt", w.emit("Add", variance, eps)))
    return [w.cast(out, x.dtype), mean, variance]


@writer(PLAIN_NORM)
def write_plain_norm(w: Writer, x: Ref, *, axes: Ints, eps: float, center: bool) -> Any:
    """The same where nobody asks for mean and variance, over the last axes."""
    scaled = is_known(x.shape[axes[0] :])
    if scaled and w.opset >= (17 if center else 23) and (center or x.dtype == float32):
        operator = "LayerNormalization" if center else "RMSNormalization"
        return w.emit(operator, x, w.full(x.shape[axes[0] :], 1, x.dtype), axis=-len(axes), epsilon=eps)
    return write_standardize(w, x, axes=axes, eps=eps, center=center)[0]


@composite_writer("layer_norm")
def write_layer_norm(
    w: Writer, x: Ref, normalized_shape: Any, weight: Ref | None, bias: Ref | None, eps: float
) -> Any:
    """One operator over the last axes."""
    if w.opset < 17 or not is_float(x) or not same_dtype(x, weight, bias):
        return None
    shape = normalize_shape("onnx.export", normalized_shape)
    scale = w.full(shape, 1, x.dtype) if weight is None else weight
    given = (scale,) if bias is None else (scale, bias)
    return w.emit("LayerNormalization", x, *given, axis=-len(shape), epsilon=eps)


@composite_writer("rms_norm")
def write_rms_norm(w: Writer, x: Ref, normalized_shape: Any, weight: Ref | None, eps: float | None) -> Any:
    """One operator over the last axes, from opset 23 on."""
    if w.opset < 23 or x.dtype != float32 or not same_dtype(x, weight):
        return None
    shape = normalize_shape("onnx.export", normalized_shape)
    scale = w.full(shape, 1, x.dtype) if weight is None else weight
    epsilon = 2.0**-23 if eps is None else eps
    return w.emit("RMSNormalization", x, scale, axis=-len(shape), epsilon=epsilon)


@composite_writer("group_norm")
def write_group_norm(
    w: Writer, x: Ref, num_groups: int, weight: Ref | None, bias: Ref | None, eps: float
) -> Any:
    """One operator over groups of channels, from opset 21 on."""
    if w.opset < 21 or not is_float(x) or not same_dtype(x, weight, bias) or x.ndim < 3:
        return None
    channels = (x.shape[1],)
    scale = w.full(channels, 1, x.dtype) if weight is None else weight
    shift = w.full(channels, 0, x.dtype) if bias is None else bias
    return w.emit("GroupNormalization", x, scale, shift, num_groups=num_groups, epsilon=eps)


@composite_writer("local_response_norm")
def write_local_response_norm(w: Writer, x: Ref, size: int, alpha: float, beta: float, k: float) -> Any:
    """By neighbouring channels; where there are as many before as after, ONNX has the same."""
    if size % 2 == 0 or not is_float(x):
        return None
    return w.emit("LRN", x, size=size, alpha=alpha, beta=beta, bias=k)
