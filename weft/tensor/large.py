"""Ops, composites and gradients on large arrays: compiled kernels run them, on all threads, instead of NumPy.

Here is when they do. The kernels are those of ``weft.backends``, a higher layer, which ``weft.compile`` names
with ``set_kernel_layer``. Whether an array is large depends on its size alone, so that an op gives the
same bits each time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from threading import get_ident
from typing import Any, Protocol

import numpy as np

from weft.base.dtypes import DType
from weft.base.public import public
from weft.errors import ArgumentError
from weft.ops.op import Array, Composite, Op, Tensor, casting, set_large_layer
from weft.tensor.rules import Backward, Edges, Saved

ndarray, ufunc = np.ndarray, np.ufunc

LARGE = 1 << 16  # elements
LARGE_FOR_UFUNC = (
    1 << 17
)  # elements: where NumPy has a loop in C, threads must make up for the way to a kernel
LARGE_FOR_CALL = 1 << 14  # elements: a composite is many ops
WHOLE = frozenset({"sum", "max", "min", "softmax", "log_softmax", "logsumexp", "standardize"})
PULLED = WHOLE - {"sum"} | {"matmul"}  # whose gradients have kernels, too: those of sums are views


class Layer(Protocol):
    """What runs kernels; each function gives None where there is no kernel."""

    def evaluate_large(self, op: Op, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """What an op gives on arrays."""

    def call_whole(self, entry: Composite, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a composite gives on tensors, recorded as one node."""

    def pull_large(
        self, rule: Backward, g: Tensor, saved: Saved, edges: Edges, *, flat: bool
    ) -> Sequence[Any] | None:
        """What a backward rule gives on arrays; they are seen as flat if it works element by element."""

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        """An array of any content, in memory that is used again and again."""


class _Kernels:
    """Whether compiled kernels are used, and what runs them: it is loaded at its first use."""

    __slots__ = ("layer", "load", "on")

    def __init__(self) -> None:
        self.on = os.environ.get("WEFT_EAGER_KERNELS", "1") != "0"
        self.load: Callable[[], Layer | None] | None = None
        self.layer: Layer | None = None

    def found(self) -> Layer | None:
        """What runs kernels, if they are used."""
        if self.load is not None and self.on:
            self.layer, self.load = self.load(), None
        return self.layer if self.on else None


_kernels = _Kernels()


def set_kernel_layer(load: Callable[[], Layer | None]) -> None:
    """Called once: ``load()`` gives what runs kernels, None if nothing can."""
    _kernels.load, _kernels.layer = load, None


def evaluate_large(op: Op, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """What an op gives on arrays of which one at least is large."""
    if type(op.eval) is ufunc and max([x.size for x in arrays]) < LARGE_FOR_UFUNC:
        return op.eval(*arrays)
    layer = _kernels.found()
    if layer is not None:
        out = layer.evaluate_large(op, arrays, attrs)
        if out is not None:
            return out
    return op.eval(*arrays, **attrs)


def empty(shape: Sequence[int], dtype: DType) -> Array:
    """A large array of any content."""
    layer = _kernels.found()
    return np.empty(shape, dtype) if layer is None else layer.empty(shape, dtype)


def call_large(entry: Composite, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """What a composite gives if one kernel runs the whole of it; None unless its first argument is large."""
    data = getattr(args[0], "_data", None) if args else None
    if type(data) is not ndarray or data.size < LARGE_FOR_CALL or (casting and get_ident() in casting):
        return None
    layer = _kernels.found()
    return None if layer is None else layer.call_whole(entry, args, kwargs)


@cache
def with_kernels(rule: Backward, *, flat: bool = False) -> Backward:
    """A backward rule that one kernel runs; on tensors, and where there is no kernel, it runs op by op.

    With ``flat`` it is that of an op that worked element by element, on arrays of one shape or numbers.
    """
    run = rule.run

    def run_large(g: Tensor, saved: Saved, edges: Edges) -> Sequence[Any]:
        layer = _kernels.found()
        found = None if layer is None else layer.pull_large(rule, g, saved, edges, flat=flat)
        return run(g, saved, edges) if found is None else found

    return rule.replace(run=run_large)


set_large_layer(call_large)


@public
def set_eager_kernels(on: bool) -> None:
    """Let ops on large arrays run through compiled kernels (at first they do), or through NumPy.

    Both agree but for the last bits. The environment variable WEFT_EAGER_KERNELS=0 turns them off, too.

    >>> import weft
    >>> weft.set_eager_kernels(False)
    >>> weft.get_eager_kernels()
    False
    >>> weft.set_eager_kernels(True)
    """
    if not isinstance(on, bool):
        raise ArgumentError("set_eager_kernels", f"the setting must be a bool, got {on!r}")
    _kernels.on = on


@public
def get_eager_kernels() -> bool:
    """Whether ops on large arrays run through compiled kernels.

    >>> import weft
    >>> weft.get_eager_kernels()
    True
    """
    return _kernels.on
