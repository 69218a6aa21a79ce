"""Feeds: batches of one source, epoch after epoch, with a place to go on from; the runner of steps."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from types import FrameType
from typing import Any

import numpy as np

import weft
from weft import data
from weft.base.device import CPU, Device
from weft.errors import ArgumentError, DomainError
from weft.train.metrics import Means
from weft.train.step import Compiled, Recipe


class Feed:
    """Reads a pipeline, or anything that can be iterated over, and knows where it is.

    A source with ``state_dict`` and ``load_state_dict`` keeps its own place. Of any other one the batches of
    an epoch that were used before are read again and left out, so each epoch must give the same batches.

    Args:
        op: named in errors.
        source: of batches.
        device: where they go.

    Attributes:
        batch: how many batches of this epoch have been given.
        waited: seconds that all batches so far were waited for.
    """

    def __init__(self, op: str, source: Any, device: Device = CPU) -> None:
        if not hasattr(source, "__iter__"):
            raise ArgumentError(op, f"must be an iterable of batches, got {type(source).__name__}")
        self._op = op
        self._device = device
        self._source = source if device is CPU else _read_ahead(source, device)
        self._keeps_place = hasattr(source, "state_dict") and hasattr(source, "load_state_dict")
        self._iterator: Iterator[Any] | None = None
        self.batch = 0
        self.waited = 0.0

    def __len__(self) -> int:
        return len(self._source)

    @property
    def length(self) -> int | None:
        """How many batches an epoch has; None if that is not known."""
        try:
            return len(self._source)
        except (TypeError, NotImplementedError, ValueError):
            return None

    def next(self) -> Any:
        """The next batch of the epoch, arrays as tensors; None at its end, and then the next one begins."""
        began = time.perf_counter()
        if self._iterator is None:
            self._begin()
        assert self._iterator is not None
        found = next(self._iterator, None)
        self.waited += time.perf_counter() - began
        if found is None:
            return self._end()
        self.batch += 1
        return as_tensors(found, self._device)

    def _begin(self) -> None:
        self._iterator = iter(self._source)
        if self._keeps_place:
            return
        for _ in range(self.batch):
            next(self._iterator, None)

    def _end(self) -> None:
        if self.batch == 0:
            hint = "an iterator can be used once; give a list, a Loader or a Pipeline"
            raise DomainError(self._op, "an epoch must have at least one batch, got none", hint=hint)
        self.close()

    def close(self) -> None:
        """End the epoch, or leave it early: what reads ahead is told to stop."""
        iterator, self._iterator, self.batch = self._iterator, None, 0
        if hasattr(iterator, "close"):
            iterator.close()  # type: ignore[union-attr]

    def state_dict(self) -> dict[str, Any]:
        """Where it is."""
        own = self._source.state_dict() if self._keeps_place else None
        return {"batch": self.batch, "source": own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a place; the next batch is the one that would have followed."""
        if (state["source"] is not None) != self._keeps_place:
            raise DomainError(self._op, "must be of the kind that the checkpoint was made with, got another")
        self.close()
        self.batch = state["batch"]
        if self._keeps_place:
            self._source.load_state_dict(state["source"])


def _read_ahead(source: Any, device: Device) -> Any:
    """A pipeline that copies its batches to a device ahead; any other source as it is."""
    if not isinstance(source, data.Pipeline):
        return source
    found = source.to(device)
    found.load_state_dict(source.state_dict())
    return found


def as_tensors(batch: Any, device: Device = CPU) -> Any:
    """A batch whose arrays are tensors on a device."""
    made = weft.tree_map(lambda x: weft.asarray(x) if isinstance(x, np.ndarray) else x, batch)
    if device is CPU:
        return made
    return weft.tree_map(lambda x: x.to(device) if isinstance(x, weft.Tensor) else x, made)


def batch_size(batch: Any) -> int:
    """How many examples a batch has: the size of the first axis of its first tensor."""
    for leaf in weft.tree_leaves(batch):
        if isinstance(leaf, weft.Tensor) and leaf.ndim:
            return leaf.shape[0]
    return 1


# The runner: takes steps on the batches of a feed, knows whether one is half done, and notes Ctrl-C


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
        stepped: seconds that steps took so far, waiting for their batches included.
        applied: seconds of these in which the optimizer changed the model, where it is called by itself.
        before: called with the first batch of each step, before it is taken.
        is_over: whether the last step has met the end of the epoch already.
        is_broken: whether something ended in the midst of changing the parameters. A compiled step that fails
            has changed nothing; only an interruption can end it there.
    """

    def __init__(self, recipe: Recipe, compiles: bool) -> None:
        self.recipe = recipe
        self.is_over = False
        self.is_broken = False
        self.stepped = 0.0
        self.applied = 0.0
        self.before: Callable[[Any], None] | None = None
        self._compiles = compiles
        self._whole = Compiled(recipe.train, compiles, recipe.ranks)
        self._first = Compiled(
            recipe.differentiate, compiles, recipe.ranks
        )  # of the batches of a step: there are no
        self._further = Compiled(
            recipe.differentiate, compiles, recipe.ranks
        )  # gradients before it, and some before these
        self._apply = Compiled(recipe.apply, compiles, recipe.ranks)
        self._check = Compiled(recipe.validate, compiles, recipe.ranks)
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
        if self.before is not None:
            self.before(batch)
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
            self._buffers = [(b, b._value()) for b in self.recipe.model.buffers()]
        add(*_numbers(self._first(batch), batch))
        for _ in range(self.recipe.accumulate - 1):
            if (batch := feed.next()) is None:
                self.is_over = True
                break
            add(*_numbers(self._further(batch), batch))
        self.is_broken = not self._compiles
        began = time.perf_counter()
        self._apply()
        self.applied += time.perf_counter() - began
        self.is_broken, self._buffers = False, []

    def norms(self) -> Callable[[Any], Any]:
        """A function of batches that gives the squared norms of gradients."""
        return Compiled(self.recipe.squared_norms, self._compiles, self.recipe.ranks)

    def graph(self) -> Any:
        """The graph of a step that was compiled; None if there is none."""
        return self._whole.graph() or self._first.graph()

    def undo(self) -> None:
        """After an error in a step: let the model be as it was before."""
        self.recipe.optimizer.zero_grad()
        for buffer, before in self._buffers:
            buffer._set(before)
        self._buffers = []

    def check(self, feed: Feed, go_on: Callable[[], None]) -> dict[str, float]:
        """The means over an epoch of a feed, without gradients, of the averaged parameters if there are any.

        Args:
            feed: of batches.
            go_on: called before each batch; it may raise.
        """
        model, means = self.recipe.model, Means(self.recipe.metrics)
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


def _numbers(found: Mapping[str, Any], batch: Any) -> tuple[dict[str, Any], int]:
    return {name: x if isinstance(x, dict) else float(x) for name, x in found.items()}, batch_size(batch)
