"""Random tensors from a generator: ``weft.rand`` and its siblings.

Each call takes the next key of the generator and hands over to ``weft.tensor.random``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.concrete import is_concrete
from weft.base.device import BLOCKS, DeviceLike
from weft.base.dtypes import DEFAULT_INT, DTypeLike, as_dtype, kind, real_dtype
from weft.base.public import public
from weft.base.shapes import Shape, ShapeLike, normalize_shape, size_of
from weft.base.sizes import is_known
from weft.errors import ArgumentError, DomainError, ShapeError
from weft.ops.complex import make_complex
from weft.ops.exponential import log
from weft.ops.index_axis import take
from weft.ops.op import Operand, type_of
from weft.ops.select import cast
from weft.ops.sort import argsort
from weft.ops.view.axes import moveaxis
from weft.tensor import random
from weft.tensor.convert import integer
from weft.tensor.generator import Generator, next_key
from weft.tensor.moving import moved, moved_like
from weft.tensor.tensor import Tensor


def _leaf(drawn: Tensor, device: DeviceLike | None, requires_grad: bool) -> Tensor:
    out = moved(drawn, device)
    return out.requires_grad_() if requires_grad else out


_ON_DEVICE = 1 << 14  # numbers; fewer are drawn on the host sooner, and are the same


def _key(generator: Generator | None, device: DeviceLike | None, shape: Shape) -> Tensor:
    """The next key; that of many numbers is where they are wanted, so that they are drawn there."""
    key = next_key(generator)
    if device is None and not BLOCKS:
        return key
    count = size_of(shape) if is_known(shape) else 0
    return moved(key, device) if count >= _ON_DEVICE else key


def _size(op: str, size: Any) -> Shape:
    """A shape given as one tuple, or as ints one after the other."""
    return normalize_shape(op, size[0] if len(size) == 1 else size)


def _template(op: str, x: Tensor) -> Tensor:
    if not isinstance(x, Tensor):
        raise ArgumentError(op, f"must be a tensor, got {type(x).__name__}")
    return x


@public
def rand(
    *size: ShapeLike | None,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform on [0, 1).

    >>> import weft
    >>> weft.rand(2, 3).shape, weft.rand((2, 3), dtype=weft.float64).dtype.name
    ((2, 3), 'float64')
    """
    shape = _size("rand", size)
    return _leaf(random.uniform(_key(generator, device, shape), shape, dtype=dtype), device, requires_grad)


