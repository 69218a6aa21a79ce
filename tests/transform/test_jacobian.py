from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, DtypeError
from weft.testing import assert_close

RNG = np.random.default_rng(0)
A = RNG.standard_normal((4, 3))
X = RNG.standard_normal(3)
BOTH = pytest.mark.parametrize("jac", [weft.jacrev, weft.jacfwd, weft.jacobian])


def tensor(a: Any) -> weft.Tensor:
    return weft.tensor(np.asarray(a, np.float64))


@BOTH
def test_linear_map_is_its_own_jacobian(jac: Any) -> None:
    assert_close(jac(lambda x: tensor(A) @ x)(tensor(X)), A)


@BOTH
def test_shape_is_that_of_output_then_argument(jac: Any) -> None:
    x = RNG.standard_normal((2, 3))
    out = jac(lambda x: (x.reshape((2, 3, 1)) * tensor(A[0])).sum(axis=1))(tensor(x))
    assert out.shape == (2, 3, 2, 3)
    expected = np.einsum("ia,bj->ibaj", np.eye(2), np.ones((3, 3))) * A[0][:3][None, :, None, None]
    assert_close(out, expected)
    assert jac(lambda x: x.sum())(tensor(x)).shape == (2, 3)
    assert jac(lambda x: x * tensor(X))(tensor(2.0)).shape == (3,)
    assert jac(lambda x: x * x)(tensor(2.0)).shape == ()
    assert jac(lambda x: x[:0])(tensor(X)).shape == (0, 3)
    assert jac(lambda x: x.sum())(tensor(X[:0])).shape == (0,)


@BOTH
def test_trees_of_outputs_and_arguments(jac: Any) -> None:
    def f(t: Any, y: Any) -> Any:
        return {"s": (t["a"] * y).sum(), "p": [t["a"] * t["b"]]}

    t = {"a": tensor(X), "b": tensor(2.0)}
    out = jac(f)(t, tensor(X))
    assert_close(
        out,
        {"s": {"a": X, "b": np.zeros(())}, "p": [{"a": 2 * np.eye(3), "b": X}]},
    )
    both = jac(f, argnums=(1, 0))(t, tensor(X))
    assert_close(both["s"], (X, {"a": X, "b": np.zeros(())}))


@BOTH
def test_aux_and_keywords(jac: Any) -> None:
    out, aux = jac(lambda x, *, k: (x * k, {"x": x}), has_aux=True)(tensor(X), k=3.0)
    assert_close(out, 3 * np.eye(3))
    assert_close(aux["x"], X)
    assert not aux["x"].requires_grad


@BOTH
@pytest.mark.parametrize("chunk_size", [1, 2])
def test_chunks_give_the_same(jac: Any, chunk_size: int) -> None:
    def f(x: Any) -> Any:
        return weft.tanh(tensor(A) @ x)

    assert_close(jac(f, chunk_size=chunk_size)(tensor(X)), jac(f)(tensor(X)))


@BOTH
def test_holomorphic_function(jac: Any) -> None:
    z = X + 1j * A[0][:3]
    assert_close(jac(lambda z: z * z)(weft.tensor(z)), np.diag(2 * z))


def test_mixed_real_and_complex() -> None:
    with pytest.raises(DtypeError, match="must be all real or all complex"):
        weft.jacrev(lambda z: (z * z.conj()).real)(weft.tensor(X + 1j))
    with pytest.raises(DtypeError, match="must be all real or all complex"):
        weft.jacfwd(lambda z: (z * z.conj()).real)(weft.tensor(X + 1j))
    with pytest.raises(DtypeError, match="must be all real or all complex"):
        weft.jacrev(lambda x: x * (1 + 1j))(tensor(X))
    assert_close(weft.jacfwd(lambda x: x * (1 + 1j))(tensor(X)), np.eye(3) * (1 + 1j))


@BOTH
def test_jacobian_runs_the_function_once(jac: Any) -> None:
    calls = []
    jac(lambda x: calls.append(1) or tensor(A) @ x)(tensor(X))  # type: ignore[func-returns-value]
    assert calls == [1]


@BOTH
def test_vmap_of_jacobian(jac: Any) -> None:
    x = RNG.standard_normal((5, 3))
    out = weft.vmap(jac(lambda x: x * x.sum()))(tensor(x))
    expected = np.eye(3) * x.sum(axis=1)[:, None, None] + x[:, :, None]
    assert_close(out, expected)


