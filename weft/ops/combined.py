"""A tensor plus a product or a quotient of others, as optimizers and layers of older code write it."""

from __future__ import annotations

from weft.errors import ShapeError
from weft.ops.affine import HALVES, matmul_add
from weft.ops.arithmetic import add, div, mul
from weft.ops.contract import matmul, need_rank
from weft.ops.op import Sample, Tensor, composite, type_of
from weft.ops.public import example
from weft.ops.reduce import reduce_sum
from weft.ops.samples import call, complex_array, joined, real_array
from weft.ops.select import run_in_single, same_dtype
from weft.ops.view.primitives import reshape


def _elements(low: float = -2.0) -> list[Sample]:
    x, a, b = (real_array((3, 4), low, 2.0, seed=i) for i in range(3))
    return [
        Sample((x, a, b)),
        Sample((x, a[:1], b[:, :1]), {"value": -0.5}),
        Sample((x[:0], a[:0], b[:0])),
    ]


@composite(
    samples=lambda: [*_elements(), Sample(tuple(complex_array((3,), seed=i) for i in range(3)))], single=True
)
@example("(weft.ones(2), weft.tensor([1.0, 2.0]), weft.tensor([3.0, 4.0]), value=10) -> tensor([31., 81.])")
def addcmul(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """``x + value * tensor1 * tensor2``, element by element."""
    product = mul(tensor1, tensor2)
    return add(x, product if value == 1 else mul(product, value))


@composite(samples=lambda: _elements(0.5), single=True)
@example("(weft.ones(2), weft.tensor([1.0, 2.0]), weft.tensor([4.0, 4.0])) -> tensor([1.2500, 1.5000])")
def addcdiv(x: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """``x + value * tensor1 / tensor2``, element by element."""
    quotient = div(tensor1, tensor2)
    return add(x, quotient if value == 1 else mul(quotient, value))


def _weighted_sum(op: str, x: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """``beta * x + alpha * product``; a beta of 0 leaves x out, even where it is NaN."""
    x, product = same_dtype(op, x, product)
    product = product if alpha == 1 else mul(product, alpha)
    if beta == 0:
        return product
    out = add(x if beta == 1 else mul(x, beta), product)
    if out.shape != product.shape:
        raise ShapeError(op, f"x must broadcast to the product, got {type_of(x)} and {type_of(product)}")
    return out


def _plus_product(op: str, x: Tensor, left: Tensor, right: Tensor, beta: float, alpha: float) -> Tensor:
    """``beta * x + alpha * (left @ right)``, of half precision rounded once."""
    half = left.dtype in HALVES and x.dtype == left.dtype == right.dtype
    if half and beta == 1 and alpha == 1 and left.shape[-1] == right.shape[-2]:
        shape = (*left.shape[:-1], right.shape[-1])
        sizes = zip(x.shape[::-1], shape[::-1], strict=False)
        if x.ndim <= len(shape) and all(s in (1, whole) for s, whole in sizes):
            return matmul_add(left, right, x)

    def compute(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
        return _weighted_sum(op, x, matmul(left, right), beta, alpha)

    out: Tensor = run_in_single(compute, (x, left, right), {}) if half else compute(x, left, right)
    return out


@composite(samples=joined(call((2, 4), (2, 3), (3, 4)), call((4,), (2, 3), (3, 4), beta=0.5, alpha=2.0)))
@example("(weft.ones(2), weft.ones((1, 3)), weft.ones((3, 2)), alpha=2) -> tensor([[7., 7.]])")
def addmm(x: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * x + alpha * (mat1 @ mat2)`` of matrices; x broadcasts."""
    need_rank("addmm", 2, mat1, mat2)
    return _plus_product("addmm", x, mat1, mat2, beta, alpha)


@composite(samples=joined(call((2,), (2, 3), (3,)), call((), (2, 3), (3,), beta=0.5, alpha=2.0)), single=True)
@example("(weft.ones(2), weft.ones((2, 3)), weft.ones(3)) -> tensor([4., 4.])")
def addmv(x: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * x + alpha * (mat @ vec)``; x broadcasts."""
    need_rank("addmv", 2, mat)
    need_rank("addmv", 1, vec)
    return _weighted_sum("addmv", x, matmul(mat, vec), beta, alpha)


@composite(samples=joined(call((2, 3), (2,), (3,)), call((3,), (2,), (3,), beta=0.5, alpha=2.0)), single=True)
@example("(weft.ones(1), weft.tensor([1.0, 2.0]), weft.tensor([3.0])).tolist() -> [[4.0], [7.0]]")
def addr(x: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * x + alpha * outer(vec1, vec2)``; x broadcasts."""
    need_rank("addr", 1, vec1, vec2)
    product = mul(reshape(vec1, shape=(*vec1.shape, 1)), vec2)
    return _weighted_sum("addr", x, product, beta, alpha)


def _need_batches(op: str, batch1: Tensor, batch2: Tensor) -> None:
    need_rank(op, 3, batch1, batch2)
    if batch1.shape[0] != batch2.shape[0]:
        raise ShapeError(op, f"batch sizes must agree, got {type_of(batch1)} and {type_of(batch2)}")


@composite(
    samples=joined(
        call((5, 2, 4), (5, 2, 3), (5, 3, 4)), call((2, 4), (5, 2, 3), (5, 3, 4), beta=0.0, alpha=2.0)
    ),
)
@example("(weft.ones(2), weft.ones((1, 1, 3)), weft.ones((1, 3, 2))) -> tensor([[[4., 4.]]])")
def baddbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * x + alpha * (batch1 @ batch2)`` of batches of matrices; x broadcasts."""
    _need_batches("baddbmm", batch1, batch2)
    return _plus_product("baddbmm", x, batch1, batch2, beta, alpha)


@composite(
    samples=joined(call((2, 4), (5, 2, 3), (5, 3, 4)), call((4,), (5, 2, 3), (5, 3, 4), beta=0.5)),
    single=True,
)
@example("(weft.ones(2), weft.ones((4, 1, 3)), weft.ones((4, 3, 2))) -> tensor([[13., 13.]])")
def addbmm(x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * x + alpha * (batch1 @ batch2).sum(0)``: the products of a batch added up; x broadcasts."""
    _need_batches("addbmm", batch1, batch2)
    total = reduce_sum(matmul(batch1, batch2), axes=(0,), keepdims=False)
    return _weighted_sum("addbmm", x, total, beta, alpha)
