"""Products whose right side was packed before: columns side by side, as many as a tile has.

Nobody writes these ops: ``weft.schedule.prepared`` puts them in place of products with weights. Bytes are
packed as words of four steps, the first in the lowest bits, as units of processors take them.
"""

from __future__ import annotations

import sys

import numpy as np

from weft.base.dtypes import DType, float32, float64, int8, uint32
from weft.errors import DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.bytes import matmul_bytes
from weft.ops.contract import matrix_multiply
from weft.ops.families import lowered
from weft.ops.op import Array, Op, Sample
from weft.ops.samples import int_array, real_array

PACKED: dict[DType, tuple[DType, int]] = {float32: (float32, 1), float64: (float64, 1), int8: (uint32, 4)}


def _pack_type(x: TensorType, *, width: int) -> TensorType:
    if x.dtype not in PACKED or x.ndim != 2 or not all(isinstance(s, int) for s in x.shape):
        raise DtypeError("pack_panels", f"must be a matrix of float32, float64 or int8, got {x}")
    dtype, group = PACKED[x.dtype]
    return TensorType((-(-x.shape[1] // width), -(-x.shape[0] // group), width), dtype)


def _pack(x: Array, *, width: int) -> Array:
    dtype, group = PACKED[x.dtype]
    count, words = -(-x.shape[1] // width), -(-x.shape[0] // group)
    whole = np.zeros((words * group, count * width), x.dtype)
    whole[: x.shape[0], : x.shape[1]] = x
    rows = whole.reshape(words, group, count, width).transpose(2, 0, 3, 1)
    if sys.byteorder == "big":
        rows = rows[..., ::-1]
    return np.ascontiguousarray(rows).view(dtype).reshape(count, words, width)


def _unpacked(panels: Array, dtype: DType, steps: int, columns: int) -> Array:
    group = PACKED[dtype][1]
    count, words, width = panels.shape
    rows = np.ascontiguousarray(panels)[..., None].view(dtype)
    if sys.byteorder == "big":
        rows = rows[..., ::-1]
    return rows.transpose(1, 3, 0, 2).reshape(words * group, count * width)[:steps, :columns]


pack_panels: Op = lowered(
    "pack_panels",
    type_rule=_pack_type,
    eval=_pack,
    samples=lambda: [
        Sample((real_array((5, 7)),), {"width": 4}, smooth=False),
        Sample((real_array((3, 8)).astype(np.float32),), {"width": 4}, smooth=False),
        Sample((int_array((6, 5), -128, 128, dtype="int8"),), {"width": 4}),
    ],
    total=True,
)
"""A matrix as panels of so many columns, step after step; zeros fill up the last one."""


def _type(x: TensorType, panels: TensorType, *, columns: int) -> TensorType:
    dtype, group = PACKED.get(x.dtype, (None, 1))
    if dtype is None or panels.dtype != dtype:
        raise DtypeError("matmul_panels", f"panels must be those for {x.dtype.name}, got {x} and {panels}")
    count, words, width = panels.shape
    steps = x.shape[-1]
    if x.ndim < 2 or -(-steps // group) != words or -(-columns // width) != count:
        message = f"panels must be of {columns} columns and as many steps, got {x} and {panels}"
        raise ShapeError("matmul_panels", message)
    product = matmul_bytes if x.dtype == int8 else matrix_multiply
    whole: TensorType = product.type_rule(x, TensorType((steps, columns), x.dtype))
    return whole


def _multiply(x: Array, panels: Array, *, columns: int) -> Array:
    product = matmul_bytes if x.dtype == int8 else matrix_multiply
    whole: Array = product.eval(x, _unpacked(panels, x.dtype, x.shape[-1], columns))
    return whole


def _sample(left: Array, right: Array, width: int) -> Sample:
    return Sample((left, _pack(right, width=width)), {"columns": right.shape[1]}, smooth=False)


matmul_panels: Op = lowered(
    "matmul_panels",
    type_rule=_type,
    eval=_multiply,
    samples=lambda: [
        _sample(real_array((3, 5)), real_array((5, 7), seed=1), 4),
        _sample(real_array((2, 3, 4)), real_array((4, 8), seed=1), 4),
        _sample(
            int_array((3, 6), -128, 128, dtype="int8"), int_array((6, 5), -128, 128, seed=1, dtype="int8"), 4
        ),
    ],
    products=lambda x, y: x[-1],
    total=True,
)
"""The product of matrices with what ``pack_panels`` made of a right side of so many columns."""
