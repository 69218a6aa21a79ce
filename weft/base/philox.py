"""The one source of random bits: Philox4x64-10, stated exactly.

A block cipher turns a counter of four 64-bit words, under a key of two, into four random words. Nothing
is kept between calls, so any block can be had at once, on any device, in any order, and everyone who
implements these lines draws the same numbers. Salmon, Moraes, Dror, Shaw: *Parallel Random Numbers: As
Easy as 1, 2, 3*, SC 2011.

How weft counts, which every backend follows:

    word 4b + w of the bits of a key is word w of the block with counter (b, 0, 0, 0)
    narrower bits are the parts of these words, the lowest first
    the key derived from a key and data is words 0 and 1 of the block with counter (data, 0, 0, purpose)
"""

from __future__ import annotations

from typing import Final

Key = tuple[int, int]
Block = tuple[int, int, int, int]

ROUNDS: Final = 10
MULTIPLIERS: Final = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
WEYL: Final = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)  # golden ratio and sqrt(3) - 1, as fractions of 2**64
MASK: Final = 2**64 - 1

SPLIT: Final = 1  # the purposes for which keys are derived; 0 is drawing bits
FOLD: Final = 2


def philox(counter: Block, key: Key) -> Block:
    """The block of random words of a counter under a key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        first, second = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1 = (second >> 64) ^ c1 ^ k0, second & MASK
        c2, c3 = (first >> 64) ^ c3 ^ k1, first & MASK
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return c0, c1, c2, c3


def random_words(key: Key, count: int) -> list[int]:
    """The first ``count`` random words of a key."""
    blocks = (philox((b, 0, 0, 0), key) for b in range((count + 3) // 4))
    return [word for block in blocks for word in block][:count]


def random_parts(key: Key, count: int, bits: int) -> list[int]:
    """The first ``count`` random integers of 8, 16, 32 or 64 bits of a key."""
    parts = 64 // bits
    words = random_words(key, (count + parts - 1) // parts)
    return [(word >> (bits * i)) & (2**bits - 1) for word in words for i in range(parts)][:count]


def derive_key(key: Key, data: int, purpose: int) -> Key:
    """A new key from a key, a number and a purpose; keys that differ in any of them are unrelated."""
    return philox((data, 0, 0, purpose), key)[:2]
