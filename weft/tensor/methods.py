"""Methods of Tensor that are functions of weft, attached to the class; operators are in ``operators``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from weft.base.dtypes import DType, as_dtype
from weft.base.elsewhere import Missing
from weft.base.elsewhere_objects import TENSOR
from weft.base.public import public
from weft.errors import ShapeError
from weft.ops import contract, index_axis, reduce
from weft.ops.alias import is_contiguous
from weft.ops.op import type_of
from weft.ops.view import axes as view_axes
from weft.tensor import indexing
from weft.tensor.tensor import Tensor


def attach(name: str, function: object) -> None:
    """Make a function a method of Tensor, or a property an attribute."""
    setattr(Tensor, name, function)


def _ints(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sizes or axes given one by one or as one tuple."""
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], tuple | list) else args


# Shapes and axes


def _reshape(self: Tensor, *shape: int | Sequence[int], copy: bool | None = None) -> Tensor:
    """The elements in another shape: ``x.reshape(2, -1)`` or ``x.reshape((2, -1))``."""
    out: Tensor = view_axes.reshape(self, _ints(shape), copy=copy)
    return out


def _view(self: Tensor, *shape: int | Sequence[int] | DType) -> Tensor:
    """The elements in another shape, or their bits as another dtype, as a view, or an error."""
    if len(shape) == 1 and isinstance(shape[0], np.dtype | type | str):
        return _viewed_as(self, shape[0])
    out: Tensor = view_axes.reshape(self, _ints(shape), copy=False)
    return out


def _viewed_as(self: Tensor, dtype: Any) -> Tensor:
    from weft.ops.view.reinterpreted import reinterpreted  # imported at first use

    wanted = as_dtype(dtype)
    out: Tensor = reinterpreted(self, wanted)
    return out if out is not self else self.view(*self.shape)


def _permute(self: Tensor, *axes: int | Sequence[int]) -> Tensor:
    """The tensor with its axes in another order: ``x.permute(2, 0, 1)``."""
    out: Tensor = view_axes.permute_dims(self, _ints(axes))
    return out


def _contiguous(self: Tensor) -> Tensor:
    """The tensor itself if its elements lie one after another, else a copy in which they do."""
    return self if is_contiguous(self) else self.clone()


def _tile(self: Tensor, *repetitions: int | Sequence[int]) -> Tensor:
    """The tensor repeated as a whole along each axis."""
    from weft.ops.view.joining import tile  # imported at first use

    out: Tensor = tile(self, _ints(repetitions))
    return out


def _matrix_transpose(self: Tensor) -> Tensor:
    """The matrices with rows and columns exchanged: the last two axes swapped."""
    out: Tensor = view_axes.matrix_transpose(self)
    return out


def _transposed_matrix(self: Tensor) -> Tensor:
    """The matrix transposed; only for two axes, use ``mT`` for stacks of matrices."""
    if self.ndim != 2:
        raise ShapeError(
            "T", f"the tensor must have two axes, got {type_of(self)}", hint="use .mT or .permute()"
        )
    out: Tensor = view_axes.matrix_transpose(self)
    return out


def _t(self: Tensor) -> Tensor:
    """The matrix transposed, as ``T`` gives it."""
    return _transposed_matrix(self)


def _adjoint(self: Tensor) -> Tensor:
    """The matrices with rows and columns exchanged, conjugated."""
    from weft.ops.complex import conj  # imported at first use

    out: Tensor = conj(view_axes.matrix_transpose(self))
    return out


def _flip(self: Tensor, *axis: int | Sequence[int]) -> Tensor:
    """The tensor with the order of elements reversed along axes; along all if none is given."""
    from weft.ops.view.joining import flip  # imported at first use

    out: Tensor = flip(self, _ints(axis) if axis else None)
    return out


class _AtFirstUse:
    """A function as a method, whose module is imported when it is first looked up; then the class has it."""

    __slots__ = ("module", "name", "own")

    def __init__(self, module: str, own: str, name: str = "") -> None:
        self.module, self.own, self.name = module, own, name or own

    def __get__(self, tensor: Tensor | None, owner: type) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module(self.module), self.own)
        attach(self.name, function)
        return function.__get__(tensor, owner)  # type: ignore[no-any-return]