@public
def randn(
    *size: ShapeLike | None,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Normal with mean 0 and standard deviation 1; of a complex dtype each part has half of the variance.

    >>> import weft
    >>> weft.randn(2, 3).shape
    (2, 3)
    """
    shape = _size("randn", size)
    if dtype is not None and kind(target := as_dtype(dtype)) == "c":
        parts = random.normal(
            _key(generator, device, shape), (2, *shape), 0.0, 0.5**0.5, dtype=real_dtype(target)
        )
        return _leaf(make_complex(parts[0], parts[1]), device, requires_grad)
    return _leaf(random.normal(_key(generator, device, shape), shape, dtype=dtype), device, requires_grad)


@public
def randint(
    low: Any = None,
    high: int | None = None,
    size: ShapeLike | None = None,
    *,
    dtype: DTypeLike | None = DEFAULT_INT,
    device: DeviceLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Integers in low, ..., high - 1: ``randint(low, high, size)`` or, from 0, ``randint(high, size)``.

    >>> import weft
    >>> weft.randint(0, 10, (2, 3)).shape, weft.randint(10, (4,)).shape
    ((2, 3), (4,))
    """
    if size is None and high is not None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if low is None:
        low = 0
    if size is None or high is None:
        raise ArgumentError("randint", "size must be given", hint="randint(low, high, size)")
    key = _key(generator, device, normalize_shape("randint", size))
    return moved(random.randint(key, size, low, high, dtype), device)


@public
def randperm(
    n: int,
    *,
    dtype: DTypeLike | None = DEFAULT_INT,
    device: DeviceLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """The numbers 0, ..., n - 1 in random order.

    >>> import weft
    >>> sorted(weft.randperm(5).tolist())
    [0, 1, 2, 3, 4]
    """
    order = random.permutation(next_key(generator), integer("randperm", "n", n))
    target = as_dtype(dtype)
    return moved(order if target == order.dtype else cast(order, dtype=target), device)


@public
def normal(
    mean: Operand = 0.0,
    std: Operand = 1.0,
    size: ShapeLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Normal with a mean and a standard deviation, numbers or tensors; gradients flow to tensors.

    >>> import weft
    >>> weft.normal(weft.zeros(3), 2.0).shape, weft.normal(0.0, 1.0, (2, 2)).shape
    ((3,), (2, 2))
    """
    return moved(random.normal(next_key(generator), size, mean, std, dtype), device)


@public
def bernoulli(p: Tensor, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability that each element of a tensor tells, else 0, in the tensor's dtype.

    >>> import weft
    >>> weft.bernoulli(weft.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    p = _template("bernoulli", p)
    if kind(p.dtype) != "f":
        raise ArgumentError("bernoulli", f"p must be a floating tensor, got {type_of(p)}")
    return cast(random.bernoulli(moved_like(next_key(generator), None, p), p), dtype=p.dtype)


@public
def multinomial(
    probs: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Indices drawn from each row of weights, which need not sum to 1; without replacement all differ.

    >>> import weft
    >>> weft.multinomial(weft.tensor([0.0, 1.0, 0.0]), 4, replacement=True)
    tensor([1, 1, 1, 1])
    """
    probs = _template("multinomial", probs)
    count = integer("multinomial", "num_samples", num_samples)
    _check_weights(probs, count, replacement)
    logits = log(probs.detach())
    key = next_key(generator)
    if replacement:
        drawn = random.categorical(key, logits, shape=(count, *probs.shape[:-1]))
        return moveaxis(drawn, 0, -1)
    # The order of logits plus Gumbel noise is that of drawing one after the other (J. Yellott, 1977).
    ranked = argsort(random.gumbel(key, probs.shape, logits), axis=-1, descending=True)
    return take(ranked, np.arange(count), axis=-1)


def _check_weights(probs: Tensor, count: int, replacement: bool) -> None:
    if probs.ndim not in (1, 2) or kind(probs.dtype) != "f":
        got = type_of(probs)
        raise ShapeError("multinomial", f"probs must be a floating tensor of rank 1 or 2, got {got}")
    if count < 1:
        raise DomainError("multinomial", f"num_samples must be positive, got {count}")
    if not is_concrete(probs._data):
        return  # the values are not known while a transform or capture runs
    weights = probs._array("multinomial")
    if not bool(((weights >= 0) & np.isfinite(weights)).all()):
        raise DomainError("multinomial", "probs must be finite and not negative")
    possible = int((weights > 0).sum(-1).min(initial=probs.shape[-1]))
    needed = 1 if replacement else count
    if possible < needed:
        raise DomainError(
            "multinomial", f"each row must have {needed} weights that are not 0, got one with {possible}"
        )


@public
def rand_like(
    x: Tensor,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform on [0, 1), with the shape and dtype of a tensor.

    >>> import weft
    >>> weft.rand_like(weft.zeros(2, 3)).shape
    (2, 3)
    """
    like = _template("rand_like", x)
    target = like.dtype if dtype is None else dtype
    place = like.device if device is None else device
    return rand(like.shape, dtype=target, device=place, requires_grad=requires_grad, generator=generator)


@public
def randn_like(
    x: Tensor,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Normal with mean 0 and standard deviation 1, with the shape and dtype of a tensor.

    >>> import weft
    >>> weft.randn_like(weft.zeros(2, 3)).shape
    (2, 3)
    """
    like = _template("randn_like", x)
    target = like.dtype if dtype is None else dtype
    place = like.device if device is None else device
    return randn(like.shape, dtype=target, device=place, requires_grad=requires_grad, generator=generator)


@public
def randint_like(
    x: Tensor,
    /,
    low: Any,
    high: int | None = None,
    *,
    dtype: DTypeLike | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Integers in low, ..., high - 1 (from 0 if one bound is given), with the shape and dtype of a tensor.

    >>> import weft
    >>> weft.randint_like(weft.tensor([1, 2, 3]), 10).shape
    (3,)
    """
    like = _template("randint_like", x)
    low, high = (0, low) if high is None else (low, high)
    target = like.dtype if dtype is None else dtype
    return randint(low, high, like.shape, dtype=target, generator=generator)
