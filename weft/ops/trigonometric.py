"""Trigonometric and hyperbolic functions, and their inverses.

Scalar code of complex inverses follows W. Kahan, "Branch cuts for complex elementary functions" (1987).
"""

from __future__ import annotations

import numpy as np

from weft.base.dtypes import kind
from weft.ops import exponent, inverse
from weft.ops.elementary import widened
from weft.ops.exponential import log1p_code, rsqrt, sqrt
from weft.ops.families import elementwise
from weft.ops.op import Array, Op, Tensor
from weft.ops.public import Public
from weft.ops.samples import reals
from weft.ops.scalar import ScalarEmitter, Value, copy_sign

sin: Op = elementwise(
    "sin",
    public=Public("The sine.", "[0.0, 1.0] -> [0.0000, 0.8415]"),
    eval=np.sin,
    partials=(lambda x: cos(x),),
    accepts="fc",
    samples=reals(1, complex=True),
    scalar=lambda e, x: e.sin(x),
)
cos: Op = elementwise(
    "cos",
    public=Public("The cosine.", "[0.0, 1.0] -> [1.0000, 0.5403]"),
    eval=np.cos,
    partials=(lambda x: -sin(x),),
    accepts="fc",
    samples=reals(1, complex=True),
    scalar=lambda e, x: e.cos(x),
)
tan = elementwise(
    "tan",
    public=Public("The tangent.", "[0.0, 1.0] -> [0.0000, 1.5574]"),
    eval=np.tan,
    partials=(lambda out: 1 + out * out,),
    accepts="fc",
    samples=reals(1, -1.2, 1.2, complex=True),
    scalar=lambda e, x: e.div(e.sin(x), e.cos(x)) if _is_complex(e, x) else e.tan(x),
)

# Hyperbolic functions


def _is_complex(e: ScalarEmitter[Value], x: Value) -> bool:
    return kind(e.dtype(x)) == "c"


_sinh_of_real, _cosh_of_real = widened(exponent.sinh), widened(exponent.cosh)


def _sinh_code(e: ScalarEmitter[Value], x: Value) -> Value:
    if _is_complex(e, x):
        a, b = e.real(x), e.imag(x)
        return e.complex(e.mul(_sinh_code(e, a), e.cos(b)), e.mul(_cosh_code(e, a), e.sin(b)))
    return _sinh_of_real(e, x)


def _cosh_code(e: ScalarEmitter[Value], x: Value) -> Value:
    if _is_complex(e, x):
        a, b = e.real(x), e.imag(x)
        return e.complex(e.mul(_cosh_code(e, a), e.cos(b)), e.mul(_sinh_code(e, a), e.sin(b)))
    return _cosh_of_real(e, x)


sinh: Op = elementwise(
    "sinh",
    public=Public("The hyperbolic sine.", "[0.0, 1.0] -> [0.0000, 1.1752]"),
    eval=np.sinh,
    partials=(lambda x: cosh(x),),
    accepts="fc",
    samples=reals(1, complex=True),
    scalar=_sinh_code,
)
cosh: Op = elementwise(
    "cosh",
    public=Public("The hyperbolic cosine.", "[0.0, 1.0] -> [1.0000, 1.5431]"),
    eval=np.cosh,
    partials=(lambda x: sinh(x),),
    accepts="fc",
    samples=reals(1, complex=True),
    scalar=_cosh_code,
)


def _tanh(x: Array) -> Array:
    """The hyperbolic tangent; far out on the real axis the zero of its imaginary part has the sign of x's."""
    out = np.tanh(x)
    if x.dtype.kind == "c" and np.isinf(x.real).any():
        out = np.asarray(out)
        np.copyto(out.imag, np.copysign(0, x.imag), where=np.isinf(x.real) & np.isfinite(x.imag))
    return out


