"""Losses: the negative log-likelihood of classes, and the cross-entropy of scores."""

from __future__ import annotations

from typing import Any

import weft
from weft import Tensor
from weft.onnx.operators.registry import Call, operator


@operator("NegativeLogLikelihoodLoss")
def nll_loss(call: Call, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Any:
    """The loss of log-probabilities (N, C, *S) of classes (N, *S)."""
    return weft.nll_loss(x, target, weight, **_settings(call))


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(call: Call, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Any:
    """The loss of scores (N, C, *S) of classes (N, *S), and the log-probabilities if they are used."""
    if not any(call.outputs[1:]):
        return weft.cross_entropy(x, target, weight=weight, **_settings(call))
    logs = weft.log_softmax(x, axis=1)
    return nll_loss(call, logs, target, weight), logs


def _settings(call: Call) -> dict[str, Any]:
    """How losses are combined, and the class that does not count: where there is none, what no class is."""
    ignored = call.attribute("ignore_index", -(2**31))
    return {"ignore_index": ignored, "reduction": call.attribute("reduction", "mean")}
