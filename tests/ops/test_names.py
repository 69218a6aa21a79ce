"""Parameters and names that model code uses: what the matrix of ops does not call."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.signal

import weft

X = weft.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def test_sums_take_alpha_and_quotients_a_rounding_mode() -> None:
    one = weft.tensor([1.0, 2.0])
    assert weft.add(one, one, alpha=3).tolist() == [4, 8]
    assert weft.sub(one, one, alpha=0.5).tolist() == one.sub(one, alpha=0.5).tolist() == [0.5, 1]
    assert weft.compile(lambda t: t.add(t, alpha=3))(one).tolist() == [4, 8]
    changed = one.clone()
    changed.add_(one, alpha=2)
    assert changed.tolist() == [3, 6]
    whole = weft.tensor([7, -7])
    assert weft.div(whole, 2, rounding_mode="trunc").tolist() == [3, -3]
    assert weft.div(whole, 2, rounding_mode="floor").tolist() == [3, -4]
    assert weft.div(whole, 2, rounding_mode="trunc").dtype == weft.int64
    assert weft.round(weft.tensor([0.126, 123.456]), decimals=2).tolist() == pytest.approx([0.13, 123.46])
    for call, text in (
        (lambda: weft.add(one, one, beta=1), "add: unknown keyword 'beta'"),
        (
            lambda: weft.div(one, one, rounding_mode="up"),
            "div: rounding_mode must be None, 'trunc' or 'floor'",
        ),
        (lambda: weft.exp(one, alpha=1), "exp: takes no keywords"),
        (lambda: weft.round(whole, decimals=-1), "round: dtype must be floating"),
    ):
        with pytest.raises(weft.errors.WeftError, match=text):
            call()


def test_other_names_are_the_same_functions() -> None:
    assert weft.power is weft.pow
    assert weft.arctan2 is weft.atan2
    assert weft.movedim is weft.moveaxis
    assert weft.trapz is weft.trapezoid
    assert np.exp2(weft.tensor([3.0])).tolist() == [8]


def test_repeat_interleave_is_repeat_and_knows_how_many() -> None:
    x = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
    counts = weft.tensor([2, 1])
    for f in (weft.repeat_interleave, weft.compile(weft.repeat_interleave)):
        assert f(x, 2).tolist() == np.repeat(x.numpy(), 2).tolist()
        found = f(x, counts, axis=0, output_size=3)
        np.testing.assert_array_equal(found.numpy(), np.repeat(x.numpy(), [2, 1], axis=0))
        assert f(counts).tolist() == [0, 0, 1]
    with pytest.raises(weft.errors.ShapeError, match="output_size must be 3, got 4"):
        weft.repeat_interleave(x, counts, axis=0, output_size=4)


def test_new_tensors_have_the_dtype_of_another() -> None:
    x = weft.ones(2, dtype=weft.float16)
    assert x.new_zeros(2, 3).dtype == x.new_ones((4,)).dtype == x.new_empty(1).dtype == weft.float16
    assert x.new_full((2,), 7).tolist() == [7, 7]
    assert x.new_zeros(3, dtype=weft.int64).dtype == weft.int64


def test_pieces() -> None:
    assert weft.narrow(X, 1, -2, 2).tolist() == [[2, 3], [5, 6]]
    assert weft.narrow(X, 0, 1, 1).is_view
    assert [p.tolist() for p in weft.tensor_split(weft.arange(5), (1, 3, 9))] == [[0], [1, 2], [3, 4], []]
    assert [len(p) for p in weft.tensor_split(weft.arange(7), 3)] == [
        len(p) for p in np.array_split(range(7), 3)
    ]
    assert weft.expand_as(weft.ones((2, 1)), X).shape == (2, 3)
    assert [t.shape for t in weft.atleast_2d(weft.tensor(1.0), weft.ones(3))] == [(1, 1), (1, 3)]
    assert isinstance(weft.atleast_1d([weft.tensor(1.0)]), tuple)
    with pytest.raises(weft.errors.DomainError, match="the piece must lie in"):
        weft.narrow(X, 1, 2, 2)
    with pytest.raises(weft.errors.ShapeError, match="places must be in"):
        weft.as_strided(X, (4,), (2,))


def test_complex_numbers_as_pairs_and_by_angle() -> None:
    z = weft.tensor([1 + 2j, 3 - 4j])
    assert weft.view_as_real(z).tolist() == [[1, 2], [3, -4]]
    assert weft.view_as_complex(weft.view_as_real(z)).tolist() == z.tolist()
    turned = weft.polar(weft.tensor([2.0]), weft.tensor([math.pi / 2]))
    np.testing.assert_allclose(turned.numpy(), [2j], atol=1e-6)
    drawn = weft.randn(4000, dtype=weft.complex64).numpy()
    assert abs(np.mean(np.abs(drawn) ** 2) - 1) < 0.1


def test_runs_of_equal_elements() -> None:
    x = weft.tensor([1, 1, 2, 2, 3, 1, 1])
    values, inverse, counts = weft.unique_consecutive(x, return_inverse=True, return_counts=True)
    assert (values.tolist(), inverse.tolist(), counts.tolist()) == (
        [1, 2, 3, 1], [0, 0, 1, 1, 2, 3, 3], [2, 2, 1, 2],
    )  # fmt: skip
    rows = weft.tensor([[1, 2], [1, 2], [0, 2]])
    assert weft.unique_consecutive(rows, axis=0).tolist() == [[1, 2], [0, 2]]
    assert weft.unique_consecutive(weft.tensor([])).tolist() == []


def test_grids_are_numpys() -> None:
    np.testing.assert_array_equal(weft.mgrid[0:2, 1:7:2].numpy(), np.mgrid[0:2, 1:7:2])
    np.testing.assert_allclose(weft.mgrid[0:1:4j].numpy(), np.mgrid[0:1:4j], rtol=1e-6)


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
def test_windows_are_scipys(name: str) -> None:
    own: Any = getattr(weft, f"{name}_window")
    kind: Any = ("kaiser", 12.0) if name == "kaiser" else name
    for n in (1, 2, 7, 16):
        for periodic in (True, False):
            expected = scipy.signal.get_window(kind, n, fftbins=periodic)
            np.testing.assert_allclose(own(n, periodic, dtype=weft.float64).numpy(), expected, atol=1e-12)


def test_signals_come_back_from_their_spectra() -> None:
    x = weft.tensor(np.random.default_rng(0).standard_normal((2, 64)))
    window = weft.hann_window(16, dtype=weft.float64)
    there = weft.stft(x, 16, window=window)
    np.testing.assert_allclose(weft.istft(there, 16, window=window).numpy(), x.numpy(), atol=1e-12)
    assert weft.istft(there, 16, window=window, length=80).shape == (2, 80)


@pytest.mark.parametrize("include_self", [False, True])
def test_complex_numbers_have_no_largest_one_to_scatter(include_self: bool) -> None:
    x, index = weft.ones(3, dtype=weft.complex64), weft.tensor([0, 1])
    with pytest.raises(weft.errors.DtypeError, match="complex numbers have no amax"):
        weft.scatter_reduce(x, 0, index, x[:2], "amax", include_self=include_self)


def test_scatter_reduces() -> None:
    index = weft.tensor([0, 1, 0])
    src = weft.tensor([5.0, 1.0, 7.0])
    x = weft.tensor([1.0, 2.0, 3.0])
    assert weft.scatter(x, 0, index, src, reduce="add").tolist() == [13, 3, 3]
    assert weft.scatter(x, 0, index, src, reduce="multiply").tolist() == [35, 2, 3]
    compiled = weft.compile(lambda *a: weft.scatter_reduce(a[0], 0, a[1], a[2], "amax"))
    assert compiled(x, index, src).tolist() == [7, 2, 3]
    with pytest.raises(weft.errors.DomainError, match="reduce must be"):
        weft.scatter(x, 0, index, src, reduce="amax")
    with pytest.raises(weft.errors.BoundsError, match="index must be in"):
        weft.scatter_reduce(x, 0, index + 2, src, "prod")


def test_gradient_of_scattered_products_holds_at_zeros() -> None:
    x, src = weft.tensor([2.0, 0.0, 0.0]), weft.tensor([3.0, 0.0, 5.0, 4.0])
    index = weft.tensor([0, 0, 1, 2])
    gx, gs = weft.grad(lambda a, b: weft.scatter_reduce(a, 0, index, b, "prod").sum(), argnums=(0, 1))(x, src)
    assert gx.tolist() == [0, 5, 4]
    assert gs.tolist() == [0, 6, 0, 0]


def test_lu_of_singular_matrices() -> None:
    for x in ([[0.0, 1.0], [0.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [2.0, 4.0]]):
        p, lower, upper = weft.linalg.lu(weft.tensor(x))
        np.testing.assert_allclose((p @ lower @ upper).numpy(), x, atol=1e-6)
        assert p.sum(0).tolist() == p.sum(1).tolist() == [1, 1]


def test_embedding_shortens_the_rows_it_uses() -> None:
    table = weft.tensor([[3.0, 4.0], [30.0, 40.0], [0.3, 0.4]])
    out = weft.embedding(weft.tensor([0, 2]), table, max_norm=1.0)
    np.testing.assert_allclose(out.numpy(), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-5)
    np.testing.assert_allclose(table.numpy(), [[0.6, 0.8], [30, 40], [0.3, 0.4]], rtol=1e-5)


def test_histograms_and_buckets() -> None:
    x = weft.tensor([1.0, 2.0, 1.0, float("nan")])
    assert weft.histc(x, bins=4, min=0, max=3).tolist() == [0, 2, 1, 0]
    assert weft.histc(weft.tensor([2.0, 2.0]), bins=2).sum().item() == 2
    hist, edges = weft.histogram(weft.tensor([1.0, 2.0, 1.0]), 2)
    assert (hist.tolist(), edges.tolist()) == ([2, 1], [1, 1.5, 2])
    assert weft.bucketize(weft.tensor([1, 3, 6]), weft.tensor([1, 3, 5]), right=True).tolist() == [1, 2, 3]
