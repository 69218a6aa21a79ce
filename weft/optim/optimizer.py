"""The base of optimizers: groups of parameters with their settings, and state for each parameter.

State is held in tensors that are changed in place, step counts too, and a learning rate is read when the step
runs. So a training step can be captured once, and goes on when the rate changes; other settings, and which
tensors are the state, are guarded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import weft
from weft.capture.modules import is_capturing, name_parts, outside, read_attribute, read_item
from weft.errors import ArgumentError, DomainError

Group = dict[str, Any]


class Optimizer:
    """Changes parameters by their gradients; subclasses define ``update``.

    Args:
        params: tensors, or dicts with ``params`` and settings of their own.
        defaults: settings of groups that have none of their own.

    Attributes:
        param_groups: dicts of settings, each with its ``params``; a change counts from the next step on.
        state: tensors that an optimizer keeps for each parameter, by name.
    """

    def __init__(self, params: Any, defaults: Mapping[str, Any]) -> None:
        self.defaults = dict(defaults)
        self.param_groups: list[Group] = []
        self.generation = 0  # counts changes of which tensors are the state
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        if weft.is_tensor(params):
            raise ArgumentError(
                type(self).__name__, "params must be several tensors or dicts, got one tensor"
            )
        listed = list(params)
        if not listed:
            hint = "are they an iterator that was used up before?"
            raise ArgumentError(type(self).__name__, "params must not be empty", hint=hint)
        groups = listed if isinstance(listed[0], Mapping) else [{"params": listed}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Add parameters with settings of their own."""
        name = type(self).__name__
        given = param_group["params"]
        params = [given] if weft.is_tensor(given) else list(given)
        known = {id(p) for group in self.param_groups for p in group["params"]}
        for p in params:
            if not weft.is_tensor(p):
                raise ArgumentError(name, f"params must be tensors, got {type(p).__name__}")
            if not p.is_leaf:
                raise ArgumentError(name, "params must be leaves, got the result of an op")
            if id(p) in known:
                raise DomainError(name, "a parameter must be in one group only, got one twice")
            known.add(id(p))
        self.param_groups.append({**self.defaults, **param_group, "params": params})
        self.generation += 1

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or set them to zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    p.grad = weft.zeros_like(p)

    def step(self, closure: Any = None) -> Any:
        """Change the parameters once.

        Args:
            closure: computes the loss and its gradients again, for optimizers that want it; called once.

        Returns:
            What the closure returned.
        """
        loss = None if closure is None else closure()
        with weft.no_grad():
            for group in self.param_groups:
                chosen = [p for p in group["params"] if p.grad is not None]
                if chosen:
                    with outside():
                        self.prepare(group, chosen)
                    if is_capturing():
                        for p in chosen:
                            name_parts(p, self.state[p])
                    self.update(settings(group), chosen)
        read_attribute(self, "generation")
        return loss

    def prepare(self, group: Group, params: list[Any]) -> None:
        """Make the state that parameters of a group need and do not have yet."""

    def update(self, group: Group, params: list[Any]) -> None:
        """Change the parameters of a group that have gradients."""
        raise NotImplementedError  # each optimizer says it

    def add_zeros(self, param: Any, *names: str) -> None:
        """Give a parameter state of zeros of its own type, under names that it does not have yet."""
        state = self.state[param]
        for name in names:
            if name not in state:
                state[name] = weft.zeros(param.shape, dtype=param.dtype)
                self.generation += 1

    def state_dict(self) -> dict[str, Any]:
        """The state and the settings, with numbers for parameters in the order they were given."""
        numbers = {id(p): i for i, p in enumerate(self._params())}
        groups = [{**g, "params": [numbers[id(p)] for p in g["params"]]} for g in self.param_groups]
        state = {
            numbers[id(p)]: {k: v.detach() if weft.is_tensor(v) else v for k, v in held.items()}
            for p, held in self.state.items()
        }
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        groups = state_dict["param_groups"]
        sizes, given = ([len(g["params"]) for g in gs] for gs in (self.param_groups, groups))
        if sizes != given:
            raise DomainError("load_state_dict", f"groups must have {sizes} parameters, got {given}")
        for own, new in zip(self.param_groups, groups, strict=True):
            own.update({k: v for k, v in new.items() if k != "params"})
        params = self._params()
        numbers = [i for g in groups for i in g["params"]]
        by_number = dict(zip(numbers, params, strict=True))
        self.state.clear()
        self.generation += 1
        copies: dict[int, Any] = {}  # tensors that several parameters share stay shared
        for i, held in state_dict["state"].items():
            self.state[by_number[i]] = {k: _copied(v, copies) for k, v in held.items()}

    def _params(self) -> list[Any]:
        return [p for group in self.param_groups for p in group["params"]]

    def __repr__(self) -> str:
        lines = []
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return f"{type(self).__name__} (\n" + "\n".join(lines) + "\n)"


def _copied(value: Any, copies: dict[int, Any]) -> Any:
    if not weft.is_tensor(value):
        return value
    if id(value) not in copies:
        copies[id(value)] = value.detach().clone()
    return copies[id(value)]


def settings(group: Group) -> Group:
    """What a step uses of a group; a captured one reads the rate at each call, and guards the rest."""
    lr = weft.jit.dynamic(lambda: group["lr"], name="lr") if is_capturing() else group["lr"]
    rest = {name: read_item(group, name) for name in group if name not in ("lr", "params")}
    return {"lr": lr, **rest}


def assign(tensor: Any, value: Any) -> None:
    """Give a tensor another value, in its own dtype."""
    tensor.data = value if value.dtype == tensor.dtype else value.astype(tensor.dtype)


def check_range(op: str, **settings: tuple[Any, float, float]) -> None:
    """Raise if a setting, given with its limits, is outside [low, high)."""
    for name, (value, low, high) in settings.items():
        if not low <= value < high:
            raise DomainError(op, f"{name} must be in [{low}, {high}), got {value}")
