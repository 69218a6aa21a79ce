"""Optimizers that count their steps, in a tensor, so that a captured step goes on counting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import weft
from weft.capture.runtime.modules import before_capture, begin_again
from weft.optim.optimizer import Group, Optimizer, assign


class CountedOptimizer(Optimizer):
    """An optimizer whose steps depend on their number; subclasses say ``zeros``, ``factors`` and ``rule``."""

    _parted: Sequence[tuple[Any, Any]] = ()  # counts that are new, each with the one that it was

    def zeros(self, group: Group) -> tuple[str, ...]:
        """The names of state that begins with zeros, of the type of each parameter."""
        raise NotImplementedError  # each optimizer says it

    def factors(self, settings: Group, step: object) -> dict[str, Any]:
        """What all parameters of one count share, from the number of the step, a float64 tensor."""
        raise NotImplementedError  # each optimizer says it

    def prepare(self, group: Group, params: list[Any]) -> None:
        """Zeros, and counts of steps: parameters that always step together share one."""
        new = [p for p in params if "step" not in self.state[p]]
        self._share_step(new, weft.zeros((), dtype=weft.float64, device="cpu"))
        for p in params:
            self.add_zeros(p, *self.zeros(group))
        holders: defaultdict[int, int] = defaultdict(int)
        for held in self.state.values():
            holders[id(held["step"])] += 1
        for members in self._by_step(params):
            step = self.state[members[0]]["step"]
            if holders[id(step)] > len(members):  # the others do not step now
                own = before_capture(step).clone()
                self._parted = [*self._parted, (own, step)]
                self._share_step(members, own)

    def begin(self) -> None:
        """Counts that part from others go on from theirs, which captured code may have changed by now."""
        parted, self._parted = self._parted, []
        if parted:
            begin_again()
        for own, step in parted:
            assign(own, step)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave; parameters of a group with equal counts share one again."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            counts: dict[float, Any] = {}
            for p in group["params"]:
                if p in self.state:
                    step = weft.as_tensor(self.state[p]["step"]).astype(weft.float64)
                    self.state[p]["step"] = counts.setdefault(step.item(), step)

    def _share_step(self, params: list[Any], step: object) -> None:
        for p in params:
            self.state[p]["step"] = step
            self.generation += 1

    def _by_step(self, params: list[Any]) -> list[list[Any]]:
        """The parameters, those together that share a count."""
        found: defaultdict[int, list[Any]] = defaultdict(list)
        for p in params:
            found[id(self.state[p]["step"])].append(p)
        return list(found.values())

    def move_all(self, group: Group, params: list[Any]) -> None:
        """One step of a group."""
        for members in self._by_step(params):
            step = self.state[members[0]]["step"]
            assign(step, step + 1.0)
            factors = self.factors(group, step)
            by_dtype = {
                dtype: {**group, **{name: in_wide(factor, dtype) for name, factor in factors.items()}}
                for dtype in {p.dtype for p in members}
            }
            for p in members:
                self.move(by_dtype[p.dtype], p)


def in_wide(factor: Any, dtype: Any) -> Any:
    """A tensor that is a factor in the dtype to step in: that of the parameter, at least float32."""
    if not weft.is_tensor(factor) or factor.dtype == weft.bool:
        return factor
    return factor.astype(dtype if dtype.itemsize >= 4 else weft.float32)


def one_minus_power(beta: Any, step: Any) -> Any:
    """``1 - beta ** step``, without the loss of digits near 1 where beta is a number of Python."""
    if not isinstance(beta, int | float):
        return 1.0 - beta**step
    return weft.ones_like(step) if beta == 0 else -weft.expm1(step * log(beta))