_SPELLED_FOR_METHODS: dict[str, Callable[..., Any]] = {
    "__getitem__": indexing.getitem,
    "__setitem__": indexing.setitem,
    "adjoint": _adjoint,
    "contiguous": _contiguous,
    "flip": _flip,
    "permute": _permute,
    "reshape": _reshape,
    "t": _t,
    "tile": _tile,
    "view": _view,
}
_FUNCTIONS: dict[Any, str] = {
    view_axes: "broadcast_to expand flatten moveaxis squeeze swapaxes transpose unflatten unsqueeze",
    index_axis: "gather index_select masked_fill scatter scatter_add take take_along_axis",
    reduce: "all amax amin any argmax argmin count_nonzero prod sum",
    contract: "matmul outer",
}
_AT_FIRST_USE = {
    "weft.linalg": "cholesky cross det inv matrix_power pinv slogdet svd trace",
    "weft.ops.activation": "relu",
    "weft.ops.arithmetic": "clamp_max clamp_min",
    "weft.ops.combined": "addbmm addcdiv addcmul addmm addmv addr baddbmm",
    "weft.ops.counting": "corrcoef cov histc kthvalue logcumsumexp mode",
    "weft.ops.scattering": "index_copy masked_scatter scatter_reduce",
    "weft.ops.special_functions": "logit",
    "weft.ops.spectrogram": "istft stft",
    "weft.ops.view.pieces": "as_strided expand_as narrow tensor_split",
    "weft.ops.products": "bmm dot inner kron mm mv",
    "weft.ops.scan": "cummax cummin cumprod cumsum diff",
    "weft.ops.softmax": "log_softmax softmax",
    "weft.ops.sort": "argsort topk",
    "weft.ops.statistics": "logsumexp mean nanmean nansum quantile",
    "weft.ops.view.joining": "chunk roll split unbind",
    "weft.ops.view.padding": "diag diag_embed diagonal pad tril triu",
    "weft.ops.view.arranged": "fliplr flipud ravel rot90 select",
    "weft.tensor.asked": (
        "element_size get_device is_complex is_contiguous is_floating_point is_signed ndimension nelement "
        "new_tensor reshape_as stride type unfold view_as where"
    ),
    "weft.tensor.array_numbers": "fmax fmin vdot",
    "weft.tensor.arrays": "dsplit hsplit vsplit",
    "weft.tensor.sparse": "to_sparse",
    "weft.tensor.changes": (
        "addbmm_ addcdiv_ addcmul_ addmm_ addmv_ addr_ baddbmm_ bernoulli_ clamp_max_ clamp_min_ cumprod_ "
        "cumsum_ exponential_ "
        "fill_diagonal_ index_add_ index_copy_ index_fill index_fill_ log_normal_ masked_fill_ "
        "masked_scatter_ normal_ put put_ random_ relu_ scatter_ scatter_add_ scatter_reduce_ tril_ triu_ "
        "uniform_"
    ),
    "weft.tensor.measures": "aminmax deg2rad dist frac heaviside logdet norm rad2deg std_mean var_mean",
    "weft.tensor.pytorch": "equal index_add max median min nonzero repeat sort squeeze std var",
    "weft.tensor.dynamic": "argwhere bincount masked_select unique unique_consecutive",
}
# Methods under another name than that of their function.
_ALSO = {
    "fix": ("weft.tensor.functions", "trunc"),
    "ger": ("weft.ops.contract", "outer"),
    "inverse": ("weft.linalg", "inv"),
    "movedim": ("weft.ops.view.axes", "moveaxis"),
    "pinverse": ("weft.linalg", "pinv"),
    "repeat_interleave": ("weft.ops.view.joining", "repeat_interleave"),
    "sgn": ("weft.tensor.functions", "sign"),
    "split_with_sizes": ("weft.ops.view.joining", "split"),
    "swapdims": ("weft.ops.view.axes", "swapaxes"),
}


def _attach_all() -> None:
    for name, function in _SPELLED_FOR_METHODS.items():
        if not name.startswith("__"):  # brackets take no keywords, and are hot
            function.__name__ = name
            function = public(function)
        attach(name, function)
    for module, names in _FUNCTIONS.items():
        for name in names.split():
            attach(name, getattr(module, name))
    for path, names in _AT_FIRST_USE.items():
        for name in names.split():
            attach(name, _AtFirstUse(path, name))
    for name, (path, own) in _ALSO.items():
        attach(name, _AtFirstUse(path, own, name))
    for name, hint in TENSOR.items():
        attach(name, Missing(name, hint))
    attach("T", property(_transposed_matrix))
    attach("mH", property(_adjoint))
    attach("mT", property(_matrix_transpose))


_attach_all()
