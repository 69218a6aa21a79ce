"""The scalar instruction set: what the code of every elementwise op is written in.

An op says once how one element is computed, as a function of an emitter and its inputs:
``scalar=lambda e, x, y: e.add(x, y)``. A backend implements the instructions below, about thirty, and so
runs every elementwise op, those of users included. ``NumpyEmitter`` is the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from weft.base.dtypes import DType, kind

Value = Any  # what an emitter computes with: an array, a register, a piece of source text


class ScalarEmitter(Protocol):
    """The instructions. An operand may be a Python number: it is a constant of the other operand's dtype.

    Operands of one instruction have one dtype, for there is no promotion here (the condition of ``select`` is
    a bool). Arithmetic and functions take complex numbers wherever mathematics does. A product and a sum may
    be fused; nothing may be reassociated, because ``x + 1 - 1`` is meant as it stands.
    """

    def dtype(self, x: Value) -> DType:
        """The dtype of a value, known while code is generated."""

    def constant(self, value: object, dtype: DType) -> Value:
        """A constant, where no operand tells its dtype."""

    # Arithmetic: integers wrap around

    def add(self, x: Value, y: Value) -> Value:
        """x + y."""

    def sub(self, x: Value, y: Value) -> Value:
        """x - y."""

    def mul(self, x: Value, y: Value) -> Value:
        """x * y."""

    def div(self, x: Value, y: Value) -> Value:
        """x / y; of integers rounded towards zero, and 0 where y is 0."""

    def rem(self, x: Value, y: Value) -> Value:
        """What is left of x / y rounded towards zero, exactly (C's fmod); of integers 0 where y is 0."""

    def neg(self, x: Value) -> Value:
        """-x."""

    def abs(self, x: Value) -> Value:
        """|x|; real for a complex x."""

    def min(self, x: Value, y: Value) -> Value:
        """The smaller one; NaN if either is NaN."""

    def max(self, x: Value, y: Value) -> Value:
        """The larger one; NaN if either is NaN."""

    # Functions of floating and complex numbers

    def sqrt(self, x: Value) -> Value:
        """The square root, correctly rounded."""

    def floor(self, x: Value) -> Value:
        """The largest integer not above x."""

    def trunc(self, x: Value) -> Value:
        """x rounded towards zero."""

    def round(self, x: Value) -> Value:
        """The nearest integer, the even one of two."""

    def exp(self, x: Value) -> Value:
        """e to the power of x."""

    def log(self, x: Value) -> Value:
        """The natural logarithm."""

    def sin(self, x: Value) -> Value:
        """The sine."""

    def cos(self, x: Value) -> Value:
        """The cosine."""

    def tanh(self, x: Value) -> Value:
        """The hyperbolic tangent."""

    def atan2(self, y: Value, x: Value) -> Value:
        """The angle of the point (x, y), reals only."""

    def pow(self, x: Value, y: Value) -> Value:
        """x to the power of y; integers only with y >= 0."""

    # Comparison: gives a bool

    def eq(self, x: Value, y: Value) -> Value:
        """x == y."""

    def lt(self, x: Value, y: Value) -> Value:
        """x < y, reals only."""

    def le(self, x: Value, y: Value) -> Value:
        """x <= y, reals only."""

    # Bits of integers, truth of bools

    def and_(self, x: Value, y: Value) -> Value:
        """Bitwise and."""

    def or_(self, x: Value, y: Value) -> Value:
        """Bitwise or."""

    def xor(self, x: Value, y: Value) -> Value:
        """Bitwise exclusive or."""

    def not_(self, x: Value) -> Value:
        """Each bit flipped."""

    def shl(self, x: Value, y: Value) -> Value:
        """x shifted left; defined for 0 <= y < bits."""

    def shr(self, x: Value, y: Value) -> Value:
        """x shifted right, keeping the sign; defined for 0 <= y < bits."""

    # Choice and conversion

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        """x where the condition holds, else y."""

    def cast(self, x: Value, dtype: DType) -> Value:
        """x converted to dtype: floats to integers towards zero, anything to bool by x != 0."""

    def bitcast(self, x: Value, dtype: DType) -> Value:
        """The bits of x read as another dtype of the same size."""

    def real(self, x: Value) -> Value:
        """The real part of a complex number."""

    def imag(self, x: Value) -> Value:
        """The imaginary part of a complex number."""

    def complex(self, re: Value, im: Value) -> Value:
        """A complex number of its parts."""


INSTRUCTIONS: tuple[str, ...] = tuple(
    name for name in vars(ScalarEmitter) if not name.startswith("_") and name != "dtype"
)


def polynomial(e: ScalarEmitter, x: Value, coefficients: Sequence[float]) -> Value:
    """The value at x of a polynomial, by Horner's rule; the constant comes first."""
    out: Value = coefficients[-1]
    for c in coefficients[-2::-1]:
        out = e.add(e.mul(out, x), c)
    return out


def rational(e: ScalarEmitter, x: Value, fraction: tuple[Sequence[float], Sequence[float]]) -> Value:
    """The value at x of a quotient of polynomials."""
    above, below = fraction
    return e.div(polynomial(e, x, above), polynomial(e, x, below))


def is_nan(e: ScalarEmitter, x: Value) -> Value:
    """Whether x is NaN: the only value that differs from itself."""
    return e.not_(e.eq(x, x))


def integer_of_size(dtype: DType) -> DType:
    """The signed integer dtype as wide as dtype."""
    return np.dtype(f"int{dtype.itemsize * 8}")


def sign_bit(e: ScalarEmitter, x: Value) -> Value:
    """Whether a float's sign is set, of -0.0 and NaN too."""
    return e.lt(e.bitcast(x, integer_of_size(e.dtype(x))), 0)


def copy_sign(e: ScalarEmitter, x: Value, y: Value) -> Value:
    """The size of a float x with the sign of y."""
    size = e.abs(x)
    return e.select(sign_bit(e, y), e.neg(size), size)


class NumpyEmitter:
    """The instructions on whole arrays: the reference, and what the tests compare a kernel with."""

    def dtype(self, x: Value) -> DType:
        """The dtype of an array."""
        dtype: DType = x.dtype
        return dtype

    def constant(self, value: object, dtype: DType) -> Value:
        """A 0-d array."""
        return np.asarray(value, dtype)

    def cast(self, x: Value, dtype: DType) -> Value:
        """Converted to dtype."""
        if kind(x.dtype) == "c" and kind(dtype) not in "bc":
            x = x.real
        return x.astype(dtype)

    def bitcast(self, x: Value, dtype: DType) -> Value:
        """The same bits."""
        return np.ascontiguousarray(x).view(dtype).reshape(x.shape)

    def div(self, x: Value, y: Value) -> Value:
        """Divided; integers towards zero."""
        x, y = _constants(x, y)
        if kind(x.dtype) in "fc":
            return np.divide(x, y)
        quotient = np.floor_divide(x, y)
        inexact = (quotient * y != x) & (y != 0)
        return quotient + (inexact & ((x < 0) != (y < 0))).astype(x.dtype)

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        """Chosen element by element."""
        return np.where(condition, *_constants(x, y))

    def complex(self, re: Value, im: Value) -> Value:
        """A complex array of its parts."""
        re, im = np.broadcast_arrays(*_constants(re, im))
        out = np.empty(re.shape, np.result_type(re.dtype, np.complex64))
        out.real, out.imag = re, im
        return out


_TYPED = (np.ndarray, np.generic)


def _constants(x: Value, y: Value) -> tuple[Value, Value]:
    """Two operands, a Python number among them as a constant of the other's dtype."""
    if not isinstance(y, _TYPED):
        return x, np.asarray(y, x.dtype)
    return (x, y) if isinstance(x, _TYPED) else (np.asarray(x, y.dtype), y)


def _of_one(ufunc: Any) -> Any:
    return lambda self, x: ufunc(x)


def _of_two(ufunc: Any) -> Any:
    return lambda self, x, y: ufunc(*_constants(x, y))


for _name, _ufunc in {
    "neg": np.negative, "abs": np.absolute, "sqrt": np.sqrt, "floor": np.floor, "trunc": np.trunc,
    "round": np.rint, "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "not_": np.invert, "real": np.real, "imag": np.imag,
}.items():  # fmt: skip
    setattr(NumpyEmitter, _name, _of_one(_ufunc))
for _name, _ufunc in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "rem": np.fmod, "min": np.minimum,
    "max": np.maximum, "atan2": np.arctan2, "pow": np.power, "eq": np.equal, "lt": np.less,
    "le": np.less_equal, "and_": np.bitwise_and, "or_": np.bitwise_or, "xor": np.bitwise_xor,
    "shl": np.left_shift, "shr": np.right_shift,
}.items():  # fmt: skip
    setattr(NumpyEmitter, _name, _of_two(_ufunc))


