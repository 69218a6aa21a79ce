"""ATen operators that reduce, accumulate, sort and multiply matrices."""

from __future__ import annotations

from typing import Any

import weft
from weft.base.dtypes import int64
from weft.interop.torch.aten.elementwise import as_bool
from weft.interop.torch.calls import Call, astype, aten, axes_of


@aten("sum", "sum.dim_IntList")
def sum_(call: Call, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The sum along axes."""
    return weft.sum(call.cast(x), axis=axes_of(dim), keepdims=keepdim)


@aten("mean", "mean.dim")
def mean(call: Call, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The mean along axes."""
    return weft.mean(call.cast(x), axis=axes_of(dim), keepdims=keepdim)


@aten("prod", "prod.dim_int")
def prod(call: Call, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The product along an axis."""
    return weft.prod(call.cast(x), axis=dim, keepdims=keepdim)


aten("amax")(lambda call, x, dim=(), keepdim=False: weft.amax(x, axis=axes_of(dim), keepdims=keepdim))
aten("amin")(lambda call, x, dim=(), keepdim=False: weft.amin(x, axis=axes_of(dim), keepdims=keepdim))
aten("max")(lambda call, x: weft.amax(x))
aten("min")(lambda call, x: weft.amin(x))


@aten("any", "any.dim", "any.dims")
def any_(call: Call, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Whether some element is other than zero."""
    return weft.any(as_bool(x), axis=axes_of(dim), keepdims=keepdim)


@aten("all", "all.dim", "all.dims")
def all_(call: Call, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Whether all elements are other than zero."""
    return weft.all(as_bool(x), axis=axes_of(dim), keepdims=keepdim)


@aten("argmax")
def argmax(call: Call, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The place of the largest element."""
    return weft.argmax(x, axis=dim, keepdims=keepdim)


@aten("argmin")
def argmin(call: Call, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The place of the smallest element."""
    return weft.argmin(x, axis=dim, keepdims=keepdim)


@aten("max.dim")
def max_dim(call: Call, x: Any, dim: int, keepdim: bool = False) -> Any:
    """The largest elements along an axis, and their places."""
    return weft.amax(x, axis=dim, keepdims=keepdim), weft.argmax(x, axis=dim, keepdims=keepdim)


@aten("min.dim")
def min_dim(call: Call, x: Any, dim: int, keepdim: bool = False) -> Any:
    """The smallest elements along an axis, and their places."""
    return weft.amin(x, axis=dim, keepdims=keepdim), weft.argmin(x, axis=dim, keepdims=keepdim)


@aten("var", "var.dim")
def var_dim(call: Call, x: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Any:
    """The variance along axes."""
    return weft.var(x, axis=axes_of(dim), correction=float(unbiased), keepdims=keepdim)


@aten("var.correction")
def var(call: Call, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """The variance along axes, with a correction of the count."""
    return weft.var(x, axis=axes_of(dim), correction=_correction(correction), keepdims=keepdim)


@aten("std.correction")
def std(call: Call, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """The standard deviation along axes, with a correction of the count."""
    return weft.std(x, axis=axes_of(dim), correction=_correction(correction), keepdims=keepdim)


@aten("var_mean.correction")
def var_mean(call: Call, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """Variance and mean along axes."""
    axes = axes_of(dim)
    spread = weft.var(x, axis=axes, correction=_correction(correction), keepdims=keepdim)
    return spread, weft.mean(x, axis=axes, keepdims=keepdim)


def _correction(x: Any) -> float:
    return 1.0 if x is None else float(x)


aten("logsumexp")(lambda call, x, dim, keepdim=False: weft.logsumexp(x, axis=axes_of(dim), keepdims=keepdim))


@aten("linalg_vector_norm")
def vector_norm(
    call: Call, x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """The norm along axes."""
    return weft.linalg.vector_norm(call.cast(x), axis=axes_of(dim), keepdims=keepdim, ord=float(ord))


# Along an axis


@aten("cumsum")
def cumsum(call: Call, x: Any, dim: int, *, dtype: Any = None) -> Any:
    """The sums of all elements up to each."""
    x = call.cast(x)
    return weft.cumsum(x, axis=dim) if x.ndim else x


@aten("cumprod")
def cumprod(call: Call, x: Any, dim: int, *, dtype: Any = None) -> Any:
    """The products of all elements up to each."""
    x = call.cast(x)
    return weft.cumprod(x, axis=dim) if x.ndim else x


aten("cummax")(lambda call, x, dim: tuple(weft.cummax(x, axis=dim)))
aten("cummin")(lambda call, x, dim: tuple(weft.cummin(x, axis=dim)))


@aten("sort", "sort.stable")
def sort(
    call: Call, x: Any, dim: int = -1, descending: bool = False, *, stable: Any = None, **rest: Any
) -> Any:
    """The elements in order, and the places they had."""
    if x.ndim == 0:
        return x, weft.zeros((), dtype=int64)
    places = weft.argsort(x, axis=dim, descending=descending, stable=True)
    return weft.take_along_axis(x, places, axis=dim), places


@aten("argsort", "argsort.stable")
def argsort(call: Call, x: Any, dim: int = -1, descending: bool = False, **rest: Any) -> Any:
    """The places of the elements in order."""
    return weft.argsort(x, axis=dim, descending=descending, stable=True)


@aten("topk")
def topk(call: Call, x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The k largest or smallest elements, and their places."""
    return tuple(weft.topk(x, k, axis=dim, largest=largest))


@aten("_softmax", "softmax.int")
def softmax(call: Call, x: Any, dim: int, other: Any = None, **rest: Any) -> Any:
    """Softmax along an axis."""
    return weft.softmax(call.cast(x), axis=dim) if x.ndim else weft.ones_like(call.cast(x))


@aten("_log_softmax", "log_softmax.int")
def log_softmax(call: Call, x: Any, dim: int, other: Any = None, **rest: Any) -> Any:
    """The logarithm of softmax along an axis."""
    return weft.log_softmax(call.cast(x), axis=dim) if x.ndim else weft.zeros_like(call.cast(x))


# Products


aten("mm", "bmm", "mv", "matmul", "dot")(lambda call, x, y: weft.matmul(x, y))
aten("linear")(lambda call, x, weight, bias=None: weft.linear(x, weight, bias))
aten("einsum")(lambda call, equation, operands, path=None: weft.einsum(equation, *operands))


@aten("addmm", "baddbmm", "addmv")
def addmm(call: Call, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``beta * x + alpha * (a @ b)``."""
    product = weft.matmul(a, b)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return weft.broadcast_to(product, product.shape)
    return product + (x if beta == 1 else x * beta)


@aten("_cdist_forward")
def cdist(call: Call, x: Any, y: Any, p: float, compute_mode: Any = None) -> Any:
    """The distances of all pairs of rows."""
    return weft.cdist(x, y, float(p))


aten("_pdist_forward")(lambda call, x, p=2.0: weft.pdist(x, float(p)))


# Fourier transforms; normalization is 0 for none, 1 for 1/sqrt(n), 2 for 1/n


@aten("_fft_r2c")
def fft_real(call: Call, x: Any, dim: Any, normalization: int, onesided: bool) -> Any:
    """The transform of real numbers."""
    norm = ("backward", "ortho", "forward")[normalization]
    if onesided:
        return weft.fft.rfftn(x, axes=tuple(dim), norm=norm)
    return weft.fft.fftn(astype(x, call.dtype), axes=tuple(dim), norm=norm)


@aten("_fft_c2r")
def fft_to_real(call: Call, x: Any, dim: Any, normalization: int, last_dim_size: int) -> Any:
    """The inverse transform to real numbers."""
    norm = ("forward", "ortho", "backward")[normalization]
    sizes = (*[x.shape[d] for d in dim[:-1]], last_dim_size)
    return weft.fft.irfftn(x, s=sizes, axes=tuple(dim), norm=norm)


@aten("_fft_c2c")
def fft_complex(call: Call, x: Any, dim: Any, normalization: int, forward: bool) -> Any:
    """The transform of complex numbers, or its inverse."""
    if forward:
        return weft.fft.fftn(x, axes=tuple(dim), norm=("backward", "ortho", "forward")[normalization])
    return weft.fft.ifftn(x, axes=tuple(dim), norm=("forward", "ortho", "backward")[normalization])


aten("view_as_complex")(lambda call, x: weft.complex(x[..., 0], x[..., 1]))
aten("view_as_real")(lambda call, x: weft.stack([weft.real(x), weft.imag(x)], axis=-1))
aten("complex")(lambda call, x, y: weft.complex(x, y))


@aten("median")
def median(call: Call, x: Any) -> Any:
    """The element in the middle; the lower one of two."""
    return weft.sort(weft.reshape(x, (-1,)))[(x.size - 1) // 2]


@aten("median.dim")
def median_dim(call: Call, x: Any, dim: int, keepdim: bool = False) -> Any:
    """The elements in the middle of an axis, and their places."""
    places = weft.argsort(x, axis=dim, stable=True)
    middle = (*[slice(None)] * (dim % x.ndim), slice((x.shape[dim] - 1) // 2, (x.shape[dim] - 1) // 2 + 1))
    place = places[middle]
    out = weft.take_along_axis(x, place, axis=dim)
    return (out, place) if keepdim else (weft.squeeze(out, axis=dim), weft.squeeze(place, axis=dim))
