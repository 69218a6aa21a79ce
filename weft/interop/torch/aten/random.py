"""ATen operators that draw random numbers: from weft's generator, so other numbers than PyTorch draws."""

from __future__ import annotations

from typing import Any

import weft
from weft.interop.torch.calls import Call, aten


@aten("rand")
def rand(call: Call, size: Any, **options: Any) -> Any:
    """Numbers between 0 and 1."""
    return weft.rand(tuple(size), dtype=call.dtype)


@aten("randn")
def randn(call: Call, size: Any, **options: Any) -> Any:
    """Numbers of a normal distribution."""
    return weft.randn(tuple(size), dtype=call.dtype)


@aten("rand_like")
def rand_like(call: Call, x: Any, **options: Any) -> Any:
    """Numbers between 0 and 1, in the shape of x."""
    return weft.rand(x.shape, dtype=call.dtype)


@aten("randn_like")
def randn_like(call: Call, x: Any, **options: Any) -> Any:
    """Numbers of a normal distribution, in the shape of x."""
    return weft.randn(x.shape, dtype=call.dtype)


@aten("randint", "randint.low")
def randint(call: Call, *args: Any, **options: Any) -> Any:
    """Whole numbers within limits."""
    low, high, size = (0, *args) if len(args) == 2 else args
    return weft.randint(low, high, tuple(size), dtype=call.dtype)


@aten("randperm")
def randperm(call: Call, n: Any, **options: Any) -> Any:
    """The numbers below n in an order by chance."""
    return weft.randperm(n, dtype=call.dtype)


@aten("bernoulli", "bernoulli.p")
def bernoulli(call: Call, x: Any, p: float | None = None, **options: Any) -> Any:
    """1 with a probability, else 0."""
    odds = x if p is None else p
    return call.cast(weft.rand(x.shape) < odds)
