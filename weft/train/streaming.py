"""Metrics that are added up over batches: the base class, and those of numbers.

A metric knows three things: what matters of one batch (``measure``, pure, so it can stand in a graph), how
two of these are put together (``combine``), and the number that comes of it (``result``). Sums are kept in
64 bits. Which batches came together, in which process, and in which order does not matter to the result.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

import weft
from weft import parallel
from weft.errors import ArgumentError, DomainError, ShapeError

State = dict[str, Any]


class Metric:
    """Base of metrics that are added up.

    Own metrics define ``zero``, ``measure``, ``result``, and ``combine`` unless parts are summed.

    >>> import weft
    >>> from weft.train import metrics
    >>> class Positive(metrics.Metric):
    ...     '''The share of outputs above zero.'''
    ...     def zero(self):
    ...         return {"above": weft.zeros((), dtype=weft.int64), "count": weft.zeros((), dtype=weft.int64)}
    ...     def measure(self, output, target):
    ...         return {"above": (output > 0).sum(), "count": weft.full((), output.numel())}
    ...     def result(self, state):
    ...         return float(state["above"]) / float(state["count"])
    >>> share = Positive()
    >>> share.update(weft.tensor([1.0, -1.0]), None)
    >>> share.update(weft.tensor([2.0, 3.0]), None)
    >>> share.compute()
    0.75
    """

    grows = False  # whether its state becomes larger with each batch

    def __init__(self) -> None:
        self._state = self.zero()
        self._waiting: list[State] = []  # of one that grows: what is not in its state yet

    # What a metric is

    def zero(self) -> State:
        """The state before the first batch: tensors by name."""
        raise NotImplementedError

    def measure(self, output: Any, target: Any) -> State:
        """What matters of one batch, in tensors; it may stand in a graph."""
        raise NotImplementedError

    def combine(self, first: State, second: State) -> State:
        """Two states as one; by default each part is summed."""
        return {name: first[name] + second[name] for name in first}

    def combine_all(self, states: Sequence[State]) -> State:
        """Several states as one; by default two by two."""
        return functools.reduce(self.combine, states)

    def result(self, state: State) -> Any:
        """The number that comes of a state."""
        raise NotImplementedError

    # Using it

    def update(self, output: Any, target: Any) -> None:
        """Add a batch; in a compiled function, too."""
        if self.grows and weft.jit.is_capturing():
            hint = "return measure(output, target) from the step, and add() it outside; or give bins="
            raise DomainError(self._name, "update of a state that grows must be outside of graphs", hint=hint)
        with weft.no_grad():
            self.add(self.measure(output, target))

    def add(self, measured: Mapping[str, Any]) -> None:
        """Add what ``measure`` gave for a batch, of this or of another process."""
        with weft.no_grad():
            if self.grows:
                self._waiting.append(dict(measured))
                return
            own = {name: _beside(x, measured[name]) for name, x in self._state.items()}
            self._take(self.combine(own, dict(measured)))

    @property
    def state(self) -> State:
        """What has been added so far."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            with weft.no_grad():
                own = {name: _beside(x, waiting[0][name]) for name, x in self._state.items()}
                self._take(self.combine_all([own, *waiting]))
        return self._state

    def merge(self, other: Metric) -> Self:
        """Add what another metric of the same kind and settings has seen."""
        if type(other) is not type(self) or _settings(other) != _settings(self):
            raise ArgumentError(
                self._name, f"merge takes a metric of the same kind and settings, got {type(other).__name__}"
            )
        self.add(other.state)
        return self

    def reset(self) -> None:
        """Begin anew."""
        self._waiting = []
        self._take(self.zero())

    def compute(self, over: str | Sequence[str] | None = None) -> Any:
        """The number for all batches so far.

        Args:
            over: axes of the mesh over whose ranks it is merged, each having seen batches of its own; all
                of them must call it. The state of each stays its own. In a step that is compiled for a mesh,
                and in a Trainer, metrics see whole batches, and there is nothing to merge.
        """
        state = self.state if over is None else self._merged(over)
        return self.result(state)

    def _merged(self, over: str | Sequence[str]) -> State:
        """The states of all ranks as one; put together in the order of the ranks, so on all alike."""
        with weft.no_grad():
            parts: list[State] | None = None
            for name, x in self.state.items():
                found = _gathered(x, over)
                parts = parts or [{} for _ in found]
                for part, each in zip(parts, found, strict=True):
                    part[name] = each
            return self.combine_all(parts or [self.zero()])

    def _take(self, state: State) -> None:
        for name, x in state.items():
            old = self._state.get(name)
            if old is not None and old.shape == x.shape and old.dtype == x.dtype and old.device == x.device:
                old.copy_(x)  # in place: a compiled function then has it as its state
            else:
                self._state[name] = x

    def state_dict(self) -> State:
        """What has been added, as tensors of its own."""
        return {name: x.clone() for name, x in self.state.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        zero = self.zero()
        if set(state) != set(zero):
            told = ", ".join(sorted(zero))
            raise DomainError(self._name, f"the state must have {told}, got {', '.join(sorted(state))}")
        for name, x in state.items():
            if not self.grows and tuple(weft.asarray(x).shape) != tuple(zero[name].shape):
                got = tuple(weft.asarray(x).shape)
                raise ShapeError(self._name, f"{name} must have shape {tuple(zero[name].shape)}, got {got}")
        self._waiting = []
        self._take({name: weft.asarray(x).clone() for name, x in state.items()})

    def clone(self) -> Self:
        """One of the same settings that has seen nothing."""
        other = copy.copy(self)
        other._state, other._waiting = other.zero(), []
        return other

    @property
    def _name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in _settings(self).items())
        return f"{self._name}({told})"