def test_hessian_of_a_quadratic_form() -> None:
    m = A.T @ A
    assert_close(weft.hessian(lambda x: x @ (tensor(m) @ x))(tensor(X)), 2 * m)


def test_hessian_of_a_tree_is_a_tree_of_trees() -> None:
    def f(t: Any) -> Any:
        return (t["a"] * t["a"]).sum() * t["b"]

    out = weft.hessian(f)({"a": tensor(X), "b": tensor(2.0)})
    assert_close(
        out,
        {"a": {"a": 4 * np.eye(3), "b": 2 * X}, "b": {"a": 2 * X, "b": np.zeros(())}},
    )


def test_hessian_with_closures_and_several_outputs() -> None:
    w = weft.tensor(A, requires_grad=True)
    out = weft.hessian(lambda x: weft.exp(w @ x))(tensor(X))
    expected = np.exp(A @ X)[:, None, None] * A[:, :, None] * A[:, None, :]
    assert_close(out, expected)
    out.sum().backward()
    step = np.zeros_like(A)
    step[1, 2] = 1e-6

    def total(a: Any) -> Any:
        return (np.exp(a @ X)[:, None, None] * a[:, :, None] * a[:, None, :]).sum()

    assert_close(w.grad[1, 2].item(), (total(A + step) - total(A - step)) / 2e-6, rtol=1e-6)


def test_all_four_ways_to_a_hessian_agree() -> None:
    def f(x: Any) -> Any:
        return (weft.tanh(tensor(A) @ x) * weft.exp(tensor(A) @ x)).sum()

    ways = [
        outer(inner(f))(tensor(X))
        for outer in (weft.jacfwd, weft.jacrev)
        for inner in (weft.jacfwd, weft.jacrev)
    ]
    for way in ways:
        assert_close(way, weft.hessian(f)(tensor(X)))
        assert_close(way, way.numpy().T)


def test_hessian_with_aux() -> None:
    out, aux = weft.hessian(lambda x: ((x * x * x).sum(), x * 2.0), has_aux=True)(tensor(X))
    assert_close(out, np.diag(6 * X))
    assert_close(aux, 2 * X)


def test_hessian_vector_product_by_both_orders() -> None:
    def f(x: Any) -> Any:
        return weft.exp(tensor(A) @ x).sum()

    v = tensor(RNG.standard_normal(3))
    expected = weft.hessian(f)(tensor(X)) @ v
    assert_close(weft.jvp(weft.grad(f), (tensor(X),), (v,))[1], expected)
    assert_close(weft.grad(lambda x: weft.jvp(f, (x,), (v,))[1])(tensor(X)), expected)
    assert_close(weft.vjp(weft.grad(f), tensor(X))[1](v)[0], expected)


def test_third_derivative_by_jacobians() -> None:
    out = weft.jacfwd(weft.jacrev(weft.jacfwd(lambda x: (x * x * x).sum())))(tensor(X))
    expected = np.zeros((3, 3, 3))
    expected[np.arange(3), np.arange(3), np.arange(3)] = 6
    assert_close(out, expected)


def test_jacobian_in_a_captured_loop_needs_no_input_of_its_own() -> None:
    def f(q: Any) -> Any:
        out = weft.zeros((2, 2, 3))
        for i in range(2):
            out[i] = weft.jacobian(lambda q: weft.stack([q[0] * q[1], q[2] * 2.0]))(q * i)
        return out

    q = weft.tensor([1.0, 2.0, 3.0])
    assert len(weft.make_graph(f)(q).inputs) == 1
    np.testing.assert_array_equal(weft.compile(f)(q), f(q))


def test_mistakes_are_reported() -> None:
    with pytest.raises(DtypeError, match="jacrev: argument 0 must be floating"):
        weft.jacrev(lambda x: x)(weft.tensor([1, 2]))
    with pytest.raises(ArgumentError, match="jacfwd: argnums must name"):
        weft.jacfwd(lambda x: x, argnums=2)(tensor(X))
    with pytest.raises(ArgumentError, match="must return tensors, got float"):
        weft.jacrev(lambda x: 1.0)(tensor(X))
    with pytest.raises(ArgumentError, match="jacfwd: must be given a function"):
        weft.jacfwd(None)
