"""Products of vectors and matrices by name, and the layers without state that they make."""

from __future__ import annotations

from weft.errors import ShapeError
from weft.ops.affine import HALVES, matmul_add
from weft.ops.contract import matmul, need_rank, tensordot, transpose_last
from weft.ops.op import Sample, Tensor, composite, type_of
from weft.ops.public import example
from weft.ops.samples import call, complex_array, int_array, joined, real_array
from weft.ops.select import run_in_single, same_dtype
from weft.ops.view.primitives import permute, reshape

# Products of fixed rank


@composite(samples=call((2, 3), (3, 4)))
def mm(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of two matrices.

    >>> import weft
    >>> weft.mm(weft.ones((2, 3)), weft.ones((3, 1)))
    tensor([[3.],
            [3.]])
    """
    need_rank("mm", 2, x1, x2)
    return matmul(x1, x2)


@composite(samples=call((5, 2, 3), (5, 3, 4)))
@example("(weft.ones((5, 2, 3)), weft.ones((5, 3, 4))).shape -> (5, 2, 4)")
def bmm(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The products of two batches of matrices, (B, n, k) and (B, k, m)."""
    need_rank("bmm", 3, x1, x2)
    if x1.shape[0] != x2.shape[0]:
        raise ShapeError("bmm", f"batch sizes must agree, got {type_of(x1)} and {type_of(x2)}")
    return matmul(x1, x2)


@composite(samples=call((2, 3), (3,)))
@example("(weft.tensor([[1.0, 2.0], [3.0, 4.0]]), weft.tensor([1.0, 1.0])) -> tensor([3., 7.])")
def mv(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of a matrix and a vector."""
    need_rank("mv", 2, x1)
    need_rank("mv", 1, x2)
    return matmul(x1, x2)


@composite(
    samples=lambda: [
        Sample((real_array((4,)), real_array((4,), seed=1))),
        Sample((complex_array((4,)), complex_array((4,), seed=1))),
        Sample((int_array((4,)), int_array((4,), seed=1))),
        Sample((real_array((0,)), real_array((0,)))),
        Sample((real_array((2, 3)), real_array((3, 4), seed=1))),
        Sample((real_array((2, 3)), real_array((4, 3, 2), seed=1))),
        Sample((real_array(()), real_array((2, 3), seed=1))),
    ]
)
@example("(weft.tensor([1, 2, 3]), weft.tensor([4, 5, 6])) -> tensor(32)")
def dot(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The sum of products of two vectors, without conjugation; of more axes as NumPy's.

    These are the last axis of one side and the last but one of the other; a 0-d side just scales the other.
    """
    if x1.ndim == 0 or x2.ndim == 0:
        return x1 * x2
    if x2.ndim <= 2:
        return matmul(x1, x2)
    return tensordot(x1, x2, axes=((-1,), (-2,)))


@composite(samples=joined(call((2, 3), (4, 3)), call((3,), (3,)), call((), (2, 3))))
@example("(weft.tensor([[1.0, 2.0], [3.0, 4.0]]), weft.tensor([1.0, 1.0])) -> tensor([3., 7.])")
def inner(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The sum of products over the last axis of both sides; a 0-d side just scales the other."""
    if x1.ndim == 0 or x2.ndim == 0:
        return x1 * x2
    return tensordot(x1, x2, axes=((-1,), (-1,)))


@composite(samples=joined(call((2, 3), (3, 2)), call((2,), (3, 2))))
@example("(weft.tensor([1, 10]), weft.tensor([1, 2, 3])) -> tensor([ 1,  2,  3, 10, 20, 30])")
def kron(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The Kronecker product: every element of one side times the whole of the other."""
    x1, x2 = same_dtype("kron", x1, x2)
    rank = max(x1.ndim, x2.ndim)
    rows, columns = ((1,) * (rank - x.ndim) + x.shape for x in (x1, x2))
    left = reshape(x1, shape=tuple(s for r in rows for s in (r, 1)))
    right = reshape(x2, shape=tuple(s for c in columns for s in (1, c)))
    return reshape(left * right, shape=tuple(r * c for r, c in zip(rows, columns, strict=True)))


# Layers without state


def _need_features(op: str, x: Tensor, size: int) -> None:
    if x.ndim == 0 or x.shape[-1] != size:
        message = f"the last axis must have {size} features as the weight says, got {type_of(x)}"
        raise ShapeError(op, message, clash=(x.shape[-1], size) if x.ndim else None)


@composite(
    samples=lambda: [
        Sample((real_array((2, 3)), real_array((4, 3), seed=1), real_array((4,), seed=2))),
        Sample((real_array((5, 2, 3)), real_array((4, 3), seed=1))),
        Sample((real_array((3,)), real_array((4, 3), seed=1), real_array((4,), seed=2))),
        Sample((real_array((0, 3)), real_array((4, 3)))),
        Sample((real_array((2, 3)), real_array((3,), seed=1))),
    ],
    whole=("x",),
    precision="low",
)
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias``: x (..., in), weight (out, in) or (in,), bias (out,).

    In half precision it is rounded once, after the bias is added.

    >>> import weft
    >>> weft.linear(weft.tensor([1.0, 2.0]), weft.tensor([[1.0, 1.0], [0.0, 3.0]]), weft.tensor([10.0, 20.0]))
    tensor([13., 26.])
    """
    if weight.ndim not in (1, 2):
        raise ShapeError("linear", f"the weight must be (out, in) or (in,), got {type_of(weight)}")
    _need_features("linear", x, weight.shape[-1])
    if bias is None:
        return matmul(x, transpose_last(weight) if weight.ndim == 2 else weight)
    half = x.dtype.itemsize == 2 and x.dtype in HALVES
    if half and x.dtype == weight.dtype == getattr(bias, "dtype", None):
        return _rounded_once(x, weight, bias)
    return _multiply_add(x, weight, bias)


def _multiply_add(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return matmul(x, transpose_last(weight) if weight.ndim == 2 else weight) + bias


def _rounded_once(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer of half precision, whose sums are not stored before the bias is added."""
    if weight.ndim == 1 or bias.shape != weight.shape[:1]:  # what broadcasts in ways of its own
        out: Tensor = run_in_single(_multiply_add, (x, weight, bias), {})
        return out
    rows = reshape(x, shape=(1, *x.shape)) if x.ndim == 1 else x
    made = matmul_add(rows, transpose_last(weight), bias)
    return reshape(made, shape=made.shape[1:]) if x.ndim == 1 else made


@composite(
    samples=lambda: [
        Sample(
            (real_array((2, 3)), real_array((2, 4), seed=1), real_array((5, 3, 4), seed=2), real_array((5,)))
        ),
        Sample((real_array((3,)), real_array((4,), seed=1), real_array((5, 3, 4), seed=2))),
    ],
    precision="low",
    single=True,
)
@example("(weft.ones((6, 2)), weft.ones((6, 3)), weft.ones((4, 2, 3))).shape -> (6, 4)")
def bilinear(x1: Tensor, x2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x1 @ weight[o] @ x2 + bias[o]`` for every output o: weight (out, in1, in2)."""
    if weight.ndim != 3:
        raise ShapeError("bilinear", f"the weight must be (out, in1, in2), got {type_of(weight)}")
    outputs, first, second = weight.shape
    _need_features("bilinear", x1, first)
    _need_features("bilinear", x2, second)
    flat = reshape(permute(weight, axes=(1, 0, 2)), shape=(first, outputs * second))
    partial = matmul(x1, flat)
    partial = reshape(partial, shape=(*partial.shape[:-1], outputs, second))
    out = matmul(partial, reshape(x2, shape=(*x2.shape, 1)))
    out = reshape(out, shape=out.shape[:-1])
    return out if bias is None else out + bias
