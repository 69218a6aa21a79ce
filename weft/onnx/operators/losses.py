"""Losses: the negative log-likelihood of classes, and the cross-entropy of scores."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.onnx.operators.registry import Call, operator


@operator("NegativeLogLikelihoodLoss")
def nll_loss(call: Call, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """The loss of log-probabilities (N, C, *S) of classes (N, *S)."""
    return _nll(call, x, target, weight)


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(call: Call, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Any:
    """The loss of scores (N, C, *S) of classes (N, *S), and the log-probabilities if they are used."""
    if not any(call.outputs[1:]):
        settings = {"weight": weight, "reduction": call.attribute("reduction", "mean")}
        return weft.cross_entropy(x, target, ignore_index=_ignored(call), **settings)
    logs = weft.log_softmax(x, axis=1)
    return _nll(call, logs, target, weight), logs


def _nll(call: Call, x: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    reduction = call.attribute("reduction", "mean")
    out: Tensor = weft.nll_loss(x, target, weight, _ignored(call), reduction)
    return out


def _ignored(call: Call) -> int:
    """The class that does not count; a number that no class has where there is none."""
    found: int = call.attribute("ignore_index", -(2**31))
    return found
