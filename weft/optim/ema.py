"""Moving averages of a model's parameters, which often do better than the parameters themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import weft
from weft.base.device import DeviceLike
from weft.capture.runtime.modules import is_capturing, name_parts
from weft.errors import ArgumentError, DomainError
from weft.optim.optimizer import assign, check_range


class EMA:
    """The exponential moving average of parameters.

    After each step of the optimizer ``update`` moves the averages towards the parameters. Buffers, such as
    running statistics, are copied. An update may be part of a compiled training step.

    Args:
        model: a module, or tensors.
        decay: how much of the averages an update keeps.
        warmup: keep less at the start: ``(1 + n) / (10 + n)`` in update n, if that is less.

    >>> import weft
    >>> from weft import nn, optim
    >>> model = nn.Linear(2, 1)
    >>> ema = optim.EMA(model, decay=0.9)
    >>> _ = nn.init.constant_(model.weight, 1.0)
    >>> ema.update()
    >>> with ema.applied():  # the model has the averages here
    ...     y = model(weft.ones((1, 2)))
    >>> model.weight.detach()
    tensor([[1., 1.]])
    """

    def __init__(self, model: object, decay: float = 0.999, *, warmup: bool = False) -> None:
        check_range("EMA", decay=(decay, 0.0, 1.0))
        self.decay = decay
        self.warmup = warmup
        self._params, self._buffers = _tensors_of(model)
        if not self._params:
            raise ArgumentError("EMA", "the model must have parameters, got none")
        self._averages = {name: _wide_copy(p) for name, p in self._params.items()}
        self._averages |= {name: b._value().clone() for name, b in self._buffers.items()}
        self._updates = weft.zeros((), dtype=weft.int64)
        self._own: dict[str, Any] | None = None  # the values of the parameters while they have the averages

    def to(self, device: DeviceLike) -> EMA:
        """Have the averages on a device, where the model is; returns itself."""
        self._averages = {name: average.to(device) for name, average in self._averages.items()}
        return self

    def update(self) -> None:
        """Move the averages towards the parameters."""
        self._need_own("update")
        with weft.no_grad():
            kept = self._kept()
            for name, p in self._params.items():
                average = self._averages[name]
                if is_capturing():
                    name_parts(p, {"average": average})
                assign(average, average + (p._value() - average) * (1.0 - kept))
            for name, b in self._buffers.items():
                assign(self._averages[name], b._value())

    def _kept(self) -> Any:
        """How much of the averages this update keeps."""
        decay = weft.jit.dynamic(lambda: self.decay, name="decay")
        assign(self._updates, self._updates + 1)
        if not self.warmup:
            return decay
        n = self._updates.astype(weft.float32)
        return weft.minimum((n + 1.0) / (n + 10.0), weft.full_like(n, 1.0) * decay)

    def copy_to(self, model: object = None) -> None:
        """Give parameters and buffers the averages: those it was made of, or those of another model."""
        groups = (self._params, self._buffers) if model is None else _tensors_of(model)
        targets = groups[0] | groups[1]
        _check_names("copy_to", targets, self._averages)
        with weft.no_grad():
            for name, average in self._averages.items():
                assign(targets[name], average._value())

    def swap(self) -> None:
        """Give the model the averages, or, if it has them, its own values back."""
        if self._own is None:
            own = {name: t._value() for name, t in (self._params | self._buffers).items()}
            self.copy_to()
            self._own = own
            return
        with weft.no_grad():
            for name, value in self._own.items():
                assign((self._params | self._buffers)[name], value)
        self._own = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the model have the averages in a ``with`` block, as to evaluate it."""
        self._need_own("applied")
        self.swap()
        try:
            yield
        finally:
            self.swap()

    def _need_own(self, name: str) -> None:
        if self._own is not None:
            hint = "call swap() first"
            raise DomainError(
                f"EMA.{name}", "the model must have its own values, got the averages", hint=hint
            )

    def state_dict(self) -> dict[str, Any]:
        """The averages and how many updates there were."""
        averages = {name: average._value() for name, average in self._averages.items()}
        return {"decay": self.decay, "updates": self._updates.item(), "averages": averages}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        if {"decay", "updates", "averages"} != set(state_dict):
            hint = "pass what ema.state_dict() gave"
            raise ArgumentError("load_state_dict", "must have decay, updates and averages", hint=hint)
        given = state_dict["averages"]
        _check_names("load_state_dict", given, self._averages)
        with weft.no_grad():
            for name, average in self._averages.items():
                assign(average, weft.as_tensor(given[name])._value().clone())
            assign(self._updates, weft.full_like(self._updates, int(state_dict["updates"])))
        self.decay = float(state_dict["decay"])

    def __repr__(self) -> str:
        return f"EMA(decay={self.decay}, updates={self._updates.item()})"


def _tensors_of(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the buffers of a module, or tensors, by names."""
    if hasattr(model, "named_parameters"):
        return dict(model.named_parameters()), dict(model.named_buffers())
    listed = [model] if weft.is_tensor(model) else list(model)
    for x in listed:
        if not weft.is_tensor(x):
            raise ArgumentError("EMA", f"takes a module or tensors, got {type(x).__name__}")
    return {str(i): x for i, x in enumerate(listed)}, {}


def _wide_copy(p: Any) -> Any:
    """A parameter in at least float32, in which small changes do not get lost."""
    return p._value().clone() if p.dtype.itemsize >= 4 else p._value().astype(weft.float32)


def _check_names(op: str, given: Mapping[str, Any], averages: Mapping[str, Any]) -> None:
    missing, unknown = sorted(averages.keys() - given.keys()), sorted(given.keys() - averages.keys())
    if missing or unknown:
        raise DomainError(op, f"names must be those of the averages, missing {missing}, unknown {unknown}")
    for name, average in averages.items():
        if tuple(given[name].shape) != tuple(average.shape):
            got = f"{tuple(given[name].shape)} and {tuple(average.shape)}"
            raise DomainError(op, f"shapes of {name} must agree, got {got}")
