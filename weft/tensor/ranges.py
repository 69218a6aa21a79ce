"""Functions that make tensors by counting: ranges, grids and diagonals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.device import DeviceLike
from weft.base.dtypes import (
    DEFAULT_INT,
    DType,
    DTypeLike,
    default_float,
    float64,
    integer_range,
    kind,
    result_dtype,
    uint64,
)
from weft.base.public import public
from weft.base.shapes import Shape, normalize_shape, size_of
from weft.base.size_bounds import range_length, size_max, surely_less
from weft.base.sizes import Size, is_known
from weft.errors import ArgumentError, DomainError, DtypeError, ShapeError
from weft.ops.compare import equal
from weft.ops.op import Array, type_of
from weft.ops.rounding import floor
from weft.ops.select import cast, select
from weft.ops.size import count_to, size_value
from weft.ops.view.primitives import broadcast_to, reshape, stack
from weft.tensor.convert import integer, number, number_dtype
from weft.tensor.creation import as_leaf, made, target_dtype
from weft.tensor.tensor import Tensor

_SAFE = 2**62  # below this, NumPy counts in int64 without overflow


@public
def eye(
    n_rows: object,
    n_cols: object = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A matrix with ones on the k-th diagonal and zeros elsewhere.

    >>> import weft
    >>> weft.eye(2, 3, k=1)
    tensor([[0., 1., 0.],
            [0., 0., 1.]])
    """
    rows, cols = normalize_shape("eye", (n_rows, n_rows if n_cols is None else n_cols))
    target = target_dtype(dtype, default_float())
    if not is_known((rows, cols)):
        distance = count_to(cols, DEFAULT_INT) - reshape(count_to(rows, DEFAULT_INT), shape=(rows, 1))
        return as_leaf(cast(equal(distance, integer("eye", "k", k)), dtype=target), requires_grad)
    diagonal = max(-rows, min(integer("eye", "k", k), cols))
    return made("eye", _diagonal, (rows, cols), diagonal, target, requires_grad=requires_grad, device=device)


def _diagonal(shape: Shape, k: int, dtype: DType) -> Array:
    rows, cols = shape
    return np.eye(rows, cols, k, dtype)


