"""Where parameters start: functions that fill a tensor in place and return it.

All draw from the global generator, or from one that is given, and none is recorded on the tape.
"""

from __future__ import annotations

from math import erf, prod, sqrt
from typing import Any, NoReturn

import weft
from weft import Tensor
from weft.errors import DomainError, ShapeError
from weft.ops.public import example


def _filled(tensor: Tensor, values: Any) -> Tensor:
    tensor._set(values._value().astype(tensor.dtype))
    return tensor


def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with draws from [a, b).

    >>> import weft
    >>> w = weft.nn.init.uniform_(weft.empty(100), -1.0, 1.0)
    >>> bool((w >= -1.0).all() & (w < 1.0).all())
    True
    """
    drawn = weft.rand(tensor.shape, dtype=tensor.dtype, generator=generator)
    return _filled(tensor, drawn * (b - a) + a)


@example("weft.nn.init.normal_(weft.empty((2, 3)), std=0.02).shape -> (2, 3)")
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with draws from a normal distribution."""
    drawn = weft.randn(tensor.shape, dtype=tensor.dtype, generator=generator)
    return _filled(tensor, drawn * std + mean)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Fill with draws from a normal distribution that lie in [a, b].

    >>> import weft
    >>> w = weft.nn.init.trunc_normal_(weft.empty(100))
    >>> bool((abs(w) <= 2.0).all())
    True
    """
    low, high = ((1 + erf((v - mean) / std / sqrt(2.0))) / 2 for v in (a, b))
    drawn = weft.rand(tensor.shape, dtype=weft.float64, generator=generator)
    quantile = weft.erfinv(2 * (low + (high - low) * drawn) - 1)
    return _filled(tensor, weft.clip(quantile * (std * sqrt(2.0)) + mean, a, b))


@example("weft.nn.init.constant_(weft.empty(2), 0.5) -> tensor([0.5000, 0.5000])")
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one value."""
    return _filled(tensor, weft.full(tensor.shape, val, dtype=tensor.dtype))


@example("weft.nn.init.zeros_(weft.empty(2)) -> tensor([0., 0.])")
def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return constant_(tensor, 0.0)


@example("weft.nn.init.ones_(weft.empty(2)) -> tensor([1., 1.])")
def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return constant_(tensor, 1.0)


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with ones on its diagonal, zeros elsewhere.

    >>> import weft
    >>> weft.nn.init.eye_(weft.empty((2, 3)))
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    _need_matrix("eye_", tensor)
    return _filled(tensor, weft.eye(*tensor.shape))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill the weight of a convolution so that it passes its input on, as far as there are channels.

    >>> import weft
    >>> weft.nn.init.dirac_(weft.empty((2, 2, 3)))[1]
    tensor([[0., 0., 0.],
            [0., 1., 0.]])
    """
    if tensor.ndim not in (3, 4, 5):
        raise ShapeError("dirac_", f"the tensor must have 3, 4 or 5 axes, got shape {tensor.shape}")
    rows = tensor.shape[0]
    if groups < 1 or rows % groups:
        raise DomainError("dirac_", f"groups must divide {rows} channels, got {groups}")
    each, middle = rows // groups, tuple(n // 2 for n in tensor.shape[2:])
    values = weft.zeros(tensor.shape)
    for group in range(groups):
        for channel in range(min(each, tensor.shape[1])):
            values[(group * each + channel, channel, *middle)] = 1.0
    return _filled(tensor, values)


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with an orthogonal matrix; axes after the first count as one (Saxe and others, 2013).

    >>> import weft
    >>> w = weft.nn.init.orthogonal_(weft.empty((2, 5)))
    >>> weft.allclose(w @ w.T, weft.eye(2), atol=1e-5)
    tensor(True)
    """
    if tensor.ndim < 2:
        raise ShapeError("orthogonal_", f"the tensor must have at least two axes, got shape {tensor.shape}")
    rows, columns = tensor.shape[0], prod(tensor.shape[1:])
    drawn = weft.randn((max(rows, columns), min(rows, columns)), dtype=weft.float64, generator=generator)
    q, r = weft.linalg.qr(drawn)
    q = q * weft.sign(weft.diagonal(r))  # so that every orthogonal matrix is as likely
    return _filled(tensor, (q.T if rows < columns else q).reshape(tensor.shape) * gain)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Fill a matrix with normal draws, of which in each column a fraction is zero (Martens, 2010).

    >>> import weft
    >>> (weft.nn.init.sparse_(weft.empty((10, 3)), 0.25) == 0).sum(axis=0)
    tensor([3, 3, 3])
    """
    _need_matrix("sparse_", tensor)
    rows, columns = tensor.shape
    zeros = -int(-sparsity * rows // 1)
    order = weft.argsort(weft.rand((rows, columns), generator=generator), axis=0)
    drawn = weft.randn((rows, columns), generator=generator) * std
    return _filled(tensor, weft.where(order < zeros, 0.0, drawn))


def _need_matrix(op: str, tensor: Tensor) -> None:
    if tensor.ndim != 2:
        raise ShapeError(op, f"the tensor must have two axes, got shape {tensor.shape}")


@example("weft.nn.init.fans(weft.empty((8, 3, 5, 5))) -> (75, 200)")
def fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs an output of a weight (out, in, *kernel) has, and how many outputs an input."""
    if tensor.ndim < 2:
        raise ShapeError("init", f"the tensor must have at least two axes, got shape {tensor.shape}")
    field = prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


@example('weft.nn.init.calculate_gain("tanh") -> 1.6666666666666667')
def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which a nonlinearity is to be made up for."""
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


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill so that signals keep their size forward and backward; uniform (Glorot and Bengio, 2010).

    >>> import weft
    >>> w = weft.nn.init.xavier_uniform_(weft.empty((3, 3)))
    >>> bool((abs(w) <= 1.0).all())
    True
    """
    bound = gain * sqrt(6.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


@example("weft.nn.init.xavier_normal_(weft.empty((3, 3))).shape -> (3, 3)")
def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill so that signals keep their size forward and backward; normal (Glorot and Bengio, 2010)."""
    return normal_(tensor, 0.0, gain * sqrt(2.0 / sum(fans(tensor))), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise DomainError("kaiming", f"mode must be 'fan_in' or 'fan_out', got {mode!r}")
    fan = fans(tensor)[0 if mode == "fan_in" else 1]
    return calculate_gain(nonlinearity, a) / sqrt(fan) if fan else 0.0


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Fill so that signals keep their size through rectifiers; uniform (He and others, 2015).

    >>> import weft
    >>> w = weft.nn.init.kaiming_uniform_(weft.empty((3, 6)), nonlinearity="relu")
    >>> bool((abs(w) <= 1.0).all())
    True
    """
    bound = sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


@example('weft.nn.init.kaiming_normal_(weft.empty((3, 6)), mode="fan_out").shape -> (3, 6)')
def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Fill so that signals keep their size through rectifiers; normal (He and others, 2015)."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def __getattr__(name: str) -> NoReturn:
    from weft.base.elsewhere import unknown

    raise unknown(__name__, name, globals())
