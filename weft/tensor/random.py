"""Random numbers from keys, public as ``weft.random``.

A key is a ``uint64[2]`` tensor. The same key always gives the same numbers, in every thread, on every
device, compiled or not; for new numbers split the key. Functions that draw from one global generator
(``weft.rand`` and its siblings) are in ``weft.tensor.sampling``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import erfc, sqrt
from typing import Any, TypeVar

import numpy as np

from weft.base.dtypes import (
    DEFAULT_INT,
    INTEGERS,
    DType,
    DTypeLike,
    as_dtype,
    default_float,
    float32,
    float64,
    kind,
    result_dtype,
    uint64,
)
from weft.base.philox import FOLD, MASK, SPLIT
from weft.base.public import public
from weft.base.shapes import Shape, ShapeLike, broadcast_shapes, normalize_axis, normalize_shape, size_of
from weft.base.spelling import KEY_FIRST
from weft.base.tracebacks import hide_weft
from weft.errors import ArgumentError, DomainError, DtypeError, ShapeError, WeftError
from weft.ops import distribution
from weft.ops.arithmetic import add, maximum, minimum, mul, neg, sub
from weft.ops.compare import less
from weft.ops.exponential import log
from weft.ops.index_axis import take
from weft.ops.op import Operand, intercepted, plain_number, type_of
from weft.ops.quantile import normal_quantile
from weft.ops.random import check_keys, derive, random_bits
from weft.ops.reduce import argmax
from weft.ops.select import cast
from weft.ops.sort import argsort
from weft.tensor.convert import integer
from weft.tensor.dispatch import captured_constant
from weft.tensor.mode import thread
from weft.tensor.moving import moved
from weft.tensor.tensor import Tensor, wrap

F = TypeVar("F", bound=Callable[..., Any])

# Keys


@public
def key(seed: int) -> Tensor:
    """A key from a number between 0 and 2**64 - 1, on the default device: what it draws is there, too.

    >>> import weft
    >>> weft.random.key(7)
    tensor([7, 0], dtype=weft.uint64)
    """
    number = integer("key", "seed", seed)
    if not 0 <= number <= MASK:
        raise DomainError("key", f"seed must be in 0..2**64 - 1, got {number}")
    return moved(new_key(number, 0), None)


PRNGKey = key  # as JAX calls it


def new_key(low: Operand, high: Operand) -> Tensor:
    """A key of two words; a constant of the graph where this thread captures one."""
    words = np.array([low, high], np.uint64)
    captures = intercepted.threads and thread.capture is not None
    out: Tensor = captured_constant(words) if captures else wrap(words)
    return out


@public
def split(key: Tensor, n: object = 2) -> Tensor:
    """New keys from a key, unrelated to it and to each other: n of them, or a tensor of them.

    >>> import weft
    >>> one, two = weft.random.split(weft.random.key(0))
    >>> weft.random.split(one, 5).shape
    (5, 2)
    """
    shape = normalize_shape("split", n)
    numbers = np.arange(size_of(shape), dtype=np.uint64).reshape(shape)
    out: Tensor = derive(as_key("split", key), wrap(numbers), purpose=SPLIT)
    return out


@public
def fold_in(key: Tensor, data: object) -> Tensor:
    """A new key from a key and an integer, such as the number of a step.

    >>> import weft
    >>> keys = [weft.random.fold_in(weft.random.key(0), step) for step in range(3)]
    >>> weft.random.uniform(keys[1]).item() != weft.random.uniform(keys[2]).item()
    True
    """
    base = as_key("fold_in", key)
    if isinstance(data, Tensor):
        if kind(data.dtype) not in "iu":
            raise DtypeError("fold_in", f"data must be an integer, got {type_of(data)}")
        number = data if data.dtype == uint64 else cast(data, dtype=uint64)
    else:
        number = wrap(np.array(integer("fold_in", "data", data) & MASK, np.uint64))
    out: Tensor = derive(base, number, purpose=FOLD)
    return out


def as_key(op: str, key: Tensor) -> Tensor:
    """A key that a user passed, or an error if it is none."""
    if isinstance(key, np.ndarray):
        key = wrap(key)
    if not isinstance(key, Tensor):
        raise ArgumentError(op, f"key must be a tensor, got {type(key).__name__}", hint=KEY_FIRST)
    if check_keys(op, type_of(key)) != ():
        hint = "draw from many keys with weft.vmap"
        raise ShapeError(op, f"one key is needed, got {type_of(key)}", hint=hint)
    return key


# What is common to distributions


def float_dtype(op: str, dtype: DTypeLike | None, *parameters: object) -> DType:
    """The dtype asked for, or that of the parameters that are tensors, or the default."""
    given = [p.dtype for p in parameters if isinstance(p, Tensor) and kind(p.dtype) == "f"]
    own = result_dtype(op, *given) if given else default_float()
    resolved = own if dtype is None else as_dtype(dtype)
    if kind(resolved) != "f":
        raise DtypeError(op, f"dtype must be floating, got {resolved.name}")
    return resolved


def drawn_shape(op: str, shape: object, *parameters: object) -> Shape:
    """The shape asked for, to which parameters must broadcast, or the one they broadcast to."""
    shapes = [p.shape for p in parameters if isinstance(p, Tensor)]
    if shape is None:
        return broadcast_shapes(op, shapes)
    wanted = normalize_shape(op, shape)
    if shapes and broadcast_shapes(op, [wanted, *shapes]) != wanted:
        raise ShapeError(op, f"parameters must broadcast to the shape {wanted}, got {shapes}")
    return wanted


def _moved(drawn: Any, scale: Operand, offset: Any) -> Tensor:
    """``drawn * scale + offset``, without what is not needed."""
    dtype = drawn.dtype
    if isinstance(scale, Tensor) or scale != 1:
        drawn = mul(drawn, _in_dtype(scale, dtype))
    if isinstance(offset, Tensor) or offset != 0:
        drawn = add(drawn, _in_dtype(offset, dtype))
    out: Tensor = drawn
    return out


def _in_dtype(x: Operand, dtype: DType) -> Operand:
    return cast(x, dtype=dtype) if isinstance(x, Tensor) and x.dtype != dtype else x


def parameter(op: str, name: str, value: object) -> Any:
    """A parameter of a distribution: a tensor, or a Python float."""
    if isinstance(value, np.ndarray):
        value = wrap(value)
    value = plain_number(value)
    if isinstance(value, Tensor):
        if kind(value.dtype) == "c":
            raise DtypeError(op, f"{name} must be real, got {type_of(value)}")
        return value
    if not isinstance(value, int | float | np.integer | np.floating):
        raise ArgumentError(op, f"{name} must be a number or a tensor, got {type(value).__name__}")
    return float(value)


def dtype_third(function: F) -> F:
    """Take JAX's order too: ``uniform(key, shape, dtype, minval, maxval)``."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        if len(args) > 2 and isinstance(args[2], np.dtype | type) and "dtype" not in kwargs:
            kwargs["dtype"] = args[2]
            args = (*args[:2], *args[3:])
        try:
            return function(*args, **kwargs)
        except WeftError as error:
            hide_weft(error)
            raise

    return call  # type: ignore[return-value]


