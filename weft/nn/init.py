"""Where parameters start: functions that fill a tensor in place and return it."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import weft
from weft.errors import DomainError, ShapeError


def _filled(tensor: Any, values: Any) -> Any:
    tensor.data = values.astype(tensor.dtype)
    return tensor


def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Any:
    """Fill with draws from [a, b).

    >>> import weft
    >>> w = weft.nn.init.uniform_(weft.empty(100), -1.0, 1.0)
    >>> bool((w >= -1.0).all() & (w < 1.0).all())
    True
    """
    drawn = weft.rand(tensor.shape, dtype=tensor.dtype, generator=generator)
    return _filled(tensor, drawn * (b - a) + a)


def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
    """Fill with draws from a normal distribution."""
    drawn = weft.randn(tensor.shape, dtype=tensor.dtype, generator=generator)
    return _filled(tensor, drawn * std + mean)


def constant_(tensor: Any, val: float) -> Any:
    """Fill with one value."""
    return _filled(tensor, weft.full(tensor.shape, val, dtype=tensor.dtype))


def zeros_(tensor: Any) -> Any:
    """Fill with zeros."""
    return constant_(tensor, 0.0)


def ones_(tensor: Any) -> Any:
    """Fill with ones."""
    return constant_(tensor, 1.0)


def fans(tensor: Any) -> tuple[int, int]:
    """How many inputs an output of a weight (out, in, *kernel) has, and how many outputs an input."""
    if tensor.ndim < 2:
        raise ShapeError("init", f"the tensor must have at least two axes, got shape {tensor.shape}")
    field = prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which a nonlinearity is to be made up for.

    >>> import weft
    >>> weft.nn.init.calculate_gain("tanh")
    1.6666666666666667
    """
    gains = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": sqrt(2.0), "selu": 3 / 4}
    if nonlinearity.startswith("conv"):
        return 1.0
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in gains:
        known = ", ".join([*gains, "leaky_relu"])
        raise DomainError("calculate_gain", f"must be one of {known}, got {nonlinearity!r}")
    return gains[nonlinearity]


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Fill so that signals keep their size forward and backward; uniform (Glorot and Bengio, 2010)."""
    bound = gain * sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Fill so that signals keep their size forward and backward; normal (Glorot and Bengio, 2010)."""
    return normal_(tensor, 0.0, gain * sqrt(2.0 / sum(fans(tensor))), generator)


def _kaiming_std(tensor: Any, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise DomainError("kaiming", f"mode must be 'fan_in' or 'fan_out', got {mode!r}")
    fan = fans(tensor)[0 if mode == "fan_in" else 1]
    return calculate_gain(nonlinearity, a) / sqrt(fan) if fan else 0.0


def kaiming_uniform_(
    tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Any:
    """Fill so that signals keep their size through rectifiers; uniform (He and others, 2015)."""
    bound = sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Any:
    """Fill so that signals keep their size through rectifiers; normal (He and others, 2015)."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)
