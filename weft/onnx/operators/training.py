"""What models for training use: losses, dropout, and the steps of optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import Tensor
from weft.interop.forms.elements import dropped
from weft.onnx.operators.registry import Call, enter_handlers, operator


@operator("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def class_loss(call: Call, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Any:
    """The loss of scores or log-probabilities (N, C, *S) of classes (N, *S); also the latter."""
    ignored = call.attribute("ignore_index", -(2**31))  # what no class is
    settings: dict[str, Any] = {"ignore_index": ignored, "reduction": call.attribute("reduction", "mean")}
    if call.op == "SoftmaxCrossEntropyLoss" and not any(call.outputs[1:]):
        return weft.cross_entropy(x, target, weight, **settings)
    logs = weft.log_softmax(x, axis=1) if call.op == "SoftmaxCrossEntropyLoss" else x
    return weft.nll_loss(logs, target, weight, **settings), logs


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

Update = Callable[..., tuple[Any, ...]]


@operator("Momentum", "Adagrad", "Adam", domain="ai.onnx.preview.training")
def optimizer(
    call: Call, rate: Tensor, count: Tensor, *values: Tensor, norm_coefficient: float = 0.0
) -> tuple[Tensor, ...]:
    """A step of every tensor, its gradient with a multiple of itself: all new values, each kind of state."""
    make, states = _OPTIMIZERS[call.op]
    update, each = make(call, rate, count), len(values) // (2 + states)
    groups = [values[k * each : (k + 1) * each] for k in range(2 + states)]
    results = [update(x, norm_coefficient * x + g, *state) for x, g, *state in zip(*groups, strict=True)]
    return tuple(new for kind in zip(*results, strict=True) for new in kind)


def _momentum(call: Call, rate: Tensor, count: Tensor) -> Update:
    """Along an average of gradients."""
    alpha, nesterov = call.attribute("alpha"), call.attribute("mode") == "nesterov"
    beta = weft.where(count > 0, call.attribute("beta"), 1.0)

    def update(x: Tensor, g: Tensor, v: Tensor) -> tuple[Any, ...]:
        v = alpha * v + beta.astype(x.dtype) * g
        return x - rate * (g + alpha * v if nesterov else v), v

    return update


def _adagrad(call: Call, rate: Tensor, count: Tensor) -> Update:
    """By gradients divided by the root of the sum of their squares."""
    eps = call.attribute("epsilon", 1e-6)
    step = rate / (1 + call.attribute("decay_factor", 0.0) * count.astype(rate.dtype))
    return lambda x, g, squares: (x - step * g / (weft.sqrt(squares + g * g) + eps), squares + g * g)


def _adam(call: Call, rate: Tensor, count: Tensor) -> Update:
    """Along an average of gradients, divided by the root of one of their squares."""
    alpha, beta, eps = (
        call.attribute(*pair) for pair in (("alpha", 0.9), ("beta", 0.999), ("epsilon", 1e-6))
    )
    shrink = 1 - call.attribute("norm_coefficient_post", 0.0)
    time = count.astype(rate.dtype)
    corrected = rate * weft.sqrt(1 - beta**time) / (1 - alpha**time)
    step = weft.where(count > 0, corrected, rate)

    def update(x: Tensor, g: Tensor, v: Tensor, h: Tensor) -> tuple[Any, ...]:
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * g * g
        return shrink * (x - step * v / (weft.sqrt(h) + eps)), v, h

    return update


_OPTIMIZERS: dict[
    str, tuple[Callable[[Call, Tensor, Tensor], Update], int]
] = {  # and how many states each has
    "Momentum": (_momentum, 1),
    "Adagrad": (_adagrad, 1),
    "Adam": (_adam, 2),
}
