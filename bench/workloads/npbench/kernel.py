"""What a kernel is, and how one source runs under NumPy, weft and Numba.

The families (``products``, ``solvers``, ...) are plain modules that import NumPy as ``np``. To run one under
another name of ``np`` it is loaded once more, and the name set.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

Sizes = dict[str, Any]
SEED = 0


@dataclass(frozen=True)
class Kernel:
    """One program.

    Args:
        name: of the function.
        family: the module that it is in.
        arguments: makes them, from a generator and sizes.
        changes: the places of those that it changes.
        small: sizes of preset S.
        medium: sizes of preset M.
        tiny: sizes for tests.
        tolerance: the largest relative distance from NumPy's results.
    """

    name: str
    family: str
    arguments: Callable[..., tuple[Any, ...]]
    changes: tuple[int, ...]
    small: Sizes
    medium: Sizes
    tiny: Sizes
    tolerance: float = 1e-9

    def data(self, sizes: Sizes) -> tuple[Any, ...]:
        """The arguments, as NumPy arrays and numbers."""
        return self.arguments(np.random.default_rng(SEED), **sizes)

    def function(self, module: Any, wrap: Callable[[Any], Any] | None = None) -> Any:
        """The program with ``np`` bound to a module; ``wrap`` is put around every function of its family."""
        return getattr(family_under(self.family, module, wrap), self.name)


@functools.cache
def family_under(family: str, module: Any, wrap: Callable[[Any], Any] | None = None) -> ModuleType:
    """A new copy of a family in which ``np`` is the module."""
    spec = find_spec(f"bench.workloads.npbench.{family}")
    assert isinstance(spec, ModuleSpec)
    assert spec.loader is not None
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    found.np = module  # type: ignore[attr-defined]
    if wrap is not None:
        for name, value in list(vars(found).items()):
            if isinstance(value, FunctionType):
                setattr(found, name, wrap(value))
    return found


def results_of(kernel: Kernel, returned: Any, arguments: tuple[Any, ...]) -> list[np.ndarray]:
    """What a call gave: what it returned, and the arguments that it changed, as arrays."""
    parts = list(returned) if isinstance(returned, tuple | list) else [] if returned is None else [returned]
    return [to_numpy(part) for part in (*parts, *(arguments[place] for place in kernel.changes))]


def to_numpy(part: Any) -> np.ndarray:
    """An array of a tensor, an array or a number."""
    return np.asarray(part.numpy() if hasattr(part, "numpy") else part)


def distance(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest relative distance of results, by their norms; infinite if shapes or finiteness differ."""
    if [part.shape for part in found] != [part.shape for part in expected]:
        return float("inf")
    return max((_apart(a, b) for a, b in zip(found, expected, strict=True)), default=0.0)


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite):
        return float("inf")
    a, b = a[finite], b[finite]
    norm = np.linalg.norm(b)
    apart = np.linalg.norm(a.astype(b.dtype) - b)
    return float(apart / norm) if norm else float(apart)
