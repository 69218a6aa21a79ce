"""Inputs for the generated tests, declared beside each op.

A generator is called by the tests only, so importing weft makes no arrays. The edges come by default:
empty, 0-d, non-contiguous, broadcast, zero, infinite and very large values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from weft.base.dtypes import as_dtype
from weft.ops.op import Array, Sample, Samples

_EDGES = (0.0, -0.0, 1.0, -1.0, 1e30, -1e30, 1e-30, np.inf, -np.inf, np.nan)


def rng(seed: int = 0) -> np.random.Generator:
    """A generator of random numbers for samples, always the same."""
    return np.random.default_rng(seed)


def real_array(shape: Sequence[int], low: float = -2.0, high: float = 2.0, seed: int = 0) -> Array:
    """A float64 array of distinct values in [low, high], none of them within 1e-3 of an integer."""
    values = rng(seed).uniform(low, high, tuple(shape))
    near = np.abs(values - np.round(values)) < 1e-3
    out: Array = np.where(near, np.clip(values + 5e-3, low, high), values)
    return out


def large_half(size: int, dtype: str, low: float = -200.0, high: float = 200.0) -> Array:
    """A vector of half precision, long and large enough that its sums and squares do not fit the dtype."""
    out: Array = real_array((size,), low, high).astype(as_dtype(dtype))
    return out


def complex_array(shape: Sequence[int], low: float = -2.0, high: float = 2.0, seed: int = 0) -> Array:
    """A complex128 array with real and imaginary parts in [low, high]."""
    return real_array(shape, low, high, seed) + 1j * real_array(shape, low, high, seed + 100)


def like_array(x: Array, shape: Sequence[int], seed: int = 0) -> Array:
    """A real or complex array, as x is, of its dtype."""
    make = complex_array if x.dtype.kind == "c" else real_array
    return make(shape, seed=seed).astype(x.dtype)


def int_array(
    shape: Sequence[int], low: int = -5, high: int = 6, seed: int = 0, dtype: str = "int64"
) -> Array:
    """An integer array with values in [low, high)."""
    out: Array = rng(seed).integers(low, high, tuple(shape)).astype(dtype)
    return out


def reals(
    arity: int, low: float = -2.0, high: float = 2.0, *, edges: bool = True, complex: bool = False
) -> Samples:
    """Samples of an elementwise op of ``arity`` inputs whose derivative exists on (low, high)."""

    def generate() -> Iterable[Sample]:
        def arrays(*shapes: Sequence[int]) -> tuple[Array, ...]:
            return tuple(real_array(s, low, high, seed=i) for i, s in enumerate(shapes))

        yield Sample(arrays(*[(3, 4)] * arity))
        yield Sample(arrays(*[()] * arity))
        yield Sample(arrays(*[(0, 3)] * arity))
        yield Sample(tuple(a.T for a in arrays(*[(4, 3)] * arity)))
        yield Sample(tuple(a.astype(np.float32) for a in arrays(*[(5,)] * arity)), smooth=False)
        if arity > 1:
            yield Sample(arrays(*[(2, 1, 4), (3, 1), (4,)][:arity]))
        if complex:
            yield Sample(tuple(complex_array((3,), low, high, seed=i) for i in range(arity)))
        if edges:
            grid = np.meshgrid(*[np.array(_EDGES)] * arity)
            yield Sample(tuple(g.ravel() for g in grid), smooth=False)

    return generate


def call(*shapes: Sequence[int], **attrs: object) -> Samples:
    """One sample: of real arrays of these shapes, with these attributes."""
    return lambda: [Sample(tuple(real_array(s, seed=i) for i, s in enumerate(shapes)), attrs)]


def joined(*parts: Samples) -> Samples:
    """Samples of several generators."""
    return lambda: [sample for part in parts for sample in part()]


def integers(arity: int, low: int = -5, high: int = 6) -> Samples:
    """Integer samples of an elementwise op: signed with both signs, unsigned, and broadcast."""

    def generate() -> Iterable[Sample]:
        yield Sample(tuple(int_array((3, 4), low, high, i) for i in range(arity)))
        yield Sample(tuple(int_array((4,), low, high, i, "int8") for i in range(arity)))
        yield Sample(tuple(int_array((3,), max(low, 0), high, i, "uint16") for i in range(arity)))
        yield Sample(tuple(int_array(s, low, high, dtype="int32") for s in [(2, 1), (3,), ()][:arity]))

    return generate


def booleans(arity: int) -> Samples:
    """All combinations of truth values."""

    def generate() -> Iterable[Sample]:
        grid = np.meshgrid(*[np.array([False, True])] * arity)
        yield Sample(tuple(g.ravel() for g in grid))

    return generate
