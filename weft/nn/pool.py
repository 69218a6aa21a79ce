"""Pools: one number for each window, or for each of a fixed number of bins, along one to three axes."""

from __future__ import annotations

from collections.abc import Sequence

import weft
from weft import Tensor
from weft.base.shapes import PerAxis
from weft.nn.variant import Variant


class _Pool(Variant):
    """A window that slides along ``rank`` axes."""

    _shown: tuple[str, ...] = ("kernel_size", "stride", "padding")

    def __init__(self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding


class _MaxPool(_Pool):
    _shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        """The largest values, and where they are if ``return_indices``."""
        function = (weft.max_pool1d, weft.max_pool2d, weft.max_pool3d)[self.rank - 1]
        window = (self.kernel_size, self.stride, self.padding, self.dilation)
        return function(x, *window, self.ceil_mode, self.return_indices)


class MaxPool1d(
    _MaxPool, rank=1, example="(2)(weft.tensor([[[1.0, 3.0, 2.0, 0.0]]])) -> tensor([[[3., 2.]]])"
):
    """The largest value in each window of x (N, C, L).

    Args:
        kernel_size: of the window.
        stride: from window to window; by default the size of a window.
        padding: on both sides, which never wins.
        dilation: between the elements of a window.
        return_indices: give the places of the largest values too.
        ceil_mode: allow a last window that is not full.
    """


class MaxPool2d(_MaxPool, rank=2):
    """The largest value in each window of x (N, C, H, W); see ``MaxPool1d``.

    >>> import weft
    >>> out, places = weft.nn.MaxPool2d(2, return_indices=True)(weft.ones((1, 3, 8, 8)))
    >>> out.shape, places.shape
    ((1, 3, 4, 4), (1, 3, 4, 4))
    """


class MaxPool3d(
    _MaxPool, rank=3, example="(3, stride=2)(weft.ones((1, 2, 7, 7, 7))).shape -> (1, 2, 3, 3, 3)"
):
    """The largest value in each window of x (N, C, D, H, W); see ``MaxPool1d``."""


class _MaxUnpool(_Pool):
    def forward(self, x: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The values at the places that a pool found them at, zeros elsewhere."""
        function = (weft.max_unpool1d, weft.max_unpool2d, weft.max_unpool3d)[self.rank - 1]
        return function(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool, rank=1):
    """Puts the values of a ``MaxPool1d`` back to where they were, with zeros between them.

    Args:
        kernel_size: of the pool.
        stride: of the pool.
        padding: of the pool.

    >>> import weft
    >>> pool, back = weft.nn.MaxPool1d(2, return_indices=True), weft.nn.MaxUnpool1d(2)
    >>> back(*pool(weft.tensor([[[1.0, 3.0, 2.0, 0.0]]])))
    tensor([[[0., 3., 2., 0.]]])
    """


class MaxUnpool2d(_MaxUnpool, rank=2):
    """Puts the values of a ``MaxPool2d`` back to where they were, with zeros between them.

    >>> import weft
    >>> pool, back = weft.nn.MaxPool2d(2, return_indices=True), weft.nn.MaxUnpool2d(2)
    >>> back(*pool(weft.ones((1, 3, 4, 4)))).sum()
    tensor(12.)
    """


class MaxUnpool3d(_MaxUnpool, rank=3):
    """Puts the values of a ``MaxPool3d`` back to where they were, with zeros between them.

    >>> import weft
    >>> pool, back = weft.nn.MaxPool3d(2, return_indices=True), weft.nn.MaxUnpool3d(2)
    >>> back(*pool(weft.ones((1, 3, 4, 4, 4)))).shape
    (1, 3, 4, 4, 4)
    """


class AvgPool1d(_Pool, example="(2)(weft.tensor([[[1.0, 3.0, 2.0, 0.0]]])) -> tensor([[[2., 1.]]])"):
    """The mean of each window of x (N, C, L).

    Args:
        kernel_size: of the window.
        stride: from window to window; by default the size of a window.
        padding: zeros on both sides.
        ceil_mode: allow a last window that is not full.
        count_include_pad: whether the zeros of the padding count.
    """

    def __init__(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        """The means."""
        window = (self.kernel_size, self.stride, self.padding)
        return weft.avg_pool1d(x, *window, self.ceil_mode, self.count_include_pad)


class AvgPool2d(AvgPool1d, rank=2, example="(2)(weft.ones((1, 3, 8, 8))).shape -> (1, 3, 4, 4)"):
    """The mean of each window of x (N, C, H, W); see ``AvgPool1d``.

    Args:
        kernel_size: of the window.
        stride: from window to window; by default the size of a window.
        padding: zeros on both sides.
        ceil_mode: allow a last window that is not full.
        count_include_pad: whether the zeros of the padding count.
        divisor_override: divide sums by this number instead.
    """

    def __init__(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, x: Tensor) -> Tensor:
        """The means."""
        function = weft.avg_pool2d if self.rank == 2 else weft.avg_pool3d
        window = (self.kernel_size, self.stride, self.padding)
        return function(x, *window, self.ceil_mode, self.count_include_pad, self.divisor_override)


class AvgPool3d(AvgPool2d, rank=3, example="(2)(weft.ones((1, 3, 4, 4, 4))).shape -> (1, 3, 2, 2, 2)"):
    """The mean of each window of x (N, C, D, H, W); see ``AvgPool2d``."""


class _LPPool(Variant):
    _shown = ("norm_type", "kernel_size", "stride")

    def __init__(
        self, norm_type: float, kernel_size: PerAxis, stride: PerAxis | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        """The p-norms of the windows."""
        function = (weft.lp_pool1d, weft.lp_pool2d, weft.lp_pool3d)[self.rank - 1]
        return function(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPool, rank=1, example="(2, 2)(weft.tensor([[[3.0, 4.0]]])) -> tensor([[[5.]]])"):
    """The p-norm of each window of x (N, C, L).

    Args:
        norm_type: p.
        kernel_size: of the window.
        stride: from window to window; by default the size of a window.
        ceil_mode: allow a last window that is not full.
    """


class LPPool2d(_LPPool, rank=2, example="(1, 2)(weft.ones((1, 1, 2, 2))) -> tensor([[[[4.]]]])"):
    """The p-norm of each window of x (N, C, H, W); see ``LPPool1d``."""


class LPPool3d(_LPPool, rank=3, example="(1, 2)(weft.ones((1, 1, 2, 2, 2))) -> tensor([[[[[8.]]]]])"):
    """The p-norm of each window of x (N, C, D, H, W); see ``LPPool1d``."""


class _Adaptive(Variant):
    """As many bins along ``rank`` axes as are asked for."""

    _shown = ("output_size",)

    def __init__(self, output_size: PerAxis) -> None:
        super().__init__()
        self.output_size = output_size


class _AdaptiveAvgPool(_Adaptive):
    def forward(self, x: Tensor) -> Tensor:
        """The means of the bins."""
        functions = (weft.adaptive_avg_pool1d, weft.adaptive_avg_pool2d, weft.adaptive_avg_pool3d)
        return functions[self.rank - 1](x, self.output_size)


class AdaptiveAvgPool1d(
    _AdaptiveAvgPool, rank=1, example="(2)(weft.tensor([[[1.0, 3.0, 2.0, 0.0]]])) -> tensor([[[2., 1.]]])"
):
    """The means of ``output_size`` bins of x (N, C, L), whatever L is."""


class AdaptiveAvgPool2d(
    _AdaptiveAvgPool, rank=2, example="((None, 2))(weft.ones((1, 3, 5, 7))).shape -> (1, 3, 5, 2)"
):
    """The means of bins of x (N, C, H, W); ``output_size`` is a number or a pair, None to keep a size."""


class AdaptiveAvgPool3d(
    _AdaptiveAvgPool, rank=3, example="(1)(weft.ones((1, 3, 5, 7, 2))).shape -> (1, 3, 1, 1, 1)"
):
    """The means of bins of x (N, C, D, H, W)."""


class _AdaptiveMaxPool(_Adaptive):
    def __init__(self, output_size: PerAxis, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, x: Tensor) -> Tensor:
        """The largest values, and where they are if ``return_indices``."""
        functions = (weft.adaptive_max_pool1d, weft.adaptive_max_pool2d, weft.adaptive_max_pool3d)
        return functions[self.rank - 1](x, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(
    _AdaptiveMaxPool, rank=1, example="(2)(weft.tensor([[[1.0, 3.0, 2.0, 0.0]]])) -> tensor([[[3., 2.]]])"
):
    """The largest values of ``output_size`` bins of x (N, C, L), whatever L is."""


class AdaptiveMaxPool2d(
    _AdaptiveMaxPool, rank=2, example="(2)(weft.ones((1, 3, 5, 7))).shape -> (1, 3, 2, 2)"
):
    """The largest values of bins of x (N, C, H, W)."""


class AdaptiveMaxPool3d(
    _AdaptiveMaxPool, rank=3, example="(2)(weft.ones((1, 3, 5, 7, 4))).shape -> (1, 3, 2, 2, 2)"
):
    """The largest values of bins of x (N, C, D, H, W)."""
