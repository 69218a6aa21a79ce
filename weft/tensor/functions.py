"""The public functions that are ops as they stand: each elementwise op as a function on tensors.

Operators and rules call the ops directly; these add what a caller by name needs: a signature, a text, and an
error in weft's form for a call that does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import numpy as np

from weft.base.tracebacks import hide_weft
from weft.errors import WeftError
from weft.ops import arithmetic, compare, exponential, gamma, rounding, special, trigonometric
from weft.ops import complex as complexes
from weft.ops.op import Op, Operand, Tensor
from weft.tensor.fast import MISSING, build, misfit

Function = Callable[..., Any]
Unary = Callable[[Operand], Tensor]
Binary = Callable[[Operand, Operand], Tensor]
UFUNCS: dict[Any, Function] = {}  # NumPy's ufuncs, each with the function of the same meaning
__test__: dict[str, str] = {}  # the examples, where doctest finds them


@overload
def public(op: Op, text: str, value: str, /, *, gives: str) -> Unary: ...
@overload
def public(op: Op, text: str, value: str, other: str, /, *, gives: str) -> Binary: ...
def public(op: Op, text: str, *values: str, gives: str) -> Function:
    """The function on tensors of an op, with a sentence and an example: values and what they give."""
    function: Function = _of_one(op) if len(op.inputs) == 1 else _of_two(op)
    name = _PUBLIC_NAMES.get(op.name, op.name)
    call = f"weft.{name}({', '.join(f'weft.tensor({v})' for v in values)})"
    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    if isinstance(op.eval, np.ufunc):
        UFUNCS[op.eval] = function
    __test__[name] = function.__doc__ = f"{text}\n\n>>> import weft\n>>> {call}\ntensor({gives})\n"
    return function


_PUBLIC_NAMES = {
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "neg": "negative",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
}


def _of_one(op: Op) -> Function:
    op.on_tensors = function = build(op)
    function.__wrapped__ = _one  # type: ignore[attr-defined]
    return function


def _of_two(op: Op) -> Function:
    """Apart from the op's own function, which operators share, so that these do not pay for the check."""

    def function(x1: Operand = MISSING, x2: Operand = MISSING, /, *more: object, **unknown: object) -> Any:
        if more or unknown:
            raise misfit(op, (x1, x2, *more), unknown)
        try:
            return op.on_tensors(x1, x2)
        except WeftError as error:
            hide_weft(error)
            raise

    function.__wrapped__ = _two  # type: ignore[attr-defined]
    return function


def _one(x: Tensor, /) -> Tensor:  # type: ignore[empty-body]
    """The signature that tools see of a function of one tensor."""


def _two(x1: Operand, x2: Operand, /) -> Tensor:  # type: ignore[empty-body]
    """The signature that tools see of a function of two tensors."""


# Arithmetic

add = public(arithmetic.add, "x1 + x2; of bools, or.", "[1.0, 2.0]", "[10.0, 20.0]", gives="[11., 22.]")
subtract = sub = public(arithmetic.sub, "x1 - x2.", "[1.0, 2.0]", "[10.0, 20.0]", gives="[ -9., -18.]")
multiply = mul = public(
    arithmetic.mul, "x1 * x2; of bools, and.", "[1.0, 2.0]", "[10.0, 20.0]", gives="[10., 40.]"
)
divide = div = true_divide = public(
    arithmetic.div, "x1 / x2; integers are divided as floats.", "[1, 2]", "[4, 4]", gives="[0.2500, 0.5000]"
)
negative = neg = public(arithmetic.neg, "-x.", "[1.0, -2.0]", gives="[-1.,  2.]")
positive = public(arithmetic.positive, "x itself.", "[1.0, -2.0]", gives="[ 1., -2.]")
abs = absolute = public(
    complexes.absolute,
    "The absolute value; of a complex number, its distance from 0.",
    "[-1.5, 2.0]",
    gives="[1.5000, 2.0000]",
)
sign = public(
    complexes.sign,
    "-1, 0 or 1; of a complex number, the number of length 1 in its direction.",
    "[-1.5, 0.0, 2.0]",
    gives="[-1.,  0.,  1.]",
)
square = public(arithmetic.square, "x * x.", "[3.0, -4.0]", gives="[ 9., 16.]")
reciprocal = public(arithmetic.reciprocal, "1 / x.", "[2.0, 4.0]", gives="[0.5000, 0.2500]")
pow = public(
    arithmetic.pow,
    "x1 to the power of x2; an integer to a negative one is rounded towards 0.",
    "[2.0, 3.0]",
    "[3.0, 2.0]",
    gives="[8., 9.]",
)
floor_divide = public(
    arithmetic.floor_divide,
    "x1 / x2 rounded down; an integer divided by 0 is 0.",
    "[7.0, -7.0]",
    "[2.0, 2.0]",
    gives="[ 3., -4.]",
)
remainder = public(
    arithmetic.remainder,
    "What is left of x1 / x2 rounded down; it has the sign of x2.",
    "[7.0, -7.0]",
    "[4.0, 4.0]",
    gives="[3., 1.]",
)
fmod = public(
    arithmetic.fmod,
    "What is left of x1 / x2 rounded towards 0; it has the sign of x1.",
    "[7.0, -7.0]",
    "[4.0, 4.0]",
    gives="[ 3., -3.]",
)
maximum = public(
    arithmetic.maximum,
    "The larger one; NaN if either is NaN. A tie shares the gradient evenly.",
    "[1.0, 5.0]",
    "[3.0, 3.0]",
    gives="[3., 5.]",
)
minimum = public(
    arithmetic.minimum,
    "The smaller one; NaN if either is NaN. A tie shares the gradient evenly.",
    "[1.0, 5.0]",
    "[3.0, 3.0]",
    gives="[1., 3.]",
)
hypot = public(
    arithmetic.hypot,
    "The length of the vector (x1, x2), without overflow on the way.",
    "[3.0, 5.0]",
    "[4.0, 12.0]",
    gives="[ 5., 13.]",
)
copysign = public(
    arithmetic.copysign,
    "The size of x1 with the sign of x2.",
    "[1.0, 2.0]",
    "[-3.0, 3.0]",
    gives="[-1.,  2.]",
)
nextafter = public(
    arithmetic.nextafter,
    "The number next to x1 in the direction of x2.",
    "[0.0]",
    "[1.0]",
    gives="[1.4013e-45]",
)
angle = public(
    complexes.angle, "The angle of a complex number, in -pi..pi.", "[1j, -1.0]", gives="[1.5708, 3.1416]"
)

