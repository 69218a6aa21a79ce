"""Exponentials, logarithms, roots, and the logistic function."""

from __future__ import annotations

from collections.abc import Callable
from math import log as _log
from typing import Any

import numpy as np

from weft.base.dtypes import float16, float32, kind
from weft.ops import exponent, logarithm
from weft.ops.compare import isnan
from weft.ops.elementary import LN2, widened
from weft.ops.families import elementwise
from weft.ops.logarithm import log1p_of_positive
from weft.ops.op import Array, Tensor
from weft.ops.public import Public
from weft.ops.samples import reals
from weft.ops.scalar import ScalarEmitter, Value, is_nan
from weft.ops.select import select

LN10 = _log(10.0)

exp = elementwise(
    "exp",
    public=Public("e to the power of x.", "[0.0, 1.0] -> [1.0000, 2.7183]"),
    eval=np.exp,
    partials=(lambda out: out,),
    accepts="fc",
    samples=reals(1, complex=True),
    scalar=lambda e, x: e.exp(x),
)
_exp2_of_real = widened(exponent.exp2)


def _exp2(x: Array) -> Array:
    out: Array = np.exp(x * LN2) if x.dtype.kind == "c" else np.exp2(x)
    return out


def _exp2_code(e: ScalarEmitter[Value], x: Value) -> Value:
    return e.exp(e.mul(x, LN2)) if kind(e.dtype(x)) == "c" else _exp2_of_real(e, x)


exp2 = elementwise(
    "exp2",
    public=Public("2 to the power of x.", "[0.5, 3.0] -> [1.4142, 8.0000]", ufunc=np.exp2),
    eval=_exp2,
    partials=(lambda out: out * LN2,),
    accepts="fc",
    samples=reals(1, complex=True),
    scalar=_exp2_code,
)


_expm1_of_real = widened(exponent.expm1)
_log1p_of_real = widened(logarithm.log1p)


def expm1_code(e: ScalarEmitter[Value], x: Value) -> Value:
    """exp(x) - 1 without cancellation."""
    if kind(e.dtype(x)) == "c":
        # exp(a + ib) - 1 = expm1(a) cos b - 2 sin(b/2)^2 + i exp(a) sin b
        a, b = e.real(x), e.imag(x)
        half = e.sin(e.mul(b, 0.5))
        re = e.sub(e.mul(expm1_code(e, a), e.cos(b)), e.mul(2, e.mul(half, half)))
        return e.complex(re, e.mul(e.exp(a), e.sin(b)))
    return _expm1_of_real(e, x)


def log1p_code(e: ScalarEmitter[Value], x: Value) -> Value:
    """log(1 + x) without cancellation."""
    if kind(e.dtype(x)) == "c":
        # |1 + x|^2 = 1 + (2a + a^2 + b^2)
        a, b = e.real(x), e.imag(x)
        above = e.add(a, 1)
        excess = e.add(e.mul(a, e.add(a, 2)), e.mul(b, b))
        near = e.mul(log1p_code(e, excess), 0.5)
        far = e.log(e.abs(e.complex(above, b)))  # where excess itself cancels, or overflows
        return e.complex(e.select(e.lt(e.abs(excess), 0.5), near, far), e.atan2(b, above))
    return _log1p_of_real(e, x)


def _expm1(x: Array) -> Array:
    """exp(x) - 1, with the limits of the standard where a complex x is not finite or on the real axis."""
    if x.dtype.kind != "c":
        return np.expm1(x)
    out, a, b = np.asarray(np.expm1(x)), x.real, x.imag
    np.copyto(out, _parts(np.expm1(a) + 0, b), where=b == 0)
    np.copyto(out, _parts(-1, np.copysign(0, b)), where=(a == -np.inf) & ~np.isfinite(b))
    np.copyto(out, _parts(np.inf, np.nan), where=(a == np.inf) & ~np.isfinite(b))
    return out


def _parts(real: Array | float, imag: Array | float) -> Array:
    """Complex numbers of two parts; ``real + 1j * imag`` would mix infinities into NaN."""
    out = np.empty(np.broadcast_shapes(np.shape(real), np.shape(imag)), np.complex128)
    out.real, out.imag = real, imag
    return out


expm1 = elementwise(
    "expm1",
    public=Public("exp(x) - 1, accurate near 0.", "[0.0, 1e-8] -> [0.0000e+00, 1.0000e-08]"),
    eval=_expm1,
    partials=(lambda out: out + 1,),
    accepts="fc",
    samples=reals(1, complex=True),
    scalar=expm1_code,
)
log = elementwise(
    "log",
    public=Public("The natural logarithm.", "[1.0, 10.0] -> [0.0000, 2.3026]"),
    eval=np.log,
    partials=(lambda x: 1 / x,),
    accepts="fc",
    singular=True,
    samples=reals(1, 0.1, 3.0, complex=True),
    scalar=lambda e, x: e.log(x),
)
log1p = elementwise(
    "log1p",
    public=Public("log(1 + x), accurate near 0.", "[0.0, 1e-8] -> [0.0000e+00, 1.0000e-08]"),
    eval=np.log1p,
    partials=(lambda x: 1 / (1 + x),),
    accepts="fc",
    singular=True,
    samples=reals(1, -0.5, 3.0, complex=True),
    scalar=log1p_code,
)


