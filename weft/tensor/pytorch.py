"""What names mean in PyTorch where the array API gives them another meaning.

Methods of Tensor are these; a call that spells ``axis=`` or ``keepdims=`` speaks the array
API's dialect and gets the function of weft. ``weft.base.spelling`` has the rule, and sends calls of weft's
functions that spell ``dim=`` or ``keepdim=`` here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from weft.base.dtypes import kind
from weft.base.public import public
from weft.base.shapes import Axes, as_ints, normalize_axes, normalize_axis, size_of
from weft.base.sizes import is_known
from weft.base.spelling import ARRAY_API
from weft.base.tracebacks import hide_weft
from weft.errors import ArgumentError, ShapeError, WeftError
from weft.ops import compare, index_axis, reduce, statistics
from weft.ops import sort as sorting
from weft.ops.arithmetic import maximum, minimum
from weft.ops.counting import Placed
from weft.ops.op import Operand, TensorLike, type_of
from weft.ops.select import select
from weft.ops.view import axes as view_axes
from weft.ops.view import joining, padding
from weft.tensor import dynamic
from weft.tensor.dispatch import wrap
from weft.tensor.tensor import Tensor

Function = Callable[..., Any]

# What the array API means by these names: functions of weft.
ARRAY_API_MEANS: dict[str, Any] = {
    "index_add": index_axis.index_add,
    "max": reduce.max,
    "median": statistics.median,
    "min": reduce.min,
    "repeat": joining.repeat,
    "sort": sorting.sort,
    "squeeze": view_axes.squeeze,
    "std": statistics.std,
    "var": statistics.var,
}
_AGREE = ("max", "min")  # without arguments


def _beside(own: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function the method of its name; calls in the array API's dialect go to the function of weft.

    So do calls without arguments where both mean the same by them.
    """
    spoken, function = public(own), ARRAY_API_MEANS[own.__name__]
    plain, agrees, apart = function.__wrapped__, own.__name__ in _AGREE, ARRAY_API.isdisjoint

    @functools.wraps(own)
    def method(*args: Any, **kwargs: Any) -> Any:
        try:
            if not apart(kwargs) if kwargs else agrees and len(args) == 1:
                try:
                    return plain(*args, **kwargs)
                except (TypeError, AttributeError, WeftError):
                    return function(*args, **kwargs)  # which says it in weft's form
            return spoken(*args, **kwargs)
        except WeftError as error:
            hide_weft(error)
            raise

    return method


def pytorch_function(name: str) -> Callable[..., Any]:
    """The function of PyTorch's meaning of a name."""
    function: Callable[..., Any] = globals()[name]
    return function


# Extremes, and what stands at a place in order


def _chosen(
    function: Function, place: Function, other: Function, x: Tensor, dim: object, keepdim: bool
) -> Any:
    if dim is None:
        return function(x)
    if isinstance(dim, TensorLike | np.ndarray):
        return other(x, dim)
    if isinstance(dim, tuple | list):
        return function(x, axis=tuple(dim), keepdims=keepdim)
    where = normalize_axis(function.__name__, dim, x.ndim)
    return _placed(x, place(x, axis=where, keepdims=True), where, keepdim)


def _placed(x: Tensor, index: Tensor, axis: int, keepdim: bool) -> Placed:
    """The elements at positions along an axis: gradients go to these alone."""
    values = index_axis.take_along_axis(x, index, axis=axis)
    if keepdim:
        return Placed(values, index)
    return Placed(view_axes.squeeze(values, axis=axis), view_axes.squeeze(index, axis=axis))


@overload
def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor: ...
@overload
def max(x: Tensor, /, dim: Tensor) -> Tensor: ...
@overload
def max(x: Tensor, /, dim: int, keepdim: bool = False) -> Placed: ...
@_beside
def max(x: Tensor, /, dim: object = None, keepdim: bool = False) -> Any:
    """The largest element; along an axis, values and their indices; with another tensor, the larger of both.

    >>> import weft
    >>> values, indices = weft.tensor([[1.0, 3.0], [5.0, 4.0]]).max(1)
    >>> values, indices
    (tensor([3., 5.]), tensor([1, 0]))
    >>> weft.tensor([[1.0, 3.0], [5.0, 4.0]]).max(axis=1)
    tensor([3., 5.])
    """
    return _chosen(reduce.max, reduce.argmax, maximum, x, dim, keepdim)


@overload
def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor: ...
@overload
def min(x: Tensor, /, dim: Tensor) -> Tensor: ...
@overload
def min(x: Tensor, /, dim: int, keepdim: bool = False) -> Placed: ...
@_beside
def min(x: Tensor, /, dim: object = None, keepdim: bool = False) -> Any:
    """The smallest element; along an axis, values and indices; with another tensor, the smaller of both.

    >>> import weft
    >>> weft.tensor([[1.0, 3.0], [5.0, 4.0]]).min(1).indices
    tensor([0, 1])
    """
    return _chosen(reduce.min, reduce.argmin, minimum, x, dim, keepdim)


