"""Random numbers of a few standard distributions, as functions of random bits and other ops.

Written in ops, so that eager, compiled, CPU and GPU draw the same numbers from the same key. Parameters,
defaults and checks for users are in ``weft.tensor.random``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import pi

import numpy as np

from weft.base.dtypes import DType, bfloat16, float16, float32, float64, uint8, uint16, uint32, uint64
from weft.base.shapes import Shape, size_of
from weft.ops.arithmetic import add, mul, neg
from weft.ops.compare import bitwise_and, right_shift
from weft.ops.exponential import log, log1p, sqrt
from weft.ops.op import Sample, Tensor, composite
from weft.ops.random import random_bits
from weft.ops.select import cast
from weft.ops.trigonometric import cos, sin
from weft.ops.view.primitives import join, reshape
from weft.ops.view.slices import slice_axis

# A float dtype to the integers it is drawn from, and the bits of its significand
_UNIFORM = {float64: (uint64, 53), float32: (uint32, 24), float16: (uint16, 11), bfloat16: (uint8, 8)}
_LOW_HALF = 2**32 - 1


def _samples(*dtypes: DType) -> Callable[[], Iterable[Sample]]:
    def generate() -> Iterable[Sample]:
        key = np.array([5, 2**63 + 1], np.uint64)
        yield from (Sample((key,), {"shape": (3, 5), "dtype": dtype}) for dtype in dtypes)
        yield Sample((key,), {"shape": (), "dtype": float64})
        yield Sample((key,), {"shape": (0, 3), "dtype": float32})

    return generate


def _wide(dtype: DType) -> DType:
    """The dtype in which numbers of a dtype are computed."""
    return float64 if dtype == float64 else float32


@composite("random_uniform", samples=_samples(float64, float32, float16, bfloat16))
def uniform(key: Tensor, *, shape: Shape, dtype: DType) -> Tensor:
    """Uniform on [0, 1), in equal steps: 53 random bits in float64, 24 in float32."""
    integers, kept = _UNIFORM[dtype]
    bits = random_bits(key, shape=shape, dtype=integers)
    dropped = 8 * integers.itemsize - kept
    return mul(cast(right_shift(bits, dropped) if dropped else bits, dtype=dtype), 2.0**-kept)


def _positive(bits: Tensor, dtype: DType) -> Tensor:
    """Uniform on (0, 1] from all bits: finest near 0, where a logarithm needs it; float32 or float64."""
    return mul(add(cast(bits, dtype=dtype), 1.0), 2.0 ** (-8 * bits.dtype.itemsize))


def positive(key: Tensor, *, shape: Shape, dtype: DType) -> Tensor:
    """Uniform on (0, 1], finest near 0; float32 or float64."""
    return _positive(random_bits(key, shape=shape, dtype=_UNIFORM[dtype][0]), dtype)


def _as(dtype: DType, x: Tensor) -> Tensor:
    return x if x.dtype == dtype else cast(x, dtype=dtype)


@composite("random_normal", samples=_samples(float64, float32, float16, bfloat16))
def normal(key: Tensor, *, shape: Shape, dtype: DType) -> Tensor:
    """Normal with mean 0 and standard deviation 1, by the transform of G. Box and M. Muller, 1958.

    In float64 whatever the dtype: rounded from there, draws are the same by any library's log and cos.
    """
    wide = _wide(dtype)
    count = size_of(shape)
    half = (count + 1) // 2
    bits = random_bits(key, shape=(2 * half,), dtype=_UNIFORM[wide][0])
    first, second = (
        _as(float64, _positive(slice_axis(bits, 0, start, start + half), wide)) for start in (0, half)
    )
    radius, angle = sqrt(mul(log(first), -2.0)), mul(second, 2.0 * pi)
    pairs = join(mul(radius, cos(angle)), mul(radius, sin(angle)), axis=0)
    return _as(dtype, reshape(slice_axis(pairs, 0, 0, count), shape=shape))


@composite("random_exponential", samples=_samples(float64, float32, float16))
def exponential(key: Tensor, *, shape: Shape, dtype: DType) -> Tensor:
    """Exponential with rate 1."""
    drawn = neg(log(positive(key, shape=shape, dtype=_wide(dtype))))
    return _as(dtype, drawn)


@composite("random_gumbel", samples=_samples(float64, float32))
def gumbel(key: Tensor, *, shape: Shape, dtype: DType) -> Tensor:
    """Gumbel with location 0 and scale 1; the greatest of these plus logits is a draw from their softmax."""
    drawn = neg(log(neg(log1p(neg(positive(key, shape=shape, dtype=_wide(dtype)))))))
    return _as(dtype, drawn)


def _integer_samples() -> Iterable[Sample]:
    key = np.array([5, 2**63 + 1], np.uint64)
    for low, span in ((0, 10), (-3, 1), (-(2**63), 2**64), (-(2**63), 3 * 2**62), (7, 2**32 + 1)):
        yield Sample((key,), {"low": low, "span": span, "shape": (2, 3), "dtype": np.dtype(np.int64)})
    yield Sample((key,), {"low": 250, "span": 6, "shape": (9,), "dtype": uint8})


@composite("random_integers", samples=_integer_samples)
def integers(key: Tensor, *, low: int, span: int, shape: Shape, dtype: DType) -> Tensor:
    """Integers in [low, low + span), each with a probability within 2**-64 of 1 / span."""
    words = random_bits(key, shape=shape, dtype=uint64)
    if span < 2**64:
        words = _multiply_high(words, span)
    return cast(add(words, low % 2**64) if low else words, dtype=dtype)


def _multiply_high(words: Tensor, factor: int) -> Tensor:
    """The high word of ``words * factor``, in 64-bit arithmetic: products of halves, as on paper."""
    low, high = bitwise_and(words, _LOW_HALF), right_shift(words, 32)
    factor_low, factor_high = factor & _LOW_HALF, factor >> 32
    middle = add(mul(high, factor_low), right_shift(mul(low, factor_low), 32))
    if factor_high == 0:
        return right_shift(middle, 32)
    other = add(mul(low, factor_high), bitwise_and(middle, _LOW_HALF))
    return add(add(mul(high, factor_high), right_shift(middle, 32)), right_shift(other, 32))
