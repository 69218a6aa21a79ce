"""Normalisation that keeps running statistics: it changes the tensors it is given, as training does."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from weft.base.public import public
from weft.base.size_bounds import size_max, surely_less
from weft.errors import ArgumentError, ShapeError
from weft.ops.arithmetic import mul
from weft.ops.exponential import rsqrt
from weft.ops.norm import affine, need_positive, per_channel, standardize
from weft.ops.op import type_of, whole
from weft.ops.reduce import reduce_sum
from weft.ops.select import cast
from weft.ops.softmax import as_real
from weft.ops.view.primitives import reshape
from weft.tensor.autocast import in_precision
from weft.tensor.mode import no_grad
from weft.tensor.tensor import Tensor


def _need_channels(op: str, x: Tensor, least: int) -> None:
    if x.ndim < least:
        expected = "(N, C, *S)" if least == 2 else "(N, C, *S) with at least one size"
        raise ShapeError(op, f"the tensor must be {expected}, got {type_of(x)}")


def _need_several(op: str, x: Tensor, count: int) -> None:
    if surely_less(count, 2):
        raise ShapeError(
            op, f"there must be more than one value for each channel in training, got {type_of(x)}"
        )


def _move_towards(op: str, running: Tensor | None, value: object, momentum: float) -> None:
    """Let a running statistic take a step towards a new value."""
    if running is None:
        return
    if not isinstance(running, Tensor):
        raise ArgumentError(op, f"running statistics must be tensors, got {type(running).__name__}")
    with no_grad():
        step = cast(reshape(value, shape=running.shape), dtype=running.dtype)
        moved = mul(running, 1 - momentum) + step * momentum
    if getattr(moved._data, "place", "") == "vmap" and isinstance(running._data, np.ndarray):
        raise ArgumentError(
            op,
            "running statistics must be mapped over where the input is, got some shared by all examples",
            hint="give every example its own, or None",
        )
    running._set(moved)


def _by_running(op: str, x: Tensor, given: dict[str, Any], eps: float) -> Tensor:
    """Normalise by given statistics: one multiplication and one addition for each element."""
    mean, variance, weight, bias = (given[n] for n in ("running_mean", "running_var", "weight", "bias"))
    if mean is None or variance is None:
        raise ArgumentError(op, "running_mean and running_var must be given unless batch statistics are used")
    scale = rsqrt(variance + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale
    return _scaled(x, scale, shift if bias is None else shift + bias)


@whole("x")
def _scaled(x: Tensor, scale: Any, shift: Tensor) -> Tensor:
    return affine(x, scale, shift)


@whole("x")
def _normalised(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, axes: tuple[int, ...], eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """x with mean 0 and variance 1 over axes, scaled and shifted, and the mean and variance it had."""
    out, mean, variance = standardize(x, axes=axes, eps=eps, center=True)
    return affine(out, weight, bias), mean, variance


@public
def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """x (N, C, *S) with mean 0 and variance 1 over each channel, times a weight, plus a bias per channel.

    In training, statistics are those of x, and the running ones (if given) move towards them by ``momentum``;
    their variance is the unbiased one. Otherwise the running statistics are used.

    >>> import weft
    >>> mean, var = weft.zeros(1), weft.ones(1)
    >>> weft.batch_norm(weft.tensor([[1.0], [3.0]]), mean, var, training=True)
    tensor([[-1.0000],
            [ 1.0000]])
    >>> mean, var
    (tensor([0.2000]), tensor([1.1000]))
    """
    (x,) = in_precision("high", (as_real("batch_norm", x),))
    _need_channels("batch_norm", x, 2)
    need_positive("batch_norm", "eps", eps)
    channels = x.shape[1]
    given = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    shaped = {name: per_channel("batch_norm", name, p, channels, x.ndim) for name, p in given.items()}
    if not training:
        return _by_running("batch_norm", x, shaped, eps)
    count = prod(x.shape) // channels if channels != 0 else 0
    _need_several("batch_norm", x, count)
    axes = (0, *range(2, x.ndim))
    out, mean, variance = _normalised(x, shaped["weight"], shaped["bias"], axes, float(eps))
    _move_towards("batch_norm", running_mean, mean._value(), momentum)
    _move_towards("batch_norm", running_var, variance._value() * (count / size_max(count - 1, 1)), momentum)
    return out


@public
def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """x (N, C, *S) with mean 0 and variance 1 over each channel of each example.

    Running statistics, if given, move towards the averages over the examples, or are used themselves if
    ``use_input_stats`` is False.

    >>> import weft
    >>> weft.instance_norm(weft.tensor([[[1.0, 3.0], [10.0, 30.0]]]))
    tensor([[[-1.0000,  1.0000],
             [-1.0000,  1.0000]]])
    """
    (x,) = in_precision("high", (as_real("instance_norm", x),))
    _need_channels("instance_norm", x, 3)
    need_positive("instance_norm", "eps", eps)
    given = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    shaped = {name: per_channel("instance_norm", name, p, x.shape[1], x.ndim) for name, p in given.items()}
    if not use_input_stats:
        return _by_running("instance_norm", x, shaped, eps)
    count = prod(x.shape[2:])
    _need_several("instance_norm", x, count)
    axes = tuple(range(2, x.ndim))
    out, mean, variance = _normalised(x, shaped["weight"], shaped["bias"], axes, float(eps))
    if running_mean is not None or running_var is not None:
        _move_towards("instance_norm", running_mean, _over_examples(mean), momentum)
        spread = _over_examples(variance) * (count / size_max(count - 1, 1))
        _move_towards("instance_norm", running_var, spread, momentum)
    return out


def _over_examples(statistic: Tensor) -> Tensor:
    return reduce_sum(statistic._value(), axes=(0,), keepdims=False) * (1 / statistic.shape[0])