# Distributions


@public
def bits(key: Tensor, shape: ShapeLike = (), dtype: DTypeLike | None = uint64) -> Tensor:
    """Random bits as unsigned integers.

    >>> import weft
    >>> weft.random.bits(weft.random.key(0), (2,), dtype=weft.uint16)
    tensor([12620, 51766], dtype=weft.uint16)
    """
    size = normalize_shape("bits", shape)
    out: Tensor = random_bits(as_key("bits", key), shape=size, dtype=as_dtype(dtype))
    return out


@dtype_third
@public
def uniform(
    key: Tensor,
    shape: ShapeLike | None = None,
    low: Operand = 0.0,
    high: Operand = 1.0,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Uniform on [low, high); gradients flow to low and high where they are tensors.

    >>> import weft
    >>> weft.random.uniform(weft.random.key(0), (3,))
    tensor([0.7899, 0.0872, 0.4030])
    """
    key = as_key("uniform", key)
    low, high = parameter("uniform", "low", low), parameter("uniform", "high", high)
    target = float_dtype("uniform", dtype, low, high)
    size = drawn_shape("uniform", shape, low, high)
    drawn = distribution.uniform(key, shape=size, dtype=target)
    span = high - low if isinstance(low, float) and isinstance(high, float) else sub(high, low)
    return _moved(drawn, span, low)


@dtype_third
@public
def normal(
    key: Tensor,
    shape: ShapeLike | None = None,
    mean: Operand = 0.0,
    std: Operand = 1.0,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Normal with a mean and a standard deviation; gradients flow to both where they are tensors.

    >>> import weft
    >>> mean = weft.tensor([0.0, 100.0], requires_grad=True)
    >>> weft.random.normal(weft.random.key(0), mean=mean).sum().backward()
    >>> mean.grad
    tensor([1., 1.])
    """
    key = as_key("normal", key)
    mean, std = parameter("normal", "mean", mean), parameter("normal", "std", std)
    if isinstance(std, float) and std < 0:
        raise DomainError("normal", f"std must not be negative, got {std}")
    target = float_dtype("normal", dtype, mean, std)
    size = drawn_shape("normal", shape, mean, std)
    drawn = distribution.normal(key, shape=size, dtype=target)
    return _moved(drawn, std, mean)


@public
def truncated_normal(
    key: Tensor,
    shape: ShapeLike | None = None,
    lower: float = -2.0,
    upper: float = 2.0,
    mean: Operand = 0.0,
    std: Operand = 1.0,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Normal, but only between ``lower`` and ``upper`` standard deviations from the mean.

    >>> import weft
    >>> draws = weft.random.truncated_normal(weft.random.key(0), (1000,), -1.0, 1.0)
    >>> bool((abs(draws) <= 1.0).all())
    True
    """
    if not isinstance(lower, int | float) or not isinstance(upper, int | float):
        order = "the shape comes before the bounds: truncated_normal(key, shape, lower, upper)"
        raise ArgumentError("truncated_normal", "lower and upper must be numbers", hint=order)
    if not lower < upper:
        raise DomainError("truncated_normal", f"lower must be less than upper, got {lower} and {upper}")
    mean = parameter("truncated_normal", "mean", mean)
    std = parameter("truncated_normal", "std", std)
    target = float_dtype("truncated_normal", dtype, mean, std)
    size = drawn_shape("truncated_normal", shape, mean, std)
    drawn = _truncated(as_key("truncated_normal", key), size, float(lower), float(upper), target)
    return _moved(drawn, std, mean)


def _truncated(key: Tensor, shape: Shape, lower: float, upper: float, dtype: DType) -> Tensor:
    """By inversion, in the tail nearer to the bounds, where probabilities are small and so precise."""
    flipped = lower > 0
    if flipped:
        lower, upper = -upper, -lower
    below, above = (0.5 * erfc(-x / sqrt(2)) for x in (lower, upper))
    wide = float64 if dtype == float64 else float32
    p = _moved(distribution.positive(key, shape=shape, dtype=wide), above - below, below)
    inner = minimum(maximum(p, float(np.finfo(wide).tiny)), 1 - float(np.finfo(wide).epsneg))
    drawn = minimum(maximum(normal_quantile(inner), lower), upper)
    return cast(neg(drawn) if flipped else drawn, dtype=dtype)


@dtype_third
@public
def exponential(
    key: Tensor, shape: ShapeLike | None = None, rate: Any = 1.0, dtype: DTypeLike | None = None
) -> Tensor:
    """Exponential with a rate; its mean is 1 / rate.

    >>> import weft
    >>> draws = weft.random.exponential(weft.random.key(0), (1000,), rate=4.0)
    >>> abs(draws.mean().item() - 0.25) < 0.02
    True
    """
    rate = parameter("exponential", "rate", rate)
    if isinstance(rate, float) and not rate > 0:
        raise DomainError("exponential", f"rate must be positive, got {rate}")
    target = float_dtype("exponential", dtype, rate)
    size = drawn_shape("exponential", shape, rate)
    drawn = distribution.exponential(as_key("exponential", key), shape=size, dtype=target)
    return _moved(drawn, 1 / rate, 0)


@dtype_third
@public
def gumbel(
    key: Tensor,
    shape: ShapeLike | None = None,
    location: object = 0.0,
    scale: Operand = 1.0,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Gumbel with a location and a scale; gradients flow to both where they are tensors.

    >>> import weft
    >>> draws = weft.random.gumbel(weft.random.key(0), (1000,))
    >>> abs(draws.mean().item() - 0.5772) < 0.1
    True
    """
    location = parameter("gumbel", "location", location)
    scale = parameter("gumbel", "scale", scale)
    target = float_dtype("gumbel", dtype, location, scale)
    size = drawn_shape("gumbel", shape, location, scale)
    drawn = distribution.gumbel(as_key("gumbel", key), shape=size, dtype=target)
    return _moved(drawn, scale, location)


@public
def bernoulli(key: Tensor, p: Tensor | float = 0.5, shape: ShapeLike | None = None) -> Tensor:
    """True with probability p, else False.

    >>> import weft
    >>> weft.random.bernoulli(weft.random.key(0), weft.tensor([0.0, 1.0]))
    tensor([False,  True])
    """
    p = parameter("bernoulli", "p", p)
    if isinstance(p, float) and not 0 <= p <= 1:
        raise DomainError("bernoulli", f"p must be in 0..1, got {p}")
    target = float_dtype("bernoulli", None, p)
    wide = float64 if target == float64 else float32
    drawn = distribution.uniform(
        as_key("bernoulli", key), shape=drawn_shape("bernoulli", shape, p), dtype=wide
    )
    out: Tensor = less(drawn, _in_dtype(p, wide))
    return out


@public
def randint(
    key: Tensor, shape: ShapeLike, low: Operand, high: Operand, dtype: DTypeLike | None = DEFAULT_INT
) -> Tensor:
    """Integers in low, ..., high - 1, all equally likely.

    >>> import weft
    >>> weft.random.randint(weft.random.key(0), (5,), 0, 10)
    tensor([0, 8, 8, 4, 0])
    """
    low, high = integer("randint", "low", low), integer("randint", "high", high)
    resolved = as_dtype(dtype)
    if resolved not in INTEGERS:
        raise DtypeError("randint", f"dtype must be an integer, got {resolved.name}")
    limits = np.iinfo(resolved)
    if not low < high:
        raise DomainError("randint", f"low must be less than high, got {low} and {high}")
    if low < limits.min or high - 1 > limits.max:
        raise DomainError("randint", f"{resolved.name} must hold all of {low}..{high - 1}")
    size = normalize_shape("randint", shape)
    out: Tensor = distribution.integers(
        as_key("randint", key), low=low, span=high - low, shape=size, dtype=resolved
    )
    return out


@public
def permutation(key: Tensor, x: Any, axis: int = 0) -> Tensor:
    """The numbers 0, ..., x - 1 in random order, or a tensor with its parts along an axis in random order.

    >>> import weft
    >>> weft.random.permutation(weft.random.key(0), 5)
    tensor([4, 0, 3, 2, 1])
    """
    whole = isinstance(x, Tensor) and x.ndim > 0
    where = normalize_axis("permutation", axis, x.ndim) if whole else 0
    count = x.shape[where] if whole else integer("permutation", "x", x)
    if count < 0:
        raise DomainError("permutation", f"x must not be negative, got {count}")
    order: Tensor = argsort(random_bits(as_key("permutation", key), shape=(count,), dtype=uint64))
    return take(x, order, axis=where) if whole else order


@public
def categorical(key: Tensor, logits: object, axis: int = -1, shape: ShapeLike | None = None) -> Tensor:
    """Indices along an axis of logits, drawn with the probabilities ``softmax(logits, axis)``.

    Args:
        key: of the draws.
        logits: unnormalised logarithms of probabilities.
        axis: along which the categories are.
        shape: of the result; ends in the shape of logits without the axis, which is the default.

    >>> import weft
    >>> weft.random.categorical(weft.random.key(0), weft.tensor([0.0, 50.0, 0.0]), shape=(4,))
    tensor([1, 1, 1, 1])
    """
    logits = parameter("categorical", "logits", logits)
    if not isinstance(logits, Tensor) or logits.ndim == 0 or kind(logits.dtype) != "f":
        got = type_of(logits) if isinstance(logits, Tensor) else logits
        raise ArgumentError("categorical", f"logits must be a floating tensor of rank 1 or more, got {got}")
    where = normalize_axis("categorical", axis, logits.ndim)
    if logits.shape[where] == 0:
        raise ShapeError("categorical", f"there must be a category to choose, got {type_of(logits)}")
    rest = logits.shape[:where] + logits.shape[where + 1 :]
    size = rest if shape is None else normalize_shape("categorical", shape)
    if size[len(size) - len(rest) :] != rest:
        raise ShapeError("categorical", f"shape must end in {rest}, got {size}")
    lead = size[: len(size) - len(rest)]
    noisy = gumbel(key, (*lead, *logits.shape), logits.detach())
    return argmax(noisy, axis=len(lead) + where)


@public
def choice(
    key: Tensor,
    x: Any,
    shape: ShapeLike = (),
    replace: bool = True,
    p: Tensor | None = None,
    axis: int = 0,
) -> Tensor:
    """Elements of a tensor along an axis, or of 0, ..., x - 1, drawn at random: equally likely, or as p says.

    >>> import weft
    >>> weft.random.choice(weft.random.key(0), 5, (3,)).shape
    (3,)
    >>> weft.random.choice(weft.random.key(0), weft.tensor([7, 8]), p=weft.tensor([0.0, 1.0]))
    tensor(8)
    """
    whole = isinstance(x, Tensor) and x.ndim > 0
    where = normalize_axis("choice", axis, x.ndim) if whole else 0
    count = x.shape[where] if whole else integer("choice", "x", x)
    size = normalize_shape("choice", shape)
    if not replace:
        if size_of(size) > count:
            raise DomainError("choice", f"without replacement at most {count} can be drawn, got {size}")
        noise = gumbel(key, (count,))
        scores = noise if p is None else add(noise, log(p))
        order = argsort(scores, descending=True)
        index = order[: size_of(size)].reshape(size)
    elif p is None:
        index = randint(key, size, 0, count)
    else:
        index = categorical(key, log(p), shape=size)
    return take(x, index, axis=where) if whole else index
