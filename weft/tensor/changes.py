"""Changes in place that are more than an elementwise op: ``x.scatter_(1, index, src)``, ``x.normal_()``.

Each computes the new values and rebinds the tensor to them, as ``x += y`` does, so views see the change,
gradients know of it, and captured code does the same. Random ones draw with the keys of a generator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.dtypes import as_dtype, kind
from weft.base.public import public
from weft.base.shapes import normalize_axis, size_of
from weft.errors import DomainError, DtypeError
from weft.ops import activation, arithmetic, combined, index_axis, scan, scattering, softmax
from weft.ops.op import Operand, type_of
from weft.ops.select import cast, select
from weft.ops.view import axes, padding
from weft.tensor import random
from weft.tensor.generator import Generator, next_key
from weft.tensor.moving import moved_like
from weft.tensor.published import in_place
from weft.tensor.pytorch import index_add
from weft.tensor.tensor import Tensor

Function = Callable[..., Any]


@public
def index_fill(x: Tensor, axis: int, index: Tensor, value: Operand) -> Tensor:
    """x with a value in the slices at positions along an axis.

    >>> import weft
    >>> weft.index_fill(weft.zeros((2, 3)), 1, weft.tensor([0, 2]), 5.0)
    tensor([[5., 0., 5.],
            [5., 0., 5.]])
    """
    where = normalize_axis("index_fill", axis, x.ndim)
    index = index_axis.as_index("index_fill", index)
    shape = (*x.shape[:where], size_of(index.shape), *x.shape[where + 1 :])
    source = axes.broadcast_to(index_axis.as_values("index_fill", value, x, ()), shape)
    return scattering.index_copy(x, where, index, source)


@public
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """x with elements of ``source`` at positions of the flattened x; added to what is there if asked.

    >>> import weft
    >>> weft.put(weft.zeros(3), weft.tensor([0, 2]), weft.tensor([1.0, 2.0]))
    tensor([1., 0., 2.])
    """
    flat = axes.reshape(x, (size_of(x.shape),))
    index, source = (axes.reshape(t, (size_of(t.shape),)) for t in (index, source))
    change = index_axis.scatter_add if accumulate else index_axis.scatter
    return axes.reshape(change(flat, 0, index, source), x.shape)


def _fill_diagonal(x: Tensor, fill_value: Operand, wrap: bool = False) -> Tensor:
    """x with a value on the diagonal of its two axes."""
    if x.ndim != 2 or wrap:
        raise DomainError("fill_diagonal_", f"the tensor must be a matrix, and wrap False, got {type_of(x)}")
    value = index_axis.as_values("fill_diagonal_", fill_value, x, ())
    return select(np.eye(x.shape[0], x.shape[1]) != 0, value, x)


def _key(x: Tensor, op: str, generator: Generator | None) -> Tensor:
    if kind(x.dtype) != "f":
        raise DtypeError(op, f"the tensor must be floating, got {type_of(x)}")
    return next_key(generator)


def _uniform(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    key = _key(x, "uniform_", generator)
    return moved_like(random.uniform(key, x.shape, low, high, x.dtype), None, x)


def _normal(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    key = _key(x, "normal_", generator)
    return moved_like(random.normal(key, x.shape, mean, std, x.dtype), None, x)


def _log_normal(
    x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
) -> Tensor:
    return _normal(x, mean, std, generator=generator).exp()


def _exponential(x: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    key = _key(x, "exponential_", generator)
    return moved_like(random.exponential(key, x.shape, lambd, x.dtype), None, x)


def _bernoulli(x: Tensor, p: Tensor | float = 0.5, *, generator: Generator | None = None) -> Tensor:
    drawn = random.bernoulli(next_key(generator), p, x.shape)
    return moved_like(cast(drawn, dtype=x.dtype), None, x)


def _random(
    x: Tensor, low: int = 0, high: int | None = None, *, generator: Generator | None = None
) -> Tensor:
    if high is None and low:
        low, high = 0, low
    if high is None:
        high = 2 ** min(24, 8 * x.itemsize - 1)
    drawn = random.randint(next_key(generator), x.shape, low, high)
    return moved_like(cast(drawn, dtype=as_dtype(x.dtype)), None, x)


def _change(name: str, function: Function) -> Function:
    """A method that changes a tensor by a function, which is told in errors by the method's name."""
    if function.__name__.startswith("_"):
        function.__name__ = function.__qualname__ = name
        function = public(function)
    return in_place(name, function)


addbmm_ = _change("addbmm_", combined.addbmm)
addcdiv_ = _change("addcdiv_", combined.addcdiv)
addcmul_ = _change("addcmul_", combined.addcmul)
addmm_ = _change("addmm_", combined.addmm)
addmv_ = _change("addmv_", combined.addmv)
addr_ = _change("addr_", combined.addr)
baddbmm_ = _change("baddbmm_", combined.baddbmm)
bernoulli_ = _change("bernoulli_", _bernoulli)
clamp_max_ = _change("clamp_max_", arithmetic.clamp_max)
clamp_min_ = _change("clamp_min_", arithmetic.clamp_min)
cumprod_ = _change("cumprod_", scan.cumprod)
cumsum_ = _change("cumsum_", scan.cumsum)
exponential_ = _change("exponential_", _exponential)
fill_diagonal_ = _change("fill_diagonal_", _fill_diagonal)
index_add_ = _change("index_add_", index_add)
index_copy_ = _change("index_copy_", scattering.index_copy)
index_fill_ = _change("index_fill_", index_fill)
log_normal_ = _change("log_normal_", _log_normal)
masked_fill_ = _change("masked_fill_", index_axis.masked_fill)
masked_scatter_ = _change("masked_scatter_", scattering.masked_scatter)
normal_ = _change("normal_", _normal)
put_ = _change("put_", put)
random_ = _change("random_", _random)
relu_ = _change("relu_", activation.relu)
scatter_ = _change("scatter_", index_axis.scatter)
scatter_add_ = _change("scatter_add_", index_axis.scatter_add)
scatter_reduce_ = _change("scatter_reduce_", scattering.scatter_reduce)
softmax_ = _change("softmax_", softmax.softmax)
tril_ = _change("tril_", padding.tril)
triu_ = _change("triu_", padding.triu)
uniform_ = _change("uniform_", _uniform)

__all__ = ["index_fill", "put"]
