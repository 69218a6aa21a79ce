"""Elements put at places that an index or a mask tells, and folded with what is there."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import DType, bool_, float32, int64, kind
from weft.base.shapes import normalize_axis, size_of
from weft.errors import BoundsError, DomainError, DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import move_axis
from weft.ops.compare import equal
from weft.ops.families import primitive
from weft.ops.index import batch_scatter, gather_nd, index_with, scatter_add_nd, scatter_nd
from weft.ops.index_axis import as_index, as_values, positions_along
from weft.ops.op import Array, Op, Sample, Tensor, composite, type_of
from weft.ops.public import example
from weft.ops.samples import int_array, real_array
from weft.ops.scan import running_sum
from weft.ops.select import cast, select, weight
from weft.ops.size import filled
from weft.ops.view.primitives import broadcast_to, reshape

# Products and extremes of what comes to one place

_UFUNCS = {"mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _fold(x: Array, v: Array, *indices: Array, fold: str) -> Array:
    wide = float32 if x.dtype.itemsize == 2 and kind(x.dtype) == "f" else x.dtype
    out = x.astype(wide)
    places = tuple(np.asarray(i, np.int64) for i in indices)
    for axis, (i, size) in enumerate(zip(places, x.shape, strict=False)):
        if i.size and not -size <= i.min() <= i.max() < size:
            raise BoundsError(
                "scatter_reduce", f"indices of axis {axis} must be in 0..{size - 1}, got {i.max()}"
            )
    _UFUNCS[fold].at(out, places, v.astype(wide))
    return out.astype(x.dtype)


def _fold_type(x: TensorType, v: TensorType, *indices: TensorType, fold: str) -> TensorType:
    if kind(x.dtype) not in "iuf" or x.dtype != v.dtype:
        raise DtypeError(
            "scatter_reduce", f"dtypes must be real and equal, got {x.dtype.name} and {v.dtype.name}"
        )
    return x


def _fold_vjp(
    g: Tensor, x: Tensor, v: Tensor, indices: tuple[Any, ...], out: Tensor, fold: str
) -> list[Tensor | None]:
    rest = [None] * len(indices)
    if fold == "mul":
        return [*_product_gradients(g, x, v, indices), *rest]
    hit, taken = equal(x, out), equal(v, gather_nd(out, *indices))
    count = scatter_add_nd(weight(hit, g), weight(taken, g), *indices)
    share, zero = g / count, np.zeros((), g.dtype)  # equal ones share the gradient
    return [select(hit, share, zero), select(taken, gather_nd(share, *indices), zero), *rest]


def _product_gradients(g: Tensor, x: Tensor, v: Tensor, indices: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """The product of all others, which is a quotient but where one is 0."""
    one, zero = np.ones((), g.dtype), np.zeros((), g.dtype)
    x_gone, v_gone = equal(x, zero), equal(v, zero)
    safe_x, safe_v = select(x_gone, one, x), select(v_gone, one, v)
    product = fold_into(safe_x, safe_v, *indices, fold="mul")
    zeros = scatter_add_nd(weight(x_gone, g), weight(v_gone, g), *indices)

    def others(gone: Tensor, safe: Tensor, whole: Tensor, lost: Tensor) -> Tensor:
        return select(equal(lost, weight(gone, g)), whole / safe, zero)

    of_v = others(v_gone, safe_v, gather_nd(product, *indices), gather_nd(zeros, *indices))
    return g * others(x_gone, safe_x, product, zeros), gather_nd(g, *indices) * of_v


def _fold_samples() -> list[Sample]:
    x, v = real_array((4, 2)), real_array((5, 2), seed=1)
    rows = np.array([0, 2, 0, 3, 2])
    return [
        *(Sample((x, v, rows), {"fold": fold}) for fold in _UFUNCS),
        Sample((real_array((3,)), real_array((0,)), np.zeros((0,), np.int64)), {"fold": "max"}),
        Sample((int_array((4,)), int_array((2,)), np.array([-1, 1])), {"fold": "min"}),
    ]


fold_into: Op = primitive(
    "scatter_fold",
    type_rule=_fold_type,
    eval=_fold,
    vjp=_fold_vjp,
    batch=batch_scatter,
    samples=_fold_samples,
    fallible=True,
    raises=BoundsError,
    host=True,
)

_FOLDS = {
    "sum": "add",
    "add": "add",
    "prod": "mul",
    "multiply": "mul",
    "amax": "max",
    "amin": "min",
    "mean": "mean",
}
_STARTS: dict[str, Any] = {"add": 0, "mean": 0, "mul": 1}


def _start(fold: str, dtype: DType) -> Array:
    """What changes nothing in a fold."""
    if fold in _STARTS:
        return np.asarray(_STARTS[fold], dtype)
    if dtype == bool_:
        return np.asarray(fold == "min")
    if kind(dtype) == "f":
        return np.asarray(-np.inf if fold == "max" else np.inf, dtype)
    limits = np.iinfo(dtype)
    return np.asarray(limits.min if fold == "max" else limits.max, dtype)


def _reduce_samples() -> list[Sample]:
    x, src = real_array((3, 4)), real_array((3, 5), seed=1)
    index = int_array((3, 5), 0, 4, seed=2)
    names = ("sum", "prod", "mean", "amax", "amin")
    return [
        *(
            Sample((x, index, src), {"axis": 1, "reduce": r, "include_self": s})
            for r in names
            for s in (True, False)
        ),
        Sample((x, int_array((2, 4), 0, 3), real_array((2, 4))), {"axis": 0, "reduce": "sum"}),
    ]


@composite(
    "scatter_reduce_axis",
    samples=_reduce_samples,
    sampled=lambda x, index, src, axis, reduce, include_self=True: scatter_reduce(  # type: ignore[has-type]
        x, axis, index, src, reduce, include_self=include_self
    ),
    single=True,
)
def scatter_reduce(
    x: Tensor, axis: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """x with each element of ``src`` folded into its own place but for ``axis``, where the index says which.

    Args:
        x: what is there.
        axis: along which the index counts.
        index: of as many axes as x.
        src: the elements, at least as many as the index.
        reduce: "sum", "prod", "mean", "amax" or "amin"; equal extremes share the gradient.
        include_self: whether what is there counts too, where something comes.

    >>> import weft
    >>> x, index = weft.tensor([1.0, 2.0, 3.0]), weft.tensor([0, 1, 0])
    >>> weft.scatter_reduce(x, 0, index, weft.tensor([5.0, 1.0, 7.0]), "amax")
    tensor([7., 2., 3.])
    """
    if reduce not in _FOLDS:
        names = "'sum', 'prod', 'mean', 'amax' or 'amin'"
        raise DomainError("scatter_reduce", f"reduce must be {names}, got {reduce!r}")
    if kind(x.dtype) == "c" and reduce in ("amax", "amin"):
        raise DtypeError("scatter_reduce", f"complex numbers have no {reduce}, got {type_of(x)}")
    fold, (places, values) = _FOLDS[reduce], positions_along("scatter_reduce", x, axis, index, src)
    ones = filled(values.shape, 1, x.dtype)
    count = scatter_add_nd(filled(x.shape, 0, x.dtype), ones, *places)
    untouched = equal(count, np.zeros((), x.dtype))
    base = x if include_self else select(untouched, x, _start(fold, x.dtype))
    if fold in ("mul", "max", "min"):
        return fold_into(base, values, *places, fold=fold)
    total = scatter_add_nd(base, values, *places)
    if fold == "add":
        return total
    divisor = count + 1 if include_self else select(untouched, np.ones((), x.dtype), count)
    return total / divisor if kind(x.dtype) in "fc" else total // divisor


# Slices and masks


@composite(
    samples=lambda: [
        Sample((real_array((3, 4)), np.array([2, 0]), real_array((3, 2), seed=1)), {"axis": 1}),
        Sample((real_array((3, 4)), np.array([-1]), real_array((1, 4), seed=1)), {"axis": 0}),
    ],
    sampled=lambda x, index, source, axis: index_copy(x, axis, index, source),  # type: ignore[has-type]
)
@example("(weft.zeros(3), 0, weft.tensor([2, 0]), weft.tensor([5.0, 7.0])) -> tensor([7., 0., 5.])")
def index_copy(x: Tensor, axis: int, index: Tensor, source: Tensor) -> Tensor:
    """x with the slices of ``source`` at positions along an axis; of duplicates the last counts."""
    where, rows = normalize_axis("index_copy", axis, x.ndim), as_index("index_copy", index)
    shape = (*x.shape[:where], size_of(rows.shape), *x.shape[where + 1 :])
    v = as_values("index_copy", source, x, shape)
    parts = [move_axis(x, where, 0), move_axis(v, where, 0)]
    rows = reshape(rows, shape=(shape[where],))
    return move_axis(index_with("index_copy", scatter_nd, parts, [rows], x.shape, (where,)), 0, where)


@composite(
    samples=lambda: [
        Sample((real_array((3, 4)), real_array((3, 4), seed=1) > 0, real_array((20,), seed=2))),
        Sample((real_array((3, 4)), np.array([True, False, True, False]), real_array((2, 3), seed=2))),
    ]
)
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """x with the elements of ``source``, one after the other, where the mask holds.

    >>> import weft
    >>> mask = weft.tensor([True, False, True])
    >>> weft.masked_scatter(weft.zeros(3), mask, weft.tensor([1.0, 2.0, 3.0]))
    tensor([1., 0., 2.])
    """
    if mask.dtype != bool_:
        raise DtypeError("masked_scatter", f"the mask must be bool, got {mask.dtype.name}")
    if source.dtype != x.dtype:
        raise DtypeError(
            "masked_scatter", f"dtypes must be equal, got {x.dtype.name} and {source.dtype.name}"
        )
    count = size_of(x.shape)
    flat = reshape(broadcast_to(mask, shape=x.shape), shape=(count,))
    if size_of(source.shape) == 0:
        raise ShapeError("masked_scatter", f"source must have elements, got {type_of(source)}")
    place = running_sum(cast(flat, dtype=int64), axis=0, reverse=False) - 1
    taken = gather_nd(
        reshape(source, shape=(size_of(source.shape),)), select(flat, place, np.zeros((), int64))
    )
    return select(reshape(flat, shape=x.shape), reshape(taken, shape=x.shape), x)
