"""Normalisation: subtract a mean, divide by a spread, scale and shift.

All of them stand on one primitive, ``standardize``, which computes the variance in a second pass over the
centred values. Those that keep running statistics are in ``weft.tensor.batch_norm``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from weft.base.dtypes import DType, bfloat16, float16, float32, kind, real_dtype
from weft.base.shapes import Axes, Shape, ShapeLike, normalize_shape, reduce_shape, size_of
from weft.base.size_bounds import size_max
from weft.errors import DomainError, DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.arithmetic import maximum, pow
from weft.ops.batching import move_axis
from weft.ops.complex import conj, real_part
from weft.ops.exponential import rsqrt, sqrt
from weft.ops.factors import of_statistics
from weft.ops.families import primitive
from weft.ops.op import Sample, Tensor, composite, type_of
from weft.ops.public import example
from weft.ops.reduce import reduce_sum
from weft.ops.samples import call, complex_array, joined, real_array
from weft.ops.select import in_dtype, in_single
from weft.ops.size import divided
from weft.ops.softmax import as_real
from weft.ops.statistics import as_floating
from weft.ops.vector_norm import vector_norm
from weft.ops.view.primitives import reshape
from weft.ops.windows import window_sum

Ints = tuple[int, ...]

# The primitive: x with mean 0 and variance 1 over axes, and the mean and variance it had


def statistics_dtype(dtype: DType) -> DType:
    """The dtype of means and variances: float32 for half precision, else the dtype itself."""
    return float32 if dtype in (float16, bfloat16) else dtype


def _standardized_type(
    x: TensorType, *, axes: Ints, eps: float, center: bool
) -> tuple[TensorType, TensorType, TensorType]:
    if kind(x.dtype) != "f":
        raise DtypeError("standardize", f"dtype must be floating, got {x.dtype.name}")
    statistic = TensorType(reduce_shape(x.shape, axes, True), statistics_dtype(x.dtype))
    return x, statistic, statistic


def _standardize(x: Any, *, axes: Ints, eps: float, center: bool) -> Any:
    """The variance is that of the centred values, less what rounding of the mean left over."""
    wide = in_single(x)
    count = size_max(1, size_of(tuple(x.shape[a] for a in axes)))
    if not center:
        variance = _mean(wide * wide, axes, count)
        return in_dtype(wide * _spread(variance, eps), x.dtype), variance * 0.0, variance
    mean = _mean(wide, axes, count)
    centred = wide - mean
    shift = _mean(centred, axes, count)
    variance = _mean(centred * centred, axes, count) - shift * shift
    return in_dtype((centred - shift) * _spread(variance, eps), x.dtype), mean, variance


def _mean(x: Any, axes: Ints, count: Any) -> Any:
    return reduce_sum(x, axes=axes, keepdims=True) / count


def _spread(variance: Any, eps: float) -> Any:
    return 1.0 / sqrt(variance + eps)


def _average(x: Tensor, axes: Ints, count: int) -> Any:
    return divided(reduce_sum(x, axes=axes, keepdims=True), count)


def _standardize_vjp(
    g: Tensor, outs: Sequence[Tensor], x_type: TensorType, axes: Ints, eps: float, center: bool
) -> list[Tensor]:
    """Gradients of mean and variance are small arrays; they join the averages that are subtracted anyway.

    They are zero as a rule: so nothing is divided for them. The spread is written as it is in the value.
    """
    dtype = statistics_dtype(x_type.dtype)
    out, g_out = in_dtype(outs[0], dtype), in_dtype(g[0], dtype)
    count = size_max(1, prod(x_type.shape[a] for a in axes))
    square = outs[2] + eps
    spread = sqrt(square)
    along = _average(g_out * out, axes, count) - divided(g[2] * 2, count) * square
    rest = g_out - out * along
    if center:
        rest = rest - (_average(g_out, axes, count) - divided(g[1], count) * spread)
    return [in_dtype(rest * (1.0 / spread), x_type.dtype)]


def _standardize_jvp(
    primals: Sequence[Tensor],
    tangents: Sequence[Tensor],
    outs: Sequence[Tensor],
    *,
    axes: Ints,
    eps: float,
    center: bool,
) -> list[Tensor | None]:
    dtype = outs[1].dtype
    out, t = in_dtype(outs[0], dtype), in_dtype(tangents[0], dtype)
    count = size_max(1, prod(primals[0].shape[a] for a in axes))
    scale = rsqrt(outs[2] + eps)
    along = _average(t * out, axes, count)
    t_mean = _average(t, axes, count) if center else None
    t_out = (t if t_mean is None else t - t_mean) - out * along
    return [in_dtype(t_out * scale, primals[0].dtype), t_mean, along * 2 / scale]


def _standardize_samples() -> list[Sample]:
    def attrs(*axes: int, eps: float = 1e-5, center: bool = True) -> dict[str, Any]:
        return {"axes": axes, "eps": eps, "center": center}

    return [
        Sample((real_array((3, 4)),), attrs(1)),
        Sample((real_array((3, 4)),), attrs(1, center=False, eps=0.1)),
        Sample((real_array((2, 3, 4)),), attrs(0, 2)),
        Sample((real_array((4, 3)).T,), attrs(0)),
        Sample((real_array((4,), 1e6, 1e6 + 1).astype(np.float32),), attrs(0), smooth=False),
        Sample((np.zeros((2, 3)),), attrs(1), smooth=False),
        Sample((real_array((0, 3)),), attrs(1)),
        Sample((real_array((3, 0)),), attrs(1)),
        Sample((real_array((2, 8)).astype(np.float16),), attrs(1), smooth=False),
    ]


standardize = primitive(
    "standardize",
    type_rule=_standardized_type,
    decomposition=_standardize,
    vjp=_standardize_vjp,
    jvp=_standardize_jvp,
    samples=_standardize_samples,
    outputs=3,
    total=True,
    precision="high",
    factors=of_statistics,
    large_eval=True,
    large_vjp=True,
)


# Checks and the affine part


def need_positive(op: str, name: str, value: float) -> None:
    """Raise unless a value is a number of at least 0."""
    if not value >= 0:
        raise DomainError(op, f"{name} must not be negative, got {value}")


def affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """``x * weight + bias`` where they are given, in x's dtype."""
    if weight is not None:
        x = x * in_dtype(weight, x.dtype)
    return x if bias is None else x + in_dtype(bias, x.dtype)


