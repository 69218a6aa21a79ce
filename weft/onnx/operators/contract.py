"""Products of matrices, sums of products, determinants."""

from __future__ import annotations

import weft
from weft import Tensor
from weft.onnx.operators.registry import Call, enter_handlers, operator


@operator("Gemm")
def gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """``alpha * a @ b + beta * c``, with a or b transposed if asked."""
    a = weft.permute_dims(a, (1, 0)) if call.attribute("transA", 0) else a
    b = weft.permute_dims(b, (1, 0)) if call.attribute("transB", 0) else b
    out = _scaled(weft.matmul(a, b), call.attribute("alpha", 1.0))
    return out if c is None else out + _scaled(c, call.attribute("beta", 1.0))


def _scaled(x: Tensor, factor: float) -> Tensor:
    if factor == 1.0:
        return x
    return (x * factor).astype(x.dtype, copy=False)


enter_handlers(
    {
        "MatMul": lambda call, a, b: weft.matmul(a, b),
        "Einsum": lambda call, *inputs: weft.einsum(call.attribute("equation"), *inputs),
        "Det": lambda call, x: weft.linalg.det(x),
    }
)