tanh = elementwise(
    "tanh",
    public=Public("The hyperbolic tangent.", "[0.0, 1.0] -> [0.0000, 0.7616]"),
    eval=_tanh,
    partials=(lambda out: 1 - out * out,),
    accepts="fc",
    samples=reals(1, complex=True),
    scalar=lambda e, x: e.tanh(x),
)


def _one_more(e: ScalarEmitter[Value], x: Value) -> Value:
    """1 + x of a complex number; a zero imaginary part keeps its sign, which tells the side of a cut."""
    return e.complex(e.add(e.real(x), 1), e.imag(x))


def _one_less(e: ScalarEmitter[Value], x: Value) -> Value:
    """1 - x, likewise."""
    return e.complex(e.sub(1, e.real(x)), e.neg(e.imag(x)))


_asinh_of_real, _acosh_of_real, _atanh_of_real = map(widened, (inverse.asinh, inverse.acosh, inverse.atanh))


def _asinh_code(e: ScalarEmitter[Value], x: Value) -> Value:
    if _is_complex(e, x):
        turned = _times_i(e, x)
        p, q = e.sqrt(_one_more(e, turned)), e.sqrt(_one_less(e, turned))
        re = _asinh_code(e, _cross(e, p, q))
        return e.complex(re, e.atan2(e.imag(x), e.real(e.mul(p, q))))
    return _asinh_of_real(e, x)


def _acosh_code(e: ScalarEmitter[Value], x: Value) -> Value:
    if _is_complex(e, x):
        p, q = e.sqrt(e.sub(x, 1)), e.sqrt(_one_more(e, x))
        inner = e.add(e.mul(e.real(p), e.real(q)), e.mul(e.imag(p), e.imag(q)))
        return e.complex(_asinh_code(e, inner), e.mul(e.atan2(e.imag(p), e.real(q)), 2))
    return _acosh_of_real(e, x)


def _atanh_code(e: ScalarEmitter[Value], x: Value) -> Value:
    if _is_complex(e, x):
        a, b = e.real(x), e.imag(x)
        size, square = e.abs(a), e.mul(b, b)
        gap = e.sub(1, size)
        ratio = e.div(e.mul(size, 4), e.add(e.mul(gap, gap), square))
        re = copy_sign(e, log1p_code(e, e.select(e.eq(size, np.inf), 0, ratio)), a)
        im = e.atan2(e.mul(b, 2), e.sub(e.mul(gap, e.add(size, 1)), square))
        turn = copy_sign(e, e.constant(np.pi, e.dtype(b)), b)
        im = e.select(e.eq(e.abs(b), np.inf), turn, im)  # an infinite b outweighs its double
        return e.complex(e.mul(re, 0.25), e.mul(im, 0.5))
    return _atanh_of_real(e, x)


def _times_i(e: ScalarEmitter[Value], x: Value) -> Value:
    return e.complex(e.neg(e.imag(x)), e.real(x))


def _over_i(e: ScalarEmitter[Value], x: Value) -> Value:
    return e.complex(e.imag(x), e.neg(e.real(x)))


def _cross(e: ScalarEmitter[Value], p: Value, q: Value) -> Value:
    """The imaginary part of conj(p) q, rounded as it stands."""
    return e.sub(e.mul(e.imag(p), e.real(q)), e.mul(e.real(p), e.imag(q)))