@public
def arange(
    start: object,
    /,
    stop: object = None,
    step: object = 1,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The numbers from start, in steps, up to but without stop; ``arange(n)`` counts from 0.

    They have a gradient by tensors that are given as start and step.

    >>> import weft
    >>> weft.arange(3), weft.arange(1, 2, 0.25)
    (tensor([0, 1, 2]), tensor([1.0000, 1.2500, 1.5000, 1.7500]))
    """
    first, last, by = (_real("arange", n, v) for n, v in (("start", start), ("stop", stop), ("step", step)))
    if last is None:
        first, last = 0, first
    if by == 0:
        raise DomainError("arange", "step must not be 0")
    if not is_known((first, last, by)):
        return _arange_of_sizes(first, last, by, target_dtype(dtype, DEFAULT_INT), requires_grad)
    exact = isinstance(first, int) and isinstance(last, int) and isinstance(by, int)
    target = target_dtype(dtype, DEFAULT_INT if exact else default_float())
    if kind(target) == "b":
        raise DtypeError("arange", "dtype must be numeric, got bool")
    count = len(range(first, last, by)) if exact else max(0, math.ceil((last - first) / by))
    out = made("arange", _counted, (count,), first, by, target, requires_grad=requires_grad, device=device)
    own = None if stop is None else start
    return _following(out, (own, lambda: np.ones(count)), (step, lambda: np.arange(count, dtype=np.float64)))


def _may_change(x: Tensor) -> bool:
    """Whether something differentiates by x: it is recorded, or a transform put a tangent into it."""
    return x.requires_grad or hasattr(x._data, "level")


def _following(out: Tensor, *ends: tuple[object, Callable[[], Any]]) -> Tensor:
    """Numbers that were made of the values of tensors, as functions of these, by the slope by each."""
    for given, slope in ends:
        if not (isinstance(given, Tensor) and _may_change(given) and kind(out.dtype) in "fc"):
            continue
        change = given - given.detach()  # 0, so that the numbers are what they are without a gradient
        by = slope()
        by = by.astype(out.dtype) if isinstance(by, np.ndarray) else cast(by, dtype=out.dtype)
        out = out + cast(change, dtype=out.dtype) * by
    return out


def _arange_of_sizes(first: object, last: object, by: object, dtype: DType, requires_grad: bool) -> Tensor:
    """``arange`` where a bound is a named size."""
    if not (isinstance(by, int) and isinstance(first, int | Size) and isinstance(last, int | Size)):
        got = f"{first}, {last}, {by}"
        raise DomainError("arange", f"bounds must be integers next to a named size, got {got}")
    steps = count_to(range_length(first, last, by), dtype)
    steps = steps * by if by != 1 else steps
    return as_leaf(steps + first if isinstance(first, Size) or first else steps, requires_grad)


def _real(op: str, name: str, value: object) -> Any:
    """A real number as a Python int or float; None and named sizes stay."""
    if value is None or isinstance(value, Size):
        return value
    found = number(op, name, value)
    found = found.item() if isinstance(found, np.generic) else found
    if isinstance(found, complex) or found != found or found in (math.inf, -math.inf):
        raise DomainError(op, f"{name} must be a finite real number, got {found}")
    return found


def _counted(shape: Shape, first: Any, step: Any, dtype: DType) -> Any:
    """So many numbers from first in steps."""
    (count,) = shape
    if not (isinstance(first, int) and isinstance(step, int)):
        return (first + step * np.arange(count, dtype=np.float64)).astype(dtype)
    end = first + step * count
    if count == 0 or kind(dtype) not in "iu":
        return np.arange(first, end, step, dtype=np.float64).astype(dtype)
    low, high = integer_range(dtype)
    if not (low <= first <= high and low <= end - step <= high):
        raise DomainError("arange", f"values must fit in {dtype.name}, got {first} to {end - step}")
    if -_SAFE < first < _SAFE and -_SAFE < end < _SAFE:
        return np.arange(first, end, step, dtype=np.int64).astype(dtype, copy=False)
    # modulo 2**64, which holds for either sign, so that no step on the way overflows
    values = np.arange(count, dtype=np.uint64) * np.uint64(step % 2**64) + np.uint64(first % 2**64)
    return (values if dtype == uint64 else values.view(np.int64)).astype(dtype)


@public
def linspace(
    start: float,
    stop: float,
    /,
    num: object,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    endpoint: bool = True,
    requires_grad: bool = False,
) -> Tensor:
    """Evenly spaced numbers from start to stop, with stop itself unless endpoint is False.

    They have a gradient by tensors that are given as start and stop.

    >>> import weft
    >>> weft.linspace(0, 1, 3)
    tensor([0.0000, 0.5000, 1.0000])
    """
    first, last = number("linspace", "start", start), number("linspace", "stop", stop)
    count = num if isinstance(num, Size) else integer("linspace", "num", num)
    if surely_less(count, 0):
        raise DomainError("linspace", f"num must not be negative, got {count}")
    natural = result_dtype("linspace", default_float(), number_dtype(first), number_dtype(last))
    target = target_dtype(dtype, natural)
    if isinstance(count, Size):
        part = way(count, endpoint=endpoint)
        spaced = as_leaf(_spaced_openly(part, count, first, last, endpoint, target), requires_grad)
        return _following(spaced, (start, lambda: 1.0 - part), (stop, lambda: part))
    args = (count,), first, last, endpoint, target
    out = made("linspace", _spaced, *args, requires_grad=requires_grad, device=device)

    def parts() -> Array:
        return np.linspace(0.0, 1.0, count, endpoint=endpoint)

    return _following(out, (start, lambda: 1.0 - parts()), (stop, parts))


def way(count: Any, *, endpoint: bool) -> Tensor:
    """Evenly spaced numbers from 0 to 1, as many as a named size says, in float64."""
    gaps = size_value(size_max(count - 1 if endpoint else count, 1), float64)
    part: Tensor = count_to(count, float64) / gaps
    return part


def _spaced_openly(part: Tensor, count: Any, first: Any, last: Any, endpoint: bool, dtype: DType) -> Tensor:
    """Numbers from first to last by the part of the way to each."""
    if np.isfinite(last - first):
        values = part * (last - first) + first
    else:  # ends that are not finite, or so far apart that their distance overflows
        values = first * (1.0 - part) + last * part
    if endpoint:
        is_last = (count_to(count, DEFAULT_INT) + 1 == size_value(count, DEFAULT_INT)) & (part > 0)
        values = select(is_last, np.asarray(last, values.dtype), values)
    return cast(floor(values) if kind(dtype) in "iu" else values, dtype=dtype)


def _spaced(shape: Shape, first: Any, last: Any, endpoint: bool, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        values = np.linspace(first, last, shape[0], endpoint=endpoint)
        if np.isfinite(first) and np.isfinite(last) and not np.isfinite(values).all():
            part = np.linspace(0.0, 1.0, shape[0], endpoint=endpoint)
            values = first * (1.0 - part) + last * part  # for ends so far apart that their distance overflows
        return (np.floor(values) if kind(dtype) in "iu" else values).astype(dtype)


class _Grid:
    """``weft.mgrid[0:2, 0:3]``: the coordinates of a grid, one after the other along a first axis.

    A step that is imaginary is a number of points from the start to the stop, with both.

    >>> import weft
    >>> weft.mgrid[0:2, 0:3]
    tensor([[[0, 0, 0],
             [1, 1, 1]],
    <BLANKLINE>
            [[0, 1, 2],
             [0, 1, 2]]])
    >>> weft.mgrid[0:1:3j]
    tensor([0.0000, 0.5000, 1.0000])
    """

    def __getitem__(self, key: slice | tuple[slice, ...]) -> Tensor:
        if not isinstance(key, tuple):
            return self._line(key)
        lines = [self._line(part) for part in key]
        common = result_dtype("mgrid", *[line.dtype for line in lines])
        return stack([cast(t, dtype=common) for t in meshgrid(*lines, indexing="ij")])

    @staticmethod
    def _line(part: slice) -> Tensor:
        if not isinstance(part, slice) or part.stop is None:
            raise ArgumentError("mgrid", f"takes slices with a stop, got {part!r}")
        start = 0 if part.start is None else part.start
        if isinstance(part.step, complex):
            return linspace(start, part.stop, int(abs(part.step)))
        return arange(start, part.stop, 1 if part.step is None else part.step)


mgrid = _Grid()


@public
def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinate tensors on the grid of several axes; "ij" puts the axes in order, "xy" swaps the first two.

    >>> import weft
    >>> x, y = weft.meshgrid(weft.tensor([1, 2]), weft.tensor([3, 4, 5]), indexing="ij")
    >>> x.shape, y[0]
    ((2, 3), tensor([3, 4, 5]))
    """
    if indexing not in ("xy", "ij"):
        raise DomainError("meshgrid", f"indexing must be 'xy' or 'ij', got {indexing!r}")
    for x in arrays:
        if not isinstance(x, Tensor) or x.ndim > 1:
            got = type_of(x) if isinstance(x, Tensor) else type(x).__name__
            raise ShapeError("meshgrid", f"each axis must be a tensor of rank 1, got {got}")
    rank = len(arrays)
    order = (1, 0, *range(2, rank)) if indexing == "xy" and rank > 1 else tuple(range(rank))
    shape = tuple(size_of(arrays[i].shape) for i in order)
    return [
        broadcast_to(
            reshape(x, shape=tuple(size_of(x.shape) if order[a] == i else 1 for a in range(rank))),
            shape=shape,
        )
        for i, x in enumerate(arrays)
    ]
