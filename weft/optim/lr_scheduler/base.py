"""The base of schedules, and how their arguments are checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import ArgumentError, DomainError
from weft.optim.optimizer import Group, Optimizer


class LRScheduler:
    """A schedule of learning rates; subclasses define ``rate``.

    Args:
        optimizer: whose rates it sets.
        last_epoch: the number of the last step; -1 to start.

    Attributes:
        last_epoch: how often ``step`` was called.
        base_lrs: the rates at the start.
    """

    optimizer: Optimizer

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = checked_optimizer(type(self).__name__, optimizer)
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                hint = "load the optimizer's state first, or leave last_epoch out"
                raise DomainError(
                    type(self).__name__, "groups must have an initial_lr to go on from a step", hint=hint
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def rate(self, group: Group, base: float) -> float:
        """The rate of a group at ``last_epoch``, from its rate now and that at the start."""
        raise NotImplementedError  # each schedule says it

    def step(self) -> None:
        """Go to the next step."""
        count = len(self.optimizer.param_groups)
        if count != len(self.base_lrs):
            raise DomainError(
                type(self).__name__,
                f"the optimizer must have {len(self.base_lrs)} groups as at the start, got {count}",
                hint="add groups first, then make the schedule",
            )
        self.last_epoch += 1
        self.apply()

    def apply(self) -> None:
        """Set the rates of step ``last_epoch``."""
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = float(self.rate(group, base))

    def restart(self) -> None:
        """Begin at step 0, from the rates as they are now."""
        self.last_epoch = -1
        self.step()

    def get_last_lr(self) -> list[float]:
        """The rates of the groups now."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and functions."""
        return {k: _copied(v) for k, v in self.__dict__.items() if k != "optimizer" and not _has_function(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what ``state_dict`` gave; the rates themselves are in the optimizer's state."""
        expected = self.state_dict().keys()
        if state_dict.keys() != expected:
            name = type(self).__name__
            raise DomainError(
                "load_state_dict",
                f"the state of {name} must have {', '.join(expected)}, got {', '.join(state_dict)}",
                hint="it is the state of another schedule",
            )
        self.__dict__.update({k: _copied(v) for k, v in state_dict.items()})


def _has_function(value: object) -> bool:
    return callable(value) or (isinstance(value, list) and any(map(callable, value)))


def _copied(value: object) -> Any:
    return list(value) if isinstance(value, list) else value


def checked_optimizer(name: str, optimizer: object) -> Optimizer:
    """An optimizer, which it must be."""
    if not isinstance(optimizer, Optimizer):
        raise ArgumentError(name, f"must be given an optimizer, got {type(optimizer).__name__}")
    return optimizer


def for_groups(name: str, argument: str, value: object, optimizer: Optimizer) -> list[Any]:
    """A value for each group: the same one, or those of a sequence."""
    count = len(checked_optimizer(name, optimizer).param_groups)
    if not isinstance(value, Sequence):
        return [value] * count
    if len(value) != count:
        raise DomainError(name, f"{argument} must be one or one for each of {count} groups, got {len(value)}")
    return list(value)


def check_whole(name: str, argument: str, value: object, least: int = 1) -> None:
    """Raise unless a value is an int that is large enough."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError(name, f"{argument} must be an int, got {type(value).__name__}")
    if value < least:
        raise DomainError(name, f"{argument} must be at least {least}, got {value}")
