"""The generator of random bits against what its authors published, and against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.base.philox import MASK, philox, random_parts, random_words

words = st.integers(0, MASK)


# The known answers that come with Random123, the authors' own implementation.
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        (
            (0, 0, 0, 0),
            (0, 0),
            (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B),
        ),
        (
            (MASK, MASK, MASK, MASK),
            (MASK, MASK),
            (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0),
        ),
        (
            (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
            (0x452821E638D01377, 0xBE5466CF34E90C6C),
            (0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6),
        ),
    ],
)
def test_block_equals_the_published_answer(
    counter: tuple[int, int, int, int], key: tuple[int, int], expected: tuple[int, int, int, int]
) -> None:
    assert philox(counter, key) == expected


@given(st.tuples(words, words, words, words), st.tuples(words, words))
def test_block_equals_the_next_one_of_numpy(counter: tuple[int, int, int, int], key: tuple[int, int]) -> None:
    total = sum(word << (64 * i) for i, word in enumerate(counter))
    before = (total - 1) % 2**256  # NumPy counts first, then draws
    start = np.array([(before >> (64 * i)) & MASK for i in range(4)], np.uint64)
    generator = np.random.Philox(key=np.array(key, np.uint64), counter=start)
    assert tuple(map(int, generator.random_raw(4))) == philox(counter, key)


def test_narrow_parts_are_cut_from_words_lowest_first() -> None:
    assert random_words((0, 0), 1) == [0x16554D9ECA36314C]
    assert random_parts((0, 0), 3, 32) == [0xCA36314C, 0x16554D9E, 0x672D0FDC]
    assert random_parts((0, 0), 4, 16) == [0x314C, 0xCA36, 0x4D9E, 0x1655]
    assert random_parts((0, 0), 2, 8) == [0x4C, 0x31]
