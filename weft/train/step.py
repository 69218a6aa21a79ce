"""The steps of training and validation, eager or compiled.

A compiled function is made for each shape of batches, so that what is computed depends on the batch and the
state alone, and not on which batches came before: a run that was resumed gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import weft
from weft.errors import ArgumentError, DomainError
from weft.train.metrics import Metric
from weft.train.ranks import Ranks

MOST_SHAPES = 16  # of batches that get a compiled function of their own; further ones share one
Numbers = dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """What a step is made of.

    Attributes:
        model: to train.
        loss: of outputs and targets.
        optimizer: that changes the model.
        forward: from the model and a batch to outputs and targets.
        metrics: by name.
        clip_norm: the largest norm of all gradients, or None.
        clip_value: the largest element of gradients, or None.
        accumulate: how many batches make a step.
        autocast: the dtype that autocast computes in, or None.
        scaler: of the loss, or None.
        ema: the average of the parameters, or None.
        ranks: that share the work, or None.
    """

    model: Any
    loss: Callable[[Any, Any], Any]
    optimizer: Any
    forward: Callable[[Any, Any], tuple[Any, Any]]
    metrics: Mapping[str, Any]
    clip_norm: float | None = None
    clip_value: float | None = None
    accumulate: int = 1
    autocast: Any = None
    scaler: Any = None
    ema: Any = None
    ranks: Ranks | None = None

    def check(self) -> None:
        """An error where a part is of the wrong kind, such as the name of an optimizer."""
        steps = hasattr(self.optimizer, "step")
        for name, part, fits, must, hint in (
            ("model", self.model, callable(self.model), "be callable", "give it a weft.nn.Module"),
            ("loss", self.loss, callable(self.loss), "be callable", "give it one, such as weft.mse_loss"),
            ("optimizer", self.optimizer, steps, "be one", "make it: weft.optim.Adam(model.parameters())"),
        ):
            if not fits:
                got = repr(part) if isinstance(part, str) else type(part).__name__
                raise ArgumentError("Trainer", f"{name} must {must}, got {got}", hint=hint)

    def evaluate(self, batch: Any) -> tuple[Any, Numbers]:
        """The loss, to be differentiated, and all numbers."""
        batch = batch if self.ranks is None else self.ranks.shared(batch)
        with nullcontext() if self.autocast is None else weft.autocast(self.autocast):
            output, target = _call(self.forward, self.model, batch)
            loss = _call(self.loss, output, target)
        _check_loss(loss)
        numbers = {"loss": loss._value()}
        with weft.no_grad():
            shown = weft.tree_map(lambda x: x._value() if isinstance(x, weft.Tensor) else x, output)
            numbers |= {
                name: _call(_function(metric), shown, target) for name, metric in self.metrics.items()
            }
        return loss, numbers

    def differentiate(self, batch: Any) -> Numbers:
        """Add the gradients of a batch to those that are there."""
        loss, numbers = self.evaluate(batch)
        share = loss if self.accumulate == 1 else loss / self.accumulate
        (share if self.scaler is None else self.scaler.scale(share)).backward()
        return numbers

    def apply(self) -> None:
        """Change the model by its gradients, and forget them."""
        if self.scaler is not None and (self.clip_norm is not None or self.clip_value is not None):
            self.scaler.unscale_(self.optimizer)
        if self.clip_value is not None:
            weft.nn.utils.clip_grad_value_(self.parameters(), self.clip_value)
        if self.clip_norm is not None:
            weft.nn.utils.clip_grad_norm_(self.parameters(), self.clip_norm)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        if self.ema is not None:
            self.ema.update()
        self.optimizer.zero_grad()

    def train(self, batch: Any) -> Numbers:
        """A whole step on one batch."""
        numbers = self.differentiate(batch)
        self.apply()
        return numbers

    def validate(self, batch: Any) -> Numbers:
        """The numbers of a batch, without gradients."""
        with weft.no_grad():
            return self.evaluate(batch)[1]

    def squared_norms(self, batch: Any) -> Any:
        """The squared norm of the gradient of each parameter; the gradients are forgotten."""
        loss, _ = self.evaluate(batch)
        loss.backward()
        with weft.no_grad():
            zero = weft.zeros((), dtype=weft.float32)
            found = [
                zero if p.grad is None else p.grad.astype(weft.float32).square().sum()
                for p in self.parameters()
            ]
            squares = weft.stack(found)
        self.optimizer.zero_grad()
        return squares

    def parameters(self) -> list[Any]:
        """What the optimizer changes."""
        return [p for group in self.optimizer.param_groups for p in group["params"]]


def _call(function: Any, *args: Any) -> Any:
    """Call a function of the user's; what is captured includes its branches and loops on tensors."""
    return weft.jit.call_forward(function, *args) if weft.jit.is_capturing() else function(*args)


