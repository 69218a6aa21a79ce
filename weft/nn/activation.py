"""Nonlinear functions of each element as modules; those along an axis are in ``weft.nn.softmax``.

``inplace`` is there because programs pass it; weft's values never change, so it makes no difference.
"""

from __future__ import annotations

import weft
from weft import Tensor
from weft.base.device import DeviceLike
from weft.base.dtypes import DTypeLike
from weft.errors import DomainError
from weft.nn.parameter import Parameter
from weft.nn.variant import Elementwise, Variant


class _Rectifier(Elementwise):
    """A function of each element that programs for other frameworks ask to work in place."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()


class ReLU(_Rectifier, function=weft.relu, example="()(weft.tensor([-1.0, 2.0])) -> tensor([0., 2.])"):
    """``max(x, 0)``."""


class ReLU6(
    _Rectifier, function=weft.relu6, example="()(weft.tensor([-1.0, 2.0, 9.0])) -> tensor([0., 2., 6.])"
):
    """x between 0 and 6."""


class LeakyReLU(Variant, example="(0.5)(weft.tensor([-1.0, 2.0])) -> tensor([-0.5000,  2.0000])"):
    """x where it is positive, else ``negative_slope * x``."""

    _shown = ("negative_slope",)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return weft.leaky_relu(x, self.negative_slope)


class RReLU(Variant, example="(0.25, 0.75).eval()(weft.tensor([-1.0, 2.0])) -> tensor([-0.5000,  2.0000])"):
    """``LeakyReLU`` with a slope drawn for each element in training, and their mean otherwise."""

    _shown = ("lower", "upper")

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return weft.rrelu(x, self.lower, self.upper, self.training)


class _Exponential(Variant):
    _shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha


class ELU(_Exponential, example="()(weft.tensor([0.0, 2.0])) -> tensor([0., 2.])"):
    """x where it is positive, else ``alpha * (exp(x) - 1)``."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return weft.elu(x, self.alpha)


class CELU(_Exponential, example="()(weft.tensor([0.0, 2.0])) -> tensor([0., 2.])"):
    """x where it is positive, else ``alpha * (exp(x / alpha) - 1)``."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return weft.celu(x, self.alpha)


class SELU(_Rectifier, function=weft.selu, example="()(weft.tensor([0.0, 1.0])) -> tensor([0.0000, 1.0507])"):
    """``ELU`` scaled so that signals keep mean 0 and variance 1 from layer to layer."""


class GELU(Variant, example="()(weft.tensor([0.0, 1.0])) -> tensor([0.0000, 0.8413])"):
    """x times the probability that a standard normal number is below it.

    Args:
        approximate: "none", or "tanh" for the approximation by tanh.
    """

    _shown = ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return weft.gelu(x, approximate=self.approximate)


class SiLU(_Rectifier, function=weft.silu, example="()(weft.tensor([0.0, 1.0])) -> tensor([0.0000, 0.7311])"):
    """``x * sigmoid(x)``."""


class Mish(_Rectifier, function=weft.mish, example="()(weft.tensor([0.0, 1.0])) -> tensor([0.0000, 0.8651])"):
    """``x * tanh(softplus(x))``."""


class Softplus(Variant, example="()(weft.tensor([0.0, 50.0])) -> tensor([ 0.6931, 50.0000])"):
    """``log(1 + exp(beta * x)) / beta``, and x itself where ``beta * x`` is above ``threshold``."""

    _shown = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return weft.softplus(x, self.beta, self.threshold)


class Softsign(
    Elementwise, function=weft.softsign, example="()(weft.tensor([0.0, 1.0])) -> tensor([0.0000, 0.5000])"
):
    """``x / (1 + |x|)``."""


class Tanh(
    Elementwise, function=weft.tanh, example="()(weft.tensor([0.0, 1.0])) -> tensor([0.0000, 0.7616])"
):
    """The hyperbolic tangent."""


class Sigmoid(
    Elementwise, function=weft.sigmoid, example="()(weft.tensor([0.0, 1.0])) -> tensor([0.5000, 0.7311])"
):
    """``1 / (1 + exp(-x))``."""


class LogSigmoid(
    Elementwise, function=weft.logsigmoid, example="()(weft.tensor([0.0])) -> tensor([-0.6931])"
):
    """``log(sigmoid(x))``."""


class Tanhshrink(
    Elementwise, function=weft.tanhshrink, example="()(weft.tensor([0.0, 1.0])) -> tensor([0.0000, 0.2384])"
):
    """``x - tanh(x)``."""


class _Shrink(Variant):
    _shown = ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd


class Softshrink(_Shrink, example="()(weft.tensor([-2.0, 0.25])) -> tensor([-1.5000,  0.0000])"):
    """x moved towards 0 by ``lambd``."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return weft.softshrink(x, self.lambd)


class Hardshrink(_Shrink, example="()(weft.tensor([-2.0, 0.25])) -> tensor([-2.,  0.])"):
    """x where it is farther from 0 than ``lambd``, else 0."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return weft.hardshrink(x, self.lambd)


class Hardtanh(Variant, example="()(weft.tensor([-2.0, 0.5])) -> tensor([-1.0000,  0.5000])"):
    """x between ``min_val`` and ``max_val``."""

    _shown = ("min_val", "max_val")

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        if not min_val < max_val:
            got = f"{min_val} and {max_val}"
            raise DomainError("Hardtanh", f"min_val must be below max_val, got {got}")
        self.min_val = min_val
        self.max_val = max_val

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return weft.hardtanh(x, self.min_val, self.max_val)


class Hardsigmoid(
    _Rectifier, function=weft.hardsigmoid, example="()(weft.tensor([0.0, 4.0])) -> tensor([0.5000, 1.0000])"
):
    """``x / 6 + 1 / 2`` between 0 and 1."""


class Hardswish(
    _Rectifier, function=weft.hardswish, example="()(weft.tensor([0.0, 4.0])) -> tensor([0., 4.])"
):
    """``x * hardsigmoid(x)``."""


class Threshold(Variant, example="(0.5, -1.0)(weft.tensor([0.0, 4.0])) -> tensor([-1.,  4.])"):
    """x where it is above a threshold, else another value."""

    _shown = ("threshold", "value")

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return weft.threshold(x, self.threshold, self.value)


class PReLU(Variant, example="()(weft.tensor([-1.0, 2.0])).detach() -> tensor([-0.2500,  2.0000])"):
    """x where it is positive, else a learned slope times x; one for all, or one for each channel.

    Args:
        num_parameters: 1, or the channels of x (N, C, *S).
        init: where slopes start.
        device: of the slopes.
        dtype: of the slopes.
    """

    _shown = ("num_parameters",)

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(weft.full((num_parameters,), init, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Start again: slopes of ``init``."""
        self.weight._set(weft.full_like(self.weight, self.init))

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return weft.prelu(x, self.weight)
