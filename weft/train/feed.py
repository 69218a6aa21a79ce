"""Feeds: batches of one source, epoch after epoch, with a place to go on from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, DomainError


class Feed:
    """Reads a pipeline, or anything that can be iterated over, and knows where it is.

    A source with ``state_dict`` and ``load_state_dict`` keeps its own place. Of any other one the batches of
    an epoch that were used before are read again and left out, so each epoch must give the same batches.

    Args:
        op: named in errors.
        source: of batches.

    Attributes:
        batch: how many batches of this epoch have been given.
    """

    def __init__(self, op: str, source: Any) -> None:
        if not hasattr(source, "__iter__"):
            raise ArgumentError(op, f"must be an iterable of batches, got {type(source).__name__}")
        self._op = op
        self._source = source
        self._keeps_place = hasattr(source, "state_dict") and hasattr(source, "load_state_dict")
        self._iterator: Iterator[Any] | None = None
        self.batch = 0

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
        if self._iterator is None:
            self._begin()
        assert self._iterator is not None
        found = next(self._iterator, None)
        if found is None:
            return self._end()
        self.batch += 1
        return as_tensors(found)

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


def as_tensors(batch: Any) -> Any:
    """A batch whose arrays are tensors."""
    return weft.tree_map(lambda x: weft.asarray(x) if isinstance(x, np.ndarray) else x, batch)


def batch_size(batch: Any) -> int:
    """How many examples a batch has: the size of the first axis of its first tensor."""
    for leaf in weft.tree_leaves(batch):
        if isinstance(leaf, weft.Tensor) and leaf.ndim:
            return leaf.shape[0]
    return 1
