"""A product of matrices with something added to it, rounded once.

In half precision a product that is stored before a bias is added loses what is less than half a unit of its
last place: all of a small bias. So ``linear`` is one op there, whose sums stay in float32 to the end. Other
dtypes have nothing to gain by it, and are written as a product and a sum, which more is known about.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.base.dtypes import DType, bfloat16, float16, float32
from weft.base.shapes import broadcast_shapes
from weft.errors import DtypeError, ShapeError
from weft.ir.types import TensorType
from weft.ops.arithmetic import add
from weft.ops.batching import batch_elementwise
from weft.ops.broadcast import unbroadcast
from weft.ops.contract import adjoint, left_gradient, matrix_multiply, right_gradient
from weft.ops.factors import Factors, Types, aligned, of_product
from weft.ops.families import lowered, primitive
from weft.ops.op import Array, Op, Sample, Tensor
from weft.ops.samples import complex_array, int_array, real_array
from weft.ops.select import cast, in_single
from weft.ops.view.primitives import broadcast_to

HALVES = (float16, bfloat16)


def _halves_type(x: TensorType, y: TensorType) -> TensorType:
    if x.dtype not in HALVES:
        raise DtypeError("matmul_halves", f"both sides must be of half precision, got {x} and {y}")
    return TensorType(matrix_multiply.type_rule(x, y).shape, float32)


matmul_halves: Op = lowered(
    "matmul_halves",
    type_rule=_halves_type,
    eval=lambda x, y: matrix_multiply.eval(x.astype(float32), y.astype(float32)),
    samples=lambda: [
        Sample(
            (real_array((2, 3)).astype(float16), real_array((3, 4), seed=1).astype(float16)), smooth=False
        ),
        Sample(
            (real_array((5, 2, 3)).astype(bfloat16), real_array((3, 4), seed=1).astype(bfloat16)),
            smooth=False,
        ),
        Sample((real_array((2, 0)).astype(float16), real_array((0, 4)).astype(float16)), smooth=False),
    ],
    products=lambda x, y: x[-1],
    factors=of_product,
    total=True,
)
"""The matrix product of half precision in float32: sums as they are before they are rounded."""


def _type(x: TensorType, y: TensorType, z: TensorType) -> TensorType:
    product = matrix_multiply.type_rule(x, y)
    if product.dtype != z.dtype:
        raise DtypeError("matmul_add", f"dtypes must be equal, got {product.dtype.name} and {z.dtype.name}")
    shape = broadcast_shapes("matmul_add", [product.shape, z.shape], (product, z))
    if shape[-2:] != product.shape[-2:]:
        raise ShapeError("matmul_add", f"what is added must broadcast to the product, got {product} and {z}")
    return add.type_rule(product, TensorType(shape, z.dtype))  # type: ignore[no-any-return]


def _add(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    if x.dtype not in HALVES:
        return add(matrix_multiply(x, y), z)
    product = matmul_halves(x, y)
    if z.ndim and z.shape != product.shape:  # cast when it is read: by itself that would be a kernel
        z = broadcast_to(z, shape=broadcast_shapes("matmul_add", [product.shape, z.shape]))
    return cast(add(product, in_single(z)), dtype=x.dtype)


def _evaluate(x: Array, y: Array, z: Array) -> Array:
    halves = x.dtype in HALVES
    sums: Array = matmul_halves.eval(x, y) + z.astype(float32) if halves else matrix_multiply.eval(x, y) + z
    return sums.astype(x.dtype) if halves else sums


def _y_gradient(g: Tensor, x: Tensor, y_type: TensorType) -> Tensor:
    if g.shape[:-1] == x.shape[:-1]:
        return right_gradient(g, x, y_type)
    return unbroadcast(matrix_multiply(adjoint(x), g), y_type.shape)  # z has more axes of batches


def _jvp(primals: Sequence[Tensor], tangents: Sequence[Tensor | None], out: Tensor) -> Tensor:
    (x, y, _), (tx, ty, total) = primals, tangents
    for left, right in ((tx, y), (x, ty)):
        if left is not None and right is not None:
            total = matrix_multiply(left, right) if total is None else matmul_add(left, right, total)
    assert total is not None
    return total if total.shape == out.shape else broadcast_to(total, shape=out.shape)


def _factors(inputs: Types, outputs: Types) -> Factors:
    found = of_product(inputs[:2], outputs)
    of_z = aligned([inputs[2]], outputs)
    names = dict(zip(of_z.outputs[0], found.outputs[0], strict=True))
    return Factors(
        (*found.inputs, tuple([names.get(n, "") for n in of_z.inputs[0]])), found.outputs, found.folds, (2,)
    )


def _half_sample(dtype: DType | str) -> Sample:
    arrays: list[Array] = [real_array(s, seed=i) for i, s in enumerate([(2, 3), (3, 4), (4,)])]
    return Sample(tuple([a.astype(dtype) for a in arrays]), smooth=False)


matmul_add: Op = primitive(
    "matmul_add",
    type_rule=_type,
    eval=_evaluate,
    decomposition=_add,
    vjp=(left_gradient, _y_gradient, lambda g, z_type: unbroadcast(g, z_type.shape)),
    jvp=_jvp,
    batch=batch_elementwise,
    samples=lambda: [
        Sample((real_array((2, 3)), real_array((3, 4), seed=1), real_array((4,), seed=2))),
        Sample((real_array((5, 2, 3)), real_array((3, 4), seed=1), real_array((4,), seed=2))),
        Sample((real_array((2, 3)), real_array((5, 3, 4), seed=1), real_array((5, 1, 4), seed=2))),
        Sample((real_array((2, 3)), real_array((3, 4), seed=1), real_array((6, 2, 4), seed=2))),
        Sample((real_array((5, 2, 3)), real_array((3, 4), seed=1), real_array((6, 1, 2, 1), seed=2))),
        Sample((real_array((2, 3)), real_array((3, 4), seed=1), real_array((), seed=2))),
        Sample((real_array((2, 0)), real_array((0, 4)), real_array((4,)))),
        Sample((real_array((0, 3)), real_array((3, 4)), real_array((4,)))),
        Sample((complex_array((2, 3)), complex_array((3, 2), seed=1), complex_array((2,), seed=2))),
        Sample((int_array((3, 4)), int_array((4, 2), seed=1), int_array((2,), seed=2))),
        _half_sample(float16),
        _half_sample(bfloat16),
    ],
    products=lambda x, y, z: x[-1],
    factors=_factors,
    large_vjp=True,
    total=True,
)
"""The matrix product of two with a third added, which broadcasts: ``x @ y + z``, rounded once."""

library_matmul_add: Op = lowered(
    "library_matmul_add", type_rule=_type, eval=matmul_add.eval, products=lambda x, y, z: x[-1], total=True
)
"""The same where what is added is a row, as a library of a device computes it: ``biases_by_library``."""
