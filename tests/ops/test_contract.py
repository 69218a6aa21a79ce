"""Matrix products of every dtype, their gradients under broadcasting, einsum's equations, and errors."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.of_code import examples


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integer_product_wraps_around_as_numpy_does(dtype: str) -> None:
    rng, info = np.random.default_rng(0), np.iinfo(dtype)
    for low, high in ((info.min // 2**4, info.max // 2**4), (0, 5)):
        x = rng.integers(low, high, size=(5, 7), endpoint=True).astype(dtype)
        y = rng.integers(low, high, size=(7, 3), endpoint=True).astype(dtype)
        out = weft.matmul(weft.tensor(x), weft.tensor(y))
        assert out.dtype == getattr(weft, dtype)
        np.testing.assert_array_equal(out.numpy(), np.matmul(x, y))


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16])
def test_half_precision_is_summed_in_single(dtype: Any) -> None:
    ones = weft.ones((1, 4096), dtype=dtype)
    assert weft.matmul(ones, ones.mT).item() == 4096  # a sum in half precision stops at 2048 or 256


def test_weight_gradient_of_a_batch_is_one_matrix() -> None:
    x = weft.rand(6, 5, 3, dtype=weft.float64)
    w = weft.rand(3, 4, dtype=weft.float64).requires_grad_()
    g = weft.rand(6, 5, 4, dtype=weft.float64)
    (x @ w).backward(g)
    np.testing.assert_allclose(w.grad.numpy(), np.einsum("bij,bik->jk", x.numpy(), g.numpy()))


@st.composite
def equations(draw: Any) -> tuple[str, list[Any]]:
    """A random equation of one to three terms, repeated letters and ellipses among them."""
    sizes = {letter: draw(st.integers(1, 3)) for letter in "abcd"}
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    terms, arrays = [], []
    for _ in range(draw(st.integers(1, 3))):
        letters = draw(st.lists(st.sampled_from("abcd"), max_size=4))
        hidden = draw(st.sampled_from([(), (2,), (1,), (3, 2)]))
        dots = draw(st.booleans())
        term = "".join(letters)
        terms.append("..." + term if dots else term)
        arrays.append(rng.normal(size=(*(hidden if dots else ()), *(sizes[v] for v in letters))))
    used = sorted({v for t in terms for v in t.replace("...", "")})
    kept = draw(st.permutations([v for v in used if draw(st.booleans())]))
    dots = "..." if any("..." in t for t in terms) else ""
    return ",".join(terms) + "->" + dots + "".join(kept), arrays


@examples(150, 37)
@given(equations())
def test_random_einsum_equals_numpy(case: tuple[str, list[Any]]) -> None:
    equation, arrays = case
    out = weft.einsum(equation, *map(weft.tensor, arrays))
    np.testing.assert_allclose(out.numpy(), np.einsum(equation, *arrays), rtol=1e-10, atol=1e-10)


def test_einsum_takes_the_cheap_order() -> None:
    """A chain of matrices with a vector at its end is multiplied from that end."""
    n = 1000
    matrices = [weft.ones((n, n)) for _ in range(3)]
    tracemalloc.start()
    out = weft.einsum("ij,jk,kl,l->i", *matrices, weft.ones(n))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert out[0].item() == float(n) ** 3
    assert peak < n * n  # a product of two matrices would take four times that


ERRORS = [
    (lambda: weft.ones((2, 3)) @ weft.ones((2, 3)), "inner dimensions must agree"),
    (lambda: weft.matmul(weft.ones((2, 2, 3)), weft.ones((3, 3, 2))), "shapes must broadcast together"),
    (lambda: weft.matmul(weft.ones(()), weft.ones((3,))), "at least one axis"),
    (lambda: weft.mm(weft.ones((2, 2, 3)), weft.ones((3, 3))), "must have 2 axes"),
    (lambda: weft.bmm(weft.ones((2, 2, 3)), weft.ones((3, 3, 2))), "batch sizes must agree"),
    (lambda: weft.dot(weft.ones((2, 3)), weft.ones((2,))), "inner dimensions must agree"),
    (lambda: weft.vecdot(weft.ones((2, 3)), weft.ones((2, 2))), "sizes along axis -1 must agree"),
    (lambda: weft.tensordot(weft.ones((2, 3)), weft.ones((2, 3)), axes=1), "summed sizes must agree"),
    (lambda: weft.tensordot(weft.ones((2, 3)), weft.ones((2, 3)), axes=3), "axes must be in 0..2"),
    (lambda: weft.tensordot(weft.ones((2, 3)), weft.ones((2, 3)), axes=((0, 0), (0, 1))), "distinct"),
    (lambda: weft.linear(weft.ones((2, 3)), weft.ones((4, 2))), "must have 2 features"),
    (lambda: weft.einsum("ij,jk->ik", weft.ones((2, 3))), "needs 2 tensors, got 1"),
    (lambda: weft.einsum("ij->ik", weft.ones((2, 3))), "output labels must be distinct labels"),
    (lambda: weft.einsum("ij,jk", weft.ones((2, 3)), weft.ones((2, 3))), "sizes of 'j'"),
    (lambda: weft.einsum("ijk->i", weft.ones((2, 3))), "a label for each axis"),
    (lambda: weft.einsum("i1->i", weft.ones((2, 3))), "must be letters"),
    (lambda: weft.einsum(weft.ones((2, 3)), "ij"), "the first argument must be an equation"),
]


@pytest.mark.parametrize(("call", "text"), ERRORS, ids=[text for _, text in ERRORS])
def test_bad_arguments_are_named(call: Any, text: str) -> None:
    with pytest.raises(weft.errors.WeftError, match=text):
        call()