@overload
def sort(x: Tensor, /, *, axis: int, descending: bool = False, stable: bool = True) -> Tensor: ...
@overload
def sort(x: Tensor, /, dim: int = -1, descending: bool = False, stable: bool = True) -> Placed: ...
@_beside
def sort(x: Tensor, /, dim: int = -1, descending: bool = False, stable: bool = True) -> Placed:
    """The elements in order along an axis, and where each one was.

    >>> import weft
    >>> values, indices = weft.tensor([3.0, 1.0, 2.0]).sort()
    >>> values, indices
    (tensor([1., 2., 3.]), tensor([1, 2, 0]))
    """
    order = sorting.argsort(x, axis=dim, descending=descending, stable=stable)
    return Placed(index_axis.take_along_axis(x, order, axis=dim) if x.ndim else x, order)


@overload
def median(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor: ...
@overload
def median(x: Tensor, /, dim: int, keepdim: bool = False) -> Placed: ...
@_beside
def median(x: Tensor, /, dim: int | None = None, keepdim: bool = False) -> Tensor | Placed:
    """The middle element, the lower of two; along an axis, values and their indices. NaN if there is one.

    >>> import weft
    >>> weft.tensor([4.0, 1.0, 2.0, 3.0]).median()
    tensor(2.)
    >>> weft.tensor([[4.0, 1.0, 2.0]]).median(1)
    Placed(values=tensor([2.]), indices=tensor([2]))
    """
    if dim is None:
        flat = view_axes.reshape(x, (size_of(x.shape),))
        return median(flat, 0).values
    where = normalize_axis("median", dim, x.ndim)
    reduce.need_elements("median", type_of(x), (where,))
    order = sorting.argsort(x, axis=where)
    index = _slice_at(order, where, (x.shape[where] - 1) // 2)
    if kind(x.dtype) == "f":
        bad = compare.isnan(x)
        first = reduce.argmax(select(bad, np.int64(1), np.int64(0)), axis=where, keepdims=True)
        index = select(reduce.any(bad, axis=where, keepdims=True), first, index)
    return _placed(x, index, where, keepdim)


def _slice_at(x: Tensor, axis: int, place: int) -> Tensor:
    """The slice at a place of an axis, which stays."""
    key = (slice(None),) * axis + (slice(place, place + 1),)
    out: Tensor = x[key]
    return out


@overload
def squeeze(x: Tensor, /, *, axis: Axes = None) -> Tensor: ...
@overload
def squeeze(x: Tensor, /, dim: Axes = None) -> Tensor: ...
@_beside
def squeeze(x: Tensor, /, dim: Axes = None) -> Tensor:
    """x without those of the given axes that are of size 1; without ``dim``, without all such axes.

    >>> import weft
    >>> weft.ones((1, 3, 1)).squeeze(0).shape, weft.ones((1, 3, 1)).squeeze(1).shape
    ((3, 1), (1, 3, 1))
    """
    if dim is None:
        return view_axes.squeeze(x)
    asked = normalize_axes("squeeze", dim, x.ndim)  # of an open size nobody knows whether it is 1: an error
    gone = tuple(i for i in asked if x.shape[i] == 1 or not is_known((x.shape[i],)))
    return view_axes.squeeze(x, axis=gone)


# Spread


def _spread(
    function: Function,
    x: Tensor,
    dim: Axes | bool,
    unbiased: bool | None,
    correction: float | None,
    keepdim: bool,
) -> Tensor:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    elif unbiased is not None:
        raise ArgumentError(function.__name__, "takes unbiased or correction, got both")
    out: Tensor = function(x, axis=dim, correction=correction, keepdims=keepdim)
    return out


@overload
def std(
    x: Tensor,
    /,
    dim: Axes | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor: ...
@overload
def std(x: Tensor, /, *, axis: Axes = None, correction: float = 0, keepdims: bool = False) -> Tensor: ...
@_beside
def std(
    x: Tensor,
    /,
    dim: Axes | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """The standard deviation, squares divided by their number less 1, or by all with ``unbiased=False``.

    >>> import weft
    >>> x = weft.tensor([1.0, 2.0, 3.0, 6.0])
    >>> x.std(), weft.std(x)
    (tensor(2.1602), tensor(1.8708))
    """
    return _spread(statistics.std, x, dim, unbiased, correction, keepdim)


@overload
def var(
    x: Tensor,
    /,
    dim: Axes | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor: ...
@overload
def var(x: Tensor, /, *, axis: Axes = None, correction: float = 0, keepdims: bool = False) -> Tensor: ...
@_beside
def var(
    x: Tensor,
    /,
    dim: Axes | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """The variance, squares divided by their number less 1, or by all with ``unbiased=False``.

    >>> import weft
    >>> x = weft.tensor([1.0, 2.0, 3.0, 6.0])
    >>> x.var(), weft.var(x)
    (tensor(4.6667), tensor(3.5000))
    """
    return _spread(statistics.var, x, dim, unbiased, correction, keepdim)


# Copies, truth and places


@overload
def repeat(x: Tensor, /, repeats: object, *, axis: int | None) -> Tensor: ...
@overload
def repeat(x: Tensor, /, *sizes: int | Sequence[int]) -> Tensor: ...
@_beside
def repeat(x: Tensor, /, *sizes: int | Sequence[int]) -> Tensor:
    """The tensor repeated as a whole along each axis; ``repeat(n, axis=k)`` repeats elements.

    >>> import weft
    >>> weft.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    >>> weft.tensor([1, 2]).repeat(2, axis=0)
    tensor([1, 1, 2, 2])
    """
    one = sizes[0] if len(sizes) == 1 else None
    counts = as_ints("repeat", "sizes", tuple(one) if isinstance(one, tuple | list) else sizes)
    if len(counts) < x.ndim:
        raise ShapeError(
            "repeat",
            f"there must be a number for each of {x.ndim} axes, got {counts}",
            hint="x.repeat(n, axis=k) repeats elements, x.tile(n) the whole along the last axis",
        )
    return joining.tile(x, counts)


@overload
def index_add(x: Tensor, /, index: Tensor, source: Tensor, *, axis: int, alpha: float = 1) -> Tensor: ...
@overload
def index_add(x: Tensor, /, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor: ...
@_beside
def index_add(x: Tensor, /, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """x with the slices of ``source`` added at positions along an axis; duplicates add up.

    >>> import weft
    >>> weft.zeros(3).index_add(0, weft.tensor([0, 2, 0]), weft.tensor([1.0, 2.0, 3.0]))
    tensor([4., 0., 2.])
    """
    return index_axis.index_add(x, index, source, axis=dim, alpha=alpha)


@public
def equal(x: Tensor, other: Operand, /) -> Tensor:
    """Whether two tensors have the same shape and elements; ``x == y`` and ``weft.equal`` ask each element.

    >>> import weft
    >>> weft.tensor([1, 2]).equal(weft.tensor([1, 2])), weft.tensor([1, 2]).eq(weft.tensor([1, 3]))
    (tensor(True), tensor([ True, False]))
    """
    theirs = getattr(other, "shape", None)
    if x.shape != (np.shape(other) if theirs is None else theirs):
        out: Tensor = wrap(np.asarray(False))
        return out
    return reduce.all(compare.equal(x, other))


@public
def nonzero(x: Tensor, /, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The indices of what is not zero, a row for each; ``as_tuple`` gives a tensor for each axis.

    >>> import weft
    >>> weft.tensor([0, 3, 4]).nonzero()
    tensor([[1],
            [2]])
    """
    return dynamic.nonzero(x) if as_tuple else dynamic.argwhere(x)


@public
def pad(x: Tensor, pad: object, mode: str = "constant", value: float | None = None) -> Tensor:
    """The tensor with a border: pairs of widths, those of the last axis first; negative ones cut.

    A pair for each axis, or one number for all, means what it means to ``weft.pad``.

    >>> import weft
    >>> from weft.nn import functional as F
    >>> F.pad(weft.ones((1, 2)), (1, 0))
    tensor([[0., 1., 1.]])
    >>> F.pad(weft.ones((2, 2)), (0, 0, 1, 0)).shape
    (3, 2)
    """
    fill = 0 if value is None else value
    if not isinstance(pad, tuple | list) or (pad and isinstance(pad[0], tuple | list)):
        return padding.pad(x, pad, mode, fill)
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise ArgumentError(
            "pad",
            f"pad must have a pair of widths for some of the last of {x.ndim} axes, got {len(pad)} numbers",
            hint="(left, right, top, bottom, ...), the last axis first; weft.pad takes a pair for each axis",
        )
    widths = as_ints("pad", "pad", tuple(pad))
    pairs = [(0, 0)] * (x.ndim - len(widths) // 2) + [
        (widths[i], widths[i + 1]) for i in range(len(widths) - 2, -1, -2)
    ]
    cut = tuple(slice(_cut(low), None if _cut(high) == 0 else -_cut(high)) for low, high in pairs)
    if any(s != slice(0, None) for s in cut):
        x = x[cut]
    return padding.pad(x, [(_grow(low), _grow(high)) for low, high in pairs], mode, fill)


def _cut(width: int) -> int:
    return -width if isinstance(width, int) and width < 0 else 0


def _grow(width: int) -> int:
    return 0 if isinstance(width, int) and width < 0 else width


METHODS = "max min sort median std var repeat equal nonzero"
