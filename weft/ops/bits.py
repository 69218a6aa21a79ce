"""Numbers read as others of the same bits."""

from __future__ import annotations

import numpy as np

from weft.base.dtypes import DType, float16, float32, float64, int32, int64, kind, uint8, uint16
from weft.errors import DtypeError
from weft.ir.types import TensorType
from weft.ops.families import primitive
from weft.ops.op import Op, Sample, no_gradient
from weft.ops.samples import int_array, real_array


def _type(x: TensorType, *, dtype: DType) -> TensorType:
    whole = kind(x.dtype) in "iuf" and kind(dtype) in "iuf"
    if not whole or x.dtype.itemsize != dtype.itemsize:
        raise DtypeError("bitcast", f"dtypes must be real numbers of one size, got {x.dtype} and {dtype}")
    return TensorType(x.shape, dtype)


bitcast: Op = primitive(
    "bitcast",
    type_rule=_type,
    eval=lambda x, *, dtype: x.view(dtype),
    vjp=no_gradient("reads bits, not a number"),
    samples=lambda: [
        Sample((real_array((3, 4)).astype(float32),), {"dtype": int32}),
        Sample((real_array((3, 4)).T,), {"dtype": int64}),
        Sample((real_array((5,)).astype(float16),), {"dtype": uint16}),
        Sample((int_array((3,)).astype(int64),), {"dtype": float64}),
        Sample((int_array((0, 3)).astype(np.int8),), {"dtype": uint8}),
    ],
    scalar=lambda e, x, dtype: e.bitcast(x, dtype),
    total=True,
)
"""``bitcast(x, dtype)``: the bits of each number as a number of another dtype of the same size."""