# Functions that are computed differently on different ranges

Code = Callable[[ScalarEmitter, Value], Value]
Pieces = Sequence[tuple[float, Code]]  # (upper end, code below it), ends rising to inf; NaN falls to the last
Choose = Callable[[ScalarEmitter, Value, Pieces], Value]


def by_selecting(e: ScalarEmitter, x: Value, pieces: Pieces) -> Value:
    """Compute every piece and choose: what generated code does, where lanes of a vector cannot part."""
    out = pieces[-1][1](e, x)
    for end, code in reversed(pieces[:-1]):
        out = e.select(e.lt(x, end), code(e, x), out)
    return out


def by_masking(e: ScalarEmitter, x: Value, pieces: Pieces) -> Value:
    """Compute each piece on the elements that lie in it: what an array library does. x has one axis."""
    out = np.empty_like(x)
    left = np.ones(x.shape, np.bool_)
    for end, code in pieces:
        inside = left if end == np.inf else left & (x < end)
        where = np.flatnonzero(inside)
        if where.size == x.size:
            return code(e, x)
        if where.size:
            out[where] = code(e, x[where])
        left = left & ~inside
    return out


_BLOCK = 65536  # elements that a kernel works on at a time, so that what it computes stays in the cache


def kernel(code: Callable[..., Value]) -> Callable[..., Any]:
    """A reference kernel from scalar code that takes ``choose=``."""

    def eval(x: Any) -> Any:
        flat = np.ravel(x)
        with np.errstate(all="ignore"):
            blocks = [
                code(NUMPY, flat[i : i + _BLOCK], choose=by_masking) for i in range(0, flat.size, _BLOCK)
            ]
        return np.concatenate(blocks).reshape(x.shape) if blocks else np.empty_like(x)

    return eval


NUMPY: Any = NumpyEmitter()
