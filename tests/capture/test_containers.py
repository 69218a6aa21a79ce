"""Tensors given by keyword, and sparse and ragged tensors: one version serves all calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

T = weft.tensor
F = weft.functional
X = T([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])


def _row(k: int) -> Any:
    return T([1.0 + k, 2.0, 3.0])


Case = Callable[[int], tuple[Any, ...]]
KEYWORDS: dict[str, tuple[Callable[..., Any], Case]] = {
    "clip min": (lambda x, m: weft.clip(x, min=m), lambda k: (X, T(0.0 + k))),
    "clip max": (lambda x, m: x.clip(max=m), lambda k: (X, T(0.0 + k))),
    "layer_norm": (lambda x, w: F.layer_norm(x, (3,), weight=w, bias=w), lambda k: (X, _row(k))),
    "rms_norm": (lambda x, w: F.rms_norm(x, (3,), weight=w), lambda k: (X, _row(k))),
    "group_norm": (
        lambda x, w: F.group_norm(x, 1, weight=w),
        lambda k: (weft.ones(2, 3, 4) * T([1.0, 2.0, 3.0, 4.0]), _row(k)),
    ),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, w, b, weight=w, bias=b),
        lambda k: (X, _row(k), _row(k) + 1),
    ),
    "bincount": (lambda i, w: weft.bincount(i, weights=w, minlength=4), lambda k: (T([0, 1, 1]), _row(k))),
    "linear": (lambda x, w, b: F.linear(x, w, bias=b), lambda k: (X, weft.ones(2, 3) + k, T([1.0, 2.0]) + k)),
    "conv1d": (
        lambda x, w, b: F.conv1d(x, w, bias=b),
        lambda k: (weft.ones(1, 2, 5), weft.ones(3, 2, 2) + k, _row(k)),
    ),
    "cross_entropy": (
        lambda x, t, w: F.cross_entropy(x, t, weight=w),
        lambda k: (X, T([0, 2]), _row(k) + 2),
    ),
    "binary_cross_entropy": (
        lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, pos_weight=w, weight=w),
        lambda k: (X, weft.ones(2, 3), _row(k)),
    ),
    "attention": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m),
        lambda k: (weft.ones(1, 1, 3, 4) * k, weft.ones(3, 3) * k),
    ),
    "full": (lambda m: weft.full((2,), fill_value=m), lambda k: (T(0.1 + k),)),
    "scatter": (
        lambda x, s: x.scatter(1, index=T([[0], [1]]), src=s),
        lambda k: (X, weft.ones(2, 1) * k),
    ),
    "masked_fill": (lambda x, s: x.masked_fill(x > 0, value=s), lambda k: (X, T(1.0 * k))),
    "diff": (lambda x, s: weft.diff(x, prepend=s), lambda k: (X, weft.ones(2, 1) * k)),
    "embedding": (lambda s: F.embedding(T([0, 1]), weight=s), lambda k: (X * k,)),
    "quantile": (lambda x, s: weft.quantile(x, q=s), lambda k: (X, T(0.1 + k / 10))),
    "isclose": (lambda x, s: weft.isclose(x, x + 0.2, atol=s), lambda k: (X, T(0.1 + k / 5))),
    "gaussian_nll": (
        lambda x, s: F.gaussian_nll_loss(x, x * 2, var=s),
        lambda k: (X, abs(X) * (k + 1)),
    ),
}


def _sparse(k: int) -> Any:
    return weft.sparse_coo_tensor(T([[0, 1], [1, k]]), T([1.0, 2.0]) + k, (3, 3))


def _ragged(k: int) -> Any:
    return weft.ragged([[1.0], [2.0, 3.0 * k]])


def _parts(k: int) -> tuple[Any, Any]:
    return T([[0, 1], [1, k]]), T([1.0, 2.0]) + k


CONTAINERS: dict[str, tuple[Callable[..., Any], Case]] = {
    "to_dense": (lambda s: s.to_dense() * 2, lambda k: (_sparse(k),)),
    "matmul": (lambda s, y: (s * 2) @ y, lambda k: (_sparse(k), weft.ones(3, 2) + k)),
    "sum": (lambda s: s.sum(), lambda k: (_sparse(k),)),
    "parts": (lambda s: s.values * 2 + s.indices[1], lambda k: (_sparse(k),)),
    "in a dict": (lambda d: (d["a"] * 2).to_dense(), lambda k: ({"a": _sparse(k)},)),
    "by keyword": (lambda a, b: a @ b, lambda k: (_sparse(k), weft.ones(3))),
    "sparse result": (lambda s: s * 2, lambda k: (_sparse(k),)),
    "made inside": (lambda i, v: weft.sparse_coo_tensor(i, v, (4, 4)).to_dense(), _parts),
    "made and multiplied": (
        lambda i, v: weft.sparse_coo_tensor(i, v, (4, 4)) @ weft.ones(4, 2),
        _parts,
    ),
    "made and returned": (lambda i, v: weft.sparse_coo_tensor(i, v, (4, 4)), _parts),
    "ragged values": (lambda r: (r * 2).values, lambda k: (_ragged(k),)),
    "ragged sum": (lambda r: r.sum(), lambda k: (_ragged(k),)),
    "ragged result": (lambda r: r * 2, lambda k: (_ragged(k),)),
    "ragged padded": (lambda r: r.to_padded() + 1, lambda k: (_ragged(k),)),
}


def _dense(x: Any) -> Any:
    if hasattr(x, "to_dense"):
        return x.to_dense().numpy()
    return (x.to_padded() if hasattr(x, "to_padded") else x).numpy()


def _check(f: Callable[..., Any], make: Case) -> None:
    compiled = weft.compile(f)
    for k in (0, 1, 2, 0, 1):
        found, expected = compiled(*make(k)), f(*make(k))
        assert type(found) is type(expected)
        np.testing.assert_allclose(_dense(found), _dense(expected), rtol=1e-4, atol=1e-5)
    assert len(compiled.versions) == 1


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", KEYWORDS)
def test_a_tensor_by_keyword_is_an_input(name: str) -> None:
    _check(*KEYWORDS[name])


@pytest.mark.parametrize("name", CONTAINERS)
def test_sparse_and_ragged_tensors_are_trees_of_their_parts(name: str) -> None:
    _check(*CONTAINERS[name])


def test_sparse_tensors_of_several_lengths_share_a_version() -> None:
    def make(n: int) -> Any:
        at = weft.arange(n)
        return weft.sparse_coo_tensor(weft.stack([at, at]), weft.ones(n) * n, (9, 9))

    f = weft.compile(lambda s, y: s @ y)
    for n in (3, 4, 5, 6, 7):
        assert f(make(n), weft.ones(9)).tolist() == (make(n) @ weft.ones(9)).tolist()
    assert len(f.versions) <= 2


def test_gradients_reach_the_values_of_a_sparse_argument() -> None:
    for f in (lambda s: (s @ X.T).sum(), weft.compile(lambda s: (s @ X.T).sum())):
        s = _sparse(2).requires_grad_()
        f(s).backward()
        assert s.values.grad.tolist() == [3.0, -3.0]


def test_an_index_outside_is_an_error_of_the_run() -> None:
    f = weft.compile(lambda i, v: weft.sparse_coo_tensor(i, v, (3, 3)).to_dense())
    f(*_parts(2))
    for bad in (-1, 3):
        with pytest.raises(weft.errors.WeftError, match="must be in"):
            f(*_parts(bad))


def test_what_needs_the_indices_themselves_has_a_version_for_each() -> None:
    f = weft.compile(lambda s: (s + s).to_dense())
    for k in (0, 1, 2, 0, 1):
        assert f(_sparse(k)).tolist() == (_sparse(k) + _sparse(k)).to_dense().tolist()
    assert len(f.versions) == 3
