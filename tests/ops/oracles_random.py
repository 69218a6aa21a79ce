"""Oracles of random ops: the generator on Python integers, distributions in NumPy and SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from weft.base import philox


def parts(key: Any, shape: Any, bits: int) -> Any:
    """Random integers of a key, as Python integers in an array of objects."""
    drawn = philox.random_parts((int(key[0]), int(key[1])), int(np.prod(shape)), bits)
    return np.array(drawn, object).reshape(shape)


def _bits(key: Any, *, shape: Any, dtype: Any) -> Any:
    drawn = [parts(k, shape, 8 * dtype.itemsize).astype(dtype) for k in key.reshape(-1, 2)]
    return np.array(drawn, dtype).reshape((*key.shape[:-1], *shape))


def _derive(key: Any, data: Any, *, purpose: int) -> Any:
    shape = np.broadcast_shapes(key.shape[:-1], data.shape)
    out = np.empty((*shape, 2), np.uint64)
    for index in np.ndindex(shape):
        k = np.broadcast_to(key, (*shape, 2))[index]
        n = np.broadcast_to(data, shape)[index]
        out[index] = philox.derive_key((int(k[0]), int(k[1])), int(n), purpose)
    return out


_SIGNIFICANDS = {"float64": (64, 53), "float32": (32, 24), "float16": (16, 11), "bfloat16": (8, 8)}


def _uniform(key: Any, *, shape: Any, dtype: Any) -> Any:
    bits, kept = {"float64": (64, 53), "float32": (32, 24), "float16": (16, 11), "bfloat16": (8, 8)}[
        dtype.name
    ]
    return np.array(parts(key, shape, bits) // 2 ** (bits - kept), np.float64) / 2**kept


def _positive(key: Any, shape: Any, dtype: Any) -> Any:
    bits = 64 if dtype.name == "float64" else 32
    return (parts(key, shape, bits).astype(np.float64) + 1) / 2**bits


def _normal(key: Any, *, shape: Any, dtype: Any) -> Any:
    count = int(np.prod(shape))
    half = (count + 1) // 2
    u, v = _positive(key, (2, half), dtype)
    z = np.sqrt(-2 * np.log(u)) * np.exp(2j * np.pi * v)
    return np.concatenate([z.real, z.imag])[:count].reshape(shape).astype(dtype).astype(np.float64)


def _exponential(key: Any, *, shape: Any, dtype: Any) -> Any:
    return (-np.log(_positive(key, shape, dtype))).astype(dtype).astype(np.float64)


def _gumbel(key: Any, *, shape: Any, dtype: Any) -> Any:
    return -np.log(-np.log1p(-_positive(key, shape, dtype)))


def _integers(key: Any, *, low: int, span: int, shape: Any, dtype: Any) -> Any:
    return np.array(low + parts(key, shape, 64) * span // 2**64, dtype)


ORACLES: dict[str, Callable[..., Any]] = {
    "random_bits": _bits,
    "derive_key": _derive,
    "random_uniform": _uniform,
    "random_normal": _normal,
    "random_exponential": _exponential,
    "random_gumbel": _gumbel,
    "random_integers": _integers,
    "normal_quantile": scipy.special.ndtri,
}
