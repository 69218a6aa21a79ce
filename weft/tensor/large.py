"""Ops on large arrays: they run through compiled kernels, which use all threads, instead of NumPy.

Here is when they do. The kernels are those of ``weft.backends.eager``, a higher layer, which ``weft.compile``
names with ``set_kernel_layer``. Whether an array is large depends on its size alone, so that an op gives the
same bits each time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from numpy import ufunc

from weft.base.public import public
from weft.errors import ArgumentError
from weft.ops.op import Op

LARGE = 1 << 16  # elements
LARGE_FOR_UFUNC = (
    1 << 17
)  # elements: where NumPy has a loop in C, threads must make up for the way to a kernel
WHOLE = frozenset({"sum", "max", "min", "softmax", "log_softmax", "logsumexp", "standardize"})

Evaluate = Callable[[Op, Sequence[Any], dict[str, Any]], Any]


class _Kernels:
    """Whether compiled kernels are used, and what runs them."""

    __slots__ = ("evaluate", "on")

    def __init__(self) -> None:
        self.on = os.environ.get("WEFT_EAGER_KERNELS", "1") != "0"
        self.evaluate: Evaluate | None = None


_kernels = _Kernels()


def set_kernel_layer(evaluate: Evaluate) -> None:
    """Called once: ``evaluate(op, arrays, attrs)`` gives what the op's kernel would, or None if it cannot."""
    _kernels.evaluate = evaluate


def evaluate_large(op: Op, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """What an op gives on arrays of which one at least is large."""
    if type(op.eval) is ufunc and max([x.size for x in arrays]) < LARGE_FOR_UFUNC:
        return op.eval(*arrays)
    if _kernels.on and _kernels.evaluate is not None:
        out = _kernels.evaluate(op, arrays, attrs)
        if out is not None:
            return out
    return op.eval(*arrays, **attrs)


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
