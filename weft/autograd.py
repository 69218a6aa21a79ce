"""Gradients on the dynamic graph: ``weft.autograd.grad``, ``Function``, modes and anomaly detection.

>>> import weft
>>> x = weft.tensor(3.0, requires_grad=True)
>>> weft.autograd.grad(x * x, x)
(tensor(6.),)
"""

from typing import NoReturn

from weft.tensor.anomaly import detect_anomaly
from weft.tensor.autograd import backward, grad, stop_gradient
from weft.tensor.checkpoint import checkpoint, checkpoint_sequential, checkpointed
from weft.tensor.function import Function, once_differentiable
from weft.tensor.mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled

__all__ = [
    "Function",
    "backward",
    "checkpoint",
    "checkpoint_sequential",
    "checkpointed",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "once_differentiable",
    "set_grad_enabled",
    "stop_gradient",
]


def __getattr__(name: str) -> NoReturn:
    from weft.base.elsewhere import unknown

    raise unknown(__name__, name, __all__)
