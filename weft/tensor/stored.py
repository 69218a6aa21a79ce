"""Tensors that sparse ones are made of: read here, called in PyTorch."""

from __future__ import annotations

from weft.tensor.tensor import Tensor


class Stored(Tensor):
    """A tensor that a sparse one is made of; called, as PyTorch writes it, gives itself: ``s.values()``."""

    __slots__ = ()

    def __call__(self) -> Tensor:
        """The tensor itself."""
        return self


def stored(x: Tensor) -> Tensor:
    """A tensor that weft made, not a user's own, as one that may be called."""
    if type(x) is Tensor:
        x.__class__ = Stored
    return x
