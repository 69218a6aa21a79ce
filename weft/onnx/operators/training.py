"""What models for training use: dropout, and the steps of optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import Tensor
from weft.interop.forms.elements import dropped
from weft.onnx.operators.registry import Call, enter_handlers, operator

_TRAINING = "ai.onnx.preview.training"


enter_handlers({"Dropout": lambda call, x: _kept(x)}, until=11)  # these versions are for inference


def _kept(x: Tensor) -> tuple[Tensor, Tensor]:
    """x, of which nothing is dropped."""
    return x, weft.ones(x.shape, dtype=weft.bool)


@operator("Dropout", since=12)
def dropout(
    call: Call, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """In training some elements made 0 and the others larger; also which were kept."""
    share = 0.5 if ratio is None else float(call.scalar(ratio, "ratio"))
    active = training is not None and bool(call.scalar(training, "training_mode"))
    return dropped(x, share) if active and share else _kept(x)


# Optimizers: their inputs are a rate, a count, then all tensors, all gradients, and each kind of state

Update = Callable[..., tuple[Tensor, ...]]


def _for_each(update: Update, states: int, values: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """An update of every tensor: all new values, then each kind of state."""
    count = len(values) // (2 + states)
    groups = [values[k * count : (k + 1) * count] for k in range(2 + states)]
    results = [update(*items) for items in zip(*groups, strict=True)]
    return tuple(new for kind in zip(*results, strict=True) for new in kind)


@operator("Momentum", domain=_TRAINING)
def momentum(call: Call, rate: Tensor, count: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """A step along an average of gradients."""
    alpha, norm = call.attribute("alpha"), call.attribute("norm_coefficient")
    beta = weft.where(count > 0, call.attribute("beta"), 1.0)
    nesterov = call.attribute("mode") == "nesterov"

    def update(x: Tensor, g: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        g = norm * x + g
        v = alpha * v + beta.astype(x.dtype) * g
        return x - rate * (g + alpha * v if nesterov else v), v

    return _for_each(update, 1, values)


@operator("Adagrad", domain=_TRAINING)
def adagrad(call: Call, rate: Tensor, count: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """A step by gradients divided by the root of the sum of their squares."""
    eps, norm = call.attribute("epsilon", 1e-6), call.attribute("norm_coefficient", 0.0)
    step = rate / (1 + call.attribute("decay_factor", 0.0) * count.astype(rate.dtype))

    def update(x: Tensor, g: Tensor, squares: Tensor) -> tuple[Tensor, ...]:
        g = norm * x + g
        squares = squares + g * g
        return x - step * g / (weft.sqrt(squares) + eps), squares

    return _for_each(update, 1, values)


@operator("Adam", domain=_TRAINING)
def adam(call: Call, rate: Tensor, count: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """A step along an average of gradients, divided by the root of one of their squares."""
    alpha, beta = call.attribute("alpha", 0.9), call.attribute("beta", 0.999)
    eps, norm = call.attribute("epsilon", 1e-6), call.attribute("norm_coefficient", 0.0)
    shrink = 1 - call.attribute("norm_coefficient_post", 0.0)
    time = count.astype(rate.dtype)
    corrected = rate * weft.sqrt(1 - beta**time) / (1 - alpha**time)
    step = weft.where(count > 0, corrected, rate)

    def update(x: Tensor, g: Tensor, v: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        g = norm * x + g
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * g * g
        return shrink * (x - step * v / (weft.sqrt(h) + eps)), v, h

    return _for_each(update, 2, values)
