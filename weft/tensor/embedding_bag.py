"""Rows of a table by their numbers, made one for each bag of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.public import public
from weft.errors import DomainError, ShapeError
from weft.ops.arithmetic import maximum
from weft.ops.index_axis import index_add
from weft.ops.op import Tensor, type_of
from weft.ops.select import cast, select
from weft.ops.size import count_to, filled, positions
from weft.ops.sort import searchsorted
from weft.ops.view.primitives import reshape
from weft.tensor.creation import as_tensor
from weft.tensor.embedding import embedding

_OP = "embedding_bag"


@public
def embedding_bag(
    indices: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    *,
    mode: str = "mean",
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
) -> Tensor:
    """The mean, the sum or the largest elements of the rows in each bag; zeros for a bag without any.

    Args:
        indices: (bags, length), or (all,) with offsets.
        weight: (rows, features).
        offsets: where each bag begins in indices of one axis.
        mode: "mean", "sum" or "max".
        per_sample_weights: factors of the rows, of the shape of indices; for sums only.
        include_last_offset: whether offsets have one more number, the end of the last bag.
        padding_idx: a row that does not count.
        max_norm: rows that are used and longer are scaled down to it in the weight itself.
        norm_type: of that length.

    >>> import weft
    >>> table = weft.tensor([[1.0], [10.0], [100.0]])
    >>> weft.embedding_bag(weft.tensor([0, 1, 2]), table, weft.tensor([0, 2]), mode="sum")
    tensor([[ 11.],
            [100.]])
    """
    _check(indices, offsets, mode, per_sample_weights)
    rows = embedding(indices, weight, padding_idx, max_norm, norm_type)
    counted = as_tensor(filled(indices.shape, True, np.dtype(np.bool_)))
    if padding_idx is not None:
        counted = indices != padding_idx % weight.shape[0]
    if per_sample_weights is not None:
        rows = rows * reshape(per_sample_weights, shape=(*indices.shape, 1))
    if offsets is None:
        return _of_rows(rows, reshape(counted, shape=(*indices.shape, 1)), mode)
    place = count_to(indices.shape[0], offsets.dtype)
    begins = offsets[:-1] if include_last_offset else offsets
    if include_last_offset:
        counted = counted & (offsets[-1] > place)
    bag = searchsorted(begins, as_tensor(place), side="right") - 1
    if mode == "max":
        inside = bag == positions(begins.shape[0], 1)
        return _of_rows(reshape(rows, shape=(1, *rows.shape)), (inside & counted)[..., None], mode)
    kept = reshape(cast(counted, dtype=rows.dtype), shape=(*indices.shape, 1))
    sums = _added(rows * kept, bag, begins.shape[0])
    return sums if mode == "sum" else sums / _at_least_one(_added(kept, bag, begins.shape[0]))


def _check(indices: Tensor, offsets: Tensor | None, mode: str, per_sample_weights: Tensor | None) -> None:
    if mode not in ("mean", "sum", "max"):
        raise DomainError(_OP, f"mode must be 'mean', 'sum' or 'max', got {mode!r}")
    if indices.ndim != (2 if offsets is None else 1):
        need = "(bags, length) without offsets" if offsets is None else "(all,) with offsets"
        raise ShapeError(_OP, f"indices must be {need}, got {type_of(indices)}")
    if per_sample_weights is not None and mode != "sum":
        raise DomainError(_OP, f"mode must be 'sum' with per_sample_weights, got {mode!r}")
    if per_sample_weights is not None and per_sample_weights.shape != indices.shape:
        got = f"{type_of(per_sample_weights)} for {type_of(indices)}"
        raise ShapeError(_OP, f"per_sample_weights must be of the shape of indices, got {got}")


def _of_rows(rows: Tensor, counted: object, mode: str) -> Tensor:
    """One row out of each bag of rows (bags, length, features), of those that count."""
    kept = cast(counted, dtype=rows.dtype)
    counts = kept.sum(axis=1)
    if mode == "max":
        shown = select(counted, rows, np.asarray(-np.inf, rows.dtype))
        return select(counts > 0, shown.max(axis=1), np.zeros((), rows.dtype))
    sums = (rows * kept).sum(axis=1)
    return sums if mode == "sum" else sums / _at_least_one(counts)


def _added(rows: Tensor, bag: Any, bags: int) -> Tensor:
    return index_add(as_tensor(filled((bags, rows.shape[1]), 0, rows.dtype)), bag, rows, axis=0)


def _at_least_one(counts: Any) -> Tensor:
    return maximum(counts, np.ones((), counts.dtype))
