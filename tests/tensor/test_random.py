"""``weft.random``: what keys give, exactly and in distribution, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, log, pi, sin, sqrt
from typing import Any

import numpy as np
import pytest
import scipy.stats

import weft
from weft.errors import ArgumentError, DomainError, DtypeError, ShapeError

# The block of counter 0 under key 0, as the authors of Philox published it. All exact values below are
# worked out from these four words, not from what weft gives.
WORDS = (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B)

KEY = weft.random.key(0)
COUNT = 20_000


def draws(function: Callable[..., Any], *args: Any, seed: int = 1, **kwargs: Any) -> Any:
    return function(weft.random.key(seed), (COUNT,), *args, **kwargs).numpy()


# Exact values


def test_key_is_its_seed() -> None:
    key = weft.random.key(2**64 - 1)
    assert (key.dtype, key.tolist()) == (weft.uint64, [2**64 - 1, 0])


def test_bits_are_the_published_ones() -> None:
    assert tuple(weft.random.bits(KEY, (4,)).tolist()) == WORDS
    assert weft.random.bits(KEY, (2, 2)).tolist() == [list(WORDS[:2]), list(WORDS[2:])]
    assert weft.random.bits(KEY, (3,), weft.uint32).tolist() == [0xCA36314C, 0x16554D9E, 0x672D0FDC]
    assert weft.random.bits(KEY, dtype=weft.uint8).item() == 0x4C


def test_uniform_float64_takes_the_upper_53_bits() -> None:
    expected = [(word >> 11) / 2**53 for word in WORDS]
    assert weft.random.uniform(KEY, (4,), dtype=weft.float64).tolist() == expected


def test_uniform_float32_takes_the_upper_24_bits_of_half_words() -> None:
    halves = [half for word in WORDS for half in (word & 0xFFFFFFFF, word >> 32)]
    expected = [(half >> 8) / 2**24 for half in halves]
    assert weft.random.uniform(KEY, (8,)).tolist() == expected


def test_normal_is_the_box_muller_transform_of_the_bits() -> None:
    u, v = ((word + 1) / 2**64 for word in WORDS[:2])
    expected = [sqrt(-2 * log(u)) * cos(2 * pi * v), sqrt(-2 * log(u)) * sin(2 * pi * v)]
    actual = weft.random.normal(KEY, (2,), dtype=weft.float64).tolist()
    assert actual == pytest.approx(expected, rel=1e-14)


def test_randint_scales_words_to_the_range() -> None:
    expected = [-5 + word * 100 // 2**64 for word in WORDS]
    assert weft.random.randint(KEY, (4,), -5, 95).tolist() == expected
    whole = weft.random.randint(KEY, (4,), -(2**63), 2**63).tolist()
    assert whole == [word - 2**63 for word in WORDS]


def test_permutation_sorts_by_words() -> None:
    assert weft.random.permutation(KEY, 4).tolist() == sorted(range(4), key=lambda i: WORDS[i])


def test_numbers_do_not_depend_on_the_shape() -> None:
    flat = weft.random.uniform(KEY, (6,)).numpy()
    assert (weft.random.uniform(KEY, (2, 3)).numpy() == flat.reshape(2, 3)).all()


# Keys


def test_split_keys_differ_from_each_other_and_from_folded_ones() -> None:
    split = weft.random.split(KEY, 50).tolist()
    folded = [weft.random.fold_in(KEY, i).tolist() for i in range(50)]
    again = weft.random.split(weft.random.key(1), 50).tolist()
    assert len({tuple(k) for k in [*split, *folded, *again, KEY.tolist()]}) == 151


def test_split_gives_a_tensor_of_keys() -> None:
    one, two = weft.random.split(KEY)
    assert one.tolist() != two.tolist()
    assert weft.random.split(KEY, (2, 3)).shape == (2, 3, 2)
    assert weft.random.split(KEY, (2, 3)).tolist()[1][0] == weft.random.split(KEY, 6).tolist()[3]


def test_fold_in_takes_integers_and_integer_tensors_alike() -> None:
    expected = weft.random.fold_in(KEY, 3).tolist()
    assert weft.random.fold_in(KEY, weft.tensor(3)).tolist() == expected
    assert weft.random.fold_in(KEY, weft.tensor(3, dtype=weft.uint8)).tolist() == expected
    assert weft.random.fold_in(KEY, -1).tolist() == weft.random.fold_in(KEY, weft.tensor(-1)).tolist()


def test_draws_of_derived_keys_are_not_correlated() -> None:
    keys = weft.random.split(KEY, 2)
    one, two = (weft.random.normal(k, (COUNT,)).numpy() for k in keys)
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.03


# Distributions, against SciPy's with fixed seeds


@pytest.mark.parametrize(
    ("sample", "reference"),
    [
        (lambda: draws(weft.random.uniform), scipy.stats.uniform()),
        (lambda: draws(weft.random.uniform, -3.0, 5.0), scipy.stats.uniform(-3, 8)),
        (lambda: draws(weft.random.uniform, dtype=weft.float64), scipy.stats.uniform()),
        (lambda: draws(weft.random.normal), scipy.stats.norm()),
        (lambda: draws(weft.random.normal, 2.0, 0.5, dtype=weft.float64), scipy.stats.norm(2, 0.5)),
        (lambda: draws(weft.random.exponential), scipy.stats.expon()),
        (lambda: draws(weft.random.exponential, 4.0), scipy.stats.expon(scale=0.25)),
        (lambda: draws(weft.random.gumbel), scipy.stats.gumbel_r()),
        (lambda: draws(weft.random.gumbel, 1.0, 2.0), scipy.stats.gumbel_r(1, 2)),
        (lambda: draws(weft.random.truncated_normal), scipy.stats.truncnorm(-2, 2)),
        (
            lambda: draws(weft.random.truncated_normal, -0.5, 3.0, 1.0, 2.0),
            scipy.stats.truncnorm(-0.5, 3, 1, 2),
        ),
        (lambda: draws(weft.random.truncated_normal, 4.0, 5.0), scipy.stats.truncnorm(4, 5)),
        (lambda: draws(weft.random.truncated_normal, -5.0, -4.0), scipy.stats.truncnorm(-5, -4)),
    ],
    ids=lambda x: "" if callable(x) else x.dist.name,
)
def test_distribution_passes_kolmogorov_smirnov_and_moments(sample: Any, reference: Any) -> None:
    values = sample().astype(np.float64)
    assert scipy.stats.kstest(values, reference.cdf).pvalue > 0.001
    error = reference.std() / np.sqrt(COUNT)
    assert abs(values.mean() - reference.mean()) < 4 * error
    assert abs(values.std() / reference.std() - 1) < 0.05


def test_normal_float32_has_tails() -> None:
    values = weft.random.normal(weft.random.key(3), (2_000_000,)).numpy()
    beyond = (np.abs(values) > 4.5).sum()
    expected = 2_000_000 * 2 * scipy.stats.norm.sf(4.5)
    assert np.isfinite(values).all()
    assert abs(beyond - expected) < 5 * np.sqrt(expected)


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16], ids=str)
def test_narrow_floats_keep_the_distribution(dtype: Any) -> None:
    uniform = draws(weft.random.uniform, dtype=dtype).astype(np.float64)
    normal = draws(weft.random.normal, dtype=dtype).astype(np.float64)
    assert (uniform >= 0).all()
    assert (uniform < 1).all()
    assert abs(uniform.mean() - 0.5) < 0.01
    assert abs(normal.mean()) < 0.03
    assert abs(normal.std() - 1) < 0.02


def test_truncated_normal_stays_within_its_bounds() -> None:
    for lower, upper in (
        (-1.0, 1.0),
        (2.0, float("inf")),
        (-float("inf"), 0.0),
        (-float("inf"), float("inf")),
    ):
        values = draws(weft.random.truncated_normal, lower, upper)
        assert np.isfinite(values).all()
        assert (values >= lower).all()
        assert (values <= upper).all()


def test_bernoulli_is_true_as_often_as_p_says() -> None:
    values = weft.random.bernoulli(KEY, 0.3, (COUNT,))
    assert values.dtype == weft.bool
    assert abs(values.numpy().mean() - 0.3) < 0.015
    p = weft.tensor([0.0, 1.0])
    assert weft.random.bernoulli(KEY, p, (50, 2)).numpy().all(axis=0).tolist() == [False, True]


def test_randint_gives_each_value_equally_often() -> None:
    counts = np.bincount(draws(weft.random.randint, 0, 7))
    assert scipy.stats.chisquare(counts).pvalue > 0.001


def test_randint_of_a_huge_range_is_not_biased() -> None:
    residues = draws(weft.random.randint, 0, 3 * 2**62, dtype=weft.uint64) % 2**62 >> 52
    assert scipy.stats.chisquare(np.bincount(residues.astype(np.int64), minlength=1024)).pvalue > 0.001


def test_permutation_gives_each_order_equally_often() -> None:
    keys = weft.random.split(KEY, 3000)
    orders = weft.vmap(lambda k: weft.random.permutation(k, 3))(keys).numpy()
    counts = np.bincount(orders @ [9, 3, 1])
    assert scipy.stats.chisquare(counts[counts > 0]).pvalue > 0.001
    assert (counts > 0).sum() == 6


def test_permutation_of_a_tensor_keeps_rows_together() -> None:
    x = weft.reshape(weft.arange(12), (6, 2))
    shuffled = weft.random.permutation(KEY, x).numpy()
    order = weft.random.permutation(KEY, 6).numpy()
    assert (shuffled == x.numpy()[order]).all()
    columns = weft.random.permutation(KEY, x, axis=1).numpy()
    assert (np.sort(columns, axis=1) == x.numpy()).all()


def test_categorical_draws_with_the_probabilities_of_softmax() -> None:
    logits = weft.tensor([0.0, 1.0, -float("inf"), 2.0])
    counts = np.bincount(weft.random.categorical(KEY, logits, shape=(COUNT,)).numpy(), minlength=4)
    weights = np.exp([0.0, 1.0, 2.0])
    assert counts[2] == 0
    assert scipy.stats.chisquare(counts[[0, 1, 3]], COUNT * weights / weights.sum()).pvalue > 0.001


def test_categorical_chooses_along_the_axis() -> None:
    logits = np.full((3, 4), -np.inf, np.float32)
    logits[1, :] = 0.0
    assert weft.random.categorical(KEY, weft.tensor(logits), axis=0).tolist() == [1, 1, 1, 1]
    assert weft.random.categorical(KEY, weft.tensor(logits.T), shape=(2, 4)).tolist() == [[1] * 4] * 2


# Gradients and transforms


def test_gradients_flow_to_the_parameters_of_uniform() -> None:
    low = weft.tensor([0.0, 1.0], dtype=weft.float64, requires_grad=True)
    high = weft.tensor(3.0, dtype=weft.float64, requires_grad=True)
    u = weft.random.uniform(KEY, (2,), dtype=weft.float64).numpy()
    weft.random.uniform(KEY, low=low, high=high).sum().backward()
    np.testing.assert_allclose(low.grad.numpy(), 1 - u)
    np.testing.assert_allclose(high.grad.numpy(), u.sum())


def test_gradients_flow_to_the_parameters_of_normal() -> None:
    mean = weft.tensor(1.0, dtype=weft.float64, requires_grad=True)
    std = weft.tensor([2.0, 3.0], dtype=weft.float64, requires_grad=True)
    z = weft.random.normal(KEY, (4, 2), dtype=weft.float64).numpy()
    out = weft.random.normal(KEY, (4, 2), mean, std)
    np.testing.assert_allclose(out.detach().numpy(), 1 + z * [2.0, 3.0])
    out.sum().backward()
    np.testing.assert_allclose(mean.grad.numpy(), 8.0)
    np.testing.assert_allclose(std.grad.numpy(), z.sum(axis=0))


def test_vmap_over_keys_draws_from_each() -> None:
    keys = weft.random.split(KEY, 4)
    for draw in (
        lambda k: weft.random.normal(k, (3,)),
        lambda k: weft.random.randint(k, (3,), 0, 100),
        lambda k: weft.random.uniform(weft.random.split(k)[1], (2,)),
        lambda k: weft.random.categorical(k, weft.zeros(5), shape=(6,)),
        lambda k: weft.random.bits(weft.random.fold_in(k, 7)),
    ):
        batched = weft.vmap(draw)(keys).numpy()
        looped = np.stack([draw(keys[i]).numpy() for i in range(4)])
        assert (batched == looped).all()


def test_vmap_over_parameters_draws_the_same_noise_for_each() -> None:
    means = weft.tensor([0.0, 10.0])
    drawn = weft.vmap(lambda m: weft.random.normal(KEY, (3,), m))(means).numpy()
    np.testing.assert_allclose(drawn[1] - drawn[0], 10.0, rtol=1e-5)


# What is refused


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: weft.random.key(-1), DomainError, r"key: seed must be in 0..2\*\*64 - 1, got -1"),
        (lambda: weft.random.key(0.5), ArgumentError, r"key: seed must be an int, got 0.5"),
        (lambda: weft.random.normal(0, (2,)), ArgumentError, r"normal: key must be a tensor, got int"),
        (
            lambda: weft.random.normal(weft.zeros(2), (2,)),
            DtypeError,
            r"normal: a key must be of dtype uint64, got f32\[2\]",
        ),
        (
            lambda: weft.random.normal(weft.random.split(KEY), (2,)),
            ShapeError,
            r"normal: one key is needed, got u64\[2,2\]",
        ),
        (
            lambda: weft.random.uniform(KEY, (2,), low=weft.zeros(3)),
            ShapeError,
            r"uniform: shapes must broadcast together",
        ),
        (
            lambda: weft.random.uniform(KEY, (1,), low=weft.zeros(3)),
            ShapeError,
            r"uniform: parameters must broadcast to the shape \(1,\), got \[\(3,\)\]",
        ),
        (
            lambda: weft.random.uniform(KEY, (2,), dtype=weft.int32),
            DtypeError,
            r"uniform: dtype must be floating, got int32",
        ),
        (
            lambda: weft.random.uniform(KEY, (2,), "a"),
            ArgumentError,
            r"low must be a number or a tensor, got str",
        ),
        (lambda: weft.random.normal(KEY, (2,), std=-1.0), DomainError, r"std must not be negative, got -1.0"),
        (lambda: weft.random.exponential(KEY, (2,), 0.0), DomainError, r"rate must be positive, got 0.0"),
        (lambda: weft.random.bernoulli(KEY, 1.5), DomainError, r"p must be in 0..1, got 1.5"),
        (
            lambda: weft.random.randint(KEY, (2,), 5, 5),
            DomainError,
            r"low must be less than high, got 5 and 5",
        ),
        (
            lambda: weft.random.randint(KEY, (2,), 0, 300, weft.uint8),
            DomainError,
            r"randint: uint8 must hold all of 0..299",
        ),
        (
            lambda: weft.random.randint(KEY, (2,), 0, 3, weft.float32),
            DtypeError,
            r"randint: dtype must be an integer, got float32",
        ),
        (lambda: weft.random.bits(KEY, (2,), weft.int64), DtypeError, r"dtype must be an unsigned integer"),
        (lambda: weft.random.bits(KEY, (-2,)), ShapeError, r"bits: sizes must not be negative"),
        (
            lambda: weft.random.truncated_normal(KEY, (2,), 1.0, 1.0),
            DomainError,
            r"lower must be less than upper, got 1.0 and 1.0",
        ),
        (lambda: weft.random.permutation(KEY, -1), DomainError, r"x must not be negative, got -1"),
        (
            lambda: weft.random.fold_in(KEY, weft.tensor(0.5)),
            DtypeError,
            r"data must be an integer, got f32\[\]",
        ),
        (
            lambda: weft.random.categorical(KEY, weft.zeros((2, 0))),
            ShapeError,
            r"categorical: there must be a category to choose",
        ),
        (
            lambda: weft.random.categorical(KEY, weft.zeros((2, 3)), shape=(3,)),
            ShapeError,
            r"categorical: shape must end in \(2,\), got \(3,\)",
        ),
        (lambda: weft.random.normal(KEY, sizee=(2,)), ArgumentError, r"normal: unknown keyword 'sizee'"),
    ],
)
def test_bad_argument_is_refused(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
