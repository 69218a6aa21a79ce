"""Numbers that describe tensors, under the names people know: norms, distances, pairs of statistics."""

from __future__ import annotations

from typing import Any

from weft.base.dtypes import DTypeLike
from weft.base.public import public
from weft.base.records import NamedTuple
from weft.base.shapes import Axes
from weft.errors import ArgumentError
from weft.ops import statistics
from weft.ops.arithmetic import mul, pow, sub
from weft.ops.compare import equal, greater
from weft.ops.linalg.determinants import slogdet
from weft.ops.linalg.norms import matrix_norm
from weft.ops.linalg.products import multi_dot
from weft.ops.op import Operand
from weft.ops.reduce import amax, amin
from weft.ops.rounding import trunc
from weft.ops.select import same_dtype, where
from weft.ops.vector_norm import vector_norm
from weft.tensor.ranges import linspace
from weft.tensor.tensor import Tensor

_DEGREE = 0.017453292519943295


class Spread(NamedTuple):
    """A variance or standard deviation, and the mean."""

    spread: Tensor
    mean: Tensor


class Extremes(NamedTuple):
    """The smallest and the largest element."""

    min: Tensor
    max: Tensor


@public
def norm(x: Tensor, /, ord: float | str = 2, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The norm of the elements as a vector, over axes or all of them; "fro" is 2, "nuc" that of a matrix.

    >>> import weft
    >>> weft.norm(weft.tensor([3.0, 4.0]))
    tensor(5.)
    """
    if ord == "nuc":
        return matrix_norm(x, keepdims=keepdims, ord="nuc")
    if isinstance(ord, str) and ord != "fro":
        raise ArgumentError("norm", f"ord must be a number, 'fro' or 'nuc', got {ord!r}")
    return vector_norm(x, axis=axis, keepdims=keepdims, ord=2 if isinstance(ord, str) else ord)


@public
def dist(x1: Tensor, x2: Tensor, /, p: float = 2) -> Tensor:
    """The norm of the difference of two tensors.

    >>> import weft
    >>> weft.dist(weft.tensor([1.0, 2.0]), weft.tensor([4.0, 6.0]))
    tensor(5.)
    """
    return vector_norm(sub(x1, x2), ord=p)


def _pair(function: Any, x: Tensor, axis: Axes, correction: float, keepdims: bool) -> Spread:
    spread = function(x, axis=axis, correction=correction, keepdims=keepdims)
    return Spread(spread, statistics.mean(x, axis=axis, keepdims=keepdims))


@public
def var_mean(x: Tensor, /, axis: Axes = None, *, correction: float = 1, keepdims: bool = False) -> Spread:
    """The variance of a sample, and the mean; squares are divided by their number less ``correction``.

    >>> import weft
    >>> weft.var_mean(weft.tensor([1.0, 3.0]))
    Spread(spread=tensor(2.), mean=tensor(2.))
    """
    return _pair(statistics.var, x, axis, correction, keepdims)


@public
def std_mean(x: Tensor, /, axis: Axes = None, *, correction: float = 1, keepdims: bool = False) -> Spread:
    """The standard deviation of a sample, and the mean.

    >>> import weft
    >>> weft.std_mean(weft.tensor([1.0, 3.0]))
    Spread(spread=tensor(1.4142), mean=tensor(2.))
    """
    return _pair(statistics.std, x, axis, correction, keepdims)


@public
def aminmax(x: Tensor, /, axis: Axes = None, *, keepdims: bool = False) -> Extremes:
    """The smallest and the largest element over axes.

    >>> import weft
    >>> weft.aminmax(weft.tensor([3, 1, 2]))
    Extremes(min=tensor(1), max=tensor(3))
    """
    return Extremes(amin(x, axis=axis, keepdims=keepdims), amax(x, axis=axis, keepdims=keepdims))


@public
def frac(x: Tensor, /) -> Tensor:
    """What is behind the point, with the sign of x.

    >>> import weft
    >>> weft.frac(weft.tensor([1.5, -1.25]))
    tensor([ 0.5000, -0.2500])
    """
    out: Tensor = sub(x, trunc(x))
    return out


@public
def deg2rad(x: Tensor, /) -> Tensor:
    """Degrees as radians.

    >>> import weft
    >>> weft.deg2rad(weft.tensor([180.0]))
    tensor([3.1416])
    """
    out: Tensor = mul(statistics.as_floating(x), _DEGREE)
    return out


@public
def rad2deg(x: Tensor, /) -> Tensor:
    """Radians as degrees.

    >>> import weft
    >>> weft.rad2deg(weft.tensor([3.141592653589793]))
    tensor([180.])
    """
    out: Tensor = mul(statistics.as_floating(x), 1 / _DEGREE)
    return out


@public
def heaviside(x1: Tensor, x2: Operand, /) -> Tensor:
    """0 where ``x1`` is negative, 1 where it is positive, and ``x2`` where it is 0.

    >>> import weft
    >>> weft.heaviside(weft.tensor([-1.0, 0.0, 2.0]), 0.5)
    tensor([0.0000, 0.5000, 1.0000])
    """
    x1, x2 = same_dtype("heaviside", x1, x2)
    return where(equal(x1, 0), x2, greater(x1, 0).astype(x1.dtype))


@public
def logspace(
    start: float, stop: float, num: int = 100, base: float = 10.0, *, dtype: DTypeLike | None = None
) -> Tensor:
    """Powers of a base whose exponents are evenly spaced.

    >>> import weft
    >>> weft.logspace(0, 2, 3)
    tensor([  1.,  10., 100.])
    """
    out: Tensor = pow(base, linspace(start, stop, num, dtype=dtype))
    return out


@public
def logdet(x: Tensor, /) -> Tensor:
    """The logarithm of the determinant of matrices; NaN where that is negative.

    >>> import weft
    >>> weft.logdet(weft.tensor([[2.0, 0.0], [0.0, 3.0]]))
    tensor(1.7918)
    """
    sign, size = slogdet(x)
    return where(greater(sign, 0), size, where(equal(sign, 0), -float("inf"), float("nan")))


@public
def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of several matrices, in the order that takes the least work.

    >>> import weft
    >>> weft.chain_matmul(weft.eye(2), weft.tensor([[1.0, 2.0], [3.0, 4.0]])).shape
    (2, 2)
    """
    return multi_dot(list(matrices))


@public
def clone(x: Tensor, /) -> Tensor:
    """A copy that the graph knows of: gradients flow through it.

    >>> import weft
    >>> weft.clone(weft.tensor([1, 2]))
    tensor([1, 2])
    """
    return x.clone()