def per_channel(op: str, name: str, value: Tensor | None, channels: int, rank: int) -> Tensor | None:
    """A vector with one element for each channel, shaped to broadcast against (N, C, *S); None stays None."""
    if value is None:
        return None
    if value.shape != (channels,):
        message = f"{name} must have one element for each of {channels} channels, got {type_of(value)}"
        raise ShapeError(op, message, clash=(value.shape, (channels,)))
    return reshape(value, shape=(channels, *(1,) * (rank - 2)))


def _normalized_axes(op: str, x: Tensor, normalized_shape: ShapeLike, *parameters: Tensor | None) -> Ints:
    shape: Shape = normalize_shape(op, normalized_shape)
    if not shape or x.shape[x.ndim - len(shape) :] != shape:
        raise ShapeError(op, f"the last axes must be {shape}, got {type_of(x)}")
    for p in parameters:
        if p is not None and p.shape != shape:
            message = f"weight and bias must have the shape {shape}, got {type_of(p)}"
            raise ShapeError(op, message, clash=(p.shape, shape))
    return tuple(range(x.ndim - len(shape), x.ndim))


# Over features and groups


@composite(
    samples=joined(
        call((3, 4), (4,), (4,), normalized_shape=4),
        call((2, 3, 4), normalized_shape=(3, 4), eps=0.1),
        call((0, 4), (4,), normalized_shape=(4,)),
    ),
    sampled=lambda x, w=None, b=None, *, normalized_shape, eps=1e-5: layer_norm(  # type: ignore[has-type]
        x, normalized_shape, w, b, eps
    ),
    whole=("x",),
    precision="high",
    single=True,
)
@example("(weft.tensor([[1.0, 3.0]]), 2) -> tensor([[-1.0000,  1.0000]])")
def layer_norm(
    x: Tensor,
    normalized_shape: ShapeLike,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """x with mean 0 and variance 1 over its last axes, times a weight, plus a bias."""
    x = as_real("layer_norm", x)
    axes = _normalized_axes("layer_norm", x, normalized_shape, weight, bias)
    need_positive("layer_norm", "eps", eps)
    return affine(standardize(x, axes=axes, eps=float(eps), center=True)[0], weight, bias)


@composite(
    samples=joined(
        call((3, 4), (4,), normalized_shape=4),
        call((2, 3, 4), normalized_shape=(3, 4), eps=0.1),
        lambda: [Sample((complex_array((3, 4)), complex_array((4,), seed=1)), {"normalized_shape": 4})],
    ),
    sampled=lambda x, w=None, *, normalized_shape, eps=None: rms_norm(x, normalized_shape, w, eps),  # type: ignore[has-type]
    whole=("x",),
    precision="high",
)
@example("(weft.tensor([[1.0, 7.0]]), 2) -> tensor([[0.2000, 1.4000]])")
def rms_norm(
    x: Tensor, normalized_shape: ShapeLike, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """x divided by the root of its mean square over the last axes, times a weight.

    ``eps`` is added to the mean square; by default it is the smallest step from 1 in x's dtype.
    """
    x = as_floating(x)
    axes = _normalized_axes("rms_norm", x, normalized_shape, weight)
    step = _machine_eps(real_dtype(x.dtype)) if eps is None else eps
    need_positive("rms_norm", "eps", step)
    wide = in_single(x)  # not before eps is known, which follows the dtype
    if kind(x.dtype) == "c":
        count = size_of(tuple(x.shape[a] for a in axes))
        squares = real_part(wide * conj(wide))
        out = wide * rsqrt(_mean(squares, axes, size_max(1, count)) + step)
    else:
        out = standardize(wide, axes=axes, eps=float(step), center=False)[0]
    return in_dtype(affine(out, weight, None), x.dtype)


def _machine_eps(dtype: DType) -> float:
    return 2.0**-7 if dtype == bfloat16 else float(np.finfo(dtype).eps)


@composite(
    samples=joined(call((2, 4, 3), (4,), (4,), num_groups=2), call((2, 6), num_groups=3, eps=0.1)),
    sampled=lambda x, w=None, b=None, *, num_groups, eps=1e-5: group_norm(x, num_groups, w, b, eps),  # type: ignore[has-type]
    whole=("x",),
    precision="high",
    single=True,
)
@example("(weft.tensor([[1.0, 3.0, 10.0, 30.0]]), 2) -> tensor([[-1.0000,  1.0000, -1.0000,  1.0000]])")
def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """x (N, C, *S) with mean 0 and variance 1 over groups of channels, then a weight and bias per channel."""
    x = as_real("group_norm", x)
    if x.ndim < 2:
        raise ShapeError("group_norm", f"the tensor must be (N, C, *S), got {type_of(x)}")
    channels = x.shape[1]
    if num_groups < 1 or channels % num_groups:
        raise ShapeError(
            "group_norm", f"channels must be a multiple of {num_groups} groups, got {type_of(x)}"
        )
    need_positive("group_norm", "eps", eps)
    weight, bias = (
        per_channel("group_norm", n, p, channels, x.ndim) for n, p in (("weight", weight), ("bias", bias))
    )
    grouped = reshape(x, shape=(x.shape[0], num_groups, prod(x.shape[1:]) // num_groups))
    out = standardize(grouped, axes=(2,), eps=float(eps), center=True)[0]
    return affine(reshape(out, shape=x.shape), weight, bias)


# To unit length, and by neighbouring channels


@composite(
    samples=lambda: [
        Sample((real_array((3, 4)),)),
        Sample((real_array((3, 4)),), {"p": 1.0, "axis": 0}),
        Sample((np.zeros((2, 3)),), smooth=False),
    ],
    precision="high",
    single=True,
)
@example("(weft.tensor([[3.0, 4.0]])) -> tensor([[0.6000, 0.8000]])")
def normalize(x: Tensor, p: float = 2.0, axis: Axes = 1, eps: float = 1e-12) -> Tensor:
    """x divided by its p-norm along an axis, or by ``eps`` where the norm is smaller."""
    x = as_floating(x)
    norm = vector_norm(x, axis=axis, keepdims=True, ord=p)
    return x / maximum(norm, np.asarray(eps, norm.dtype))


@composite(
    samples=joined(
        call((2, 5, 3), size=3, alpha=0.5), call((2, 4, 3, 2), size=2, alpha=0.1, beta=0.5, k=2.0)
    ),
    precision="high",
    single=True,
)
def local_response_norm(
    x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """``x / (k + alpha * m) ** beta`` with the mean m of squares over ``size`` neighbouring channels.

    >>> import weft
    >>> weft.local_response_norm(weft.ones((1, 3, 1)), 3, alpha=3.0, beta=1.0)
    tensor([[[0.3333],
             [0.2500],
             [0.3333]]])
    """
    if x.ndim < 3:
        raise ShapeError("local_response_norm", f"the tensor must be (N, C, *S), got {type_of(x)}")
    if size < 1:
        raise DomainError("local_response_norm", f"size must be at least 1, got {size}")
    squares = move_axis(x * x, 1, x.ndim - 1)
    around = ((size // 2, (size - 1) // 2),)
    total = window_sum(squares, kernel=(size,), stride=(1,), padding=around, dilation=(1,))
    spread = move_axis(total, x.ndim - 1, 1) * (alpha / size) + k
    return x * pow(spread, -beta)
