"""Nonlinear functions and dropout as modules."""

from __future__ import annotations

from typing import Any

import weft
from weft.errors import DomainError
from weft.nn.module import Module


class ReLU(Module):
    """``max(x, 0)``.

    >>> import weft
    >>> weft.nn.ReLU()(weft.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def forward(self, x: Any) -> Any:
        """Element by element."""
        return weft.relu(x)


class GELU(Module):
    """x times the probability that a standard normal number is below it.

    Args:
        approximate: "none", or "tanh" for the approximation by tanh.
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Any) -> Any:
        """Element by element."""
        return weft.gelu(x, approximate=self.approximate)

    def extra_repr(self) -> str:
        """Which of the two."""
        return f"approximate={self.approximate!r}"


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Any) -> Any:
        """Element by element."""
        return weft.tanh(x)


class Sigmoid(Module):
    """``1 / (1 + exp(-x))``."""

    def forward(self, x: Any) -> Any:
        """Element by element."""
        return weft.sigmoid(x)


class SiLU(Module):
    """``x * sigmoid(x)``."""

    def forward(self, x: Any) -> Any:
        """Element by element."""
        return weft.silu(x)


class Softmax(Module):
    """Positive numbers that sum to 1 along an axis."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Any) -> Any:
        """Along the axis."""
        return weft.softmax(x, axis=self.axis)

    def extra_repr(self) -> str:
        """Its axis."""
        return f"axis={self.axis}"


class Flatten(Module):
    """The axes from one to another made one; all but the first by default."""

    def __init__(self, start_axis: int = 1, end_axis: int = -1) -> None:
        super().__init__()
        self.start_axis = start_axis
        self.end_axis = end_axis

    def forward(self, x: Any) -> Any:
        """x with fewer axes."""
        return weft.flatten(x, self.start_axis, self.end_axis)

    def extra_repr(self) -> str:
        """Its axes."""
        return f"start_axis={self.start_axis}, end_axis={self.end_axis}"


class Dropout(Module):
    """In training, zero each element with probability p and scale the rest by 1 / (1 - p).

    >>> import weft
    >>> weft.nn.Dropout(0.5).eval()(weft.ones(3))
    tensor([1., 1., 1.])
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise DomainError("Dropout", f"p must be in 0..1, got {p}")
        self.p = p

    def forward(self, x: Any) -> Any:
        """x, some of it dropped in training."""
        return weft.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        """Its probability."""
        return f"p={self.p}"
