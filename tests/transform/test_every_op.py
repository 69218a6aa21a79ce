"""Transforms of transforms on every op: what ``vmap`` makes of derivatives, and of itself.

A run takes the first smooth sample of each op, and a third of the second and third ones, another third
whenever weft's code is another; ``WEFT_ALL=1`` takes all three.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.ops import checks
from weft.ops.op import NoGradient, Op

EXAMPLES = 2


def _is_smooth(entry: checks.Entry) -> bool:
    if isinstance(entry.op, Op) and isinstance(entry.op.vjp, NoGradient):
        return False
    wide = all(entry.sample.inputs[i].dtype in (np.float64, np.complex128) for i in entry.differentiable)
    return entry.sample.smooth and bool(entry.differentiable) and wide


def _rows() -> list[checks.Entry]:
    """The smooth samples of every op, at most three of each."""
    rows: list[checks.Entry] = []
    counts: dict[str, int] = {}
    for entry in checks.entries():
        if _is_smooth(entry) and counts.get(entry.name, 0) < 3:
            counts[entry.name] = counts.get(entry.name, 0) + 1
            rows.append(entry)
    return rows


every_op = checks.over(_rows(), parts=3)


def stacked(make: Callable[[int], list[Any]]) -> list[Any]:
    """Arrays of several examples, each along a new first axis."""
    return [np.stack(column) for column in zip(*[make(i) for i in range(EXAMPLES)], strict=True)]


def loop(f: Callable[..., Any], batches: list[Any]) -> list[Any]:
    """What f gives for each example, stacked."""
    runs = [checks.values(f(*checks.tensors([b[i] for b in batches]))) for i in range(EXAMPLES)]
    return [np.stack(column) for column in zip(*runs, strict=True)]


def assert_equal_to_loop(f: Callable[..., Any], batches: list[Any]) -> None:
    for actual, expected in zip(weft.vmap(f)(*checks.tensors(batches)), loop(f, batches), strict=True):
        np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-7, atol=1e-9)


def examples(arrays: list[Any]) -> list[Any]:
    return stacked(lambda i: [a * (1 + 0.01 * i) for a in arrays])


@pytest.mark.rotating(3)
@every_op
def test_directions_of_both_modes_map_over_a_batch(entry: checks.Entry) -> None:
    f, arrays = checks.restricted(entry)
    primals = checks.tensors(arrays)
    outs, pull = weft.vjp(f, *primals)
    tangents = stacked(lambda i: checks.direction(arrays, seed=i))
    gradients = stacked(lambda i: checks.direction(checks.values(outs), seed=i + 10))
    assert_equal_to_loop(lambda *ts: weft.jvp(f, primals, ts)[1], tangents)
    if gradients:  # some composites give truth values alone
        assert_equal_to_loop(lambda *gs: pull(gs), gradients)


@pytest.mark.rotating(3)
@every_op
def test_derivatives_of_examples_map_over_a_batch(entry: checks.Entry) -> None:
    f, arrays = checks.restricted(entry)
    tangents = checks.tensors(checks.direction(arrays, seed=0))
    gradients = tuple(checks.tensors(checks.direction(checks.values(f(*checks.tensors(arrays))), seed=10)))
    assert_equal_to_loop(lambda *xs: weft.jvp(f, xs, tangents)[1], examples(arrays))
    assert_equal_to_loop(lambda *xs: weft.vjp(f, *xs)[1](gradients), examples(arrays))


@pytest.mark.rotating(3)
@every_op
def test_derivatives_go_through_a_batch(entry: checks.Entry) -> None:
    """The derivative of vmap is vmap of the derivative."""
    f, arrays = checks.restricted(entry)
    batches = checks.tensors(examples(arrays))
    tangents = checks.tensors(checks.direction(checks.values(batches), seed=0))
    outer = weft.jvp(weft.vmap(f), batches, tangents)[1]
    inner = weft.vmap(lambda xs, ts: weft.jvp(f, xs, ts)[1])(tuple(batches), tuple(tangents))
    outs, pull = weft.vjp(weft.vmap(f), *batches)
    gradients = tuple(checks.tensors(checks.direction(checks.values(outs), seed=10)))
    grads = weft.vmap(lambda xs, gs: weft.vjp(f, *xs)[1](gs))(tuple(batches), gradients)
    for actual, expected in zip((*outer, *pull(gradients)), (*inner, *grads), strict=True):
        np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-7, atol=1e-9)


@pytest.mark.rotating(3)
@every_op
def test_vmap_of_vmap_equals_loops(entry: checks.Entry) -> None:
    f, arrays = checks.restricted(entry)
    grid = [np.stack([b, b * 1.02], axis=b.ndim) for b in examples(arrays)]  # the outer examples last
    actual = weft.vmap(weft.vmap(f), in_axes=-1)(*checks.tensors(grid))
    for k in range(2):
        expected = loop(f, [g[..., k] for g in grid])
        for a, e in zip(actual, expected, strict=True):
            np.testing.assert_allclose(a.numpy()[k], e, rtol=1e-7, atol=1e-9)
