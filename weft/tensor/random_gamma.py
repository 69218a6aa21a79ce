"""Random numbers that come of the gamma distribution, public in ``weft.random``, with gradients by its shape.

Drawn in float64 and as logarithms, whatever the dtype: draws of small shapes are too small for floats, and
which try is taken must not depend on how a library rounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import DType, DTypeLike, float64
from weft.base.public import public
from weft.base.shapes import ShapeLike, normalize_shape
from weft.errors import DomainError, ShapeError
from weft.ops import distribution
from weft.ops.arithmetic import maximum, minimum
from weft.ops.exponential import exp, log, sigmoid, sqrt
from weft.ops.gamma_path import gamma_path
from weft.ops.index_axis import take_along_axis
from weft.ops.op import type_of
from weft.ops.reduce import argmax
from weft.ops.select import cast, select
from weft.ops.softmax import softmax
from weft.ops.stop import stop_gradient
from weft.ops.view.axes import squeeze
from weft.tensor.namespace import finfo
from weft.tensor.random import as_key, drawn_shape, float_dtype, parameter, split
from weft.tensor.tensor import Tensor, wrap

_TRIES = 8  # each is taken with a probability of at least 0.95; where none is, the first stands


def _log_draws(key: Tensor, a: Any, shape: tuple[int, ...]) -> Any:
    """Logarithms of draws, after G. Marsaglia, W. Tsang, ACM Trans. Math. Softw. 26(3), 2000.

    They draw for shapes of 1 or more; a power of a uniform number makes a draw of a + 1 one of a.
    """
    keys = split(key, 3)
    fixed = stop_gradient(a)
    small = fixed < 1.0
    d = select(small, fixed + 1.0, fixed) - 1 / 3
    n = distribution.normal(keys[0], shape=(_TRIES, *shape), dtype=float64)
    root = n / sqrt(d * 9.0) + 1.0
    v = select(root > 0.0, root * root * root, 1.0)
    bound = n * n * 0.5 + d - d * v + d * log(v)
    u = distribution.positive(keys[1], shape=(_TRIES, *shape), dtype=float64)
    taken = (root > 0.0) & (log(u) < bound)
    first = argmax(cast(taken, dtype=np.dtype(np.int8)), axis=0, keepdims=True)
    drawn = log(d * squeeze(take_along_axis(v, first, axis=0), axis=0))
    less = log(distribution.positive(keys[2], shape=shape, dtype=float64)) / fixed
    return gamma_path(select(small, drawn + less, drawn), a)


def _wide(x: Any) -> Any:
    return cast(x, dtype=float64) if isinstance(x, Tensor) else wrap(np.array(x, np.float64))


def _shape_parameter(op: str, name: str, value: object) -> Any:
    found = parameter(op, name, value)
    if isinstance(found, float) and not found > 0:
        raise DomainError(op, f"{name} must be positive, got {found}")
    return found


def _bounded(x: Tensor, dtype: DType, below_one: bool = False) -> Tensor:
    """In a dtype, where it is never 0, nor 1 if that is asked."""
    limits = finfo(dtype)
    x = maximum(x, limits.smallest_normal)
    return cast(minimum(x, 1.0 - limits.eps) if below_one else x, dtype=dtype)


@public
def loggamma(
    key: Tensor, a: Tensor | float, shape: ShapeLike | None = None, dtype: DTypeLike | None = None
) -> Tensor:
    """Logarithms of draws of the gamma distribution of shape a; gradients flow to a.

    They are there where the draws themselves are too small for floats.

    >>> import weft
    >>> bool((weft.random.loggamma(weft.random.key(0), 1e-4, (100,)) < -87.0).any())
    True
    """
    a = _shape_parameter("loggamma", "a", a)
    target, size = float_dtype("loggamma", dtype, a), drawn_shape("loggamma", shape, a)
    return cast(_log_draws(as_key("loggamma", key), _wide(a), size), dtype=target)


@public
def gamma(
    key: Tensor, a: Tensor | float, shape: ShapeLike | None = None, dtype: DTypeLike | None = None
) -> Tensor:
    """Gamma of shape a and scale 1, by implicit reparameterisation: gradients flow to a.

    >>> import weft
    >>> a = weft.tensor(3.0, requires_grad=True)
    >>> weft.random.gamma(weft.random.key(0), a, (4000,)).mean().backward()
    >>> abs(a.grad.item() - 1.0) < 0.05  # the mean is a
    True
    """
    a = _shape_parameter("gamma", "a", a)
    target, size = float_dtype("gamma", dtype, a), drawn_shape("gamma", shape, a)
    return _bounded(exp(_log_draws(as_key("gamma", key), _wide(a), size)), target)


@public
def beta(
    key: Tensor,
    a: Tensor | float,
    b: Tensor | float,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Beta on (0, 1) with the shapes a and b; gradients flow to both.

    >>> import weft
    >>> draws = weft.random.beta(weft.random.key(0), 1.0, 3.0, (4000,))
    >>> abs(draws.mean().item() - 0.25) < 0.02
    True
    """
    a, b = _shape_parameter("beta", "a", a), _shape_parameter("beta", "b", b)
    target, size = float_dtype("beta", dtype, a, b), drawn_shape("beta", shape, a, b)
    keys = split(as_key("beta", key))
    apart = _log_draws(keys[0], _wide(a), size) - _log_draws(keys[1], _wide(b), size)
    return _bounded(sigmoid(apart), target, below_one=True)


@public
def dirichlet(
    key: Tensor, alpha: Tensor, shape: ShapeLike | None = None, dtype: DTypeLike | None = None
) -> Tensor:
    """Dirichlet, parts that sum to 1 along the last axis of the shapes alpha; gradients flow to them.

    Args:
        key: of the draws.
        alpha: the shape of each part, along the last axis.
        shape: of the draws, without the axis of parts; by default that of alpha.
        dtype: of the draws.

    >>> import weft
    >>> draws = weft.random.dirichlet(weft.random.key(0), weft.tensor([1.0, 2.0, 3.0]), (5,))
    >>> draws.shape, bool((abs(draws.sum(axis=-1) - 1) < 1e-6).all())
    ((5, 3), True)
    """
    alpha = _shape_parameter("dirichlet", "alpha", alpha)
    if not isinstance(alpha, Tensor) or alpha.ndim == 0:
        got = type_of(alpha) if isinstance(alpha, Tensor) else alpha
        raise ShapeError("dirichlet", f"alpha must have an axis of parts, got {got}")
    target = float_dtype("dirichlet", dtype, alpha)
    size = alpha.shape if shape is None else (*normalize_shape("dirichlet", shape), alpha.shape[-1])
    logs = _log_draws(as_key("dirichlet", key), _wide(alpha), drawn_shape("dirichlet", size, alpha))
    return _bounded(softmax(logs, axis=-1), target)
