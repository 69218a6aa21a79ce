"""What NumPy's functions of two arrays have beside the call: ``weft.add.outer(x, y)``, ``minimum.reduce(x)``.

They are attributes of the public functions, made of the reductions and views that there are.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from weft.base.public import public
from weft.tensor.tensor import Tensor

Function = Callable[..., Any]

# by the first name of a function: the module and function that reduces by it, and that keeps what it passes
REDUCTIONS = {
    "add": ("weft.ops.reduce", "sum"),
    "multiply": ("weft.ops.reduce", "prod"),
    "maximum": ("weft.ops.reduce", "max"),
    "minimum": ("weft.ops.reduce", "min"),
    "logical_and": ("weft.ops.reduce", "all"),
    "logical_or": ("weft.ops.reduce", "any"),
}
RUNNING = {
    "add": ("weft.ops.scan", "cumsum"),
    "multiply": ("weft.ops.scan", "cumprod"),
}


def with_methods(name: str, function: Function) -> None:
    """Give a function of two tensors its attributes ``outer`` and, where there is one, ``reduce``."""
    function.outer = _outer(function)  # type: ignore[attr-defined]
    if name in REDUCTIONS:
        function.reduce = _reduce(*REDUCTIONS[name])  # type: ignore[attr-defined]
    if name in RUNNING:
        function.accumulate = _accumulate(*RUNNING[name])  # type: ignore[attr-defined]


def _outer(function: Function) -> Function:
    @public
    def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
        """The function of each element of x1 with each element of x2, whose axes come last."""
        from weft.tensor.creation import asarray

        x1, x2 = asarray(x1), asarray(x2)
        out: Tensor = function(x1.reshape((*x1.shape, *(1 for _ in x2.shape))), x2)
        return out

    return outer


def _reduce(module: str, name: str) -> Function:
    @public
    def reduce(x: Tensor, /, axis: int | tuple[int, ...] | None = 0, *, keepdims: bool = False) -> Tensor:
        """All elements along an axis, the first one by default, put together by the function."""
        out: Tensor = getattr(import_module(module), name)(x, axis=axis, keepdims=keepdims)
        return out

    return reduce


def _accumulate(module: str, name: str) -> Function:
    @public
    def accumulate(x: Tensor, /, axis: int = 0) -> Tensor:
        """What the function makes of the elements along an axis up to each of them."""
        out: Tensor = getattr(import_module(module), name)(x, axis=axis)
        return out

    return accumulate
