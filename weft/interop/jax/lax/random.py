"""Random numbers of JAX, bit for bit: its generator Threefry, written in ops on 32-bit words.

A key is its two words, along a last axis. The counters of draws are 64-bit numbers of elements, as JAX has
them with ``jax_threefry_partitionable``, its default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft.base.dtypes import kind
from weft.base.shapes import size_of
from weft.interop.forms.elements import astype, numbers_below
from weft.interop.jax.calls import Call, lax

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_WORD = 0xFFFFFFFF


def _rotated(x: Any, bits: int) -> Any:
    return weft.bitwise_or(weft.bitwise_left_shift(x, bits), weft.bitwise_right_shift(x, 32 - bits))


def threefry(keys: Sequence[Any], counts: Sequence[Any]) -> tuple[Any, Any]:
    """Threefry-2x32 with 20 rounds: two words from two words of a key and two of a counter.

    Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """
    parity = weft.bitwise_xor(weft.bitwise_xor(keys[0], keys[1]), weft.full((), _PARITY, dtype=weft.uint32))
    words = (keys[0], keys[1], parity)
    x, y = counts[0] + words[0], counts[1] + words[1]
    for group in range(5):
        for bits in _ROTATIONS[group % 2]:
            x = x + y
            y = weft.bitwise_xor(_rotated(y, bits), x)
        x = x + words[(group + 1) % 3]
        y = y + words[(group + 2) % 3] + weft.full((), group + 1, dtype=weft.uint32)
    return x, y


def _counters(shape: Sequence[Any]) -> tuple[Any, Any]:
    """The number of each element of a shape, as two words."""
    numbers = weft.reshape(numbers_below(size_of(tuple(shape))), tuple(shape))
    high = weft.bitwise_right_shift(numbers, 32)
    return astype(high, weft.uint32), astype(weft.bitwise_and(numbers, _WORD), weft.uint32)


def _words(keys: Any, rank: int) -> tuple[Any, Any]:
    """The two words of each key, with axes for the draws of each."""
    shape = (*keys.shape[:-1], *[1] * rank)
    return weft.reshape(keys[..., 0], shape), weft.reshape(keys[..., 1], shape)


@lax("random_wrap", "random_unwrap", "random_clone", "random_seed")
def wrap(call: Call, keys: Any, **parameters: Any) -> Any:
    """Keys as they are, or of seeds."""
    name = str(parameters.get("impl", "fry"))
    if "fry" not in name:
        raise call.error(f"keys must be of the generator threefry, got {name}", "use jax.random.key(seed)")
    return _seed_words(keys) if call.primitive == "random_seed" else keys


def _seed_words(seeds: Any) -> Any:
    wide = astype(seeds, weft.int64)
    low = astype(weft.bitwise_and(wide, _WORD), weft.uint32)
    if seeds.dtype.itemsize < 8:
        high = weft.zeros(seeds.shape, dtype=weft.uint32)
    else:
        high = astype(weft.bitwise_and(weft.bitwise_right_shift(wide, 32), _WORD), weft.uint32)
    return weft.stack([high, low], axis=-1)


@lax("random_bits")
def bits(call: Call, keys: Any, *, bit_width: int, shape: Any) -> Any:
    """Words of random bits."""
    counts = _counters(shape)
    high, low = threefry(_words(keys, len(shape)), counts)
    if bit_width == 64:
        wide = weft.bitwise_left_shift(astype(high, weft.uint64), weft.full((), 32, dtype=weft.uint64))
        return weft.bitwise_or(wide, astype(low, weft.uint64))
    return call.cast(weft.bitwise_xor(high, low))


@lax("random_fold_in")
def fold_in(call: Call, keys: Any, data: Any) -> Any:
    """A new key of a key and a number."""
    if kind(data.dtype) not in "iu":
        raise call.error(f"must be given integers, got {data.dtype.name}")
    seeds = _seed_words(data)
    return weft.stack(threefry(_words(keys, 0), _words(seeds, 0)), axis=-1)


lax.enter(
    {
        "threefry2x32": lambda call, key0, key1, count0, count1: threefry((key0, key1), (count0, count1)),
        "random_split": lambda call, keys, *, shape: weft.stack(
            threefry(_words(keys, len(shape)), _counters(shape)), axis=-1
        ),
        "rng_uniform": lambda call, low, high, *, shape, **rest: (  # JAX leaves open which generator
            low + (high - low) * weft.rand(tuple(shape), dtype=call.type.dtype)
        ),
    }
)
