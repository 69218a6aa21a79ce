"""The global generator and the functions that draw from it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats

import weft
from weft.base.philox import random_words
from weft.errors import ArgumentError, DomainError, DtypeError, ShapeError

FUNCTIONS: list[Callable[..., Any]] = [
    lambda **g: weft.rand(3, **g),
    lambda **g: weft.randn(3, **g),
    lambda **g: weft.randint(0, 100, (3,), **g),
    lambda **g: weft.randperm(10, **g),
    lambda **g: weft.normal(weft.zeros(3), 2.0, **g),
    lambda **g: weft.bernoulli(weft.full((20,), 0.5), **g),
    lambda **g: weft.multinomial(weft.ones(10), 5, **g),
    lambda **g: weft.multinomial(weft.ones(10), 5, replacement=True, **g),
    lambda **g: weft.rand_like(weft.zeros(3), **g),
    lambda **g: weft.randn_like(weft.zeros(3), **g),
    lambda **g: weft.randint_like(weft.tensor([1, 2, 3]), 100, **g),
]


@pytest.mark.parametrize("draw", FUNCTIONS)
def test_same_seed_gives_the_same_numbers_and_the_next_draw_others(draw: Callable[..., Any]) -> None:
    weft.manual_seed(7)
    first, second = draw().tolist(), draw().tolist()
    weft.manual_seed(7)
    assert draw().tolist() == first
    assert draw().tolist() == second
    assert first != second


@pytest.mark.parametrize("draw", FUNCTIONS)
def test_own_generator_is_used_and_the_global_one_left_alone(draw: Callable[..., Any]) -> None:
    before = weft.get_rng_state().tolist()
    one = draw(generator=weft.Generator(3)).tolist()
    two = draw(generator=weft.Generator().manual_seed(3)).tolist()
    assert one == two
    assert weft.get_rng_state().tolist() == before


def test_draws_are_those_of_the_seed_and_their_number() -> None:
    weft.manual_seed(11)
    for index in range(3):
        words = random_words((11, 2**63 + index), 2)
        assert weft.rand(2, dtype=weft.float64).tolist() == [(w >> 11) / 2**53 for w in words]


def test_global_draws_are_not_those_of_the_key_of_the_same_seed() -> None:
    weft.manual_seed(0)
    assert weft.rand(3).tolist() != weft.random.uniform(weft.random.key(0), (3,)).tolist()


def test_state_can_be_kept_and_put_back() -> None:
    weft.manual_seed(5)
    weft.rand(2)
    state = weft.get_rng_state()
    expected = weft.randn(4).tolist()
    weft.set_rng_state(state)
    assert weft.randn(4).tolist() == expected
    assert state.tolist() == [5, 1]


def test_seed_takes_a_new_seed_each_time() -> None:
    first, second = weft.seed(), weft.seed()
    assert first != second
    assert weft.initial_seed() == second


def test_fork_leaves_the_global_generator_where_it_was() -> None:
    weft.manual_seed(5)
    state = weft.get_rng_state()
    with weft.fork_rng():
        inside = weft.rand(3).tolist()
        weft.manual_seed(99)
    assert weft.rand(3).tolist() == inside
    with weft.fork_rng(state):
        assert weft.rand(3).tolist() == inside


def test_fork_does_not_reach_other_threads() -> None:
    weft.manual_seed(5)
    seen: list[list[float]] = []
    with weft.fork_rng(weft.Generator(1).get_state()):
        thread = threading.Thread(target=lambda: seen.append(weft.rand(3).tolist()))
        thread.start()
        thread.join()
    weft.manual_seed(5)
    assert seen == [weft.rand(3).tolist()]


def test_threads_never_share_a_draw() -> None:
    weft.manual_seed(1)
    drawn: list[float] = []

    def work() -> None:
        mine = [weft.rand((), dtype=weft.float64).item() for _ in range(200)]
        drawn.extend(mine)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == 1600
    assert weft.get_rng_state().tolist() == [1, 1600]


def test_sizes_are_given_as_ints_or_as_one_tuple() -> None:
    assert weft.rand(2, 3).shape == weft.rand((2, 3)).shape == weft.rand([2, 3]).shape == (2, 3)
    assert weft.rand().shape == weft.rand(()).shape == ()
    assert weft.randn(0, 4).shape == (0, 4)


def test_dtype_and_requires_grad_are_obeyed() -> None:
    assert weft.rand(2).dtype == weft.float32
    assert weft.randn(2, dtype=weft.float16).dtype == weft.float16
    assert weft.randint(3, (2,)).dtype == weft.int64
    assert weft.randint(0, 3, (2,), dtype=weft.uint8).dtype == weft.uint8
    assert weft.randperm(3, dtype=weft.int32).dtype == weft.int32
    x = weft.randn(2, requires_grad=True)
    assert x.requires_grad
    assert x.is_leaf


def test_randint_takes_one_bound_or_two() -> None:
    weft.manual_seed(0)
    assert set(weft.randint(3, (200,)).tolist()) == {0, 1, 2}
    assert set(weft.randint(5, 7, (200,)).tolist()) == {5, 6}
    assert set(weft.randint(high=2, low=-1, size=(200,)).tolist()) == {-1, 0, 1}


def test_normal_takes_numbers_and_tensors() -> None:
    weft.manual_seed(0)
    values = weft.normal(5.0, 2.0, (20_000,)).numpy()
    assert scipy.stats.kstest(values, scipy.stats.norm(5, 2).cdf).pvalue > 0.001
    mean = weft.tensor([0.0, 100.0], requires_grad=True)
    weft.normal(mean, 1.0).sum().backward()
    assert mean.grad.tolist() == [1.0, 1.0]


def test_multinomial_without_replacement_gives_different_indices() -> None:
    weft.manual_seed(0)
    drawn = weft.multinomial(weft.ones((5, 8)), 8).numpy()
    assert (np.sort(drawn, axis=1) == np.arange(8)).all()


def test_multinomial_never_gives_an_index_of_weight_zero() -> None:
    weights = weft.tensor([[1.0, 0.0, 3.0], [0.0, 2.0, 2.0]])
    for replacement in (False, True):
        drawn = np.stack([weft.multinomial(weights, 2, replacement).numpy() for _ in range(50)])
        assert drawn.shape == (50, 2, 2)
        assert not (drawn[:, 0] == 1).any()
        assert not (drawn[:, 1] == 0).any()


def test_multinomial_draws_as_often_as_weights_say() -> None:
    weft.manual_seed(0)
    weights = np.array([1.0, 2.0, 5.0])
    counts = np.bincount(weft.multinomial(weft.tensor(weights), 20_000, replacement=True).numpy())
    assert scipy.stats.chisquare(counts, 20_000 * weights / 8).pvalue > 0.001


def test_multinomial_without_replacement_draws_one_after_the_other() -> None:
    weft.manual_seed(0)
    weights = weft.tensor(np.tile([1.0, 2.0, 5.0], (20_000, 1)))
    firsts = weft.multinomial(weights, 2).numpy()[:, 0]
    assert scipy.stats.chisquare(np.bincount(firsts), [2500, 5000, 12500]).pvalue > 0.001


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: weft.manual_seed("a"), ArgumentError, r"manual_seed: seed must be an int, got 'a'"),
        (lambda: weft.manual_seed(2**64), DomainError, r"manual_seed: seed must be in"),
        (lambda: weft.set_rng_state(weft.zeros(2)), ArgumentError, r"state must be a u64\[2\], got f32\[2\]"),
        (lambda: weft.rand(2, -1), ShapeError, r"rand: sizes must not be negative, got \(2, -1\)"),
        (lambda: weft.rand(2, dtype=weft.int64), DtypeError, r"uniform: dtype must be floating, got int64"),
        (lambda: weft.randint(5), ArgumentError, r"randint: size must be given"),
        (
            lambda: weft.bernoulli(weft.tensor([1])),
            ArgumentError,
            r"p must be a floating tensor, got i64\[1\]",
        ),
        (
            lambda: weft.multinomial(weft.tensor([1.0, -1.0]), 1),
            DomainError,
            r"multinomial: probs must be finite and not negative",
        ),
        (
            lambda: weft.multinomial(weft.tensor([1.0, 0.0]), 2),
            DomainError,
            r"each row must have 2 weights that are not 0, got one with 1",
        ),
        (lambda: weft.multinomial(weft.ones(2), 0), DomainError, r"num_samples must be positive, got 0"),
        (lambda: weft.rand_like([1.0]), ArgumentError, r"rand_like: must be a tensor, got list"),
    ],
)
def test_bad_argument_is_refused(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_negative_seed_is_taken_modulo_two_to_the_64() -> None:
    assert weft.manual_seed(-1).initial_seed() == 2**64 - 1
