"""Comparison, logic and bits: results that are truth values or patterns, so without gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import kind
from weft.ops.families import elementwise
from weft.ops.op import Op, Sample, no_gradient
from weft.ops.public import Public
from weft.ops.samples import booleans, complex_array, int_array, integers, joined, reals
from weft.ops.scalar import ScalarEmitter, Value, is_nan, sign_bit

_TRUTH = no_gradient("returns a truth value")
_BITS = no_gradient("works on bits")


def _complex_pair() -> list[Sample]:
    x = complex_array((3,))
    return [Sample((x, np.where([True, False, True], x, 0)))]


def _comparison(
    name: str,
    ufunc: np.ufunc,
    scalar: Callable[..., Any],
    accepts: str = "biuf",
    commutative: str = "bits",
    *,
    public: Public,
) -> Op:
    samples = joined(reals(2), integers(2), booleans(2), *([_complex_pair] if "c" in accepts else []))
    return elementwise(
        name,
        eval=ufunc,
        partials=_TRUTH,
        accepts=accepts,
        result="bool",
        samples=samples,
        scalar=scalar,
        commutative=commutative,
        public=public,
    )


equal = _comparison(
    "equal",
    np.equal,
    lambda e, x, y: e.eq(x, y),
    "biufc",
    public=Public("Whether x1 == x2.", "[1.0, 2.0], [1.0, 3.0] -> [ True, False]", names=("equal", "eq")),
)
not_equal = _comparison(
    "not_equal",
    np.not_equal,
    lambda e, x, y: e.not_(e.eq(x, y)),
    "biufc",
    public=Public("Whether x1 != x2.", "[1.0, 2.0], [1.0, 3.0] -> [False,  True]", names=("not_equal", "ne")),
)
less = _comparison(
    "less",
    np.less,
    lambda e, x, y: e.lt(x, y),
    commutative="",
    public=Public("Whether x1 < x2.", "[1.0, 2.0], [1.0, 3.0] -> [False,  True]", names=("less", "lt")),
)
less_equal = _comparison(
    "less_equal",
    np.less_equal,
    lambda e, x, y: e.le(x, y),
    commutative="",
    public=Public(
        "Whether x1 <= x2.", "[1.0, 2.0], [1.0, 1.0] -> [ True, False]", names=("less_equal", "le")
    ),
)
greater = _comparison(
    "greater",
    np.greater,
    lambda e, x, y: e.lt(y, x),
    commutative="",
    public=Public("Whether x1 > x2.", "[1.0, 2.0], [1.0, 1.0] -> [False,  True]", names=("greater", "gt")),
)
greater_equal = _comparison(
    "greater_equal",
    np.greater_equal,
    lambda e, x, y: e.le(y, x),
    commutative="",
    public=Public(
        "Whether x1 >= x2.", "[1.0, 2.0], [1.0, 3.0] -> [ True, False]", names=("greater_equal", "ge")
    ),
)


def _truth(e: ScalarEmitter[Value], x: Value) -> Value:
    return x if kind(e.dtype(x)) == "b" else e.not_(e.eq(x, 0))


logical_and = _comparison(
    "logical_and",
    np.logical_and,
    lambda e, x, y: e.and_(_truth(e, x), _truth(e, y)),
    "biufc",
    public=Public(
        "Whether both are true; a number is true if it is not 0.",
        "[True, True], [True, False] -> [ True, False]",
    ),
)
logical_or = _comparison(
    "logical_or",
    np.logical_or,
    lambda e, x, y: e.or_(_truth(e, x), _truth(e, y)),
    "biufc",
    public=Public(
        "Whether either is true; a number is true if it is not 0.",
        "[True, False], [False, False] -> [ True, False]",
    ),
)
logical_xor = _comparison(
    "logical_xor",
    np.logical_xor,
    lambda e, x, y: e.xor(_truth(e, x), _truth(e, y)),
    "biufc",
    public=Public(
        "Whether just one is true; a number is true if it is not 0.",
        "[True, True], [True, False] -> [False,  True]",
    ),
)


def _predicate(
    name: str, ufunc: np.ufunc, scalar: Callable[..., Any], accepts: str = "biufc", *, public: Public
) -> Op:
    parts = [reals(1, complex="c" in accepts)]
    if "i" in accepts:
        parts += [integers(1), booleans(1)]
    return elementwise(
        name,
        eval=ufunc,
        partials=_TRUTH,
        accepts=accepts,
        result="bool",
        samples=joined(*parts),
        scalar=scalar,
        public=public,
    )


def _parts(e: ScalarEmitter[Value], x: Value) -> list[Value]:
    """The real numbers that make up x, none for one that is always finite."""
    letter = kind(e.dtype(x))
    return [e.real(x), e.imag(x)] if letter == "c" else [x] if letter == "f" else []


def _any_part(e: ScalarEmitter[Value], x: Value, test: Callable[[Value], Value]) -> Value:
    out = e.constant(False, np.dtype(bool))
    for part in _parts(e, x):
        out = e.or_(test(part), out)
    return out if _parts(e, x) else e.not_(e.eq(x, x))


logical_not = _predicate(
    "logical_not",
    np.logical_not,
    lambda e, x: e.not_(_truth(e, x)),
    public=Public("Whether x is false; a number is false if it is 0.", "[True, False] -> [False,  True]"),
)
isnan = _predicate(
    "isnan",
    np.isnan,
    lambda e, x: _any_part(e, x, lambda p: is_nan(e, p)),
    public=Public("Whether x is NaN.", '[1.0, float("nan")] -> [False,  True]'),
)
isinf = _predicate(
    "isinf",
    np.isinf,
    lambda e, x: _any_part(e, x, lambda p: e.eq(e.abs(p), np.inf)),
    public=Public("Whether x is infinite.", '[1.0, float("inf")] -> [False,  True]'),
)
isfinite = _predicate(
    "isfinite",
    np.isfinite,
    lambda e, x: e.not_(_any_part(e, x, lambda p: e.not_(e.lt(e.abs(p), np.inf)))),
    public=Public("Whether x is neither infinite nor NaN.", '[1.0, float("inf")] -> [ True, False]'),
)
signbit = _predicate(
    "signbit",
    np.signbit,
    sign_bit,
    "f",
    public=Public("Whether the sign bit is set, of -0.0 too.", "[-1.0, 0.0, -0.0] -> [ True, False,  True]"),
)

# Bits


def _bitwise(name: str, ufunc: np.ufunc, scalar: Callable[..., Any], *, public: Public) -> Op:
    samples = joined(integers(ufunc.nin), booleans(ufunc.nin))
    return elementwise(
        name,
        eval=ufunc,
        partials=_BITS,
        accepts="biu",
        samples=samples,
        scalar=scalar,
        commutative="bits" if ufunc.nin == 2 else "",
        public=public,
    )


def _shift_samples() -> list[Sample]:
    return [
        Sample((int_array((3, 4)), int_array((3, 4), 0, 8, seed=1))),
        Sample((int_array((4,), dtype="int8"), int_array((4,), 0, 12, seed=1, dtype="int8"))),
        Sample((int_array((2, 1), 0, 200, dtype="uint8"), int_array((3,), 0, 9, seed=1, dtype="uint8"))),
        Sample((np.array([255, 200, 1], np.uint8), np.array([8, 200, 255], np.uint8))),
    ]


def _shift_code(
    e: ScalarEmitter[Value], instruction: Callable[..., Value], x: Value, y: Value, beyond: Value
) -> Value:
    """A shift with a value for distances the instruction does not define."""
    last = e.dtype(x).itemsize * 8 - 1
    near = e.and_(e.le(0, y), e.le(y, last))
    return e.select(near, instruction(x, e.select(near, y, 0)), beyond)


def _right_shift_code(e: ScalarEmitter[Value], x: Value, y: Value) -> Value:
    """Beyond all bits there is the sign, and nothing without one."""
    dtype = e.dtype(x)
    beyond = e.constant(0, dtype) if kind(dtype) == "u" else e.shr(x, dtype.itemsize * 8 - 1)
    return _shift_code(e, e.shr, x, y, beyond)


bitwise_and = _bitwise(
    "bitwise_and",
    np.bitwise_and,
    lambda e, x, y: e.and_(x, y),
    public=Public("The bits set in both.", "[6, 5], [3, 3] -> [2, 1]"),
)
bitwise_or = _bitwise(
    "bitwise_or",
    np.bitwise_or,
    lambda e, x, y: e.or_(x, y),
    public=Public("The bits set in either.", "[6, 5], [3, 3] -> [7, 7]"),
)
bitwise_xor = _bitwise(
    "bitwise_xor",
    np.bitwise_xor,
    lambda e, x, y: e.xor(x, y),
    public=Public("The bits set in just one.", "[6, 5], [3, 3] -> [5, 6]"),
)
bitwise_invert = _bitwise(
    "bitwise_invert",
    np.invert,
    lambda e, x: e.not_(x),
    public=Public(
        "Each bit flipped; of bools, not.",
        "[6, -1] -> [-7,  0]",
        names=("bitwise_invert", "bitwise_not", "invert"),
    ),
)
left_shift = elementwise(
    "left_shift",
    public=Public(
        "The bits of x1 shifted left by x2 places.",
        "[1, 3], [2, 4] -> [ 4, 48]",
        names=("bitwise_left_shift", "left_shift"),
    ),
    eval=np.left_shift,
    partials=_BITS,
    accepts="iu",
    samples=_shift_samples,
    scalar=lambda e, x, y: _shift_code(e, e.shl, x, y, 0),
)
right_shift = elementwise(
    "right_shift",
    public=Public(
        "The bits of x1 shifted right by x2 places, keeping the sign.",
        "[16, -16], [2, 2] -> [ 4, -4]",
        names=("bitwise_right_shift", "right_shift"),
    ),
    eval=np.right_shift,
    partials=_BITS,
    accepts="iu",
    samples=_shift_samples,
    scalar=_right_shift_code,
)
