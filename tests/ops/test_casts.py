"""Casts between all dtypes: one rule, which eager code, the interpreter and machine code follow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import weft
from weft.base.dtypes import DTYPES, integer_range, kind

Array = np.ndarray[Any, Any]
_FLOATS = (
    0.0, -0.0, 0.99, -0.99, 1.5, -1.5, 127.9, 128.0, -128.9, -129.0, 255.9, 256.0, 300.0, -300.0, 32767.9,
    32768.0, 65535.9, 65536.0, 2.0**31 - 1, 2.0**31, -(2.0**31), -(2.0**31) - 1, 2.0**32 - 1, 2.0**32,
    2.0**63, -(2.0**63), 2.0**64, 1e20, -1e20, 1e38, 1e39, -1e300, math.inf, -math.inf, math.nan, 65504.0,
    65519.99, 65520.0, 1e-8, 1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-8 + 2.0**-30,
)  # fmt: skip


def _values(dtype: Any) -> Array:
    if kind(dtype) == "b":
        return np.array([True, False] * 3)
    if kind(dtype) in "iu":
        low, high = integer_range(dtype)
        return np.array([low, high, 0, 1, 100, high // 2, high // 3, low // 3, 127], dtype)
    with np.errstate(all="ignore"):
        return np.array(_FLOATS).astype(dtype)


def _expected(x: Any, dtype: Any) -> Any:
    """A number as an integer or a truth value, by Python's own numbers."""
    if kind(dtype) == "b":
        return x != 0
    low, high = integer_range(dtype)
    if not isinstance(x, float):
        return (int(x) - low) % (high - low + 1) + low
    if math.isnan(x):
        return 0
    return (high if x > 0 else low) if math.isinf(x) else min(max(math.trunc(x), low), high)


def _number(x: Any) -> Any:
    return float(x) if kind(x.dtype) == "f" else x.item()


@pytest.mark.rotating(2)
@pytest.mark.parametrize("source", [d for d in DTYPES if kind(d) != "c"], ids=str)
def test_casts_follow_one_rule_everywhere(source: Any) -> None:
    targets = [d for d in DTYPES if kind(d) != "c"]
    x = _values(source)

    def cast(t: Any) -> Any:
        return [t.astype(d) for d in targets]

    ways = {
        "eager": cast(weft.tensor(x)),
        "interpreted": weft.compile(cast, backend="interpret")(weft.tensor(x)),
        "compiled": weft.compile(cast)(weft.tensor(x)),
        "in one piece": weft.compile(cast)(weft.tensor(np.concatenate([x, x, x]))),
    }
    for i, target in enumerate(targets):
        expected = _cast(x, target)
        for way, outs in ways.items():
            got = _comparable(outs[i].numpy()[: len(x)])
            np.testing.assert_array_equal(got, _comparable(expected), err_msg=f"{way}: {source} to {target}")


def _cast(x: Array, dtype: Any) -> Array:
    """As Python's numbers have it, and floats as NumPy rounds them."""
    with np.errstate(all="ignore"):
        return (
            x.astype(dtype)
            if kind(dtype) == "f"
            else np.array([_expected(_number(v), dtype) for v in x], dtype)
        )


def _comparable(a: Array) -> Array:
    return a.astype(np.float64) if kind(a.dtype) == "f" else a


@pytest.mark.parametrize("source", [d for d in DTYPES if kind(d) == "f"], ids=str)
def test_what_is_in_range_is_only_cut_off(source: Any) -> None:
    x = np.array([0.0, 1.5, -2.75, 100.0, -100.5]).astype(source)
    for size in (1, 5):
        for target in (d for d in DTYPES if kind(d) in "iu"):
            given = np.abs(x[:size]) if kind(target) == "u" else x[:size]
            assert weft.tensor(given).astype(target).tolist() == [math.trunc(float(v)) for v in given]
    assert weft.tensor(x[:0]).astype(weft.uint8).tolist() == []
    assert weft.tensor(x[3]).astype(weft.int64).item() == 100


def test_doubles_become_float16_by_one_rounding() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(4000) * 10.0 ** rng.uniform(-6, 5, 4000)
    with np.errstate(all="ignore"):
        halves = x.astype(np.float16)
        middles = halves.astype(np.float64) + np.spacing(halves).astype(np.float64) / 2
        given = np.concatenate([x, middles, np.nextafter(middles, rng.choice([-1e9, 1e9], 4000))])
        expected = given.astype(np.float16)
    got = weft.compile(lambda t: t.astype(weft.float16))(weft.tensor(given)).numpy()
    np.testing.assert_array_equal(got, expected)