asinh = elementwise(
    "asinh",
    public=Public("The inverse of sinh.", "[0.0, 1.0] -> [0.0000, 0.8814]", names=("asinh", "arcsinh")),
    eval=np.arcsinh,
    partials=(lambda x: rsqrt(x * x + 1),),
    accepts="fc",
    samples=reals(1, -0.9, 0.9, complex=True),
    scalar=_asinh_code,
)
acosh = elementwise(
    "acosh",
    public=Public(
        "The inverse of cosh, not negative.", "[1.0, 2.0] -> [0.0000, 1.3170]", names=("acosh", "arccosh")
    ),
    eval=np.arccosh,
    partials=(lambda x: 1 / (sqrt(x - 1) * sqrt(x + 1)),),
    accepts="fc",
    singular=True,
    samples=reals(1, 1.1, 3.0, complex=True),
    scalar=_acosh_code,
)
atanh = elementwise(
    "atanh",
    public=Public("The inverse of tanh.", "[0.0, 0.5] -> [0.0000, 0.5493]", names=("atanh", "arctanh")),
    eval=np.arctanh,
    partials=(lambda x: 1 / ((1 - x) * (1 + x)),),
    accepts="fc",
    singular=True,
    samples=reals(1, -0.9, 0.9, complex=True),
    scalar=_atanh_code,
)

# Inverse trigonometric functions


_asin_of_real, _acos_of_real, _atan_of_real = map(widened, (inverse.asin, inverse.acos, inverse.atan))


def _asin_code(e: ScalarEmitter[Value], x: Value) -> Value:
    if _is_complex(e, x):
        return _over_i(e, _asinh_code(e, _times_i(e, x)))
    return _asin_of_real(e, x)


def _acos_code(e: ScalarEmitter[Value], x: Value) -> Value:
    if _is_complex(e, x):
        p, q = e.sqrt(_one_less(e, x)), e.sqrt(_one_more(e, x))
        im = _asinh_code(e, e.sub(e.mul(e.real(q), e.imag(p)), e.mul(e.imag(q), e.real(p))))
        return e.complex(e.mul(e.atan2(e.real(p), e.real(q)), 2), im)
    return _acos_of_real(e, x)


def _atan_code(e: ScalarEmitter[Value], x: Value) -> Value:
    if _is_complex(e, x):
        return _over_i(e, _atanh_code(e, _times_i(e, x)))
    return _atan_of_real(e, x)


asin = elementwise(
    "asin",
    public=Public(
        "The angle in -pi/2..pi/2 whose sine is x.",
        "[0.0, 1.0] -> [0.0000, 1.5708]",
        names=("asin", "arcsin"),
    ),
    eval=np.arcsin,
    partials=(lambda x: rsqrt((1 - x) * (1 + x)),),
    accepts="fc",
    singular=True,
    samples=reals(1, -0.9, 0.9, complex=True),
    scalar=_asin_code,
)
acos = elementwise(
    "acos",
    public=Public(
        "The angle in 0..pi whose cosine is x.", "[0.0, 1.0] -> [1.5708, 0.0000]", names=("acos", "arccos")
    ),
    eval=np.arccos,
    partials=(lambda x: -rsqrt((1 - x) * (1 + x)),),
    accepts="fc",
    singular=True,
    samples=reals(1, -0.9, 0.9, complex=True),
    scalar=_acos_code,
)
atan = elementwise(
    "atan",
    public=Public(
        "The angle in -pi/2..pi/2 whose tangent is x.",
        "[0.0, 1.0] -> [0.0000, 0.7854]",
        names=("atan", "arctan"),
    ),
    eval=np.arctan,
    partials=(lambda x: 1 / (1 + x * x),),
    accepts="fc",
    samples=reals(1, -0.9, 0.9, complex=True),
    scalar=_atan_code,
)


def _over_square(x: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    """x / (x1^2 + x2^2), and 0 at the origin."""
    square = x1 * x1 + x2 * x2
    return x / (square + (square == 0))


atan2 = elementwise(
    "atan2",
    public=Public(
        "The angle of the point (x2, x1), in -pi..pi.",
        "[1.0], [-1.0] -> [2.3562]",
        names=("atan2", "arctan2"),
    ),
    eval=np.arctan2,
    partials=(lambda x, y: _over_square(y, x, y), lambda x, y: -_over_square(x, x, y)),
    accepts="f",
    samples=reals(2, 0.2, 2.0),
    scalar=lambda e, x, y: e.atan2(x, y),
)
