"""Named sizes in captured code: what Python asks of them, a run answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ShapeError

BATCH = weft.TensorType(("n", 2), weft.float32)


def compared(x: Any) -> Any:
    n = x.shape[0]
    return x.sum() * 2 if n > 2 else x.sum() - n


def compared_from_the_left(x: Any) -> Any:
    total = x.sum()
    if len(x) >= 2 and len(x) <= 3:
        total = total + 10
    if 1 < x.shape[0] <= 3:
        total = total + 100
    return total


def equal(x: Any) -> Any:
    if x.shape[0] == 1:
        return x[0].sum() * 100
    if x.shape[0] != 3:
        return x.sum()
    return -x.sum()


def truth(x: Any) -> Any:
    n = len(x)
    y = x.sum() if n else x.sum() - 7
    return y * 3 if not n else y


def halved(x: Any) -> Any:
    n, steps = x.shape[0], 0
    while n > 1:
        n = n // 2
        steps += 1
    return x.sum() + steps


def least_and_greatest(x: Any) -> Any:
    return x.sum() + min(x.shape[0], 3) * 10 + max(len(x), 2) * 100


def counted(x: Any) -> Any:
    i, s = 0, x.sum() * 0
    while i < len(x):
        s = s * 0.5 + x[i].sum()
        i += 1
    return s if isinstance(x.shape[0], int) else s * 0


def joined(x: Any) -> Any:
    n = x.shape[0]
    if x.sum() > 1:
        n = 2
    return x.sum() * n


def against_a_float(x: Any) -> Any:
    return x.sum() * 2 if x.shape[0] > 2.5 else x.sum()


def in_a_loop(x: Any) -> Any:
    s = x.sum() * 0
    for i in range(4):
        if i < x.shape[0]:
            s = s + i
    return s


PROGRAMS = [
    compared,
    compared_from_the_left,
    equal,
    truth,
    halved,
    least_and_greatest,
    counted,
    joined,
    against_a_float,
    in_a_loop,
]


@pytest.mark.rotating(3)
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_one_graph_serves_all_sizes(f: Callable[..., Any]) -> None:
    graph = weft.make_graph(f)(BATCH)
    optimised = graph.optimize()
    for n in (1, 2, 3, 4, 6):
        x = np.random.default_rng(n).normal(size=(n, 2)).astype(np.float32)
        expected = f(weft.tensor(x)).numpy()
        for way in (graph, optimised):
            (found,) = weft.tree_leaves(way(weft.tensor(x)))
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_what_holds_for_all_sizes_stays_plain() -> None:
    def f(x: Any) -> Any:
        return x.sum() if x.shape[0] >= 0 and x.shape[0] + 1 > x.shape[0] else x * 0

    assert [n.op.name for n in weft.make_graph(f)(BATCH).nodes] == ["sum"]


def test_outside_of_captured_code_it_is_an_error() -> None:
    with weft.Graph("f"):
        x = weft.placeholder("x", ("n", 2))
        with pytest.raises(ShapeError, match="must be known here, got n in n > 2"):
            bool(x.shape[0] > 2)
        assert x.shape[0] != 2
