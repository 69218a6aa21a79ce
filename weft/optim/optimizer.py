"""The base of optimizers: groups of parameters with their settings, and state for each parameter.

State is held in tensors that are changed in place, step counts too, and a learning rate is read when the step
runs. So a training step can be captured once, and goes on when the rate changes; other settings, and which
tensors are the state, are guarded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Any, ClassVar

import weft
from weft import nn
from weft.base.device import DeviceLike
from weft.base.elsewhere import Missing
from weft.base.elsewhere_objects import OPTIMIZER
from weft.base.public import public
from weft.capture.runtime.modules import (
    held_parts,
    is_capturing,
    name_parts,
    outside,
    read_attribute,
    read_item,
    where_held,
    zero_gradient,
)
from weft.errors import ArgumentError, DomainError

Group = dict[str, Any]

_LARGE = 1 << 16  # elements of all parameters
NOT_NEGATIVE = (0.0, inf)
FRACTION = (0.0, 1.0)


class Optimizer:
    """Changes parameters by their gradients; subclasses define ``rule``, or ``move_all`` as a whole.

    Args:
        params: tensors, or dicts with ``params`` and settings of their own.
        defaults: settings of groups that have none of their own.

    Attributes:
        param_groups: dicts of settings, each with its ``params``; a change counts from the next step on.
        state: tensors that an optimizer keeps for each parameter, by name.
        limits: of settings that are numbers, or tuples of them: the least value, and one that is too large.
    """

    limits: ClassVar[Mapping[str, tuple[float, float]]] = {}
    _compiled: Any = None
    _weft_made_outside: ClassVar[Any] = (  # see weft.capture.runtime.objects
        "an optimizer",
        "whose state begins anew",
        "make it outside, and step it inside; p.sub_(lr * g) of gradients needs none",
    )

    def __init_subclass__(cls) -> None:
        """Let errors of constructors name the class, without lines of weft in their tracebacks."""
        super().__init_subclass__()
        if (own := vars(cls).get("__init__")) is not None:
            own.__name__ = cls.__name__
            cls.__init__ = public(own)  # type: ignore[method-assign]

    def __init__(self, params: Any, defaults: Mapping[str, Any]) -> None:
        self.defaults = dict(defaults)
        self.param_groups: list[Group] = []
        self.generation = 0  # counts changes of which tensors are the state
        self._size = (-1, 0)  # elements of all parameters, and the generation they were counted in
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        if weft.is_tensor(params):
            raise ArgumentError(
                type(self).__name__, "params must be several tensors or dicts, got one tensor"
            )
        _check_no_module(type(self).__name__, params)
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
        if not isinstance(param_group, Mapping) or "params" not in param_group:
            hint = 'write {"params": [...], "lr": 0.1}'
            raise ArgumentError(name, "a group must be a dict with params", hint=hint)
        settings = {**self.defaults, **param_group}
        self.check(settings)
        given = param_group["params"]
        _check_no_module(name, given)
        params = [given] if weft.is_tensor(given) else list(given)
        known = {id(p) for group in self.param_groups for p in group["params"]}
        for p in params:
            if not weft.is_tensor(p):
                raise ArgumentError(name, f"params must be tensors, got {type(p).__name__}")
            if not p.is_leaf:
                hint = "give it the tensors themselves, as model.parameters() does"
                raise ArgumentError(name, "params must be leaves, got the result of an op", hint=hint)
            if not weft.isdtype(p.dtype, "real floating"):
                raise ArgumentError(name, f"params must be floating, got {p.dtype.name}")
            if id(p) in known:
                raise DomainError(name, "a parameter must be in one group only, got one twice")
            known.add(id(p))
        self.param_groups.append({**settings, "params": params})
        self.generation += 1

    def check(self, settings: Group) -> None:
        """Raise if settings of a group are not what they must be."""
        name = type(self).__name__
        for key, limits in self.limits.items():
            value = settings[key]
            if isinstance(value, tuple | list):
                check_range(name, **{f"{key}[{i}]": (x, *limits) for i, x in enumerate(value)})
            else:
                check_range(name, **{key: (value, *limits)})
        if "betas" in self.limits and len(settings["betas"]) != 2:
            raise ArgumentError(name, f"betas must be two numbers, got {len(settings['betas'])}")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or set them to zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                else:
                    zero_gradient(p)

    def step(self, closure: Any = None) -> Any:
        """Change the parameters once.

        Args:
            closure: computes the loss and its gradients again, for optimizers that want it; called once.

        Returns:
            What the closure returned.
        """
        loss = None if closure is None else closure()
        if self._is_large():
            self._compiled = self._compiled or weft.compile(self._run)
            self._compiled()
        else:
            self._run()
        return loss

    def _is_large(self) -> bool:
        """Whether a step takes long enough to be worth a graph, which has all parameters in one kernel.

        An optimizer that is not ours may do more in a step than change tensors: it runs as it is written.
        """
        ours = type(self).__module__.startswith("weft.optim.")
        if not ours or is_capturing() or not weft.get_eager_kernels():
            return False
        if self._size[0] != self.generation:
            self._size = (self.generation, sum(p.size for p in self._params()))
        return self._size[1] >= _LARGE and not self._is_replayed()

    def _is_replayed(self) -> bool:
        """Whether a CUDA graph is being captured: it has single launches in it, and no calls."""
        first = next(iter(self._params()))
        return first.device.type == "cuda" and weft.cuda.is_current_stream_capturing(first.device)

    def _run(self) -> None:
        """Change the parameters of all groups."""
        with weft.no_grad():
            for group in self.param_groups:
                parts = held_parts(group["params"])
                for _, params in parts:
                    with outside():
                        self.prepare(group, params)
                    self.begin()
                    if is_capturing():
                        for p in params:
                            name_parts(p, self.state[p])
                if parts:
                    where_held(parts, partial(self.move_all, settings(group)))
        read_attribute(self, "generation")

    def prepare(self, group: Group, params: list[Any]) -> None:
        """Make the state that parameters of a group need and do not have yet."""

    def begin(self) -> None:
        """What is left to do for state that ``prepare`` made, as a part of the step."""

    def move_all(self, group: Group, params: list[Any]) -> None:
        """Change the parameters of a group that have gradients."""
        for p in params:
            self.move(group, p)

    def move(self, settings: Group, p: Any) -> None:
        """Change a parameter and its state by the rule."""
        state = self.state[p]
        value, new = self.rule(settings, p._value(), p.grad, state)
        for name, content in new.items():
            assign(state[name], content)
        assign(p, value)

    @classmethod
    def rule(cls, settings: Group, p: object, g: object, state: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """One step of a parameter, element by element.

        Args:
            settings: of its group.
            p: its value.
            g: its gradient.
            state: what ``prepare`` made for it.

        Returns:
            Its new value, and the state that changed.
        """
        raise NotImplementedError  # each optimizer says it

    def add_zeros(self, param: Any, *names: str) -> None:
        """Give a parameter state of zeros of its own type, under names that it does not have yet."""
        state = self.state[param]
        for name in names:
            if name not in state:
                state[name] = weft.zeros_like(param)
                self.generation += 1

    def state_dict(self) -> dict[str, Any]:
        """The state and the settings, with numbers for parameters in the order they were given."""
        numbers = {id(p): i for i, p in enumerate(self._params())}
        groups = [{**g, "params": [numbers[id(p)] for p in g["params"]]} for g in self.param_groups]
        state = {numbers[id(p)]: {k: _detached(v) for k, v in held.items()} for p, held in self.state.items()}
        return {"state": state, "param_groups": groups}

    def to(self, device: DeviceLike) -> Optimizer:
        """Have all state on a device, counts of steps too, so that steps can be captured there; itself.

        State is made where its parameters are, but for the counts; see ``weft.cuda.graph``.
        """
        moved: dict[int, Any] = {}  # tensors that several parameters share stay shared
        for held in self.state.values():
            for name, value in held.items():
                if weft.is_tensor(value):
                    held[name] = moved.setdefault(id(value), value.to(device))
        self.generation += 1
        return self

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        groups = self._checked_groups(state_dict)
        numbers = [i for g in groups for i in g["params"]]
        by_number = dict(zip(numbers, self._params(), strict=True))
        for i, held in state_dict["state"].items():
            self.check_state(by_number[int(i)], held)
        for own, new in zip(self.param_groups, groups, strict=True):
            own.update({k: tuple(v) if k == "betas" else v for k, v in new.items() if k != "params"})
        self.state.clear()
        self.generation += 1
        copies: dict[int, Any] = {}  # tensors that several parameters share stay shared
        for i, held in state_dict["state"].items():
            p = by_number[int(i)]
            self.state[p] = {k: _placed(_copied(v, copies), p) for k, v in held.items()}

    def check_state(self, param: Any, state: Mapping[str, Any]) -> None:
        """Raise if state to load does not fit a parameter: it has its shape, or is one number."""
        for name, t in state.items():
            if weft.is_tensor(t) and t.ndim and t.shape != param.shape:
                message = f"{name} must have the shape of its parameter, got {t.shape} for {param.shape}"
                raise DomainError("load_state_dict", message, hint="are the parameters in the same order?")

    def _checked_groups(self, state_dict: Mapping[str, Any]) -> list[Group]:
        """The groups of a state, which must fit those here."""
        if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= state_dict.keys():
            hint = "pass what optimizer.state_dict() gave"
            raise ArgumentError("load_state_dict", "must have state and param_groups", hint=hint)
        groups: list[Group] = state_dict["param_groups"]
        sizes, given = ([len(g["params"]) for g in gs] for gs in (self.param_groups, groups))
        if sizes != given:
            raise DomainError("load_state_dict", f"groups must have {sizes} parameters, got {given}")
        missing = sorted({k for own in self.param_groups for k in self.defaults if k in own} - set(groups[0]))
        if missing:
            hint = "it is the state of another kind of optimizer"
            name = type(self).__name__
            raise DomainError(
                "load_state_dict", f"groups of {name} must have {', '.join(missing)}", hint=hint
            )
        return groups

    def __getstate__(self) -> dict[str, Any]:
        """What a copy has of its own; it compiles anew."""
        return {name: value for name, value in vars(self).items() if name != "_compiled"}

    def _params(self) -> list[Any]:
        return [p for group in self.param_groups for p in group["params"]]

    def __repr__(self) -> str:
        lines = []
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return f"{type(self).__name__} (\n" + "\n".join(lines) + "\n)"


for _name, _hint in OPTIMIZER.items():
    setattr(Optimizer, _name, Missing(_name, _hint))


def _detached(value: Any) -> Any:
    if isinstance(value, list):
        return [_detached(v) for v in value]
    return value._value() if weft.is_tensor(value) else value


def _placed(value: object, param: weft.Tensor) -> object:
    """State where its parameter is; counts of steps, which Python asks for, on the cpu."""
    if not isinstance(value, weft.Tensor):
        return value
    return value.to("cpu" if param.ndim and not value.ndim else param.device)


def _copied(value: Any, copies: dict[int, Any]) -> Any:
    if isinstance(value, list):
        return [_copied(v, copies) for v in value]
    if not weft.is_tensor(value):
        return value
    if id(value) not in copies:
        copies[id(value)] = value._value().clone()
    return copies[id(value)]


def settings(group: Group) -> Group:
    """What a step uses of a group, with ``beta1`` and ``beta2``, and what weight decay leaves as ``kept``.

    A captured step reads the rate at each call, and guards the rest. Once a schedule moves momentum or betas,
    these are read at each call too.
    """
    capturing, dynamic = is_capturing(), weft.jit.dynamic
    anew = ("params", "lr", "initial_lr", *(("momentum", "betas") if "base_momentum" in group else ()))
    found = {k: read_item(group, k) if capturing else group[k] for k in group if k not in anew}
    found["lr"] = dynamic(lambda: group["lr"], name="lr")
    if "momentum" in group and "momentum" in anew:
        found["momentum"] = dynamic(lambda: group["momentum"], name="momentum")
    if "betas" in group and "betas" in anew:
        found["beta1"] = dynamic(lambda: group["betas"][0], name="beta1")
        found["beta2"] = dynamic(lambda: group["betas"][1], name="beta2")
    elif "betas" in group:
        found["beta1"], found["beta2"] = group["betas"]
    if group.get("weight_decay"):
        found["kept"] = 1.0 - found["lr"] * group["weight_decay"]
    return found


def arguments(names: Mapping[str, Any]) -> Group:
    """The settings among the ``locals()`` of a constructor: all arguments but the parameters."""
    found = {k: v for k, v in names.items() if k not in ("self", "params", "__class__")}
    return {**found, "betas": tuple(found["betas"])} if "betas" in found else found


def directed(settings: Group, p: Any, g: Any, *, decay: bool = True) -> Any:
    """The gradient that a step goes against: turned round to maximize, with weight decay added."""
    g = -g if settings["maximize"] else g
    return g + p * settings["weight_decay"] if decay and settings["weight_decay"] else g


def is_used(setting: object) -> bool:
    """Whether a setting is not 0; one that is read at each call may be anything."""
    return not (isinstance(setting, int | float) and setting == 0)


def assign(tensor: Any, value: Any) -> None:
    """Give a tensor another value, in its own dtype."""
    tensor._set(value if value.dtype == tensor.dtype else value.astype(tensor.dtype))


def check_range(op: str, **settings: tuple[Any, float, float]) -> None:
    """Raise if a setting, given with its limits, is outside [low, high)."""
    for name, (value, low, high) in settings.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ArgumentError(op, f"{name} must be a number, got {type(value).__name__}")
        if not low <= value < high:
            raise DomainError(op, f"{name} must be in [{low:g}, {high:g}), got {value}")


def _check_no_module(name: str, params: Any) -> None:
    if isinstance(params, nn.Module):
        hint = f"give it the module's parameters: {name}(model.parameters(), ...)"
        raise ArgumentError(name, f"params must be tensors, got {type(params).__name__}", hint=hint)
