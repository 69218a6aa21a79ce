"""How gradients are added to the ``grad`` of tensors.

A gradient is a value: adding to ``x.grad`` gives ``x`` a new tensor, and one that the user holds from before
stays as it was. All tensors of one backward get theirs at once, or none does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from weft.base.concrete import CONCRETE, is_concrete, is_on_device
from weft.base.forks import Level, lock_of
from weft.errors import GradientError
from weft.ops.op import Tensor, intercepted
from weft.tensor.dispatch import wrap
from weft.tensor.mode import thread
from weft.tensor.moving import move

Truth = Any  # True, False, or a truth value that only a run tells

# Held while sums are made and set, so that gradients of several threads all count. It is re-entrant because
# a finalizer may run anywhere, and may run backward.
_lock = lock_of(Level.GRADIENTS)


def gradient_of(tensor: object) -> Any:
    """The gradient a tensor holds, or None; the slot stays unset until there is one."""
    if intercepted.threads and thread.capture is not None:
        thread.capture.before_grad_read(tensor)
        thread.capture.rely_on_gradient(tensor)
    return getattr(tensor, "_grad", None)


def gradient_or_zeros(tensor: object) -> Tensor | None:
    """Likewise; where only a run tells whether there is one, zeros stand for None."""
    if intercepted.threads and thread.capture is not None:
        thread.capture.before_grad_read(tensor)
    return getattr(tensor, "_grad", None)


def has_gradient(tensor: object) -> Any:
    """Whether a tensor holds a gradient; in a capture that may be a truth value that only a run tells."""
    known = gradient_or_zeros(tensor) is not None
    if not known or thread.capture is None:
        return known
    truth = thread.capture.presence_of(tensor).get()
    return known if truth is None else truth


def set_gradient(tensor: Any, gradient: Tensor | None) -> None:
    """Give a tensor a gradient, or None."""
    if intercepted.threads and thread.capture is not None:
        thread.capture.before_grad_write(tensor)
        if gradient is not None:
            thread.capture.meet(gradient)  # so that it shows what changes from now on
            thread.capture.root.notes.assigned[id(gradient)] = gradient
    tensor._grad = gradient


def add_to_gradients(
    arrived: Iterable[tuple[Any, Any]], *, create_graph: bool, truths: Sequence[Truth] | None = None
) -> None:
    """Add gradients to the ``grad`` of tensors; pairs of tensors, each tensor once.

    In a capture ``truths`` tell which of them are there in this run; the others are zeros.
    """
    pairs = list(arrived)
    if truths is not None:
        pairs = [pair for pair, truth in zip(pairs, truths, strict=True) if truth is not False]
        truths = [truth for truth in truths if truth is not False]
    for tensor, grad in pairs:
        if type(grad._data) not in CONCRETE:
            _check_level(tensor._data, grad._data)
    owners, olds, sums = list[Any](), list[Any](), list[Any]()
    with _lock:
        for tensor, grad in pairs:
            if len(CONCRETE) > 1:  # rules may have made a gradient of what they had on the host
                grad = _moved(grad, tensor)
            old = gradient_or_zeros(tensor)
            owners.append(tensor)
            olds.append(old)
            sums.append(grad if old is None else _sum(old, grad, create_graph))
        if intercepted.threads and thread.capture is not None:
            told = [True] * len(owners) if truths is None else truths
            for tensor, truth in zip(owners, told, strict=True):
                thread.capture.before_grad_sum(tensor, has_gradient(tensor), truth)
            if not create_graph:
                sums = [total._value() for total in sums]  # the graph would know no better
            rows = zip(sums, olds, told, strict=True)
            sums = [
                total if truth is True or old is None else _kept(truth, total, old)
                for total, old, truth in rows
            ]
        # One call into C, which neither an interrupt nor another thread can divide.
        deque(map(setattr, owners, repeat("_grad"), sums), maxlen=0)


def _kept(truth: Truth, total: Tensor, old: Tensor) -> Tensor:
    """A gradient after a backward that may have added nothing: then it is the very tensor from before."""
    from weft.tensor.choices import choice_of  # captures alone ask

    return choice_of(truth, total, old)


def _moved(gradient: Tensor, tensor: Any) -> Tensor:
    """A gradient, where its tensor is."""
    here, there = gradient._data, tensor._data
    if type(here) is type(there) and getattr(here, "card", None) is getattr(there, "card", None):
        return gradient
    return move(gradient, tensor.device) if is_concrete(here) and is_concrete(there) else gradient


def _check_level(data: Any, gradient: Any) -> None:
    """Raise if a gradient belongs to a transform that the tensor is outside of: it would outlive it there."""
    if not is_concrete(data) and data.level >= gradient.level:
        return
    capture = thread.capture if intercepted.threads else None
    if capture is None or gradient.level != capture.level:  # a capture takes note of it
        raise GradientError(
            "backward",
            f"gradients must not be added to a tensor from outside, got backward inside {gradient.place}",
            hint="use weft.grad or weft.autograd.grad, and return the gradient",
        )


def _sum(old: Tensor, new: Tensor, create_graph: bool) -> Any:
    if create_graph:
        return old + new
    if type(old._data) is type(new._data) is np.ndarray:
        return wrap(np.asarray(old._data + new._data))
    if is_on_device(old._data) and is_on_device(new._data):
        return wrap(old._data + new._data)
    return wrap((old + new)._data)
