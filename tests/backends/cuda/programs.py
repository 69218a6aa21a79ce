"""Small programs for a card, which between them have every kind of kernel and of step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

import weft
import weft.nn.functional as F
from weft import nn


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    """A tensor of random numbers."""
    return weft.tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def whole(*numbers: int) -> Any:
    """A tensor of whole numbers."""
    return weft.tensor(np.array(numbers))


def layer_norm_gradients(x: Any, w: Any, b: Any, dy: Any) -> Any:
    """The gradients of layer normalisation by all that it is given, along a direction."""
    _, pull = weft.vjp(lambda *given: F.layer_norm(given[0], (x.shape[-1],), *given[1:]), x, w, b)
    return pull(dy)


def network(sizes: Sequence[int]) -> Any:
    """Three layers of such sizes."""
    first, second, third = (nn.Linear(a, b) for a, b in pairwise(sizes))
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)


def halve(x: Any) -> Any:
    """A loop whose end the numbers decide."""
    return weft.while_loop(lambda x: (x > 1.0).any(), lambda x: x / 2.0, x)


def smooth(x: Any) -> Any:
    """A loop along an array, that carries a row and a number."""
    (row, count), sums = weft.scan(
        lambda carry, r: ((carry[0] * 0.5 + r, carry[1] + 1.0), carry[0].sum() * carry[1]),
        (x[0], weft.tensor(0.0)), x,
    )  # fmt: skip
    return row, count, sums


def choose(x: Any) -> Any:
    """A branch on a number of the device."""
    return weft.cond(x.sum() > 0.0, lambda x: x * 2.0, lambda x: x - 1.0, x)


PROGRAMS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "elements": (lambda x: weft.tanh(x) * 2.0, [normal(7, 33)]),
    "elements in vectors": (lambda x, y: x * y + 1.0, [normal(5, 64), normal(5, 64, seed=1)]),
    "rows broadcast": (lambda x, y: x + y, [normal(50, 40), normal(40)]),
    "transposed": (lambda x, y: x.T + y, [normal(6, 8), normal(8, 6)]),
    "softmax of short rows": (lambda x: F.softmax(x, axis=-1), [normal(6, 12)]),
    "softmax of odd rows": (lambda x: F.softmax(x, axis=-1), [normal(7, 33)]),
    "softmax in vectors": (lambda x: F.softmax(x, axis=-1), [normal(3, 512)]),
    "half precision": (lambda x: F.softmax(x.astype(weft.float16), axis=-1), [normal(4, 32)]),
    "bfloat16": (lambda x: F.gelu(x.astype(weft.bfloat16)), [normal(4, 16)]),
    "double": (lambda x: weft.exp(x.astype(weft.float64)).sum(axis=1), [normal(4, 16)]),
    "layer norm, gradients": (
        layer_norm_gradients, [normal(9, 128), normal(128), normal(128), normal(9, 128, seed=2)],
    ),
    "sum of columns": (lambda x: x.sum(axis=0), [normal(50, 40)]),
    "sum of the middle": (lambda x: x.sum(axis=1), [normal(5, 40, 3)]),
    "sum of all": (lambda x: (x * x).sum(), [normal(50, 40)]),
    "mean, then elements": (lambda x: x - x.mean(), [normal(5, 40)]),
    "place of the largest": (lambda x: weft.argmax(x, axis=1), [normal(3, 50)]),
    "any of truth values": (lambda x: (x > 2.0).any(axis=1), [normal(3, 50)]),
    "running sum": (lambda x: weft.cumsum(x, axis=1), [normal(3, 8)]),
    "running sum of a long line": (lambda x: weft.cumsum(x, axis=1), [normal(1, 600)]),
    "sorted": (lambda x: weft.sort(x, axis=1), [normal(3, 8)]),
    "looked up": (lambda x, i: x[i].sum(axis=1), [normal(6, 8), whole(5, 0, -1, 3)]),
    "scattered": (lambda x, i: weft.scatter_add(weft.zeros(9), 0, i, x), [normal(4), whole(2, 2, 7, 0)]),
    "product": (lambda x: x @ x.T, [normal(20, 8)]),
    "product of several chunks": (lambda x, y: weft.relu(x @ y.T) + 1.0, [normal(9, 402), normal(10, 402)]),
    "product of few rows": (lambda x, y: x @ y, [normal(3, 9), normal(9, 4)]),
    "functions": (lambda x: weft.sin(x) + weft.log(weft.abs(x)) + weft.abs(x) ** 2.5, [normal(4, 32) * 10]),
    "whole numbers": (lambda i: i // 3 + i % 5 - (i << 2), [whole(5, -7, 0, 12, -1)]),
    "while": (halve, [normal(5) * 9]),
    "scan": (smooth, [normal(5, 8)]),
    "branch taken": (choose, [normal(4) + 5.0]),
    "branch not taken": (choose, [normal(4) - 5.0]),
}  # fmt: skip
