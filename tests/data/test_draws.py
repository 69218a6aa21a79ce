"""Random draws: where they come from, that they are fair, and that only seed, epoch and place matter."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import weft
from weft import data
from weft.base.philox import FOLD, derive_key, philox, random_words
from weft.data.keys import Words, below, buffered_order, element_block, element_key, stage_key

IMAGE = np.arange(24.0).reshape(4, 6)


# Keys


def test_keys_are_those_of_weft_random() -> None:
    key = weft.random.fold_in(weft.random.fold_in(weft.random.key(7), 3), 2)
    assert stage_key(7, 3, 2) == tuple(key.tolist())
    assert element_key(stage_key(7, 3, 2), 5).tolist() == weft.random.fold_in(key, 5).tolist()


@given(
    st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)),
    st.lists(st.integers(0, 5000), min_size=1),
)
def test_words_by_number_are_those_of_the_key(key: tuple[int, int], places: list[int]) -> None:
    words = Words(key)
    assert [words[i] for i in places] == [philox((i // 4, 0, 0, 0), key)[i % 4] for i in places]


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**40))
def test_below_is_in_range_and_monotonic(word: int, bound: int) -> None:
    assert 0 <= below(word, bound) < bound
    assert below(0, bound) == 0
    assert below(2**64 - 1, bound) == bound - 1


def test_keyed_map_gets_the_key_of_its_element() -> None:
    pipeline = data.from_arrays([10, 20]).map(lambda x, key: (x, key), keyed=True, seed=9).numpy()
    for epoch in range(2):
        for i, (x, key) in enumerate(pipeline):
            base = weft.random.fold_in(weft.random.fold_in(weft.random.key(9), 1), epoch)
            assert x == 10 * (i + 1)
            assert key.tolist() == weft.random.fold_in(base, i).tolist()


# Shuffles


def test_full_shuffle_is_the_permutation_of_its_key() -> None:
    pipeline = data.from_arrays(np.arange(20)).shuffle(seed=4).batch(20).numpy()
    for epoch in range(2):
        base = weft.random.fold_in(weft.random.fold_in(weft.random.key(4), 1), epoch)
        (found,) = pipeline
        assert found.tolist() == weft.random.permutation(base, 20).tolist()


@given(st.integers(0, 30), st.integers(1, 35), st.integers(0, 1000))
def test_buffered_order_is_a_permutation_that_looks_no_further_than_its_buffer(
    n: int, size: int, seed: int
) -> None:
    order = buffered_order((seed, 0), n, size)
    assert sorted(order) == list(range(n))
    assert all(x < i + size for i, x in enumerate(order))


@given(st.integers(0, 20), st.integers(1, 25), st.integers(0, 1000))
def test_buffer_gives_the_same_order_for_streams(n: int, size: int, seed: int) -> None:
    by_number = data.from_arrays(np.arange(n)).shuffle(size, seed=seed).numpy()
    streamed = data.from_generator(lambda: iter(range(n))).shuffle(size, seed=seed).numpy()
    if size < n:  # a buffer that holds all is a full shuffle where the elements can be had by number
        assert [int(x) for x in by_number] == list(streamed)
    assert sorted(streamed) == list(range(n))


@pytest.mark.rotating(2)
@pytest.mark.parametrize("buffer", [None, 3])
def test_orders_are_equally_likely(buffer: int | None) -> None:
    pipeline = data.from_arrays(np.arange(3)).shuffle(buffer).batch(3).numpy()
    counts = Counter(tuple(next(iter(pipeline)).tolist()) for _ in range(3000))
    assert len(counts) == 6
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


# Changes of augment


def changed(change: Any, x: np.ndarray = IMAGE, count: int = 200, seed: int = 1) -> list[np.ndarray]:
    rows = np.broadcast_to(x, (count, *x.shape))
    return list(data.from_arrays(rows).augment(change, seed=seed).numpy())


def test_flip_reverses_half_of_them() -> None:
    found = changed(data.Flip(axis=-2), count=400)
    flipped = [np.array_equal(x, IMAGE[::-1]) for x in found]
    assert all(f or np.array_equal(x, IMAGE) for f, x in zip(flipped, found, strict=True))
    assert stats.binomtest(sum(flipped), 400).pvalue > 1e-4


def test_flip_draws_from_the_block_of_its_element() -> None:
    key = derive_key(stage_key(1, 1, 0), 0, FOLD)
    expected = [(element_block(key, i)[0] >> 11) * 2.0**-53 < 0.5 for i in range(50)]
    assert [not np.array_equal(x, IMAGE) for x in changed(data.Flip(), count=50)] == expected


def test_shift_moves_by_every_number_of_steps() -> None:
    padded = np.pad(IMAGE, 2, constant_values=-1)
    every = {padded[i : i + 4, j : j + 6].tobytes() for i in range(5) for j in range(5)}
    assert {x.tobytes() for x in changed(data.Shift(2, fill=-1), count=400)} == every


def test_shift_further_than_the_array_leaves_only_what_fills() -> None:
    found = {x.tobytes() for x in changed(data.Shift(9, axes=(-1,)), count=300)}
    assert np.zeros_like(IMAGE).tobytes() in found


def test_rotate_turns_by_right_angles() -> None:
    square = np.arange(9.0).reshape(3, 3)
    found = {x.tobytes() for x in changed(data.Rotate(), square)}
    assert found == {np.ascontiguousarray(np.rot90(square, k)).tobytes() for k in range(4)}


def test_noise_is_normal() -> None:
    noise = np.concatenate([(x - IMAGE).ravel() for x in changed(data.Noise(0.5))]) / 0.5
    assert stats.kstest(noise, "norm").pvalue > 1e-4
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.05


def test_scale_is_uniform() -> None:
    factors = [x[3, 5] / IMAGE[3, 5] for x in changed(data.Scale(0.5, 1.5))]
    assert stats.kstest(factors, stats.uniform(0.5, 1.0).cdf).pvalue > 1e-4


def test_erase_puts_a_box() -> None:
    for x in changed(data.Erase((2, 3), fill=-1)):
        rows, columns = np.nonzero(x == -1)
        assert len(rows) == 6
        assert np.ptp(rows) == 1
        assert np.ptp(columns) == 2


def test_random_crop_pads_first() -> None:
    padded = np.pad(IMAGE, 1)
    every = {padded[i : i + 4, j : j + 6].tobytes() for i in range(3) for j in range(3)}
    assert {np.ascontiguousarray(x).tobytes() for x in changed(data.RandomCrop((4, 6), pad=1))} == every


def test_crop_of_many_axes_draws_more_words() -> None:
    cube = np.arange(3.0**5).reshape((3,) * 5)
    found = changed(data.RandomCrop((2,) * 5), cube, count=20)
    assert {x.shape for x in found} == {(2,) * 5}
    key = derive_key(stage_key(1, 1, 0), 0, FOLD)
    words = random_words(element_block(key, 0)[:2], 5)
    assert found[0].flat[0] == cube[tuple(below(w, 2) for w in words)]


def test_parts_named_together_are_changed_alike() -> None:
    x = np.arange(400.0).reshape(100, 4)
    pipeline = data.from_arrays({"image": x, "mask": x, "other": x}).augment(
        data.Flip(), on=("image", "mask")
    )
    (batch,) = pipeline.batch(100).numpy()
    np.testing.assert_array_equal(batch["image"], batch["mask"])
    np.testing.assert_array_equal(batch["other"], x)
    assert (batch["image"] != x).any()


def test_own_changes_get_a_key() -> None:
    def jitter(x: Any, key: Any) -> Any:
        return x + weft.random.normal(key, x.shape).numpy()

    first, second = (changed(jitter, count=3) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert (first[0] != first[1]).all()


def test_draws_change_with_seed_epoch_and_stage_only() -> None:
    def noisy(seed: int = 0) -> data.Pipeline:
        return data.from_arrays(np.zeros((8, 3))).augment(data.Noise(1.0), seed=seed).batch(4).numpy()

    first = np.concatenate(list(noisy()))
    np.testing.assert_array_equal(np.concatenate(list(noisy())), first)
    np.testing.assert_array_equal(np.concatenate(list(noisy().prefetch(2))), first)
    assert (np.concatenate(list(noisy(1))) != first).all()
    pipeline = noisy()
    list(pipeline)
    assert (np.concatenate(list(pipeline)) != first).all()
    twice = (
        data.from_arrays(np.zeros((8, 3))).augment(data.Noise(1.0)).augment(data.Noise(1.0)).batch(8).numpy()
    )
    assert (next(iter(twice)) != 2 * first).all()
