"""What training does to gradients between backward and the optimizer."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import weft
from weft import Tensor
from weft.capture.runtime.modules import held_parts, where_held
from weft.errors import GradientError
from weft.tensor.accumulate import gradient_or_zeros


def _with_gradients(parameters: Any) -> list[Tensor]:
    """The parameters that have gradients; where only a run tells, those that may have one."""
    listed = [parameters] if weft.is_tensor(parameters) else list(parameters)
    return [p for p in listed if gradient_or_zeros(p) is not None]


def clip_grad_norm_(
    parameters: Any | Iterable[Any], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """Scale the gradients of parameters so that their norm, taken together, is at most ``max_norm``.

    Args:
        parameters: one tensor or several; those without a gradient are left alone.
        max_norm: the largest norm.
        norm_type: 2 for the Euclidean norm, ``weft.inf`` for the largest magnitude, or another power.
        error_if_nonfinite: raise if the norm is infinite or NaN.

    Returns:
        The norm before.

    >>> import weft
    >>> w = weft.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> weft.nn.utils.clip_grad_norm_(w, 1.0)
    tensor(10.)
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    chosen = _with_gradients(parameters)
    if not chosen:
        return weft.tensor(0.0)
    grads = [gradient_or_zeros(p)._value() for p in chosen]  # type: ignore[union-attr]
    total = _norm(grads, float(norm_type))
    if error_if_nonfinite and not weft.isfinite(total):
        raise GradientError("clip_grad_norm_", f"the norm must be finite, got {total.item()}")
    scale = weft.clip(max_norm / (total + 1e-6), max=1.0)
    where_held(held_parts(chosen), partial(_scale, scale))
    return total


def _scale(scale: Tensor, params: list[Any]) -> None:
    for p in params:
        scaled = p.grad._value() * scale
        p.grad = scaled if scaled.dtype == p.dtype else scaled.astype(p.dtype)


def _norm(gradients: list[Any], power: float) -> Tensor:
    if power == weft.inf:
        return weft.max(weft.stack([g.abs().max() for g in gradients]))
    if power == 2.0:
        return weft.stack([(g * g).sum() for g in gradients]).sum().sqrt()
    return weft.stack([(g.abs() ** power).sum() for g in gradients]).sum() ** (1.0 / power)


def clip_grad_value_(parameters: Any | Iterable[Any], clip_value: float) -> None:
    """Clip each element of the gradients of parameters to ±``clip_value``.

    >>> import weft
    >>> w = weft.tensor([3.0, 0.1], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> weft.nn.utils.clip_grad_value_(w, 1.0)
    >>> w.grad
    tensor([1.0000, 0.2000])
    """
    where_held(held_parts(_with_gradients(parameters)), partial(_clip, clip_value))


def _clip(limit: float, params: list[Any]) -> None:
    for p in params:
        p.grad = weft.clip(p.grad._value(), -limit, limit)
