"""The public functions that are ops as they stand: each elementwise op as a function on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ops import arithmetic, compare, exponential, gamma, rounding, special, trigonometric
from weft.ops import complex as complexes
from weft.ops.op import Op
from weft.tensor.fast import build


def public(op: Op) -> Callable[..., Any]:
    """The function on tensors of an op, built now."""
    op.on_tensors = build(op)
    return op.on_tensors


add = public(arithmetic.add)
subtract = sub = public(arithmetic.sub)
multiply = mul = public(arithmetic.mul)
divide = div = public(arithmetic.div)
negative = neg = public(arithmetic.neg)
positive = public(arithmetic.positive)
square = public(arithmetic.square)
reciprocal = public(arithmetic.reciprocal)
pow = public(arithmetic.pow)
floor_divide = public(arithmetic.floor_divide)
remainder = public(arithmetic.remainder)
fmod = public(arithmetic.fmod)
maximum = public(arithmetic.maximum)
minimum = public(arithmetic.minimum)
hypot = public(arithmetic.hypot)
copysign = public(arithmetic.copysign)
nextafter = public(arithmetic.nextafter)
abs = absolute = public(complexes.absolute)
sign = public(complexes.sign)
angle = public(complexes.angle)
exp = public(exponential.exp)
exp2 = public(exponential.exp2)
expm1 = public(exponential.expm1)
log = public(exponential.log)
log1p = public(exponential.log1p)
log2 = public(exponential.log2)
log10 = public(exponential.log10)
logaddexp = public(exponential.logaddexp)
sqrt = public(exponential.sqrt)
rsqrt = public(exponential.rsqrt)
sigmoid = public(exponential.sigmoid)
sin = public(trigonometric.sin)
cos = public(trigonometric.cos)
tan = public(trigonometric.tan)
asin = public(trigonometric.asin)
acos = public(trigonometric.acos)
atan = public(trigonometric.atan)
atan2 = public(trigonometric.atan2)
sinh = public(trigonometric.sinh)
cosh = public(trigonometric.cosh)
tanh = public(trigonometric.tanh)
asinh = public(trigonometric.asinh)
acosh = public(trigonometric.acosh)
atanh = public(trigonometric.atanh)
equal = eq = public(compare.equal)
not_equal = ne = public(compare.not_equal)
less = lt = public(compare.less)
less_equal = le = public(compare.less_equal)
greater = gt = public(compare.greater)
greater_equal = ge = public(compare.greater_equal)
logical_and = public(compare.logical_and)
logical_or = public(compare.logical_or)
logical_xor = public(compare.logical_xor)
logical_not = public(compare.logical_not)
isnan = public(compare.isnan)
isinf = public(compare.isinf)
isfinite = public(compare.isfinite)
signbit = public(compare.signbit)
bitwise_and = public(compare.bitwise_and)
bitwise_or = public(compare.bitwise_or)
bitwise_xor = public(compare.bitwise_xor)
bitwise_invert = bitwise_not = public(compare.bitwise_invert)
bitwise_left_shift = public(compare.left_shift)
bitwise_right_shift = public(compare.right_shift)
floor = public(rounding.floor)
ceil = public(rounding.ceil)
trunc = public(rounding.trunc)
round = public(rounding.round)
erf = public(special.erf)
erfc = public(special.erfc)
erfinv = public(special.erfinv)
lgamma = public(gamma.lgamma)
digamma = public(gamma.digamma)
