"""Parts of sums that are taken before the sum: what kernels of a recurrent cell are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.backends.cuda.emulated import emulated
from weft.backends.cuda.build import build_program
from weft.backends.cuda.program import Launch
from weft.passes.lowering.early_parts import early_parts


def rand(*shape: int, seed: int = 0) -> Any:
    return weft.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def cell(x: Any, h: Any, b: Any, c: Any) -> Any:
    i, f, g, o = (x + h + b).chunk(4, 1)
    c = weft.sigmoid(f) * c + weft.sigmoid(i) * weft.tanh(g)
    return weft.sigmoid(o) * weft.tanh(c), c


GIVEN = rand(3, 16), rand(3, 16, seed=1), rand(16, seed=2), rand(3, 4, seed=3)


def graph_of(function: Any, *given: Any) -> Any:
    return weft.make_graph(function)(*given).optimize()


def test_a_cell_is_one_kernel_with_the_values_of_the_host() -> None:
    graph = graph_of(cell, *GIVEN)
    assert [s.grid for s in build_program(graph).steps if isinstance(s, Launch)] == [1]
    for ours, theirs in zip(early_parts(graph)(*GIVEN), cell(*GIVEN), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-6)
    with emulated() as card:
        found = weft.compile(cell)(*[x.cuda() for x in GIVEN])
        for ours, theirs in zip(found, cell(*GIVEN), strict=True):
            np.testing.assert_allclose(ours.cpu().numpy(), theirs.numpy(), rtol=1e-6, atol=1e-6)
        assert not card.errors


def test_parts_in_the_body_of_a_loop() -> None:
    def steps(xs: Any, b: Any, c: Any) -> Any:
        def one(c: Any, x: Any) -> Any:
            h, c = cell(x, x * 2.0, b, c)
            return c, h

        return weft.scan(one, c, xs)

    given = rand(5, 3, 16), GIVEN[2], GIVEN[3]
    graph = graph_of(steps, *given)
    made = early_parts(graph)
    assert made is not graph
    for ours, theirs in zip(made(*given), steps(*given), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: ((x + y)[::-1, 1::3] * 2.0, weft.tanh((x * y)[:, 3:4])),  # steps, and one column
        lambda x, y: weft.exp((x + y[:1])[1:, 2:7]),  # what is broadcast stays
        lambda x, y: weft.exp((x + 1.0)[1:]) * y[1:],  # a number has no parts
        lambda x, y: weft.exp(weft.sin(weft.cos(x) * y)[:2]),  # through several of them
    ],
)
def test_values_stay(function: Any) -> None:
    given = rand(4, 8), rand(4, 8, seed=1)
    graph = graph_of(function, *given)
    made = early_parts(graph)
    assert made is not graph
    found, wanted = made(*given), function(*given)
    for ours, theirs in zip(*[x if isinstance(x, tuple) else (x,) for x in (found, wanted)], strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x + y, weft.exp((x + y)[:2])),  # the whole is a result
        lambda x, y: weft.exp((x + y)[:3]).sum() + weft.exp((x + y)[1:]).sum(),  # more than the whole
        lambda x, y: (x + y)[:2] @ y.T,  # no kernel that the sum could be in
        lambda x, y: (x + y)[:2],
        lambda x, y: weft.exp((x @ y.T)[:2]),  # not element by element
    ],
)
def test_other_parts_are_taken_late(function: Any) -> None:
    graph = graph_of(function, rand(4, 8), rand(4, 8, seed=1))
    assert early_parts(graph) is graph
