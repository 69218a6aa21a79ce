"""Connectionist temporal classification: labels that come at unknown times (Graves and others, 2006).

With blanks between and around its labels a target of S labels has 2 S + 1 states. The likelihood of being in
each after t steps is a recursion over t, in logarithms, for all sequences of a batch at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft import Tensor
from weft.capture.runtime.modules import is_capturing
from weft.errors import DomainError, ShapeError

_NEVER = -1e30  # the logarithm of nothing; finite, so that no gradient is NaN


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """How unlikely targets are, whatever way they are spread over the steps.

    Args:
        log_probs: of the classes, (T, N, C), or (T, C) for one sequence.
        targets: labels, (N, S) or (S,); or all of them in one row, (sum of target_lengths,).
        input_lengths: (N,), how many of the T steps count.
        target_lengths: (N,), how many of the labels count.
        blank: the class that stands for no label.
        reduction: "mean" (each loss divided by the length of its target first), "sum" or "none".
        zero_infinity: whether infinite losses, of targets that do not fit, and their gradients are zero.

    >>> import weft
    >>> even = weft.zeros((2, 1, 2)).log_softmax(axis=-1)
    >>> found = weft.nn.functional.ctc_loss(even, weft.tensor([[1]]), weft.tensor([2]), weft.tensor([1]))
    >>> found.exp() * 0.75
    tensor(1.)
    """
    if log_probs.ndim not in (2, 3):
        raise ShapeError("ctc_loss", f"log_probs must have 2 or 3 axes, got shape {log_probs.shape}")
    if not 0 <= blank < log_probs.shape[-1]:
        raise DomainError("ctc_loss", f"blank must be a class, got {blank} of {log_probs.shape[-1]}")
    if reduction not in ("none", "mean", "sum"):
        raise DomainError("ctc_loss", f"reduction must be one of none, mean, sum, got {reduction!r}")
    single = log_probs.ndim == 2
    steps, targets, inputs, lengths = _batched(log_probs, targets, input_lengths, target_lengths)
    losses = _losses(steps, targets, inputs, lengths, blank)
    possible = losses < -_NEVER / 2
    losses = weft.where(possible, losses, 0.0 if zero_infinity else weft.inf)
    if reduction == "mean":
        return (losses / weft.clip(lengths, 1).astype(losses.dtype)).mean()
    return losses.sum() if reduction == "sum" else losses[0] if single else losses


def _batched(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
) -> tuple[Tensor, ...]:
    """All arguments with a batch: steps (T, N, C), targets (N, S) and lengths (N,)."""
    inputs, lengths = (weft.as_tensor(n).reshape(-1) for n in (input_lengths, target_lengths))
    targets = weft.as_tensor(targets)
    if log_probs.ndim == 2:
        log_probs, targets = log_probs.unsqueeze(1), targets.reshape((1, -1))
    if targets.ndim == 1:
        longest = targets.shape[0] if is_capturing() else int(lengths.max())  # a graph has room for any
        starts = weft.cumsum(lengths, axis=0) - lengths
        places = starts.unsqueeze(1) + weft.arange(longest)
        targets = targets[weft.clip(places, 0, targets.shape[0] - 1)]
    count = log_probs.shape[1]
    if targets.shape[0] != count or inputs.shape[0] != count or lengths.shape[0] != count:
        got = f"{count}, {targets.shape[0]}, {inputs.shape[0]} and {lengths.shape[0]}"
        raise ShapeError("ctc_loss", f"all arguments must have as many sequences, got {got}")
    return log_probs, targets, inputs, lengths


def _losses(log_probs: Tensor, targets: Tensor, inputs: Any, lengths: Any, blank: int) -> Tensor:
    count, labels = targets.shape
    states = weft.stack([weft.full_like(targets, blank), targets], axis=2).reshape((count, 2 * labels))
    states = weft.concat(
        [states, weft.full((count, 1), blank, dtype=targets.dtype, device=targets.device)], axis=1
    )
    emitted = weft.take_along_axis(
        log_probs, weft.broadcast_to(states.unsqueeze(0), (log_probs.shape[0], *states.shape)), axis=2
    )
    width = 2 * labels + 1
    number = weft.arange(width)
    before = weft.pad(states, ((0, 0), (2, 0)), value=blank)[:, :width]
    may_skip = (states != blank) & (states != before)
    alpha = weft.where(number < 2, emitted[0], _NEVER)
    for t in range(1, log_probs.shape[0]):
        one, two = (weft.pad(alpha, ((0, 0), (k, 0)), value=_NEVER)[:, :width] for k in (1, 2))
        ways = weft.stack([alpha, one, weft.where(may_skip, two, _NEVER)])
        reached = weft.logsumexp(ways, axis=0) + emitted[t]
        alpha = weft.where((t < inputs).unsqueeze(1), reached, alpha)
    last = (number == 2 * lengths.unsqueeze(1)) | (number == 2 * lengths.unsqueeze(1) - 1)
    return -weft.logsumexp(weft.where(last, alpha, _NEVER), axis=1)
