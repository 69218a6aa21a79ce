"""Where random draws of a pipeline come from: keys, never a generator with a state.

    key of a stage in an epoch     seed, folded with the number of the stage, folded with the epoch
    key of an element              that key, folded with the number of the element
    draws of a change of augment   block i of the bits of the stage's key, folded with the change's number

Folding and blocks are those of ``weft.random.fold_in`` and ``weft.base.philox``. So the draws of an element
do not depend on who makes it, or when.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import weft
from weft.base.philox import FOLD, Block, Key, derive_key, philox
from weft.data.stage import IntArray

_CHUNK = 1024
_FEW = 8  # below which single blocks are quicker than a call of NumPy


@lru_cache(maxsize=256)
def stage_key(seed: int, number: int, epoch: int) -> Key:
    """The key of a stage in an epoch."""
    return derive_key(derive_key((seed, 0), number, FOLD), epoch, FOLD)


@lru_cache(maxsize=256)
def folded_key(key: Key, number: int) -> Key:
    """A key folded with a number."""
    return derive_key(key, number, FOLD)


def element_key(key: Key, i: int) -> Any:
    """The key of element i, as a tensor for ``weft.random``."""
    return weft.from_numpy(np.array(derive_key(key, i, FOLD), np.uint64))


def element_block(key: Key, i: int) -> Block:
    """Four random words for element i."""
    return philox((i, 0, 0, 0), key)


def element_blocks(key: Key, numbers: Sequence[int]) -> list[Block]:
    """Four random words for each of some elements; quick if they follow on each other."""
    if len(numbers) < _FEW or not isinstance(numbers, range):
        return [element_block(key, i) for i in numbers]
    drawn: list[Block] = raw_words(key, numbers.start, 4 * len(numbers)).reshape(-1, 4).tolist()
    return drawn


def raw_words(key: Key, block: int, count: int) -> Any:
    """So many words of a key, from the start of a block on."""
    from numpy.random import Philox  # takes milliseconds to import

    before = (block - 1) % 2**256  # NumPy counts before it draws
    counter = np.array([(before >> (64 * i)) % 2**64 for i in range(4)], np.uint64)
    return Philox(key=np.array(key, np.uint64), counter=counter).random_raw(count)


def below(word: int, bound: int) -> int:
    """A number in 0..bound-1 from a random word of 64 bits; the bias is at most bound / 2**64."""
    return (word * bound) >> 64


def unit(word: int) -> float:
    """A number in [0, 1) from a random word."""
    return float(word >> 11) * 2.0**-53


def permutation(key: Key, count: int) -> IntArray:
    """The numbers 0..count-1 in random order: what ``weft.random.permutation`` gives."""
    words = weft.from_numpy(np.array(key, np.uint64))
    return weft.random.permutation(words, count).numpy()


class Words:
    """The random words of a key, by number."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._chunk: list[int] = []
        self._start = -1

    def __getitem__(self, i: int) -> int:
        chunk = i - i % _CHUNK
        if chunk != self._start:
            self._chunk = raw_words(self._key, chunk // 4, _CHUNK).tolist()
            self._start = chunk
        return self._chunk[i - chunk]


def buffered_order(key: Key, count: int, buffer: int) -> IntArray:
    """The order in which a shuffle through a buffer gives the numbers 0..count-1."""
    words = Words(key)
    held = list(range(min(buffer, count)))
    out = np.empty(count, np.int64)
    for i in range(count):
        place = below(words[i], len(held))
        out[i] = held[place]
        following = buffer + i
        if following < count:
            held[place] = following
        else:
            held[place] = held[-1]
            held.pop()
    return out