def _settings(metric: Metric) -> dict[str, Any]:
    return {name: value for name, value in vars(metric).items() if not name.startswith("_")}


def _beside(x: Any, other: Any) -> Any:
    """A part of the state on the device of what is added to it."""
    device = getattr(other, "device", None)
    return x if device is None or x.device == device else x.to(device)


def _gathered(x: Any, over: str | Sequence[str]) -> list[Any]:
    """What each rank has, whose first axes may differ."""
    flat = x.reshape(1) if x.ndim == 0 else x
    lengths = parallel.all_gather(weft.tensor([flat.shape[0]], dtype=weft.int64), over).numpy()
    longest = int(lengths.max())
    filled = weft.concat([flat, weft.zeros((longest - flat.shape[0], *flat.shape[1:]), dtype=x.dtype)])
    whole = parallel.all_gather(filled, over)
    parts = [whole[i * longest : i * longest + int(n)] for i, n in enumerate(lengths)]
    return [part.reshape(()) for part in parts] if x.ndim == 0 else parts


def count() -> Any:
    """A number of things before there are any."""
    return weft.zeros((), dtype=weft.int64)


def total() -> Any:
    """A sum before there is anything to sum."""
    return weft.zeros((), dtype=weft.float64)


def ratio(above: Any, below: Any) -> float:
    """A share; NaN where there is nothing."""
    whole = float(below)
    return float(above) / whole if whole else float("nan")


def check_same_shape(name: str, output: Any, target: Any) -> None:
    """Raise unless outputs and targets are of one shape."""
    if tuple(output.shape) != tuple(target.shape):
        got = f"{tuple(output.shape)} and {tuple(target.shape)}"
        raise ShapeError(name, f"outputs and targets must have the same shape, got {got}")


def check_scores(name: str, output: Any, target: Any) -> None:
    """Raise unless outputs have one axis more than targets, that of classes."""
    if tuple(output.shape[:-1]) != tuple(target.shape) or not output.ndim:
        got = f"{tuple(output.shape)} and {tuple(target.shape)}"
        raise ShapeError(name, f"outputs must have the shape of targets and an axis of classes, got {got}")


def check_choice(name: str, setting: str, value: Any, known: Sequence[Any]) -> None:
    """Raise unless a setting is one of those known."""
    if value not in known:
        raise DomainError(name, f"{setting} must be among {', '.join(map(str, known))}, got {value!r}")


# Metrics of numbers


class Perplexity(Metric):
    """The exponential of the mean negative log probability of the targets, by tokens.

    Outputs are logits with an axis of classes at the end, targets their numbers.

    Args:
        ignore: the target of positions that do not count, such as padding.

    >>> import weft
    >>> from weft.train import metrics
    >>> perplexity = metrics.Perplexity()
    >>> perplexity.update(weft.zeros((2, 5, 10)), weft.zeros((2, 5), dtype=weft.int64))
    >>> round(perplexity.compute(), 4)
    10.0
    """

    def __init__(self, ignore: int = -100) -> None:
        self.ignore = ignore
        super().__init__()

    def zero(self) -> State:
        """No loss of no tokens."""
        return {"loss": total(), "count": count()}

    def measure(self, output: Any, target: Any) -> State:
        """The loss of the tokens of a batch, and how many there are."""
        check_scores(self._name, output, target)
        logits, wanted = output.reshape(-1, output.shape[-1]), target.reshape(-1)
        counts = wanted != self.ignore
        each = weft.cross_entropy(
            logits.astype(weft.float32), weft.where(counts, wanted, 0), reduction="none"
        )
        loss = weft.where(counts, each, 0.0).astype(weft.float64).sum()
        return {"loss": loss, "count": counts.astype(weft.int64).sum()}

    def result(self, state: State) -> float:
        """The perplexity."""
        with np.errstate(over="ignore"):
            return float(np.exp(ratio(state["loss"], state["count"])))


class R2(Metric):
    """The coefficient of determination: 1 minus the squared errors over the squared distances to the mean.

    Outputs and targets of any one shape; all their elements count alike.

    >>> import weft
    >>> from weft.train import metrics
    >>> r2 = metrics.R2()
    >>> r2.update(weft.tensor([2.5, 0.0, 2.0, 8.0]), weft.tensor([3.0, -0.5, 2.0, 7.0]))
    >>> round(r2.compute(), 4)
    0.9486
    """

    def zero(self) -> State:
        """Nothing seen."""
        return {"count": count(), "mean": total(), "spread": total(), "error": total()}

    def measure(self, output: Any, target: Any) -> State:
        """How many targets there are, their mean, and the squared distances to it and to the outputs."""
        check_same_shape(self._name, output, target)
        wanted = target.astype(weft.float64)
        mean = wanted.mean()
        error = (output.astype(weft.float64) - wanted).square().sum()
        number = weft.full((), target.numel(), dtype=weft.int64)
        return {"count": number, "mean": mean, "spread": (wanted - mean).square().sum(), "error": error}

    def combine(self, first: State, second: State) -> State:
        """Means and spreads of two parts put together (Chan, Golub and LeVeque, 1983)."""
        a, b = first["count"].astype(weft.float64), second["count"].astype(weft.float64)
        whole = a + b
        share = b / weft.where(whole == 0, weft.ones_like(whole), whole)
        apart = second["mean"] - first["mean"]
        return {
            "count": first["count"] + second["count"],
            "mean": first["mean"] + apart * share,
            "spread": first["spread"] + second["spread"] + apart * apart * a * share,
            "error": first["error"] + second["error"],
        }

    def result(self, state: State) -> float:
        """The coefficient; NaN where all targets are equal."""
        spread = float(state["spread"])
        return 1.0 - float(state["error"]) / spread if spread else float("nan")
