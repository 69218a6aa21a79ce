"""Products of a large matrix with one vector: read as it lies, right for every way that both may lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.passes.lowering.stream_products import LEAST, stream_products

M, N = 600, 1100  # whose product fills more than the least in float32 and float64


def operands(dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal(s).astype(dtype) for s in ((M, N), (N,), (M,)))  # type: ignore[return-value]


PRODUCTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "matrix times vector": lambda a, x, y: a @ x,
    "vector times matrix": lambda a, x, y: y @ a,
    "transposed times vector": lambda a, x, y: a.T @ y,
    "vector times transposed": lambda a, x, y: x @ a.T,
    "row of a matrix": lambda a, x, y: y[None, :] @ a,
    "column of a matrix": lambda a, x, y: a @ x[:, None],
    "scaled before and after": lambda a, x, y: 2.0 * (0.5 * a @ x) + y,
}


@pytest.mark.rotating(4)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", PRODUCTS)
def test_product_with_one_vector_is_a_sum(name: str, dtype: Any) -> None:
    f = weft.compile(PRODUCTS[name])
    found = f(*map(weft.tensor, operands(dtype)))
    assert found.dtype == dtype
    expected = PRODUCTS[name](*[x.astype(np.float64) for x in operands(dtype)])
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=(1e-4 if dtype is np.float32 else 1e-11))
    assert "matmul" not in [node.op.name for node in f.lowered.nodes]


@pytest.mark.parametrize(
    ("left", "right", "dtype"),
    [
        ((8, 8), (8,), weft.float64),  # in a cache
        ((LEAST // 16 - 1, 2), (2,), weft.float64),
        ((M, N), (N, 2), weft.float64),  # two columns
        ((1, M * N), (M * N, 1), weft.float64),  # one row and one column
        ((M, N), (N,), weft.complex128),
        ((2, M, N), (2, N, 1), weft.float64),  # a batch
    ],
)
def test_other_products_are_left(left: Any, right: Any, dtype: Any) -> None:
    given = weft.TensorType(left, dtype), weft.TensorType(right, dtype)
    graph = weft.make_graph(lambda a, b: a @ b)(*given).optimize()
    assert stream_products(graph) is graph


def test_gradient_of_a_product_with_one_vector() -> None:
    a, x, y = (weft.tensor(v) for v in operands(np.float64))
    found = weft.compile(weft.grad(lambda a, x: (a @ x * y).sum(), argnums=(0, 1)))(a, x)
    np.testing.assert_allclose(found[0].numpy(), np.outer(y.numpy(), x.numpy()), rtol=1e-12)
    np.testing.assert_allclose(found[1].numpy(), a.numpy().T @ y.numpy(), rtol=1e-9, atol=1e-11)