# Exponentials and logarithms

exp = public(exponential.exp, "e to the power of x.", "[0.0, 1.0]", gives="[1.0000, 2.7183]")
exp2 = public(exponential.exp2, "2 to the power of x.", "[0.5, 3.0]", gives="[1.4142, 8.0000]")
expm1 = public(
    exponential.expm1, "exp(x) - 1, accurate near 0.", "[0.0, 1e-8]", gives="[0.0000e+00, 1.0000e-08]"
)
log = public(exponential.log, "The natural logarithm.", "[1.0, 10.0]", gives="[0.0000, 2.3026]")
log1p = public(
    exponential.log1p, "log(1 + x), accurate near 0.", "[0.0, 1e-8]", gives="[0.0000e+00, 1.0000e-08]"
)
log2 = public(exponential.log2, "The logarithm to base 2.", "[1.0, 8.0]", gives="[0., 3.]")
log10 = public(exponential.log10, "The logarithm to base 10.", "[1.0, 1000.0]", gives="[0.0000, 3.0000]")
logaddexp = public(
    exponential.logaddexp,
    "log(exp(x1) + exp(x2)), without overflow on the way.",
    "[1000.0]",
    "[1000.0]",
    gives="[1000.6932]",
)
sqrt = public(exponential.sqrt, "The square root.", "[4.0, 2.0]", gives="[2.0000, 1.4142]")
rsqrt = public(exponential.rsqrt, "1 / sqrt(x).", "[4.0, 0.25]", gives="[0.5000, 2.0000]")
sigmoid = public(exponential.sigmoid, "1 / (1 + exp(-x)).", "[0.0, 2.0]", gives="[0.5000, 0.8808]")

# Trigonometry

sin = public(trigonometric.sin, "The sine.", "[0.0, 1.0]", gives="[0.0000, 0.8415]")
cos = public(trigonometric.cos, "The cosine.", "[0.0, 1.0]", gives="[1.0000, 0.5403]")
tan = public(trigonometric.tan, "The tangent.", "[0.0, 1.0]", gives="[0.0000, 1.5574]")
asin = public(
    trigonometric.asin, "The angle in -pi/2..pi/2 whose sine is x.", "[0.0, 1.0]", gives="[0.0000, 1.5708]"
)
acos = public(
    trigonometric.acos, "The angle in 0..pi whose cosine is x.", "[0.0, 1.0]", gives="[1.5708, 0.0000]"
)
atan = public(
    trigonometric.atan, "The angle in -pi/2..pi/2 whose tangent is x.", "[0.0, 1.0]", gives="[0.0000, 0.7854]"
)
atan2 = public(
    trigonometric.atan2, "The angle of the point (x2, x1), in -pi..pi.", "[1.0]", "[-1.0]", gives="[2.3562]"
)
sinh = public(trigonometric.sinh, "The hyperbolic sine.", "[0.0, 1.0]", gives="[0.0000, 1.1752]")
cosh = public(trigonometric.cosh, "The hyperbolic cosine.", "[0.0, 1.0]", gives="[1.0000, 1.5431]")
tanh = public(trigonometric.tanh, "The hyperbolic tangent.", "[0.0, 1.0]", gives="[0.0000, 0.7616]")
asinh = public(trigonometric.asinh, "The inverse of sinh.", "[0.0, 1.0]", gives="[0.0000, 0.8814]")
acosh = public(
    trigonometric.acosh, "The inverse of cosh, not negative.", "[1.0, 2.0]", gives="[0.0000, 1.3170]"
)
atanh = public(trigonometric.atanh, "The inverse of tanh.", "[0.0, 0.5]", gives="[0.0000, 0.5493]")

