"""Fourier transforms: the ``fft`` extension of the array API standard, and those of two axes.

>>> import weft
>>> x = weft.tensor([1.0, 2.0, 3.0, 4.0])
>>> weft.fft.irfft(weft.fft.rfft(x))
tensor([1., 2., 3., 4.])
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from weft.base.dtypes import as_dtype, default_float, kind
from weft.base.public import public
from weft.errors import ArgumentError, DomainError, DtypeError
from weft.ops.fft import (
    fft,
    fft2,
    fftn,
    fftshift,
    hfft,
    ifft,
    ifft2,
    ifftn,
    ifftshift,
    ihfft,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftn,
)
from weft.tensor.moving import moved
from weft.tensor.tensor import Tensor, wrap

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]


@public
def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of ``fft`` of n samples that are d apart: first those from 0 on, then the negative.

    >>> import weft
    >>> weft.fft.fftfreq(4, d=0.5)
    tensor([ 0.0000,  0.5000, -1.0000, -0.5000])
    """
    count = _count("fftfreq", n)
    numbers = np.fft.ifftshift(np.arange(-(count // 2), (count + 1) // 2))
    return _frequencies("fftfreq", numbers, count, d, dtype, device)


@public
def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of ``rfft`` of n samples that are d apart.

    >>> import weft
    >>> weft.fft.rfftfreq(4, d=0.5)
    tensor([0.0000, 0.5000, 1.0000])
    """
    count = _count("rfftfreq", n)
    return _frequencies("rfftfreq", np.arange(count // 2 + 1), count, d, dtype, device)


def _count(op: str, n: Any) -> int:
    try:
        count = operator.index(n)
    except TypeError:
        raise ArgumentError(op, f"n must be an int, got {n!r}") from None
    if count < 1:
        raise DomainError(op, f"n must be at least 1, got {count}")
    return count


def _frequencies(op: str, numbers: Any, n: int, d: float, dtype: Any, device: Any) -> Tensor:
    resolved = default_float() if dtype is None else as_dtype(dtype)
    if kind(resolved) != "f":
        raise DtypeError(op, f"dtype must be floating, got {resolved.name}")
    if d == 0:
        raise DomainError(op, "the distance d must not be 0")
    out: Tensor = moved(wrap((numbers / (n * d)).astype(resolved)), device)
    return out
