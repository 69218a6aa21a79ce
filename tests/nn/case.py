"""What a case of a layer is, and the inputs that it may have: each tells how it is made."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Case(NamedTuple):
    """A module, its inputs, how it is called, and whether it trains."""

    make: Callable[..., Any]
    inputs: tuple[Any, ...]
    call: Callable[..., Any] | None = None
    training: bool = True
    exact: bool = True  # whether gradients are compared: not at ties and kinks


class Normal(NamedTuple):
    """Normal numbers of a shape, moved and scaled."""

    shape: tuple[int, ...]
    scale: float = 1.0
    shift: float = 0.0

    def draw(self, rng: np.random.Generator) -> Array:
        """The numbers."""
        return (rng.normal(size=self.shape) * self.scale + self.shift).astype(np.float32)


class Unit(NamedTuple):
    """Numbers between 0 and 1, away from both."""

    shape: tuple[int, ...]

    def draw(self, rng: np.random.Generator) -> Array:
        """The numbers."""
        return rng.uniform(0.1, 0.9, self.shape).astype(np.float32)


class Apart(NamedTuple):
    """Numbers of which no two are near each other, so that it is clear which is the largest."""

    shape: tuple[int, ...]

    def draw(self, rng: np.random.Generator) -> Array:
        """The numbers."""
        count = int(np.prod(self.shape))
        return (rng.permutation(count).reshape(self.shape) / count * 4 - 2).astype(np.float32)


class Whole(NamedTuple):
    """Whole numbers below a limit."""

    shape: tuple[int, ...]
    high: int
    low: int = 0

    def draw(self, rng: np.random.Generator) -> Array:
        """The numbers."""
        return rng.integers(self.low, self.high, self.shape)


class Signs(NamedTuple):
    """1 and -1."""

    shape: tuple[int, ...]

    def draw(self, rng: np.random.Generator) -> Array:
        """The numbers."""
        return (rng.integers(0, 2, self.shape) * 2 - 1).astype(np.float32)


class Given(NamedTuple):
    """Values that are told."""

    values: Any
    dtype: str

    def draw(self, rng: np.random.Generator) -> Array:
        """The values."""
        return np.asarray(self.values, self.dtype)


def inputs_of(name: str, case: Case) -> list[Array]:
    """The inputs of a case, always the same."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return [x.draw(rng) for x in case.inputs]


def differentiable(case: Case) -> list[int]:
    """Which inputs have a gradient."""
    return [i for i, x in enumerate(case.inputs) if isinstance(x, Normal | Unit | Apart)]


def future(n: int) -> Given:
    """A mask that hides later positions."""
    return Given(np.triu(np.ones((n, n)), 1), "bool")