def _function(metric: Any) -> Any:
    """What a metric computes of a batch."""
    return metric.measure if isinstance(metric, Metric) else metric


def _check_loss(loss: Any) -> None:
    if not isinstance(loss, weft.Tensor):
        raise ArgumentError("Trainer", f"the loss must be a tensor, got {type(loss).__name__}")
    if loss.ndim:
        hint = "take its mean"
        raise DomainError("Trainer", f"the loss must be one number, got shape {loss.shape}", hint=hint)


def split_batch(model: Any, batch: Any) -> tuple[Any, Any]:
    """Outputs and targets of a batch ``(input, ..., target)``.

    >>> import weft
    >>> from weft.train.step import split_batch
    >>> split_batch(lambda x: x * 2.0, (weft.ones(2), weft.zeros(2)))
    (tensor([2., 2.]), tensor([0., 0.]))
    """
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        hint = "pass forward=, a function from the model and a batch to outputs and targets"
        got = type(batch).__name__
        raise ArgumentError("Trainer", f"a batch must be a tuple (input, ..., target), got {got}", hint=hint)
    *inputs, target = batch
    return model(*inputs), target


class Compiled:
    """Functions of batches, compiled for each shape of these.

    Args:
        function: to compile, or None for one that is run as it is.
        ranks: that share the work.
    """

    def __init__(self, function: Callable[..., Any], compiles: bool, ranks: Ranks | None = None) -> None:
        self._function = function
        self._compiles = compiles
        self._settings: dict[str, Any] = {} if ranks is None else ranks.settings
        self._by_shape: dict[Any, Callable[..., Any]] = {}
        self._shared: Callable[..., Any] | None = None

    def __call__(self, *batch: Any) -> Any:
        """Run on a batch."""
        if not self._compiles:
            return self._function(*batch)
        leaves = weft.tree_leaves(batch)
        shape = tuple(x.shape if isinstance(x, weft.Tensor) else None for x in leaves)
        found = self._by_shape.get(shape)
        return (self._new(shape) if found is None else found)(*batch)

    def _new(self, shape: Any) -> Callable[..., Any]:
        if len(self._by_shape) < MOST_SHAPES:
            self._by_shape[shape] = weft.compile(_own(self._function), **self._settings)
            return self._by_shape[shape]
        if self._shared is None:
            self._shared = weft.compile(_own(self._function), **self._settings)
        return self._shared

    def graph(self) -> Any:
        """The graph of the function that was compiled first; None if there is none yet."""
        found = [f for f in self._by_shape.values() if getattr(f, "versions", ())]
        return found[0].graph if found else None  # type: ignore[attr-defined]

    def shapes(self) -> list[Any]:
        """The shapes that have a function of their own."""
        return [list(shape) for shape in self._by_shape]

    def set_shapes(self, shapes: list[Any]) -> None:
        """Let these shapes have functions of their own, and further ones only while there is room."""
        self._by_shape = {
            tuple(None if s is None else tuple(s) for s in shape): weft.compile(
                _own(self._function), **self._settings
            )
            for shape in shapes
        }


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    def step(*batch: Any) -> Any:
        return function(*batch)

    return step