# Special functions

erf = public(special.erf, "The error function.", "[0.0, 1.0]", gives="[0.0000, 0.8427]")
erfc = public(
    special.erfc, "1 - erf(x), accurate where that is small.", "[0.0, 5.0]", gives="[1.0000e+00, 1.5375e-12]"
)
erfinv = public(special.erfinv, "The inverse of erf.", "[0.0, 0.5]", gives="[0.0000, 0.4769]")
lgamma = public(
    gamma.lgamma, "The logarithm of the size of the gamma function.", "[0.5, 5.0]", gives="[0.5724, 3.1781]"
)
digamma = public(gamma.digamma, "The derivative of lgamma.", "[0.5, 5.0]", gives="[-1.9635,  1.5061]")

# Comparison and logic

equal = eq = public(compare.equal, "Whether x1 == x2.", "[1.0, 2.0]", "[1.0, 3.0]", gives="[ True, False]")
not_equal = ne = public(
    compare.not_equal, "Whether x1 != x2.", "[1.0, 2.0]", "[1.0, 3.0]", gives="[False,  True]"
)
less = lt = public(compare.less, "Whether x1 < x2.", "[1.0, 2.0]", "[1.0, 3.0]", gives="[False,  True]")
less_equal = le = public(
    compare.less_equal, "Whether x1 <= x2.", "[1.0, 2.0]", "[1.0, 1.0]", gives="[ True, False]"
)
greater = gt = public(compare.greater, "Whether x1 > x2.", "[1.0, 2.0]", "[1.0, 1.0]", gives="[False,  True]")
greater_equal = ge = public(
    compare.greater_equal, "Whether x1 >= x2.", "[1.0, 2.0]", "[1.0, 3.0]", gives="[ True, False]"
)
logical_and = public(
    compare.logical_and,
    "Whether both are true; a number is true if it is not 0.",
    "[True, True]",
    "[True, False]",
    gives="[ True, False]",
)
logical_or = public(
    compare.logical_or,
    "Whether either is true; a number is true if it is not 0.",
    "[True, False]",
    "[False, False]",
    gives="[ True, False]",
)
logical_xor = public(
    compare.logical_xor,
    "Whether just one is true; a number is true if it is not 0.",
    "[True, True]",
    "[True, False]",
    gives="[False,  True]",
)
logical_not = public(
    compare.logical_not,
    "Whether x is false; a number is false if it is 0.",
    "[True, False]",
    gives="[False,  True]",
)
isnan = public(compare.isnan, "Whether x is NaN.", '[1.0, float("nan")]', gives="[False,  True]")
isinf = public(compare.isinf, "Whether x is infinite.", '[1.0, float("inf")]', gives="[False,  True]")
isfinite = public(
    compare.isfinite, "Whether x is neither infinite nor NaN.", '[1.0, float("inf")]', gives="[ True, False]"
)
signbit = public(
    compare.signbit,
    "Whether the sign bit is set, of -0.0 too.",
    "[-1.0, 0.0, -0.0]",
    gives="[ True, False,  True]",
)

# Bits

bitwise_and = public(compare.bitwise_and, "The bits set in both.", "[6, 5]", "[3, 3]", gives="[2, 1]")
bitwise_or = public(compare.bitwise_or, "The bits set in either.", "[6, 5]", "[3, 3]", gives="[7, 7]")
bitwise_xor = public(compare.bitwise_xor, "The bits set in just one.", "[6, 5]", "[3, 3]", gives="[5, 6]")
bitwise_invert = bitwise_not = public(
    compare.bitwise_invert, "Each bit flipped; of bools, not.", "[6, -1]", gives="[-7,  0]"
)
bitwise_left_shift = public(
    compare.left_shift, "The bits of x1 shifted left by x2 places.", "[1, 3]", "[2, 4]", gives="[ 4, 48]"
)
bitwise_right_shift = public(
    compare.right_shift,
    "The bits of x1 shifted right by x2 places, keeping the sign.",
    "[16, -16]",
    "[2, 2]",
    gives="[ 4, -4]",
)

# Rounding

floor = public(rounding.floor, "The largest integer not above x.", "[1.5, -1.5]", gives="[ 1., -2.]")
ceil = public(rounding.ceil, "The smallest integer not below x.", "[1.5, -1.5]", gives="[ 2., -1.]")
trunc = public(rounding.trunc, "x rounded towards 0.", "[1.5, -1.5]", gives="[ 1., -1.]")
round = public(
    rounding.round, "The nearest integer, the even one of two.", "[0.5, 1.5, -1.2]", gives="[ 0.,  2., -1.]"
)
