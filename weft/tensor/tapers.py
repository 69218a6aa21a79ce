"""Windows that fade pieces of a signal in and out, for ``weft.stft`` and filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.device import DeviceLike
from weft.base.dtypes import DEFAULT_INT, DType, DTypeLike, default_float, float64, kind
from weft.base.public import public
from weft.base.size_bounds import surely_less
from weft.base.sizes import Size
from weft.errors import DomainError, DtypeError
from weft.ops.op import Array
from weft.ops.select import cast, select
from weft.ops.size import size_value
from weft.tensor.convert import integer
from weft.tensor.creation import as_leaf, made, target_dtype
from weft.tensor.ranges import way
from weft.tensor.tensor import Tensor


def _made(op: str, length: int, periodic: bool, shape: Callable[[Any], Any], rest: tuple[Any, ...]) -> Tensor:
    """A window whose values are a function of the part of the way, from 0 to 1."""
    dtype, device, requires_grad = rest
    count = length if isinstance(length, Size) else integer(op, "length", length)
    target = target_dtype(dtype, default_float())
    if surely_less(count, 0):
        raise DomainError(op, f"length must not be negative, got {count}")
    if kind(target) != "f":
        raise DtypeError(op, f"dtype must be floating, got {target.name}")
    if isinstance(count, Size):
        values = shape(way(count, endpoint=not periodic))
        alone = size_value(count, DEFAULT_INT) == 1
        return as_leaf(cast(select(alone, np.ones((), float64), values), dtype=target), requires_grad)

    def make(sizes: tuple[int, ...], dtype: DType) -> Array:
        (n,) = sizes
        way = np.arange(n) / (n if periodic else max(n - 1, 1))
        return np.asarray(shape(way) if n != 1 else np.ones(1)).astype(dtype)

    return made(op, make, (count,), target, requires_grad=requires_grad, device=device)


@public
def hann_window(
    length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A raised cosine; ``periodic`` leaves out the last 0, as a transform wants it.

    >>> import weft
    >>> weft.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    rest = (dtype, device, requires_grad)
    return _made("hann_window", length, periodic, lambda t: 0.5 - 0.5 * np.cos(2 * np.pi * t), rest)


@public
def hamming_window(
    length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """``alpha - beta * cos``: a raised cosine that does not reach 0.

    >>> import weft
    >>> weft.hamming_window(4)
    tensor([0.0800, 0.5400, 1.0000, 0.5400])
    """
    rest = (dtype, device, requires_grad)
    return _made("hamming_window", length, periodic, lambda t: alpha - beta * np.cos(2 * np.pi * t), rest)


@public
def blackman_window(
    length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Two cosines, whose side lobes are lower than those of one.

    >>> import weft
    >>> weft.blackman_window(4)[1:]
    tensor([0.3400, 1.0000, 0.3400])
    """

    def shape(t: Array) -> Array:
        return 0.42 - 0.5 * np.cos(2 * np.pi * t) + 0.08 * np.cos(4 * np.pi * t)

    return _made("blackman_window", length, periodic, shape, (dtype, device, requires_grad))


@public
def bartlett_window(
    length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A triangle.

    >>> import weft
    >>> weft.bartlett_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    rest = (dtype, device, requires_grad)
    return _made("bartlett_window", length, periodic, lambda t: 1 - np.abs(2 * t - 1), rest)


@public
def kaiser_window(
    length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Kaiser's window of Bessel functions; a larger ``beta`` makes it narrower, and its side lobes lower.

    >>> import weft
    >>> weft.kaiser_window(3, periodic=False, beta=0.0)
    tensor([1., 1., 1.])
    """

    def shape(t: Array) -> Array:
        return np.i0(beta * np.sqrt(np.maximum(1 - (2 * t - 1) ** 2, 0))) / np.i0(beta)

    count = integer("kaiser_window", "length", length)  # known: no op computes Bessel functions
    return _made("kaiser_window", count, periodic, shape, (dtype, device, requires_grad))