def _log_to_base(code: Callable[..., Value], unit: float) -> Callable[..., Value]:
    """Code of a logarithm: that of reals, and the natural one over a unit for complex numbers."""
    real = widened(code)
    return lambda e, x: e.mul(e.log(x), 1 / unit) if kind(e.dtype(x)) == "c" else real(e, x)


log2 = elementwise(
    "log2",
    public=Public("The logarithm to base 2.", "[1.0, 8.0] -> [0., 3.]"),
    eval=np.log2,
    partials=(lambda x: 1 / LN2 / x,),
    accepts="fc",
    singular=True,
    samples=reals(1, 0.1, 3.0, complex=True),
    scalar=_log_to_base(logarithm.log2, LN2),
)
log10 = elementwise(
    "log10",
    public=Public("The logarithm to base 10.", "[1.0, 50.0] -> [0.0000, 1.6990]"),
    eval=np.log10,
    partials=(lambda x: 1 / LN10 / x,),
    accepts="fc",
    singular=True,
    samples=reals(1, 0.1, 3.0, complex=True),
    scalar=_log_to_base(logarithm.log10, LN10),
)
sqrt = elementwise(
    "sqrt",
    public=Public("The square root.", "[4.0, 2.0] -> [2.0000, 1.4142]"),
    eval=np.sqrt,
    partials=(lambda out: 1 / (2 * out),),
    accepts="fc",
    singular=True,
    samples=reals(1, 0.1, 3.0, complex=True),
    scalar=lambda e, x: e.sqrt(x),
)
root = elementwise(
    "root",  # the square root, whose slope at 0 is taken to be 0
    eval=np.sqrt,
    partials=(lambda out: (out != 0, 0.5 / out),),  # also where it is NaN
    gated=True,
    accepts="f",
    samples=reals(1, 0.1, 2.0),
    scalar=lambda e, x: e.sqrt(x),
)
rsqrt = elementwise(
    "rsqrt",
    public=Public("1 / sqrt(x).", "[4.0, 0.25] -> [0.5000, 2.0000]"),
    eval=lambda x: 1 / np.sqrt(x),
    partials=(lambda x, out: out / (-2 * x),),
    accepts="fc",
    singular=True,
    samples=reals(1, 0.1, 3.0, complex=True),
    scalar=lambda e, x: e.div(1, e.sqrt(x)),
)


def _sigmoid(x: Array) -> Any:
    if x.dtype == float16:  # where exp overflows long before sigmoid is 0
        return _sigmoid(x.astype(float32)).astype(float16)
    if x.dtype.kind == "c":
        return _sigmoid_of_complex(x)
    return 1 / (1 + np.exp(-x))  # an overflow to infinity gives 0, as it should


def _sigmoid_of_complex(x: Array) -> Array:
    """By the exponential that does not overflow."""
    left = x.real < 0
    small = np.exp(np.where(left, x, -x))
    out: Array = np.where(left, small, np.ones((), x.dtype)) / (1 + small)
    return out


def _sigmoid_code(e: ScalarEmitter[Value], x: Value) -> Value:
    return _complex_sigmoid_code(e, x) if kind(e.dtype(x)) == "c" else e.sigmoid(x)


def _complex_sigmoid_code(e: ScalarEmitter[Value], x: Value) -> Value:
    left = e.lt(e.real(x), 0)
    small = e.exp(e.select(left, x, e.neg(x)))
    return e.div(e.select(left, small, e.constant(1, e.dtype(x))), e.add(small, 1))


sigmoid = elementwise(
    "sigmoid",
    public=Public("1 / (1 + exp(-x)).", "[0.0, 2.0] -> [0.5000, 0.8808]"),
    eval=_sigmoid,
    partials=(lambda out: out * (1 - out),),
    accepts="fc",
    samples=reals(1, complex=True),
    scalar=_sigmoid_code,
)


def _logaddexp(x: Array, y: Array) -> Any:
    if x.dtype.kind != "c":
        return np.logaddexp(x, y)
    swap = x.real < y.real
    large, small = np.where(swap, y, x), np.where(swap, x, y)
    return large + np.log(1 + np.exp(small - large))


def _logaddexp_code(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    if kind(e.dtype(x)) != "c":
        return _logaddexp_of_real(e, x, y)
    swap = e.lt(e.real(x), e.real(y))
    large, small = e.select(swap, y, x), e.select(swap, x, y)
    return e.add(large, e.log(e.add(e.exp(e.sub(small, large)), 1)))


@widened
def _logaddexp_of_real(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    gap = e.neg(e.abs(e.sub(x, y)))
    plain = e.add(e.max(x, y), log1p_of_positive(e, e.exp(gap)))
    # Two equal infinities have no gap; NaN goes through.
    same = e.add(x, LN2)
    return e.select(e.eq(x, y), same, e.select(is_nan(e, plain), e.add(x, y), plain))


def _share(x: Tensor, y: Tensor) -> Tensor:
    """exp(x) / (exp(x) + exp(y)); a half of each of two equal infinities."""
    gap = x - y
    return sigmoid(select(isnan(gap), np.zeros((), gap.dtype), gap))


logaddexp = elementwise(
    "logaddexp",
    public=Public(
        "log(exp(x1) + exp(x2)), without overflow on the way.",
        "[1000.0], [1000.0] -> [1000.6932]",
        ufunc=np.logaddexp,
    ),
    eval=_logaddexp,
    partials=(lambda x, y: _share(x, y), lambda x, y: _share(y, x)),
    accepts="fc",
    samples=reals(2, complex=True),
    scalar=_logaddexp_code,
)
