"""The linear algebra functions and the linalg extension agree with the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import weft
from tests.array_api.reference import (
    ALL,
    FLOATING,
    FLOATS,
    NUMERIC,
    Array,
    arrays,
    assert_agrees,
    assert_same,
    call_both,
    few,
    promotable,
    to_weft,
)

stacks = hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)


def small(dtypes: tuple[str, ...], shape: Any) -> Any:
    return arrays(dtypes, shape).map(lambda x: np.resize(np.arange(-3, 5).astype(x.dtype), x.shape))


def regular(rng: Any, shape: tuple[int, ...], n: int, dtype: str) -> Array:
    """Matrices that can be inverted."""
    x = rng.normal(size=(*shape, n, n)) + 3 * np.eye(n)
    return (x + 1j * rng.normal(size=x.shape) if dtype.startswith("complex") else x).astype(dtype)


matrices = st.tuples(st.integers(0, 2**16), stacks, st.integers(1, 4), st.sampled_from(FLOATING)).map(
    lambda t: regular(np.random.default_rng(t[0]), t[1], t[2], t[3])
)
rectangles = st.tuples(matrices, st.integers(1, 4), st.booleans()).map(
    lambda t: t[0][..., : t[1], :] if t[2] else t[0][..., : t[1]]
)


def loosely(ours: Any, expected: Any) -> None:
    """Equal type, and values to what a factorisation in the dtype can do."""
    a, b = np.asarray(ours), np.asarray(expected)
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    tolerance = 1e-3 if a.dtype in (np.float32, np.complex64) else 1e-8
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# Products


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", ["matmul", "linalg.matmul"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 2)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((5, 1, 2, 3), (4, 3, 2)),
        ((0, 3), (3, 2)),
        ((2, 0), (0, 2)),
    ],
)
@few
@given(dtypes=promotable(NUMERIC), data=st.data())
def test_matmul(
    name: str, a: tuple[int, ...], b: tuple[int, ...], dtypes: tuple[str, str], data: Any
) -> None:
    x, y = data.draw(small((dtypes[0],), a)), data.draw(small((dtypes[1],), b))
    assert_agrees(name, x, y, ulps=16)
    assert_same(to_weft(x) @ to_weft(y), call_both(name, x, y)[1], 16)


@pytest.mark.parametrize(("a", "b"), [((), (3,)), ((3,), ()), ((3,), (2,)), ((2, 3), (2, 3)), ((2, 3), (2,))])
def test_matmul_of_shapes_that_do_not_fit_is_an_error(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="matmul"):
        weft.matmul(weft.ones(a), weft.ones(b))
    with pytest.raises(ValueError, match="matmul"):
        weft.ones(a) @ weft.ones(b)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", ["tensordot", "linalg.tensordot"])
@pytest.mark.parametrize("axes", [0, 1, 2, ((0,), (1,)), ((2, 0), (0, 2)), ((-1,), (-3,)), ((), ())])
@few
@given(dtypes=promotable(NUMERIC), data=st.data())
def test_tensordot(name: str, axes: Any, dtypes: tuple[str, str], data: Any) -> None:
    x, y = data.draw(small((dtypes[0],), (2, 2, 2))), data.draw(small((dtypes[1],), (2, 2, 2)))
    assert_agrees(name, x, y, axes=axes, ulps=16)


@pytest.mark.parametrize("name", ["vecdot", "linalg.vecdot"])
@few
@given(dtypes=promotable(NUMERIC), axis=st.integers(-2, -1), data=st.data())
def test_vecdot(name: str, dtypes: tuple[str, str], axis: int, data: Any) -> None:
    x, y = data.draw(small((dtypes[0],), (3, 3))), data.draw(small((dtypes[1],), (2, 3, 3)))
    assert_agrees(name, x, y, axis=axis, ulps=16)


@few
@given(dtypes=promotable(NUMERIC), data=st.data())
def test_outer_and_cross(dtypes: tuple[str, str], data: Any) -> None:
    x, y = data.draw(small((dtypes[0],), (3,))), data.draw(small((dtypes[1],), (4,)))
    assert_agrees("linalg.outer", x, y, ulps=4)
    x, y = data.draw(small((dtypes[0],), (2, 3))), data.draw(small((dtypes[1],), (4, 2, 3)))
    assert_agrees("linalg.cross", x, y, ulps=16)


def test_cross_of_vectors_that_are_not_of_length_3_is_an_error() -> None:
    with pytest.raises(ValueError, match="cross"):
        weft.linalg.cross(weft.ones((2, 2)), weft.ones((2, 2)))


# Parts


@few
@given(
    x=arrays(ALL, st.tuples(stacks, st.integers(0, 3), st.integers(0, 3)).map(lambda t: (*t[0], t[1], t[2]))),
    offset=st.integers(-9, 9),
)
def test_diagonal_and_transpose(x: Array, offset: int) -> None:
    assert_agrees("linalg.diagonal", x, offset=offset)
    assert_agrees("linalg.matrix_transpose", x)


@few
@given(x=small(NUMERIC, (2, 3, 4)), offset=st.integers(-2, 3), wide=st.booleans())
def test_trace(x: Array, offset: int, wide: bool) -> None:
    kwargs = {"dtype": "float64"} if wide and x.dtype.kind == "f" else {}
    assert_agrees("linalg.trace", x, offset=offset, ulps=16, **kwargs)


# Factorisations


@few
@given(x=matrices, upper=st.booleans())
def test_cholesky(x: Array, upper: bool) -> None:
    positive = x @ x.conj().swapaxes(-1, -2)
    loosely(*call_both("linalg.cholesky", positive, upper=upper))


@few
@given(x=matrices)
def test_eigh(x: Array) -> None:
    x = x + x.conj().swapaxes(-1, -2)
    ours, expected = call_both("linalg.eigh", x)
    assert ours._fields == ("eigenvalues", "eigenvectors")
    loosely(ours.eigenvalues, expected.eigenvalues)
    loosely(weft.linalg.eigvalsh(to_weft(x)), expected.eigenvalues)
    v = np.asarray(ours.eigenvectors)
    loosely((v * np.asarray(ours.eigenvalues)[..., None, :]) @ v.conj().swapaxes(-1, -2), x)


@few
@given(x=rectangles, mode=st.sampled_from(["reduced", "complete"]))
def test_qr(x: Array, mode: str) -> None:
    ours, expected = call_both("linalg.qr", x, mode=mode)
    assert ours._fields == ("Q", "R")
    assert (ours.Q.shape, ours.R.shape) == (expected.Q.shape, expected.R.shape)
    loosely(np.asarray(ours.Q) @ np.asarray(ours.R), x)
    assert_same(ours.R, weft.triu(ours.R))


@few
@given(x=rectangles, full_matrices=st.booleans())
def test_svd(x: Array, full_matrices: bool) -> None:
    ours, expected = call_both("linalg.svd", x, full_matrices=full_matrices)
    assert ours._fields == ("U", "S", "Vh")
    assert [t.shape for t in ours] == [t.shape for t in expected]
    loosely(ours.S, expected.S)
    loosely(weft.linalg.svdvals(to_weft(x)), expected.S)
    k = ours.S.shape[-1]
    u, s, vh = (np.asarray(t) for t in ours)
    loosely((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x)


@few
@given(x=matrices, n=st.integers(-3, 5))
def test_inverse_determinant_and_power(x: Array, n: int) -> None:
    for name in ("inv", "det"):
        loosely(*call_both(f"linalg.{name}", x))
    loosely(*call_both("linalg.matrix_power", x / 3, n))
    ours, expected = call_both("linalg.slogdet", x)
    assert ours._fields == ("sign", "logabsdet")
    loosely(ours.sign, expected.sign)
    loosely(ours.logabsdet, expected.logabsdet)


@few
@given(x=matrices, columns=st.integers(0, 3), vector=st.booleans())
def test_solve(x: Array, columns: int, vector: bool) -> None:
    n = x.shape[-1]
    b = (
        np.arange(n, dtype=x.dtype)
        if vector
        else np.resize(np.arange(5, dtype=x.dtype), (*x.shape[:-2], n, columns))
    )
    loosely(*call_both("linalg.solve", x, b))


@few
@given(x=rectangles)
def test_pseudoinverse_and_rank(x: Array) -> None:
    loosely(*call_both("linalg.pinv", x))
    for kwargs in ({}, {"rtol": 0.5}, {"rtol": np.full(x.shape[:-2], 0.25, x.real.dtype)}):
        ours, expected = call_both("linalg.matrix_rank", x, **kwargs)
        assert_same(ours, expected)
    loosely(*call_both("linalg.pinv", x, rtol=1e-3))


# Norms


@pytest.mark.parametrize("ord", [None, "fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf")])
@few
@given(x=rectangles, keepdims=st.booleans())
def test_matrix_norm(ord: Any, x: Array, keepdims: bool) -> None:
    kwargs = {} if ord is None else {"ord": ord}
    loosely(*call_both("linalg.matrix_norm", x, keepdims=keepdims, **kwargs))


@pytest.mark.parametrize("ord", [None, 0, 1, -1, 2, -2, 3, 0.5, float("inf"), -float("inf")])
@few
@given(
    x=small(FLOATING, (2, 3, 4)),
    keepdims=st.booleans(),
    axis=st.sampled_from([None, 0, -1, (0, 2), (1, 2, 0)]),
)
def test_vector_norm(ord: Any, x: Array, keepdims: bool, axis: Any) -> None:
    x = x + np.array(5, x.dtype)
    kwargs = {} if ord is None else {"ord": ord}
    loosely(*call_both("linalg.vector_norm", x, axis=axis, keepdims=keepdims, **kwargs))


# Values that are not finite


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["det", "slogdet", "qr", "matrix_norm", "vector_norm", "trace"])
def test_values_that_are_not_finite_are_passed_on(name: str, dtype: str) -> None:
    x = weft.tensor([[weft.inf, 1.0], [weft.nan, 2.0]], dtype=dtype)
    getattr(weft.linalg, name)(x)
    weft.linalg.matrix_power(x, 3)
