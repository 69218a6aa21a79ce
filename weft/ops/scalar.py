"""The scalar instruction set: what the code of every elementwise op is written in.

An op says once how one element is computed, as a function of an emitter and its inputs:
``scalar=lambda e, x, y: e.add(x, y)``. A backend implements the instructions below, about thirty, and so
runs every elementwise op, those of users included. ``NumpyEmitter`` is the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from weft.base.dtypes import DType, integer_range, kind

Value = TypeVar("Value")  # what an emitter computes with: an array, a register, a piece of source text
Number = complex | np.generic  # and all that Python takes for a complex number: bool, int, float
Operand: TypeAlias = Value | Number
Array = np.ndarray[Any, Any]


class ScalarEmitter(Protocol[Value]):
    """The instructions. An operand may be a Python number: it is a constant of the other operand's dtype.

    Operands of one instruction have one dtype, for there is no promotion here (the condition of ``select`` is
    a bool). Arithmetic and functions take complex numbers wherever mathematics does. A product and a sum may
    be fused; nothing may be reassociated, because ``x + 1 - 1`` is meant as it stands.
    """

    def dtype(self, x: Value, /) -> DType:
        """The dtype of a value, known while code is generated."""

    def constant(self, value: Number, dtype: DType, /) -> Value:
        """A constant, where no operand tells its dtype."""

    # Arithmetic: integers wrap around

    def add(self, x: Operand[Value], y: Operand[Value], /) -> Value:
        """x + y."""

    def sub(self, x: Operand[Value], y: Operand[Value], /) -> Value:
        """x - y."""

    def mul(self, x: Operand[Value], y: Operand[Value], /) -> Value:
        """x * y."""

    def div(self, x: Operand[Value], y: Operand[Value], /) -> Value:
        """x / y; of integers rounded towards zero, and 0 where y is 0."""

    def rem(self, x: Operand[Value], y: Operand[Value], /) -> Value:
        """What is left of x / y rounded towards zero, exactly (C's fmod); of integers 0 where y is 0."""

    def neg(self, x: Operand[Value], /) -> Value:
        """-x."""

    def abs(self, x: Operand[Value], /) -> Value:
        """|x|; real for a complex x."""

    def min(self, x: Operand[Value], y: Operand[Value], /) -> Value:
        """The smaller one; NaN if either is NaN."""

    def max(self, x: Operand[Value], y: Operand[Value], /) -> Value:
        """The larger one; NaN if either is NaN."""

    # Functions of floating and complex numbers

    def sqrt(self, x: Operand[Value], /) -> Value:
        """The square root, correctly rounded."""

    def floor(self, x: Operand[Value], /) -> Value:
        """The largest integer not above x."""

    def trunc(self, x: Operand[Value], /) -> Value:
        """x rounded towards zero."""

    def round(self, x: Operand[Value], /) -> Value:
        """The nearest integer, the even one of two."""

    def exp(self, x: Operand[Value], /) -> Value:
        """e to the power of x."""

    def log(self, x: Operand[Value], /) -> Value:
        """The natural logarithm."""

    def sin(self, x: Operand[Value], /) -> Value:
        """The sine."""

    def cos(self, x: Operand[Value], /) -> Value:
        """The cosine."""

    def tan(self, x: Operand[Value], /) -> Value:
        """The tangent, reals only."""

    def tanh(self, x: Operand[Value], /) -> Value:
        """The hyperbolic tangent."""

    def sigmoid(self, x: Operand[Value], /) -> Value:
        """1 / (1 + exp(-x)), reals only."""

    def atan2(self, y: Operand[Value], x: Operand[Value], /) -> Value:
        """The angle of the point (x, y), reals only."""

    def pow(self, x: Operand[Value], y: Operand[Value], /) -> Value:
        """x to the power of y; integers only with y >= 0."""

    # Comparison: gives a bool

    def eq(self, x: Operand[Value], y: Operand[Value], /) -> Value:
        """x == y."""

    def lt(self, x: Operand[Value], y: Operand[Value], /) -> Value:
        """x < y, reals only."""

    def le(self, x: Operand[Value], y: Operand[Value], /) -> Value:
        """x <= y, reals only."""

    # Bits of integers, truth of bools

    def and_(self, x: Operand[Value], y: Operand[Value], /) -> Value:
        """Bitwise and."""

    def or_(self, x: Operand[Value], y: Operand[Value], /) -> Value:
        """Bitwise or."""

    def xor(self, x: Operand[Value], y: Operand[Value], /) -> Value:
        """Bitwise exclusive or."""

    def not_(self, x: Operand[Value], /) -> Value:
        """Each bit flipped."""

    def shl(self, x: Operand[Value], y: Operand[Value], /) -> Value:
        """x shifted left; defined for 0 <= y < bits."""

    def shr(self, x: Operand[Value], y: Operand[Value], /) -> Value:
        """x shifted right, keeping the sign; defined for 0 <= y < bits."""

    # Choice and conversion

    def select(self, condition: Operand[Value], x: Operand[Value], y: Operand[Value], /) -> Value:
        """x where the condition holds, else y."""

    def cast(self, x: Operand[Value], dtype: DType, /) -> Value:
        """x converted to dtype, anything to bool by x != 0; floats to integers as ``to_integers`` does."""

    def bitcast(self, x: Operand[Value], dtype: DType, /) -> Value:
        """The bits of x read as another dtype of the same size."""

    def real(self, x: Operand[Value], /) -> Value:
        """The real part of a complex number."""

    def imag(self, x: Operand[Value], /) -> Value:
        """The imaginary part of a complex number."""

    def complex(self, re: Operand[Value], im: Operand[Value], /) -> Value:
        """A complex number of its parts."""


INSTRUCTIONS: tuple[str, ...] = tuple(
    name for name in vars(ScalarEmitter) if not name.startswith("_") and name != "dtype"
)


def polynomial(e: ScalarEmitter[Value], x: Value, coefficients: Sequence[float]) -> Value:
    """The value at x of a polynomial, by Horner's rule; the constant comes first."""
    *rest, second, highest = coefficients
    out = e.add(e.mul(highest, x), second)
    for c in reversed(rest):
        out = e.add(e.mul(out, x), c)
    return out


def rational(e: ScalarEmitter[Value], x: Value, fraction: tuple[Sequence[float], Sequence[float]]) -> Value:
    """The value at x of a quotient of polynomials."""
    above, below = fraction
    return e.div(polynomial(e, x, above), polynomial(e, x, below))


def is_nan(e: ScalarEmitter[Value], x: Value) -> Value:
    """Whether x is NaN: the only value that differs from itself."""
    return e.not_(e.eq(x, x))


def integer_of_size(dtype: DType) -> DType:
    """The signed integer dtype as wide as dtype."""
    return np.dtype(f"int{dtype.itemsize * 8}")


def sign_bit(e: ScalarEmitter[Value], x: Value) -> Value:
    """Whether a float's sign is set, of -0.0 and NaN too."""
    return e.lt(e.bitcast(x, integer_of_size(e.dtype(x))), 0)


def copy_sign(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    """The size of a float x with the sign of y."""
    size = e.abs(x)
    return e.select(sign_bit(e, y), e.neg(size), size)


def to_integers(x: Array, dtype: DType) -> Array:
    """Floats as integers: towards zero, out of range the nearest that the dtype has, and 0 for NaN.

    NumPy leaves what is out of range to the processor.

    >>> import numpy as np
    >>> from weft.ops.scalar import to_integers
    >>> to_integers(np.array([-1.7, 300.0, -np.inf, np.nan]), np.dtype("int8"))
    array([  -1,  127, -128,    0], dtype=int8)
    """
    least, most = integer_range(dtype)
    if x.itemsize > 2 and least < 0 and np.vdot(x, x) < float(most) ** 2:  # one pass is enough, mostly
        return x.astype(dtype)
    if x.size == 0:
        return x.astype(dtype)
    low, high = float(np.minimum.reduce(x, axis=None)), float(np.maximum.reduce(x, axis=None))
    if least <= low and high < most + 1:  # not so if one is NaN
        return x.astype(dtype)
    with np.errstate(invalid="ignore"):
        out = np.asarray(x.astype(dtype))
    wide = x.astype(np.float64)  # in which the ends, powers of two, are what they are
    out[wide < least], out[wide >= most + 1], out[wide != wide] = least, most, 0
    return out


_TYPED = (np.ndarray, np.generic)


def _constants(x: Operand[Array], y: Operand[Array]) -> tuple[Array, Array]:
    """Two operands, a Python number among them as a constant of the other's dtype."""
    if not isinstance(y, _TYPED):
        y = np.asarray(y, x.dtype if isinstance(x, _TYPED) else None)
    if not isinstance(x, _TYPED):
        x = np.asarray(x, y.dtype)
    return x, y  # type: ignore[return-value]  # scalars of NumPy have all that arrays have here


def _one(ufunc: np.ufunc) -> Callable[[NumpyEmitter, Operand[Array]], Array]:
    return lambda self, x: ufunc(x)


def _two(ufunc: np.ufunc) -> Callable[[NumpyEmitter, Operand[Array], Operand[Array]], Array]:
    return lambda self, x, y: ufunc(*_constants(x, y))


class NumpyEmitter:
    """The instructions on whole arrays: the reference, and what the tests compare a kernel with."""

    neg, abs, not_ = _one(np.negative), _one(np.absolute), _one(np.invert)
    sqrt, floor, trunc, round = _one(np.sqrt), _one(np.floor), _one(np.trunc), _one(np.rint)
    exp, log, tanh = _one(np.exp), _one(np.log), _one(np.tanh)
    sin, cos, tan = _one(np.sin), _one(np.cos), _one(np.tan)
    add, sub, mul, rem = _two(np.add), _two(np.subtract), _two(np.multiply), _two(np.fmod)
    min, max, atan2, pow = _two(np.minimum), _two(np.maximum), _two(np.arctan2), _two(np.power)
    eq, lt, le = _two(np.equal), _two(np.less), _two(np.less_equal)
    and_, or_, xor = _two(np.bitwise_and), _two(np.bitwise_or), _two(np.bitwise_xor)
    shl, shr = _two(np.left_shift), _two(np.right_shift)

    def dtype(self, x: Array) -> DType:
        """The dtype of an array."""
        dtype: DType = x.dtype
        return dtype

    def constant(self, value: Number, dtype: DType) -> Array:
        """A 0-d array."""
        return np.asarray(value, dtype)

    def cast(self, x: Operand[Array], dtype: DType) -> Array:
        """Converted to dtype."""
        x = np.asarray(x)
        if kind(x.dtype) == "c" and kind(dtype) not in "bc":
            x = x.real
        return to_integers(x, dtype) if kind(x.dtype) == "f" and kind(dtype) in "iu" else x.astype(dtype)

    def bitcast(self, x: Operand[Array], dtype: DType) -> Array:
        """The same bits."""
        x = np.asarray(x)
        return np.ascontiguousarray(x).view(dtype).reshape(x.shape)

    def sigmoid(self, x: Operand[Array]) -> Array:
        """1 / (1 + exp(-x)), of half precision in float32; an overflow to infinity gives 0, as it should."""
        x = np.asarray(x)
        wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
        return np.asarray(1 / (1 + np.exp(-wide)), x.dtype)

    def div(self, x: Operand[Array], y: Operand[Array]) -> Array:
        """Divided; integers towards zero."""
        x, y = _constants(x, y)
        if kind(x.dtype) in "fc":
            return np.divide(x, y)
        quotient = np.floor_divide(x, y)
        inexact = (quotient * y != x) & (y != 0)
        return quotient + (inexact & ((x < 0) != (y < 0))).astype(x.dtype)  # type: ignore[no-any-return]

    def select(self, condition: Operand[Array], x: Operand[Array], y: Operand[Array]) -> Array:
        """Chosen element by element."""
        return np.where(condition, *_constants(x, y))

    def real(self, x: Operand[Array]) -> Array:
        """The real part."""
        return np.real(x)

    def imag(self, x: Operand[Array]) -> Array:
        """The imaginary part."""
        return np.imag(x)

    def complex(self, re: Operand[Array], im: Operand[Array]) -> Array:
        """A complex array of its parts."""
        re, im = np.broadcast_arrays(*_constants(re, im))
        out = np.empty(re.shape, np.result_type(re.dtype, np.complex64))
        out.real, out.imag = re, im
        return out


# Functions that are computed differently on different ranges

Code = Callable[[ScalarEmitter[Value], Value], Value]
# (upper end, code below it), ends rising to inf; NaN falls to the last
Pieces = Sequence[tuple[float, Code[Value]]]
Choose = Callable[[ScalarEmitter[Value], Value, Pieces[Value]], Value]


def by_selecting(e: ScalarEmitter[Value], x: Value, pieces: Pieces[Value]) -> Value:
    """Compute every piece and choose: what generated code does, where lanes of a vector cannot part."""
    out = pieces[-1][1](e, x)
    for end, code in reversed(pieces[:-1]):
        out = e.select(e.lt(x, end), code(e, x), out)
    return out


def by_masking(e: ScalarEmitter[Array], x: Array, pieces: Pieces[Array]) -> Array:
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


def kernel(code: Callable[..., Array]) -> Callable[[Array], Array]:
    """A reference kernel from scalar code that takes ``choose=``."""

    def eval(x: Array) -> Array:
        flat = np.ravel(x)
        with np.errstate(all="ignore"):
            blocks = [
                code(NUMPY, flat[i : i + _BLOCK], choose=by_masking) for i in range(0, flat.size, _BLOCK)
            ]
        return np.concatenate(blocks).reshape(x.shape) if blocks else np.empty_like(x)

    return eval


NUMPY: ScalarEmitter[Array] = NumpyEmitter()
