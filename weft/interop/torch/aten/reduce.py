"""ATen operators that reduce, accumulate, sort, multiply matrices, and transform to frequencies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft.base.dtypes import int64
from weft.interop.forms.elements import along, astype
from weft.interop.forms.reduce import ranked, reduced, running
from weft.interop.rules import Rule, plain
from weft.interop.torch.calls import Call, aten, axes_of


def _reduction(how: str) -> Rule:
    """A reduction in the dtype of its result, along all axes where none is told."""

    def rule(call: Call, x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        return reduced(how, call.cast(x), axes_of(dim), keepdim)

    return rule


def _spread(function: Callable[..., Any]) -> Rule:
    """The variance or the deviation along axes, with a correction of the count."""

    def rule(call: Call, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
        count = 1.0 if correction is None else float(correction)
        return function(x, axis=axes_of(dim), correction=count, keepdims=keepdim)

    return rule


def _with_places(function: Callable[..., Any], place: Callable[..., Any]) -> Rule:
    return lambda call, x, dim, keepdim=False: (
        function(x, axis=dim, keepdims=keepdim),
        place(x, axis=dim, keepdims=keepdim),
    )


aten.enter(
    {
        "sum sum.dim_IntList": _reduction("sum"),
        "mean mean.dim": _reduction("mean"),
        "prod prod.dim_int": _reduction("prod"),
        "amax max": _reduction("max"),
        "amin min": _reduction("min"),
        "any any.dim any.dims": _reduction("any"),
        "all all.dim all.dims": _reduction("all"),
        "logsumexp": _reduction("logsumexp"),
        "var.correction": _spread(weft.var),
        "std.correction": _spread(weft.std),
        "var var.dim": lambda call, x, dim=None, unbiased=True, keepdim=False: weft.var(
            x, axis=axes_of(dim), correction=float(unbiased), keepdims=keepdim
        ),
        "var_mean.correction": lambda call, x, dim=None, **options: (
            _spread(weft.var)(call, x, dim, **options),
            weft.mean(x, axis=axes_of(dim), keepdims=options.get("keepdim", False)),
        ),
        "linalg_vector_norm": lambda call, x, ord=2, dim=None, keepdim=False, dtype=None: (
            weft.linalg.vector_norm(call.cast(x), axis=axes_of(dim), keepdims=keepdim, ord=float(ord))
        ),
        "argmax": lambda call, x, dim=None, keepdim=False: weft.argmax(x, axis=dim, keepdims=keepdim),
        "argmin": lambda call, x, dim=None, keepdim=False: weft.argmin(x, axis=dim, keepdims=keepdim),
        "max.dim": _with_places(weft.amax, weft.argmax),
        "min.dim": _with_places(weft.amin, weft.argmin),
        "histc": lambda call, x, bins=100, min=0, max=0: weft.histc(x, bins, float(min), float(max)),
    }
)

# Along an axis


def _running(how: str) -> Rule:
    return lambda call, x, dim, *, dtype=None: running(how, call.cast(x), dim) if x.ndim else call.cast(x)


@aten("median.dim")
def median_dim(call: Call, x: Any, dim: int, keepdim: bool = False) -> Any:
    """The elements in the middle of an axis, the lower one of two, and their places."""
    half = (x.shape[dim] - 1) // 2
    part = half if not keepdim else slice(half, half + 1)
    return [found[along(dim % x.ndim, part)] for found in ranked(x, dim)]


aten.enter(
    {
        "sort sort.stable": lambda call, x, dim=-1, descending=False, **rest: (
            ranked(x, dim, descending=descending) if x.ndim else (x, weft.zeros((), dtype=int64))
        ),
        "cumsum": _running("sum"),
        "cumprod": _running("prod"),
        "cummax": lambda call, x, dim: tuple(weft.cummax(x, axis=dim)),
        "cummin": lambda call, x, dim: tuple(weft.cummin(x, axis=dim)),
        "argsort argsort.stable": lambda call, x, dim=-1, descending=False, **rest: weft.argsort(
            x, axis=dim, descending=descending, stable=True
        ),
        "topk": lambda call, x, k, dim=-1, largest=True, sorted=True: tuple(
            weft.topk(x, k, axis=dim, largest=largest)
        ),
        "median": lambda call, x: weft.sort(weft.reshape(x, (-1,)))[(x.size - 1) // 2],
        "_softmax softmax.int": lambda call, x, dim, other=None, **rest: (
            weft.softmax(call.cast(x), axis=dim) if x.ndim else weft.ones_like(call.cast(x))
        ),
        "_log_softmax log_softmax.int": lambda call, x, dim, other=None, **rest: (
            weft.log_softmax(call.cast(x), axis=dim) if x.ndim else weft.zeros_like(call.cast(x))
        ),
    }
)

# Products


@aten("addmm", "baddbmm", "addmv")
def addmm(call: Call, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``beta * x + alpha * (a @ b)``."""
    product = weft.matmul(a, b)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return weft.broadcast_to(product, product.shape)
    return product + (x if beta == 1 else x * beta)


aten.enter(
    {
        "mm bmm mv matmul dot": plain(weft.matmul),
        "linear": plain(weft.linear),
        "einsum": lambda call, equation, operands, path=None: weft.einsum(equation, *operands),
        "_cdist_forward": lambda call, x, y, p, compute_mode=None: weft.cdist(x, y, float(p)),
        "_pdist_forward": lambda call, x, p=2.0: weft.pdist(x, float(p)),
    }
)

# Fourier transforms; normalization is 0 for none, 1 for 1/sqrt(n), 2 for 1/n

_NORMS = ("backward", "ortho", "forward")


@aten("_fft_r2c")
def fft_real(call: Call, x: Any, dim: Any, normalization: int, onesided: bool) -> Any:
    """The transform of real numbers."""
    given, function = (x, weft.fft.rfftn) if onesided else (astype(x, call.dtype), weft.fft.fftn)
    return function(given, axes=tuple(dim), norm=_NORMS[normalization])


aten.enter(
    {
        "_fft_c2r": lambda call, x, dim, normalization, size: weft.fft.irfftn(
            x, s=(*[x.shape[d] for d in dim[:-1]], size), axes=tuple(dim), norm=_NORMS[2 - normalization]
        ),
        "_fft_c2c": lambda call, x, dim, normalization, forward: (
            weft.fft.fftn(x, axes=tuple(dim), norm=_NORMS[normalization])
            if forward
            else weft.fft.ifftn(x, axes=tuple(dim), norm=_NORMS[2 - normalization])
        ),
        "view_as_complex": lambda call, x: weft.complex(x[..., 0], x[..., 1]),
        "view_as_real": lambda call, x: weft.stack([weft.real(x), weft.imag(x)], axis=-1),
    }
)
