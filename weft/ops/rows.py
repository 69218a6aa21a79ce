"""All rows of a tensor as one op: what a list holds that a loop of a graph appended to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.errors import ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import move_axis
from weft.ops.factors import Factors, Types, numbered
from weft.ops.families import primitive
from weft.ops.op import Attrs, Op, Tensor
from weft.ops.samples import call, joined
from weft.ops.size import filled
from weft.ops.view.primitives import join, reshape


def _rows_type(x: TensorType, *, count: int) -> tuple[TensorType, ...]:
    if not x.shape or x.shape[0] != count:
        raise ShapeError("rows", f"there must be {count} rows, got {x}")
    return (TensorType(x.shape[1:], x.dtype),) * count


def _stacked(g: Sequence[Any], x_type: TensorType) -> list[Tensor]:
    """The gradients of the rows as those of the whole; zeros where none came."""
    zeros = filled((1, *x_type.shape[1:]), 0, x_type.dtype)
    parts = [zeros if row is None else reshape(row, shape=(1, *row.shape)) for row in g]
    return [join(*parts, axis=0)]


def _batch_rows(
    op: Op, size: int, inputs: Sequence[Any], axes: Sequence[int | None], attrs: Attrs
) -> tuple[Any, Any]:
    x = move_axis(inputs[0], axes[0] or 0, 1)
    return op(x, **attrs), (0,) * attrs["count"]


def _rows_factors(inputs: Types, outputs: Types, **attrs: object) -> Factors:
    names = numbered(inputs[0])[1:]
    return Factors((("", *names),), (names,) * len(outputs))


rows: Op = primitive(
    "rows",
    type_rule=_rows_type,
    eval=lambda x, *, count: tuple(np.asarray(row) for row in x),
    vjp=_stacked,
    jvp=lambda primals, tangents, outs, *, count: rows(tangents[0], count=count),
    batch=_batch_rows,
    samples=joined(call((3, 2), count=3), call((2,), count=2)),
    factors=_rows_factors,
    outputs=0,
)
