"""L-BFGS: Newton's method with an inverse Hessian made of the last steps.

Nocedal and Wright, "Numerical optimization", 2006, algorithms 7.4 and 7.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import weft
from weft.errors import ArgumentError, CaptureError, DomainError
from weft.optim.line_search import Point, strong_wolfe
from weft.optim.optimizer import NOT_NEGATIVE, Group, Optimizer, arguments, assign, check_range


class LBFGS(Optimizer):
    """L-BFGS, which calls a closure several times in each step; the closure may be compiled.

    Args:
        params: tensors, in one group.
        lr: the learning rate: the length of a step, or the first that the line search tries.
        max_iter: iterations in each step.
        max_eval: calls of the closure in each step, 1.25 times ``max_iter`` by default.
        tolerance_grad: a step ends where no gradient is larger.
        tolerance_change: a step ends where neither parameters nor the loss change more.
        history_size: how many steps the inverse Hessian is made of.
        line_search_fn: ``"strong_wolfe"``, or None for steps of a fixed length.

    >>> import weft
    >>> w = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((w - weft.tensor([3.0, 4.0])) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure).item()
    8.0
    >>> w.detach()
    tensor([3., 4.])
    """

    limits: ClassVar = {"lr": NOT_NEGATIVE, "tolerance_grad": NOT_NEGATIVE, "tolerance_change": NOT_NEGATIVE}

    def __init__(
        self,
        params: object,
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        super().__init__(params, arguments(locals()))

    def check(self, settings: Group) -> None:
        """Counts are at least 1, and there is one line search."""
        super().check(settings)
        counts = ("max_iter", "max_eval", "history_size")
        check_range("LBFGS", **{k: (settings[k], 1, float("inf")) for k in counts})
        if settings["line_search_fn"] not in (None, "strong_wolfe"):
            got = repr(settings["line_search_fn"])
            raise DomainError("LBFGS", f'line_search_fn must be "strong_wolfe" or None, got {got}')

    def check_state(self, param: object, state: Mapping[str, Any]) -> None:
        """Vectors of all parameters together."""
        total = sum(p.numel() for p in self.param_groups[0]["params"])
        if "d" in state and state["d"].shape != (total,):
            got = state["d"].shape
            raise DomainError("load_state_dict", f"d must have one element for each of {total}, got {got}")

    def add_param_group(self, param_group: Any) -> None:
        """LBFGS has one group: its steps are of all parameters together."""
        if self.param_groups:
            raise DomainError("LBFGS", "params must be in one group, got another one")
        super().add_param_group(param_group)

    def step(self, closure: object = None) -> Any:
        """Change the parameters by up to ``max_iter`` iterations.

        Args:
            closure: sets gradients to zero, computes the loss and its gradients, and returns the loss.

        Returns:
            The loss that the closure returned first.
        """
        if not callable(closure):
            hint = "put zero_grad, the loss and backward into a function that returns the loss"
            raise ArgumentError("LBFGS", "step needs a closure", hint=hint)
        if weft.jit.is_capturing():
            hint = "compile the closure instead, and call optimizer.step(closure) outside"
            raise CaptureError(
                "LBFGS", "a step must not be captured: how long it is depends on losses", hint=hint
            )
        with weft.enable_grad():
            loss = closure()
        with weft.no_grad():
            _Step(self, closure, float(loss)).run()
        return loss

    @property
    def memory(self) -> dict[str, Any]:
        """What is kept from step to step, under the first parameter."""
        return self.state[self.param_groups[0]["params"][0]]

    def flat_gradient(self) -> Any:
        """All gradients in one vector."""
        params = self.param_groups[0]["params"]
        grads = [weft.zeros_like(p) if p.grad is None else p.grad._value() for p in params]
        return weft.cat([g.reshape(-1) for g in grads])

    def go_along(self, start: list[Any], direction: Any, length: float) -> None:
        """Set the parameters to a place on the line from where they were at the start."""
        first = 0
        for p, value in zip(self.param_groups[0]["params"], start, strict=True):
            part = direction[first : first + p.numel()].reshape(p.shape)
            assign(p, value + part * length)
            first += p.numel()


class _Step:
    """One step: iterations until something ends it."""

    def __init__(self, optimizer: LBFGS, closure: Callable[[], Any], loss: float) -> None:
        self.optimizer = optimizer
        self.group = optimizer.param_groups[0]
        self.closure = closure
        self.loss = loss
        self.gradient = optimizer.flat_gradient()
        self.memory = optimizer.memory
        for name in ("n_iter", "func_evals"):
            self.memory.setdefault(name, 0)
        self.memory["func_evals"] += 1
        self.evaluations = 1

    def run(self) -> None:
        """Iterate."""
        if _largest(self.gradient) <= self.group["tolerance_grad"]:
            return
        for i in range(1, self.group["max_iter"] + 1):
            self.memory["n_iter"] += 1
            direction = self._direction()
            slope = float(self.gradient @ direction)
            length = self._first_length()
            before = self.loss
            self.memory.update(d=direction, t=length, prev_flat_grad=self.gradient)
            if slope > -self.group["tolerance_change"]:
                return
            length = self._go(direction, slope, length, is_last=i == self.group["max_iter"])
            self.memory["t"] = length
            if self._is_done(_largest(direction) * abs(length), abs(self.loss - before)):
                return

    def _is_done(self, moved: float, changed: float) -> bool:
        tolerance = self.group["tolerance_change"]
        if self.evaluations >= self.group["max_eval"] or moved <= tolerance or changed < tolerance:
            return True
        return bool(_largest(self.gradient) <= self.group["tolerance_grad"])

    def _first_length(self) -> float:
        lr = float(self.group["lr"])
        return min(1.0, 1.0 / float(self.gradient.abs().sum())) * lr if self.memory["n_iter"] == 1 else lr

    def _direction(self) -> Any:
        """Minus the inverse Hessian, as far as it is known, times the gradient."""
        memory = self.memory
        if memory["n_iter"] == 1:
            memory.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -self.gradient
        self._remember(self.gradient - memory["prev_flat_grad"], memory["d"] * memory["t"])
        history = list(zip(memory["old_dirs"], memory["old_stps"], memory["ro"], strict=True))
        q, shares = -self.gradient, []
        for y, s, rho in reversed(history):
            shares.append(float(s @ q) * rho)
            q = q - y * shares[-1]
        q = q * memory["H_diag"]
        for (y, s, rho), share in zip(history, reversed(shares), strict=True):
            q = q + s * (share - float(y @ q) * rho)
        return q

    def _remember(self, y: Any, s: Any) -> None:
        """Take the change of the gradient y over a step s into the history, if it curves upwards."""
        curvature = float(y @ s)
        if curvature <= 1e-10:
            return
        memory = self.memory
        for name, new in (("old_dirs", y), ("old_stps", s), ("ro", 1.0 / curvature)):
            memory[name] = [*memory[name], new][-self.group["history_size"] :]
        memory["H_diag"] = curvature / float(y @ y)

    def _go(self, direction: object, slope: float, length: float, *, is_last: bool) -> float:
        """Move along a direction; gives how far."""
        start = [p._value() for p in self.group["params"]]
        if self.group["line_search_fn"] is None:
            self.optimizer.go_along(start, direction, length)
            if not is_last:
                self._evaluate()
            return length

        def look(place: float) -> Point:
            self.optimizer.go_along(start, direction, place)
            self._evaluate()
            return Point(place, self.loss, self.gradient, float(self.gradient @ direction))

        found, _ = strong_wolfe(
            look,
            Point(0.0, self.loss, self.gradient, slope),
            length,
            size=_largest(direction),
            tolerance=1e-9,
            most=self.group["max_eval"] - self.evaluations,
        )
        self.loss, self.gradient = found.value, found.gradient
        self.optimizer.go_along(start, direction, found.at)
        return found.at

    def _evaluate(self) -> None:
        with weft.enable_grad():
            self.loss = float(self.closure())
        self.gradient = self.optimizer.flat_gradient()
        self.memory["func_evals"] += 1
        self.evaluations += 1


def _largest(vector: Any) -> float:
    return float(vector.abs().max())
