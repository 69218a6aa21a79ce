"""Views, indexing functions, reductions, scans and sorting: what the matrix of samples does not say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, AxisError, BoundsError, DomainError, DtypeError, ShapeError, WeftError

X = np.arange(24.0).reshape(2, 3, 4)


def same(actual: Any, expected: Any) -> None:
    assert actual.shape == np.shape(expected)
    np.testing.assert_array_equal(actual.numpy(), expected)


# Shapes and axes


def test_reshape_finds_the_size_left_open() -> None:
    x = weft.tensor(X)
    assert weft.reshape(x, (4, -1)).shape == x.reshape(4, -1).shape == x.view((4, 6)).shape == (4, 6)
    assert weft.ones((0, 3)).reshape(0, 5).shape == (0, 5)
    assert weft.reshape(x, -1).shape == (24,)


def test_axes_are_moved_as_numpy_moves_them() -> None:
    x = weft.tensor(X)
    same(weft.permute_dims(x, (-1, 0, 1)), X.transpose(2, 0, 1))
    same(x.permute(2, 0, 1), X.transpose(2, 0, 1))
    same(weft.moveaxis(x, (0, 1), (-1, 0)), np.moveaxis(X, (0, 1), (-1, 0)))
    same(x.transpose(0, 2), X.swapaxes(0, 2))
    same(x.mT, X.swapaxes(1, 2))
    same(weft.tensor(X[0]).T, X[0].T)


def test_axes_of_size_one_come_and_go() -> None:
    x = weft.ones((1, 3, 1))
    assert weft.squeeze(x).shape == (3,)
    assert weft.squeeze(x, axis=(0, -1)).shape == (3,)
    assert x.unsqueeze(1).shape == (1, 1, 3, 1)
    assert weft.expand_dims(x, axis=(0, -1)).shape == (1, 1, 3, 1, 1)
    assert [f(weft.tensor(1.0)).ndim for f in (weft.atleast_1d, weft.atleast_2d, weft.atleast_3d)] == [
        1,
        2,
        3,
    ]
    assert x.flatten().shape == (3,)
    assert weft.tensor(2.0).flatten().shape == (1,)


def test_expand_keeps_sizes_given_as_minus_one() -> None:
    assert weft.ones((3, 1)).expand(2, -1, 4).shape == (2, 3, 4)


def test_concat_promotes_and_flattens() -> None:
    out = weft.concat([weft.tensor([[1, 2]]), weft.tensor([[0.5]])], axis=None)
    assert (out.dtype, out.tolist()) == (weft.float32, [1, 2, 0.5])


def test_pieces_of_split_and_chunk_make_the_whole() -> None:
    x = weft.tensor(X)
    for pieces in (x.split(3, 2), x.split((1, 0, 3), 2), x.chunk(3, 2), weft.unstack(x)):
        assert isinstance(pieces, tuple)
    same(weft.concat(x.split(3, 2), axis=2), X)
    same(weft.concat(x.chunk(3, 2), axis=2), X)
    same(weft.stack(weft.unstack(x, axis=1), axis=1), X)


def test_pad_accepts_names_and_widths_of_numpy() -> None:
    x = weft.tensor(X)
    for ours, theirs in (("edge", "edge"), ("wrap", "wrap"), ("replicate", "edge"), ("circular", "wrap")):
        same(weft.pad(x, ((1, 0), (2, 2), (0, 5)), ours), np.pad(X, ((1, 0), (2, 2), (0, 5)), theirs))
    same(weft.pad(x, (1, 2), value=-1.5), np.pad(X, (1, 2), constant_values=-1.5))


def test_tile_repeat_roll_and_flip_follow_numpy() -> None:
    x = weft.tensor(X)
    same(x.tile(2, 1, 1, 2), np.tile(X, (2, 1, 1, 2)))
    same(weft.repeat(x, weft.tensor([1, 0, 2]), axis=1), np.repeat(X, [1, 0, 2], axis=1))
    same(weft.roll(x, (1, -2), (0, 2)), np.roll(X, (1, -2), (0, 2)))
    same(x.flip(0, 2), np.flip(X, (0, 2)))


# Indexing functions


def test_scatter_gives_the_gradient_to_the_last_of_duplicate_writes() -> None:
    x, v = weft.zeros(3, requires_grad=True), weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    out = weft.scatter(x, 0, weft.tensor([1, 1, 0]), v)
    assert out.tolist() == [3, 2, 0]
    out.backward(weft.tensor([10.0, 20.0, 30.0]))
    assert x.grad.tolist() == [0, 0, 30]
    assert v.grad.tolist() == [0, 20, 10]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_scatter_add_of_half_precision_adds_in_single_precision(dtype: str) -> None:
    ones = weft.ones(4096, dtype=dtype)
    out = weft.scatter_add(weft.zeros(1, dtype=dtype), 0, weft.zeros(4096, dtype=weft.int64), ones)
    assert (float(out[0]), out.dtype) == (4096, ones.dtype)


@pytest.mark.parametrize("width", [1, 7, 299, 300, 1000])
def test_scatter_add_of_rows_equals_a_loop(width: int) -> None:
    rng = np.random.default_rng(0)
    index, rows = rng.integers(-5, 5, 1000), rng.standard_normal((1000, width))
    expected = np.zeros((5, width))
    for i, row in zip(index, rows, strict=True):
        expected[i] += row
    x = weft.zeros((5, width), dtype=weft.float64)
    out = weft.index_add(x, weft.tensor(index), weft.tensor(rows), axis=0)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-12, atol=1e-10)


def test_elements_where_a_mask_holds() -> None:
    x = weft.tensor(X, requires_grad=True)
    picked = weft.masked_select(x, x > 20)
    assert picked.tolist() == [21, 22, 23]
    picked.sum().backward()
    same(x.grad, (X > 20).astype(float))
    same(weft.argwhere(weft.tensor(X > 20)), np.argwhere(X > 20))
    for ours, theirs in zip(weft.nonzero(x.detach()), X.nonzero(), strict=True):
        same(ours, theirs)


# Reductions


def test_small_integers_are_summed_in_64_bits() -> None:
    for dtype, wide in (("int8", weft.int64), ("uint8", weft.uint64), ("bool", weft.int64)):
        x = weft.ones(1000, dtype=dtype)
        assert (x.sum().dtype, int(x.sum())) == (wide, 1000)
        assert x.prod().dtype == wide
    assert weft.sum(weft.ones(3, dtype=weft.int32), dtype=weft.float64).dtype == weft.float64


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_summed_in_single_precision(dtype: str) -> None:
    x = weft.ones(100_000, dtype=dtype)
    assert float(x.mean()) == 1.0
    assert float(weft.var(x)) == 0.0
    assert float(weft.cumsum(x[:4096])[-1]) == 4096
    assert x.mean().dtype == x.sum().dtype == weft.std(x).dtype == x.dtype


@pytest.mark.parametrize("function", [weft.max, weft.min])
def test_equal_extremes_share_the_gradient(function: Any) -> None:
    x = weft.tensor([[2.0, 2.0, 2.0, 2.0]], requires_grad=True)
    function(x, axis=1).sum().backward()
    assert x.grad.tolist() == [[0.25] * 4]


def test_reductions_of_nothing_have_their_identity_or_say_what_is_missing() -> None:
    empty = weft.ones((0, 3))
    assert (empty.sum().tolist(), empty.prod(0).tolist()) == (0, [1, 1, 1])
    assert (bool(weft.any(empty)), bool(weft.all(empty))) == (False, True)
    assert np.isnan(float(empty.mean()))
    assert weft.logsumexp(empty, axis=0).tolist() == [-np.inf] * 3
    assert weft.max(empty, axis=1).shape == (0,)
    for function in (weft.max, weft.min, weft.argmax, weft.argmin, weft.median):
        with pytest.raises(ShapeError, match="there must be elements along"):
            function(empty, axis=0)


def test_mean_and_variance_of_integers_are_floats() -> None:
    x = weft.tensor([1, 2, 3, 4])
    assert (x.mean().dtype, float(x.mean())) == (weft.float32, 2.5)
    assert float(x.var(correction=1)) == pytest.approx(5 / 3)
    assert float(weft.median(x)) == 2.5


def test_argmax_without_an_axis_counts_in_the_flattened_tensor() -> None:
    x = weft.tensor(X)
    assert int(weft.argmax(x)) == 23
    assert weft.argmin(x, keepdims=True).shape == (1, 1, 1)


def test_logsumexp_of_minus_infinity_has_gradient_zero() -> None:
    x = weft.tensor([-np.inf, -np.inf], requires_grad=True)
    weft.logsumexp(x).backward()
    assert x.grad.tolist() == [0, 0]


def test_cumulative_sums_may_begin_with_the_empty_one() -> None:
    x = weft.tensor([[1, 2], [3, 4]])
    assert weft.cumulative_sum(x, axis=1, include_initial=True).tolist() == [[0, 1, 3], [0, 3, 7]]
    assert weft.cumulative_prod(x, axis=0, include_initial=True).tolist() == [[1, 1], [1, 2], [3, 8]]
    assert weft.diff(x, axis=0, prepend=weft.tensor([[0, 0]])).tolist() == [[1, 2], [2, 2]]


def test_quantile_follows_numpy_and_q_has_a_gradient() -> None:
    x, q = weft.tensor(X), weft.tensor([0.1, 0.77], dtype=weft.float64, requires_grad=True)
    out = weft.quantile(x, q, axis=(0, 2))
    np.testing.assert_allclose(out.detach().numpy(), np.quantile(X, [0.1, 0.77], axis=(0, 2)), rtol=1e-12)
    line = weft.arange(5, dtype=weft.float64)
    weft.quantile(line, q).sum().backward()
    np.testing.assert_allclose(q.grad.numpy(), [4, 4], rtol=1e-6)


# Order


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_sort_puts_nan_last_and_first_when_descending(dtype: str) -> None:
    x = weft.tensor([3.0, np.nan, 1.0, 2.0]).astype(dtype)
    assert weft.argsort(x).tolist() == [2, 3, 0, 1]
    assert weft.argsort(x, descending=True).tolist() == [1, 0, 3, 2]
    assert weft.sort(x).dtype == x.dtype
    assert weft.sort(x)[:3].tolist() == [1, 2, 3]


def test_equal_elements_keep_their_order() -> None:
    x = weft.tensor([1, 0, 1, 0, 1])
    assert weft.argsort(x).tolist() == [1, 3, 0, 2, 4]
    assert weft.argsort(x, descending=True).tolist() == [0, 2, 4, 1, 3]


def test_topk_of_a_long_row_equals_a_sort() -> None:
    x = np.random.default_rng(0).permutation(1000).astype(np.float32).reshape(2, 500)
    values, indices = weft.topk(weft.tensor(x), 5)
    same(values, -np.sort(-x, axis=1)[:, :5])
    same(indices, np.argsort(-x, axis=1)[:, :5])
    small = weft.tensor(x).topk(3, 0 + 1, largest=False)
    same(small.values, np.sort(x, axis=1)[:, :3])


def test_searchsorted_takes_a_sorter() -> None:
    x = np.array([5.0, 1.0, 3.0])
    sorter = np.argsort(x)
    keys = np.array([0.0, 1.0, 4.0])
    for side in ("left", "right"):
        out = weft.searchsorted(weft.tensor(x), weft.tensor(keys), side=side, sorter=weft.tensor(sorter))
        same(out, np.searchsorted(x, keys, side=side, sorter=sorter))  # type: ignore[call-overload]


def test_unique_counts_every_nan_alone_and_its_values_have_gradients() -> None:
    x = weft.tensor([2.0, np.nan, 1.0, 2.0, np.nan])
    found = weft.unique_all(x)
    assert found.counts.tolist() == [1, 2, 1, 1]
    assert found.indices.tolist() == [2, 0, 1, 4]
    assert found.inverse_indices.tolist() == [1, 2, 0, 1, 3]
    y = weft.tensor([3.0, 3.0, 5.0], requires_grad=True)
    (weft.unique_values(y) * weft.tensor([10.0, 1.0])).sum().backward()
    assert y.grad.tolist() == [10, 0, 1]


def test_bincount_weighs_with_gradients() -> None:
    w = weft.tensor([1.0, 2.0, 4.0], requires_grad=True)
    out = weft.bincount(weft.tensor([2, 0, 2]), w, minlength=4)
    assert out.tolist() == [2, 0, 5, 0]
    out.backward(weft.tensor([1.0, 2.0, 3.0, 4.0]))
    assert w.grad.tolist() == [3, 1, 3]


# Errors

V, M, E = weft.ones(3), weft.ones((2, 3)), weft.ones((0, 3))
I = weft.tensor([0, 1])  # noqa: E741 - an index
C = weft.ones(3, dtype=weft.complex64)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: weft.reshape(M, (4, 2)),
            ShapeError,
            "reshape: the number of elements must stay 6, got f32[2,3] to (4, 2)",
        ),
        (
            lambda: weft.reshape(M, (4, -1)),
            ShapeError,
            "reshape: the number of elements must stay 6, got f32[2,3] to (4, -1)",
        ),
        (lambda: weft.reshape(M, (-1, -1)), ShapeError, "reshape: at most one size may be -1, got (-1, -1)"),
        (
            lambda: weft.reshape(M, "a"),
            ArgumentError,
            "reshape: shape must be an int or a tuple of ints, got 'a'",
        ),
        (lambda: weft.reshape([1, 2], (2,)), ArgumentError, "reshape: takes tensors, got list"),
        (
            lambda: weft.broadcast_to(M, (3, 3)),
            ShapeError,
            "broadcast_to: sizes must be equal or 1, got f32[2,3] to (3, 3)",
        ),
        (
            lambda: weft.permute_dims(M, (0, 0)),
            AxisError,
            "permute_dims: axes must name each of 2 axes once, got (0, 0)",
        ),
        (lambda: weft.squeeze(M, 0), ShapeError, "squeeze: axis 0 must be of size 1, got f32[2,3]"),
        (lambda: V.T, ShapeError, "T: the tensor must have two axes, got f32[3]"),
        (
            lambda: weft.concat([M, V]),
            ShapeError,
            "concat: shapes must agree but on axis 0, got f32[2,3] and f32[3]",
        ),
        (lambda: weft.concat([]), ArgumentError, "concat: at least one tensor is needed, got none"),
        (lambda: weft.stack([M, V]), ShapeError, "stack: shapes must be equal, got f32[2,3] and f32[3]"),
        (
            lambda: weft.split(M, (1, 1), 1),
            ShapeError,
            "split: sizes must add up to 3 along axis 1, got (1, 1)",
        ),
        (lambda: weft.chunk(M, 0), DomainError, "chunk: chunks must be positive, got 0"),
        (lambda: weft.pad(M, -1), DomainError, "pad: widths must not be negative, got -1"),
        (
            lambda: weft.pad(M, 1, "foo"),
            ArgumentError,
            "pad: mode must be one of constant, reflect, replicate, circular, got 'foo'",
        ),
        (
            lambda: weft.crop(M, size=(3, 3)),
            ShapeError,
            "crop: the block must lie inside f32[2,3], got size (3, 3) at (-1, 0)",
        ),
        (lambda: weft.tril(V), ShapeError, "tril: the tensor must have at least two axes, got f32[3]"),
        (
            lambda: weft.take(M, weft.tensor([5]), axis=1),
            BoundsError,
            "take: index must be in -3..2 for axis 1 of size 3, got 5",
        ),
        (lambda: weft.take(M, V, axis=0), DtypeError, "take: indices must be integers, got float32"),
        (
            lambda: weft.gather(M, 0, I),
            ShapeError,
            "gather: x and the index must have as many axes, got f32[2,3] and i64[2]",
        ),
        (lambda: weft.masked_fill(M, I, 1), DtypeError, "masked_fill: the mask must be bool, got int64"),
        (lambda: weft.sum(M, axis=2), AxisError, "sum: axis must be in -2..1 for rank 2, got 2"),
        (lambda: weft.sum(M, axis=(0, 0)), AxisError, "sum: axes must be distinct, got (0, 0)"),
        (lambda: weft.sum(M, dmi=0), ArgumentError, "sum: unknown keyword 'dmi'"),
        (lambda: weft.max(C), DtypeError, "max: dtype must be real, got complex64"),
        (
            lambda: weft.max(E, axis=0),
            ShapeError,
            "max: there must be elements along the reduced axes, got f32[0,3]",
        ),
        (
            lambda: weft.argmax(E, axis=0),
            ShapeError,
            "argmax: there must be elements along axis 0, got f32[0,3]",
        ),
        (lambda: weft.quantile(V, 2.0), DomainError, "quantile: q must be between 0 and 1, got 2.0"),
        (
            lambda: weft.cumulative_sum(M),
            ArgumentError,
            "cumulative_sum: axis must be given for a tensor with 2 axes",
        ),
        (lambda: weft.sort(C), DtypeError, "sort: dtype must be real, got complex64"),
        (lambda: weft.topk(V, 4), DomainError, "topk: k must be in 0..3 for axis 0, got 4"),
        (
            lambda: weft.searchsorted(V, M, side="up"),
            ArgumentError,
            "searchsorted: side must be 'left' or 'right', got 'up'",
        ),
        (
            lambda: weft.nonzero(weft.tensor(1.0)),
            ShapeError,
            "nonzero: the tensor must have at least one axis, got f32[]",
        ),
        (
            lambda: weft.bincount(weft.tensor([-1])),
            DomainError,
            "bincount: numbers must not be negative, got -1",
        ),
    ],
)
def test_a_bad_call_is_told_in_words(call: Any, error: type[WeftError], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).splitlines()[0] == text
