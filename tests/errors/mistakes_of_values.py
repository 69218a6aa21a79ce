"""Mistakes that only values tell, and what a graph cannot do; see ``mistakes``."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from tests.errors.mistakes import Mistake, f3, index
from weft.errors import (
    BoundsError,
    CaptureError,
    CheckError,
    WeftError,
)

# What only values tell


def gather(x: Any, i: Any) -> Any:
    return x[i] * 2.0  # here


def gather_computed(x: Any, i: Any) -> Any:
    k = i + 1
    return x[k] * 2.0  # here


def gather_in_loop(x: Any, i: Any) -> Any:
    total = x[i[:1]].sum()
    for _ in range(3):
        total = total + x[i].sum()  # here
    return total


def gather_in_branch(x: Any, i: Any) -> Any:
    if x.sum() > 0:
        x = x + x[i].sum()  # here
    return x


def take(x: Any, i: Any) -> Any:
    return weft.take(x, i, axis=0)  # here


def embedding(x: Any, i: Any) -> Any:
    return weft.embedding(i, x[:, None])  # here


def wrong_class(x: Any, i: Any) -> Any:
    return weft.cross_entropy(x[None] + weft.zeros((2, 3)), i)  # here


def singular(x: Any, i: Any) -> Any:
    a = x[:, None] * x
    return weft.linalg.inv(a)  # here


def unsolvable(x: Any, i: Any) -> Any:
    a = x[:, None] * x
    return weft.linalg.solve(a, x)  # here


def asserted(x: Any, i: Any) -> Any:
    assert (x < 0.5).all(), "must be small"  # here
    return x


def asserted_in_loop(x: Any, i: Any) -> Any:
    for _ in range(3):
        x = x + 1.0
        assert x.sum() < 8.0, "must stay small"  # here
    return x


VALUES = [
    Mistake(
        gather,
        (f3, index),
        BoundsError,
        "index must be in -3..2 for axis 0 of size 3, got 7",
        ("x is f32[3]", "i is i64[2]"),
    ),
    Mistake(
        gather_computed,
        (f3, index),
        BoundsError,
        "index must be in -3..2 for axis 0 of size 3, got 8",
        ("x is f32[3]", "k is i64[2]"),
    ),
    Mistake(
        gather_in_loop,
        (f3, index),
        BoundsError,
        "index must be in -3..2 for axis 0 of size 3, got 7",
        ("x is f32[3]", "i is i64[2]"),
    ),
    Mistake(
        gather_in_branch,
        (f3, index),
        BoundsError,
        "index must be in -3..2 for axis 0 of size 3, got 7",
        ("x is f32[3]", "i is i64[2]"),
    ),
    Mistake(take, (f3, index), BoundsError, "got 7", ("x is f32[3]", "i is i64[2]")),
    Mistake(embedding, (f3, index), BoundsError, "got 7", ("i is i64[2]",)),
    Mistake(wrong_class, (f3, index), WeftError, "got 7", ("i is i64[2]",)),
    Mistake(singular, (f3, index), WeftError, "singular", ("a is f32[3,3]",)),
    Mistake(unsolvable, (f3, index), WeftError, "singular", ("a is f32[3,3]",)),
    Mistake(asserted, (f3, index), CheckError, "assert: must be small", skips="eager"),
    Mistake(asserted_in_loop, (f3, index), CheckError, "assert: must stay small", skips="eager"),
]


# What a graph cannot do


def to_numpy(x: Any) -> Any:
    return weft.tensor(x.numpy()) + x  # here


def array_of(x: Any) -> Any:
    return x + np.asarray(x)  # here


CAPTURE = [
    Mistake(to_numpy, (f3,), CaptureError, "numpy: needs a value that is known while", ("x is f32[3]",)),
    Mistake(array_of, (f3,), CaptureError, "", ("x is f32[3]",)),
]
