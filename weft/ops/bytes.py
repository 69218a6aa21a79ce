"""Products of bytes with sums of 32 bits, which processors have units for: what quantised models are made of.

Nobody writes this op: the pass ``narrow_products`` finds products of int32 whose sides are bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.dtypes import int8, int32
from weft.base.shapes import broadcast_shapes
from weft.errors import DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.batching import batch_elementwise
from weft.ops.contract import matrix_multiply
from weft.ops.families import primitive
from weft.ops.op import Array, Op, Sample, no_gradient
from weft.ops.samples import int_array


def _type(x: TensorType, y: TensorType) -> TensorType:
    if x.dtype != int8 or y.dtype != int8:
        raise DtypeError("matmul_bytes", f"both sides must be int8, got {x} and {y}")
    if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-2]:
        raise ShapeError("matmul_bytes", f"inner dimensions of matrices must agree, got {x} and {y}")
    lead = broadcast_shapes("matmul_bytes", [x.shape[:-2], y.shape[:-2]], (x, y))
    return TensorType((*lead, x.shape[-2], y.shape[-1]), int32)


def _multiply(x: Array, y: Array) -> Any:
    return matrix_multiply.eval(x.astype(int32), y.astype(int32))


matmul_bytes: Op = primitive(
    "matmul_bytes",
    type_rule=_type,
    eval=_multiply,
    vjp=no_gradient("of integers"),
    batch=batch_elementwise,
    samples=lambda: [
        Sample(
            (int_array((3, 9), -128, 128, dtype="int8"), int_array((9, 5), -128, 128, seed=1, dtype="int8"))
        ),
        Sample((int_array((2, 3, 4), -9, 9, dtype="int8"), int_array((4, 2), -9, 9, seed=1, dtype="int8"))),
        Sample((np.full((2, 7), -128, np.int8), np.full((7, 3), -128, np.int8))),
        Sample((np.zeros((2, 0), np.int8), np.zeros((0, 3), np.int8))),
    ],
    products=lambda x, y: x[-1],
)
"""The matrix product of int8 in int32."""
