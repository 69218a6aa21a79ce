"""What NumPy's functions of two arrays have beside the call: ``weft.add.outer(x, y)``, ``minimum.reduce(x)``.

They are attributes of the public functions, made of the reductions and views that there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.public import public
from weft.ops import reduce as reductions
from weft.tensor.tensor import Tensor

Function = Callable[..., Any]

# by the first name of a function: what puts all elements along an axis together by it
REDUCTIONS: dict[str, Function] = {
    "add": reductions.sum,
    "multiply": reductions.prod,
    "maximum": reductions.max,
    "minimum": reductions.min,
    "logical_and": reductions.all,
    "logical_or": reductions.any,
}
RUNNING = {
    "add": "cumsum",
    "multiply": "cumprod",
    "maximum": "cummax",
    "minimum": "cummin",
}  # names in weft.ops.scan


def with_methods(name: str, function: Function) -> None:
    """Give a function of two tensors ``outer``, and ``reduce`` and ``accumulate`` where there are such."""
    function.outer = _outer(function)  # type: ignore[attr-defined]
    if name in REDUCTIONS:
        function.reduce = _reduce(REDUCTIONS[name])  # type: ignore[attr-defined]
    if name in RUNNING:
        function.accumulate = _accumulate(RUNNING[name])  # type: ignore[attr-defined]


def _outer(function: Function) -> Function:
    @public
    def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
        """The function of each element of x1 with each element of x2, whose axes come last."""
        from weft.tensor.creation import asarray  # which builds on these functions

        x1, x2 = asarray(x1), asarray(x2)
        out: Tensor = function(x1.reshape((*x1.shape, *(1 for _ in x2.shape))), x2)
        return out

    return outer


def _reduce(function: Function) -> Function:
    @public
    def reduce(x: Tensor, /, axis: int | tuple[int, ...] | None = 0, *, keepdims: bool = False) -> Tensor:
        """All elements along an axis, the first one by default, put together by the function."""
        out: Tensor = function(x, axis=axis, keepdims=keepdims)
        return out

    return reduce


def _accumulate(name: str) -> Function:
    @public
    def accumulate(x: Tensor, /, axis: int = 0) -> Tensor:
        """What the function makes of the elements along an axis up to each of them."""
        from weft.ops import scan  # imported at first use

        out: Any = getattr(scan, name)(x, axis=axis)
        made: Tensor = out[0] if isinstance(out, tuple) else out
        return made

    return accumulate
