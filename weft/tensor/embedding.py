"""Rows of a table by their numbers."""

from __future__ import annotations

import numpy as np

from weft.base.concrete import is_on_device
from weft.base.dtypes import bool_, kind
from weft.base.public import public
from weft.errors import BoundsError, DomainError, DtypeError, ShapeError
from weft.ops.index import gather_nd, scatter_nd
from weft.ops.op import type_of, whole
from weft.ops.select import select
from weft.ops.size import filled
from weft.ops.vector_norm import vector_norm
from weft.ops.view.primitives import reshape
from weft.tensor.convert import integer
from weft.tensor.mode import no_grad
from weft.tensor.tensor import Tensor


@public
def embedding(
    indices: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
) -> Tensor:
    """The rows of a weight (rows, features) at indices; the row ``padding_idx`` gets no gradient.

    With ``max_norm`` the rows that are used and longer than that, in the p-norm of ``norm_type``, are scaled
    down to it in the weight itself, outside of the gradient.

    >>> import weft
    >>> table = weft.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]])
    >>> weft.embedding(weft.tensor([2, 0]), table)
    tensor([[3., 4.],
            [0., 0.]])
    """
    if weight.ndim != 2:
        raise ShapeError("embedding", f"the weight must be (rows, features), got {type_of(weight)}")
    if kind(indices.dtype) not in "iu":
        raise DtypeError("embedding", f"indices must be integers, got {indices.dtype.name}")
    known = _check_range(indices, weight.shape[0], looks=max_norm is not None)  # before anything is changed
    if max_norm is not None:
        _shorten(indices, weight, max_norm, norm_type)
    rows = gather_rows(weight, indices) if known else gather_nd(weight, indices, from_end=False)
    if padding_idx is None:
        return rows
    number = integer("embedding", "padding_idx", padding_idx)
    if not -weight.shape[0] <= number < weight.shape[0]:
        raise DomainError("embedding", f"padding_idx must be a row of {type_of(weight)}, got {number}")
    padded = reshape(indices == number % weight.shape[0], shape=(*indices.shape, 1))
    return select(padded, rows.detach(), rows)


def _shorten(indices: Tensor, weight: Tensor, most: float, order: float) -> None:
    """Scale down rows of the weight at indices that are longer than a norm, in place."""
    if not most > 0:
        raise DomainError("embedding", f"max_norm must be positive, got {most}")
    with no_grad():
        used = scatter_nd(
            filled((weight.shape[0],), False, bool_), filled(indices.shape, True, bool_), indices
        )
        norms = vector_norm(weight, axis=1, ord=order, keepdims=True)
        scale = select(norms > most, most / (norms + 1e-7), np.ones((), norms.dtype))
        kept = reshape(used, shape=(weight.shape[0], 1))
        weight.copy_(weight * select(kept, scale, np.ones((), norms.dtype)))


@whole("indices")
def gather_rows(weight: Tensor, indices: Tensor) -> Tensor:
    """The rows of a table at indices that are in range."""
    return gather_nd(weight, indices)


def _check_range(indices: Tensor, rows: int, *, looks: bool) -> bool:
    """Raise if an index is outside the table, negative ones included; gives whether that is known here."""
    data = indices._data if isinstance(indices, Tensor) else indices
    data = data.to_host() if looks and is_on_device(data) else data
    if not isinstance(data, np.ndarray):
        return False
    if data.size and not (data.min() >= 0 and data.max() < rows):
        wrong = int(data.min()) if data.min() < 0 else int(data.max())
        raise BoundsError("embedding", f"indices must be in 0..{rows - 1}, got {wrong}")
    return True
