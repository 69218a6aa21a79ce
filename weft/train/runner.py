"""The runner: takes steps on the batches of a feed, knows whether one is half done, and notes Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import FrameType
from typing import Any

from weft.train.feed import Feed, batch_size
from weft.train.metrics import Means
from weft.train.step import Compiled, Recipe


class Interrupt:
    """Notes Ctrl-C inside a ``with`` block; outside the main thread it leaves signals alone.

    Attributes:
        asked: whether there was one.

    >>> from weft.train.runner import Interrupt
    >>> with Interrupt() as interrupt:
    ...     interrupt.asked
    False
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *reason: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


class Runner:
    """Runs steps of a recipe.

    Args:
        recipe: of the steps.
        compiles: whether they are compiled.

    Attributes:
        is_over: whether the last step has met the end of the epoch already.
        is_broken: whether something ended in the midst of changing the parameters. A compiled step that fails
            has changed nothing; only an interruption can end it there.
    """

    def __init__(self, recipe: Recipe, compiles: bool) -> None:
        self.recipe = recipe
        self.is_over = False
        self.is_broken = False
        self._compiles = compiles
        self._whole = Compiled(recipe.train, compiles)
        self._first = Compiled(recipe.differentiate, compiles)  # of the batches of a step: there are no
        self._further = Compiled(recipe.differentiate, compiles)  # gradients before it, and some before these
        self._apply = Compiled(recipe.apply, compiles)
        self._check = Compiled(recipe.validate, compiles)
        self._buffers: list[tuple[Any, Any]] = []

    def step(self, feed: Feed, add: Callable[[Mapping[str, float], int], None]) -> bool:
        """Take a step; False at the end of the epoch, when there is no batch for it.

        Args:
            feed: of batches.
            add: called with the numbers of each batch, and how many examples it has.
        """
        batch = None if self.is_over else feed.next()
        if batch is None:
            self.is_over = False
            return False
        try:
            if self._compiles and self.recipe.accumulate == 1:
                add(*_numbers(self._whole(batch), batch))
            else:
                self._run_parts(feed, batch, add)
        except KeyboardInterrupt:
            self.is_broken = True
            raise
        return True

    def _run_parts(self, feed: Feed, batch: Any, add: Callable[[Mapping[str, float], int], None]) -> None:
        """The batches of one step; the last step of an epoch may have fewer."""
        if not self._compiles:
            self._buffers = [(b, b.detach()) for b in self.recipe.model.buffers()]
        add(*_numbers(self._first(batch), batch))
        for _ in range(self.recipe.accumulate - 1):
            if (batch := feed.next()) is None:
                self.is_over = True
                break
            add(*_numbers(self._further(batch), batch))
        self.is_broken = not self._compiles
        self._apply()
        self.is_broken, self._buffers = False, []

    def undo(self) -> None:
        """After an error in a step: let the model be as it was before."""
        self.recipe.optimizer.zero_grad()
        for buffer, before in self._buffers:
            buffer.data = before
        self._buffers = []

    def check(self, feed: Feed, go_on: Callable[[], None]) -> dict[str, float]:
        """The means over an epoch of a feed, without gradients, of the averaged parameters if there are any.

        Args:
            feed: of batches.
            go_on: called before each batch; it may raise.
        """
        model, means = self.recipe.model, Means()
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        try:
            with nullcontext() if self.recipe.ema is None else self.recipe.ema.applied():
                while (batch := feed.next()) is not None:
                    go_on()
                    means.add(*_numbers(self._check(batch), batch))
        finally:
            feed.close()
            for module, training in modes:
                module.training = training
        return means.values()

    def state_dict(self) -> dict[str, Any]:
        """Which shapes have functions of their own, and whether the epoch is over."""
        return {"is_over": self.is_over, "shapes": [c.shapes() for c in self._compiled()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        self.is_over = state["is_over"]
        for compiled, shapes in zip(self._compiled(), state["shapes"], strict=True):
            compiled.set_shapes(shapes)

    def _compiled(self) -> tuple[Compiled, ...]:
        return self._whole, self._first, self._further, self._check


def _numbers(found: Mapping[str, Any], batch: Any) -> tuple[dict[str, float], int]:
    return {name: float(x) for name, x in found.items()}, batch_size(batch)
