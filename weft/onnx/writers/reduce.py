"""Writers of reductions over axes, running ones, order along an axis, and normalisation."""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import bfloat16, bool_, float16, float32, int32, int64, kind
from weft.base.shapes import normalize_shape, reduce_shape
from weft.base.sizes import Size, is_known
from weft.interop.forms.elements import lowest
from weft.onnx.writers.prepare import PLAIN_NORM
from weft.onnx.writers.registry import Write, composite_writer, emitted, enter_writers, writer
from weft.onnx.writers.view import count_to, cut, pad_axis
from weft.onnx.writers.writer import Ref, Writer, is_float, same_dtype

Ints = tuple[Any, ...]


def reduced(w: Writer, operator: str, x: Ref, axes: Ints, keepdims: bool) -> Any:
    """x reduced over axes; over none it is x itself."""
    if not axes:
        return x
    if operator == "ReduceSum" or w.opset >= 18:
        return w.emit(operator, x, w.ints(axes), keepdims=int(keepdims))
    return w.emit(operator, x, axes=axes, keepdims=int(keepdims))


def _reduction(operator: str, *, truth: bool = False) -> Write:
    """A reduction; sums and products of truth values are or and and, as are their extremes."""

    def write(w: Writer, x: Ref, *, axes: Ints, keepdims: bool) -> Any:
        if truth or x.dtype == bool_:
            return w.truth(reduced(w, operator, w.cast(w.truth(x), int32), axes, keepdims))
        return reduced(w, operator, x, axes, keepdims)

    return write


@composite_writer("mean")
def write_mean(w: Writer, x: Ref, axis: Any, dtype: Any, keepdims: bool) -> Any:
    """The average over axes."""
    if dtype is not None or kind(x.dtype) != "f":
        return None
    given = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return reduced(w, "ReduceMean", x, tuple(sorted(a % x.ndim for a in given)), keepdims)


def _place(operator: str) -> Write:
    return lambda w, x, *, axis, keepdims: w.emit(operator, _counted(w, x), axis=axis, keepdims=int(keepdims))


def _counted(w: Writer, x: Ref) -> Ref:
    """x, truth values as numbers."""
    return w.cast(x, int32) if x.dtype == bool_ else x


enter_writers(
    {
        "sum": _reduction("ReduceSum"),
        "prod": _reduction("ReduceProd"),
        "max": _reduction("ReduceMax"),
        "min": _reduction("ReduceMin"),
        "any": _reduction("ReduceSum", truth=True),
        "all": _reduction("ReduceProd", truth=True),
        "logsumexp": lambda w, x, *, axes, keepdims: reduced(w, "ReduceLogSumExp", x, axes, keepdims),
        "argmax": _place("ArgMax"),
        "argmin": _place("ArgMin"),
    }
)

# Running sums, products and extremes


@writer("cumprod")
def write_cumprod(w: Writer, x: Ref, *, axis: int) -> Any:
    """The products of the first elements."""
    if w.opset >= 26:
        return w.emit("CumProd", x, w.constant(axis, int64))
    return _doubled(w, "Mul", x, axis, 1)


def _doubled(w: Writer, operator: str, x: Ref, axis: int, neutral: Any) -> Ref:
    """A running result by doubling: each step joins elements twice as far apart."""
    size, reach = x.shape[axis], 1
    if isinstance(size, Size):
        w.fail(f"the axis must have a known size, got {size}", hint="give the example a number for this size")
    while reach < size:
        moved = pad_axis(w, cut(w, x, axis, 0, size - reach)._replace(shape=x.shape), axis, reach, 0, neutral)
        x = w.emit(operator, x, moved)._replace(shape=x.shape)
        reach *= 2
    return x


@writer("cummax_index")
def write_cummax_index(w: Writer, x: Ref, *, axis: int, largest: bool) -> Any:
    """Where the largest of the first elements is, the last of equal ones."""
    sign = x if largest else w.emit("Neg", x)._replace(shape=x.shape)
    best = _doubled(w, "Max", sign, axis, lowest(x.dtype))
    hit = w.emit("Equal", sign, best)
    numbers = count_to(w, x.shape[axis], x.ndim - 1 - axis)
    places = w.emit("Where", hit, numbers, w.constant(0, int64))._replace(shape=x.shape)
    return _doubled(w, "Max", places, axis, 0)


# Order


def _top(w: Writer, x: Ref, axis: int, k: Any, largest: bool) -> list[Ref]:
    """The first elements in order along an axis, and where they are; equal ones stay in their order."""
    found: list[Ref] = w.emit(
        "TopK", _counted(w, x), w.ints((k,)), outputs=2, axis=axis, largest=int(largest)
    )
    return [w.cast(found[0], x.dtype), found[1]]


enter_writers(
    {
        "cumsum": lambda w, x, *, axis, reverse: w.cast(
            w.emit("CumSum", _counted(w, x), w.constant(axis, int64), reverse=int(reverse)), w.type.dtype
        ),
        "sort": lambda w, x, *, axis, descending: _top(w, x, axis, x.shape[axis], descending)[0],
        "argsort": lambda w, x, *, axis, descending: _top(w, x, axis, x.shape[axis], descending)[1],
        "topk_index": lambda w, x, *, k, axis, largest: _top(w, x, axis, k, largest)[1],
    }
)
composite_writer("topk")(lambda w, x, k, axis, largest, sorted: _top(w, x, axis % x.ndim, k, largest))


# Normalisation: softmax, and what has mean 0 and variance 1

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
