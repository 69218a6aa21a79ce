"""Loss scaling: gradients in half precision keep their small values if the loss is made larger first.

Micikevicius and others, "Mixed precision training", 2018. The scale is state in tensors, so that scaled
steps can be compiled. There a step with infinite gradients is computed, too, and what it changed is put back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import weft
from weft.capture.runtime.modules import is_capturing, outside, read_attribute, write_attribute
from weft.errors import ArgumentError, DomainError, GradientError
from weft.optim.optimizer import Optimizer, assign, check_range

_READY, _UNSCALED, _STEPPED = "ready", "unscaled", "stepped"


class _Part:
    """What happened to one optimizer since the last update.

    Attributes:
        stage: which of the three.
        found: whether a gradient was infinite or NaN, a tensor.
    """

    def __init__(self) -> None:
        self.stage = _READY
        self.found = weft.tensor(False)


class GradScaler:
    """Scales losses up and gradients down, and leaves out steps whose gradients are not finite.

    The scale grows from time to time, and falls when a gradient was infinite or NaN.

    Args:
        init_scale: the scale at the start.
        growth_factor: what it is multiplied by after ``growth_interval`` steps without such gradients.
        backoff_factor: what it is multiplied by after a step with such.
        growth_interval: how many steps.
        enabled: False to do nothing, so that one program serves both.

    >>> import weft
    >>> w = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.SGD([w], lr=0.1)
    >>> scaler = weft.optim.GradScaler(init_scale=1024.0)
    >>> with weft.autocast(weft.float16):
    ...     loss = (w @ w).sum()
    >>> scaler.scale(loss).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> w.detach()
    tensor([0.8000, 1.6000])
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        infinite = float("inf")
        check_range("GradScaler", init_scale=(init_scale, 2.0**-126, infinite))
        check_range("GradScaler", growth_factor=(growth_factor, 1.0, infinite))
        check_range("GradScaler", backoff_factor=(backoff_factor, 0.0, 1.0))
        check_range("GradScaler", growth_interval=(growth_interval, 1, infinite))
        self.growth_factor = growth_factor
        self.backoff_factor = backoff_factor
        self.growth_interval = growth_interval
        self.enabled = enabled
        self._scale = weft.tensor(init_scale, dtype=weft.float32)
        self._good = weft.tensor(0, dtype=weft.int64)  # steps without such gradients since the last change
        self._parts: WeakKeyDictionary[Optimizer, _Part] = WeakKeyDictionary()

    def scale(self, outputs: object) -> Any:
        """A loss, or several in a list, a tuple or a dict, times the scale."""
        if not read_attribute(self, "enabled"):
            return outputs
        return weft.tree_map(lambda x: x * self._scale, outputs)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of an optimizer by the scale, as to clip them before its step."""
        if not read_attribute(self, "enabled"):
            return
        part = self._part(optimizer)
        stage = read_attribute(part, "stage")
        if stage != _READY:
            said = "unscaled already" if stage == _UNSCALED else "used by a step"
            raise GradientError(
                "unscale_",
                f"gradients must be fresh, got some that were {said}",
                hint="call scaler.update() once after each step",
            )
        self._unscale(optimizer, part)
        write_attribute(part, "stage", _UNSCALED)

    def _unscale(self, optimizer: Optimizer, part: _Part) -> None:
        held = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not held:
            hint = "call scaler.scale(loss).backward() first"
            raise GradientError("GradScaler", "the optimizer's parameters must have gradients", hint=hint)
        with weft.no_grad():
            finite = [weft.isfinite(p.grad).all() for p in held]
            assign(part.found, ~weft.stack(finite).all())
            inverse = 1.0 / self._scale
            for p in held:
                g = p.grad._value() * inverse
                p.grad = g if g.dtype == p.dtype else g.astype(p.dtype)

    def step(self, optimizer: Optimizer) -> Any:
        """Step an optimizer, unless a gradient is not finite; gives what its step gave, or None."""
        if not read_attribute(self, "enabled"):
            return optimizer.step()
        part = self._part(optimizer)
        stage = read_attribute(part, "stage")
        if stage == _STEPPED:
            hint = "call scaler.update() after each step"
            raise GradientError(
                "GradScaler", "there must be one step between updates, got another", hint=hint
            )
        if stage == _READY:
            self._unscale(optimizer, part)
        write_attribute(part, "stage", _STEPPED)
        if is_capturing():
            return _step_unless(part.found, optimizer)
        return None if part.found.item() else optimizer.step()

    def update(self, new_scale: float | None = None) -> None:
        """Change the scale by what the steps since the last update met.

        Args:
            new_scale: the scale to go on with instead.
        """
        if not read_attribute(self, "enabled"):
            return
        used = [part for part in self._parts.values() if read_attribute(part, "stage") != _READY]
        if new_scale is not None:
            check_range("GradScaler", new_scale=(new_scale, 2.0**-126, float("inf")))
            assign(self._scale, weft.full_like(self._scale, new_scale))
        elif not used:
            raise GradientError("GradScaler", "update must follow a step", hint="call scaler.step(optimizer)")
        else:
            self._adapt(weft.stack([part.found for part in used]).any())
        for part in used:
            write_attribute(part, "stage", _READY)

    def _adapt(self, found: Any) -> None:
        good = self._good + 1
        due = good >= read_attribute(self, "growth_interval")
        grown = self._scale * read_attribute(self, "growth_factor")
        grown = weft.where(due & weft.isfinite(grown), grown, self._scale._value())
        fallen = self._scale * read_attribute(self, "backoff_factor")
        assign(self._scale, weft.where(found, fallen, grown))
        assign(self._good, weft.where(found | due, 0, good))

    def _part(self, optimizer: Optimizer) -> _Part:
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError("GradScaler", f"takes an optimizer, got {type(optimizer).__name__}")
        if optimizer not in self._parts:
            with outside():
                self._parts[optimizer] = _Part()
        return self._parts[optimizer]

    def get_scale(self) -> float:
        """The scale now; 1 if it is not enabled."""
        return float(self._scale.item()) if self.enabled else 1.0

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self.enabled

    def state_dict(self) -> dict[str, Any]:
        """The scale and the settings, as numbers."""
        names = ("growth_factor", "backoff_factor", "growth_interval")
        settings = {name: getattr(self, name) for name in names}
        return {"scale": float(self._scale.item()), **settings, "_growth_tracker": int(self._good.item())}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        missing = sorted(self.state_dict().keys() - state_dict.keys())
        if missing:
            hint = "pass what scaler.state_dict() gave"
            raise DomainError("load_state_dict", f"must have {', '.join(missing)}", hint=hint)
        assign(self._scale, weft.full_like(self._scale, state_dict["scale"]))
        assign(self._good, weft.full_like(self._good, state_dict["_growth_tracker"]))
        for name in ("growth_factor", "backoff_factor", "growth_interval"):
            setattr(self, name, state_dict[name])

    def __repr__(self) -> str:
        return f"GradScaler(scale={self.get_scale():g}, enabled={self.enabled})"


def _step_unless(found: Any, optimizer: Optimizer) -> Any:
    """Step an optimizer in a capture; where gradients are not finite everything gets its old value again."""
    with outside():
        for group in optimizer.param_groups:
            optimizer.prepare(group, [p for p in group["params"] if p.grad is not None])
    params = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    state = [t for p in params for t in optimizer.state[p].values() if weft.is_tensor(t)]
    changed = list({id(t): t for t in [*params, *state]}.values())
    before = [t._value() for t in changed]
    result = optimizer.step()
    with weft.no_grad():
        for t, old in zip(changed, before, strict=True):
            assign(t, weft.where(found, old, t._value()))
    return result
